"""`show`: a tree of any library as a diagram of text."""

import dataclasses
import operator
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from leafwise._display.rows import Kind, Row, rows_of
from leafwise._display.words import size
from leafwise._objects.text import got

_COLUMNS: Final = 80
_NARROWEST: Final = 20


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Diagram:
    """A tree, drawn: what `leafwise.show` returns.

    ``print`` it, or give it to ``rich.print`` for colours. It holds texts and numbers only,
    nothing of the tree itself.

    Attributes:
        nbytes: The bytes of all arrays of the tree, of each array once.
        leaves: How many leaves the tree has.
    """

    nbytes: int
    leaves: int
    _rows: tuple[Row, ...]
    _width: int | None

    def text(self, *, width: int | None = None, ascii: bool = False) -> str:  # noqa: A002
        """Return the diagram as lines of plain text.

        Args:
            width: The columns to fit into, where possible; those of the terminal, else 80,
                if neither this nor ``show(width=)`` is given.
            ascii: Whether to do without box characters and other letters than ASCII's.

        Returns:
            The text, without a newline at its end.

        Examples:
            >>> print(show([1.0, 2.0]).text(ascii=True))
            list of 2  2 leaves                            8 B
            |- [0]: float32[]  Python float 1.0, weak type  4 B
            `- [1]: float32[]  Python float 2.0, weak type  4 B
        """
        glyphs = ASCII if ascii else BOXES
        if width is not None:
            columns = _checked("text", "width", width, _NARROWEST)
        else:
            columns = self._width or shutil.get_terminal_size((_COLUMNS, 24)).columns
        lines = lines_of(self._rows, columns, glyphs)
        return "\n".join("".join(span.text for span in line) for line in lines)

    def __str__(self) -> str:
        """Return the text, in characters that standard output can show."""
        encoding: str = getattr(sys.stdout, "encoding", None) or "utf-8"
        try:
            "".join(BOXES).encode(encoding)
        except UnicodeEncodeError:
            return self.text(ascii=True)
        return self.text().encode(encoding, "backslashreplace").decode(encoding)

    def __repr__(self) -> str:
        """Return the text, so that a prompt shows the diagram."""
        return str(self)

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        """Yield lines in colour, which rich asks for."""
        from rich.text import Text  # noqa: PLC0415  # rich asks, so rich is there

        glyphs = ASCII if options.ascii_only else BOXES
        for line in lines_of(self._rows, self._width or options.max_width, glyphs):
            styled = [(span.text, _RICH_STYLES.get(span.role, "")) for span in line]
            yield Text.assemble(*styled, no_wrap=True, overflow="ignore")


_RICH_STYLES: Final = {
    "name": "bold",
    "node": "cyan",
    "leaf": "green",
    "static": "magenta",
    "problem": "red",
    "note": "dim",
    "guide": "dim",
}


def show(
    tree: Any, /, *, depth: int | None = None, children: int = 24, width: int | None = None
) -> Diagram:
    """Draw any pytree: its classes, its leaves and statics, and the bytes of each branch.

    Takes nodes of any library, abstract values and tracers. Neither the data of arrays is
    read, nor are they moved. An array that stands in several places is counted once, at
    the first of them, so that the bytes of a branch are the sum of those below it. A number
    of Python counts as the array that JAX makes of it.

    Args:
        tree: The pytree.
        depth: How many levels to show below the root. By default as many as make no more
            than 400 rows, and at most 20.
        children: How many children of one node to show: the first ones and the last ones.
        width: The columns of the text, where possible; by default those of the terminal.

    Returns:
        The diagram.

    Raises:
        TypeError: `depth`, `children` or `width` is not an integer.
        ValueError: One of them is too small.

    Examples:
        >>> @pytree
        ... class Linear:
        ...     w: jax.Array
        ...     act: str = static_field(default="relu")
        >>> print(show({"first": Linear(jnp.zeros((2, 3)))}).text(width=60))
        dict of 1  1 leaf         24 B
        └─ ['first']: Linear      24 B
           ├─ w: float32[2,3]     24 B
           └─ act = 'relu'      static
    """
    if depth is not None:
        depth = _checked("show", "depth", depth, 0)
    if width is not None:
        width = _checked("show", "width", width, _NARROWEST)
    rows = tuple(rows_of(tree, depth, _checked("show", "children", children, 2)))
    totals = rows[0].totals
    nbytes, _, leaves = totals or (0, 0, 0)
    return Diagram(nbytes, leaves, rows, width)


def _checked(function: str, name: str, value: Any, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{function}({name}=) takes an integer, got {got(value)}") from None
    if number < least:
        raise ValueError(f"{function}({name}={number}): it must be {least} or more")
    return number


# As lines of text: spans, each with the role that decides on its colour.

_LEAST_ROOM: Final = 24
"""Columns that a row has at any depth, even if the line gets longer than the width."""


class Span(NamedTuple):
    """A text and its role, which decides on its colour."""

    role: str
    text: str


class Glyphs(NamedTuple):
    """The characters that guides are drawn with."""

    branch: str
    end: str
    line: str
    more: str


BOXES: Final = Glyphs("├─ ", "└─ ", "│  ", "…")
ASCII: Final = Glyphs("|- ", "`- ", "|  ", "...")


def spans_of(row: Row, more: str = "…") -> list[Span]:
    """Return the text of a row, without guides and size."""
    if row.kind is Kind.ELIDED:
        return [Span("note", ", ".join((f"{more} {row.text}", *row.notes)))]
    spans: list[Span] = []
    if name := row.step.removeprefix("."):
        spans = [Span("name", name), Span("", " = " if row.kind is Kind.STATIC else ": ")]
    spans.append(Span(row.kind.value, row.text))
    if row.notes:
        role = "problem" if row.kind is Kind.PROBLEM else "note"
        spans += [Span("", "  "), Span(role, ", ".join(row.notes))]
    return spans


def size_of(row: Row) -> str:
    """Return the text of the column on the right."""
    if row.totals is None:
        return "static"
    if not row.totals.leaves:
        return ""
    known, unknown = row.totals.nbytes, row.totals.unknown
    return " + ".join([size(known)] * (known > 0 or not unknown) + ["?"] * (unknown > 0))


def _guides_of(rows: Iterable[Row], glyphs: Glyphs) -> Iterator[str]:
    """Yield the guides in front of each row, which lead to it from the node above."""
    above: list[str] = []  # for each level above, a line if more of its children follow
    for row in rows:
        del above[max(row.depth - 1, 0) :]
        yield "".join(above) + (glyphs.end if row.last else glyphs.branch) * (row.depth > 0)
        if row.depth:
            above.append(" " * len(glyphs.line) if row.last else glyphs.line)


def lines_of(rows: Sequence[Row], width: int, glyphs: Glyphs) -> Iterator[list[Span]]:
    """Yield a line for each row; they fit into `width` columns where possible."""
    if glyphs is ASCII:
        rows = [_in_ascii(row) for row in rows]
    sizes = [size_of(row) for row in rows]
    widest = max(map(len, sizes))
    lines: list[list[Span]] = []
    for row, guides in zip(rows, _guides_of(rows, glyphs), strict=True):
        room = max(width - len(guides) - widest - 2, _LEAST_ROOM)
        lines.append(
            [Span("guide", guides), *_fitted(spans_of(row, glyphs.more), room, glyphs.more)]
        )
    taken = [sum(len(span.text) for span in line) for line in lines]
    right = max(taken) + 2 + widest
    for row, line, columns, text in zip(rows, lines, taken, sizes, strict=True):
        gap = " " * (right - columns - len(text))
        role = "static" if row.kind is Kind.STATIC else "size"
        yield [*line, Span("", gap), Span(role, text)] if text else line


def _in_ascii(row: Row) -> Row:
    step, text, *notes = (
        text.encode("ascii", "backslashreplace").decode()
        for text in (row.step, row.text, *row.notes)
    )
    return row._replace(step=step, text=text, notes=tuple(notes))


def _fitted(spans: Sequence[Span], room: int, more: str) -> list[Span]:
    """Return spans that take no more than `room` columns."""
    if sum(len(span.text) for span in spans) <= room:
        return list(spans)
    room -= len(more)
    kept: list[Span] = []
    for role, text in spans:
        fits = len(text) <= room
        kept.append(Span(role, text if fits else text[:room] + more))
        if not fits:
            break
        room -= len(text)
    return kept
