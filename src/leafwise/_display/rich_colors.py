"""What rich prints in colour."""

from collections.abc import Iterable, Iterator
from typing import Final

from rich.text import Text

from leafwise._display.lines import Span

_STYLES: Final = {
    "name": "bold",
    "node": "cyan",
    "leaf": "green",
    "static": "magenta",
    "problem": "red",
    "note": "dim",
    "guide": "dim",
    "size": "",
}


def colored(lines: Iterable[list[Span]]) -> Iterator[Text]:
    """Yield the lines of a diagram in colour.

    Args:
        lines: The lines, as `leafwise.types.Diagram` lays them out.

    Yields:
        One `rich.text.Text` a line; whether colours show is for rich's console to say.
    """
    for line in lines:
        styled = [(span.text, _STYLES.get(span.role, "")) for span in line]
        yield Text.assemble(*styled, no_wrap=True, overflow="ignore")
