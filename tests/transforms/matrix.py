"""All rows of the matrix, in the order of the page."""

from . import rows_autodiff, rows_batching, rows_host, rows_loops, rows_programs
from .row import Row

ROWS: list[Row] = [
    *rows_programs.ROWS,
    *rows_autodiff.ROWS,
    *rows_loops.ROWS,
    *rows_batching.ROWS,
    *rows_host.ROWS,
]
