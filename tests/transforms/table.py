"""The tables of docs/reference/transformations.md, made from the rows that are tested.

    python -m tests.transforms.table

writes them into the page. The tests compare: what a row says is what
tests/transforms/test_matrix.py asserts, so the page says what was found.
"""

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

from . import rows_autodiff, rows_loops, rows_programs
from .row import NO_QUESTION, Row

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "transformations.md"
BEGIN, END = "<!-- begin: tests/transforms/table.py -->", "<!-- end -->"

ROWS: list[Row] = [  # in the order of the page
    *rows_programs.ROWS,
    *rows_autodiff.ROWS,
    *rows_loops.LOOPS,
    *rows_loops.BATCHING,
    *rows_loops.CALLBACKS,
]
HEAD = (
    "| | first call | equal statics | another static | forward | gradient |",
    "|---|---|---|---|---|---|",
)


def main() -> None:
    PAGE.write_text(made(PAGE.read_text()))


def made(page: str) -> str:
    """Return the page with the tables as they have to be."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables(ROWS)}\n{END}{after}"


def tables(rows: Sequence[Row]) -> str:
    parts: list[str] = []
    for group, members in itertools.groupby(rows, lambda row: row.group):
        parts += [f"## {group}", "\n".join([*HEAD, *map(_line, members)])]
    return "\n\n".join(parts)


def _line(row: Row) -> str:
    name = row.name + (f"<br>*{row.note}*" if row.note else "")
    oldest = row.oldest_traces or row.traces
    traces = [
        now if now == before else f"{now} (before JAX 0.11: {before})"
        for now, before in zip(row.traces, oldest, strict=True)
    ]
    cells = [name, *traces, _derivative(row.forward), _derivative(row.reverse)]
    return f"| {' | '.join(cells)} |"


def _derivative(refused: str) -> str:
    if refused == NO_QUESTION:
        return "not tried"
    return f"no: “{refused}”" if refused else "yes"


if __name__ == "__main__":
    sys.exit(main())
