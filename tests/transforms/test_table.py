"""The page about transformations says what the matrix tests."""

from .table import PAGE, made


def test_the_page_is_that_of_the_rows() -> None:
    """The tables are those that the rows make: `python -m tests.transforms.table` writes them."""
    page = PAGE.read_text()
    assert page == made(page)
