"""The page about transformations says what the matrix tests."""

from collections import Counter

from .matrix import ROWS
from .table import PAGE, made, tables


def test_the_page_is_that_of_the_rows() -> None:
    """The tables are those that the rows make: `python -m tests.transforms.table` writes them."""
    page = PAGE.read_text()
    assert page == made(page)


def test_a_row_that_changes_is_seen() -> None:
    """Each number and note of a row stands in the tables, and no two rows share a line."""
    lines = Counter(line for line in tables(ROWS).splitlines() if line.startswith("| `"))
    assert len(lines) == len(ROWS)
    assert len({row.key for row in ROWS}) == len(ROWS)
    for row, line in zip(ROWS, lines, strict=True):
        facts = [row.name, row.note, *row.traces_here(), row.forward, row.reverse]
        assert all(fact.strip("-") in line for fact in facts)
