"""All rows of the matrix, in the order of the page."""

from . import rows_autodiff, rows_loops, rows_programs
from .row import Row

ROWS: list[Row] = [
    *rows_programs.ROWS,
    *rows_autodiff.ROWS,
    *rows_loops.LOOPS,
    *rows_loops.BATCHING,
    *rows_loops.CALLBACKS,
]
