"""A picture as lines of text: what stands where, and in which role."""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from leafwise._display.measure import Totals
from leafwise._display.rows import Kind, Row
from leafwise._display.words import count, size

_LEAST_ROOM: Final = 24
"""Columns that a row has however deep it is, even if it gets longer than the width."""


class Span(NamedTuple):
    """A text and its role, which decides on its colour.

    Attributes:
        role: ``name``, ``node``, ``leaf``, ``static``, ``problem``, ``note``, ``guide``,
            ``size`` or nothing.
        text: The text.
    """

    role: str
    text: str


class Glyphs(NamedTuple):
    """The characters that lines are made of."""

    branch: str
    end: str
    passing: str
    more: str


BOXES: Final = Glyphs("├─ ", "└─ ", "│  ", "…")
ASCII: Final = Glyphs("|- ", "`- ", "|  ", "...")


def spans_of(row: Row, more: str = "…") -> list[Span]:
    """Return what a row says, from its name on."""
    name = row.step.removeprefix(".")
    found: list[Span] = []
    if row.kind is Kind.ELIDED:
        return [Span("note", ", ".join((f"{more} {row.text}", *row.notes)))]
    if name:
        found = [Span("name", name), Span("", " = " if row.kind is Kind.STATIC else ": ")]
    found.append(Span(row.kind.value, row.text))
    if row.notes:
        role = "problem" if row.kind is Kind.PROBLEM else "note"
        found += [Span("", "  "), Span(role, ", ".join(row.notes))]
    return found


def exact(totals: Totals) -> str:
    """Return ``1,310,720 bytes``, and how many leaves are not in it."""
    words = count(totals.nbytes, "byte")
    return f"{words}, {totals.unknown:,} of unknown size" if totals.unknown else words


def size_of(row: Row) -> str:
    """Return what stands in the column on the right."""
    if row.totals is None:
        return "static"
    if not row.totals.leaves:
        return ""
    known, unknown = row.totals.nbytes, row.totals.unknown
    return " + ".join([size(known)] * (known > 0 or not unknown) + ["?"] * (unknown > 0))


def guides_of(rows: Iterable[Row], glyphs: Glyphs) -> Iterator[str]:
    """Yield what stands before each row, to show what it belongs to."""
    passing: list[str] = []
    for row in rows:
        del passing[max(row.depth - 1, 0) :]
        yield "".join(passing) + (glyphs.end if row.last else glyphs.branch) * (row.depth > 0)
        if row.depth:
            passing.append(" " * len(glyphs.passing) if row.last else glyphs.passing)


def lines_of(rows: Sequence[Row], width: int, glyphs: Glyphs) -> Iterator[list[Span]]:
    """Yield a line for each row, that fit into `width` columns where possible."""
    if glyphs is ASCII:
        rows = [_in_ascii(row) for row in rows]
    sizes = [size_of(row) for row in rows]
    widest = max(map(len, sizes))
    lines: list[list[Span]] = []
    for row, guides in zip(rows, guides_of(rows, glyphs), strict=True):
        room = max(width - len(guides) - widest - 2, _LEAST_ROOM)
        lines.append(
            [Span("guide", guides), *fitted(spans_of(row, glyphs.more), room, glyphs.more)]
        )
    left = [sum(cells(span.text) for span in line) for line in lines]
    column = max(left) + 2 + widest
    for row, line, taken, text in zip(rows, lines, left, sizes, strict=True):
        gap = " " * (column - taken - len(text))
        role = "static" if row.kind is Kind.STATIC else "size"
        yield [*line, Span("", gap), Span(role, text)] if text else line


def _in_ascii(row: Row) -> Row:
    step, text, *notes = (
        text.encode("ascii", "backslashreplace").decode()
        for text in (row.step, row.text, *row.notes)
    )
    return row._replace(step=step, text=text, notes=tuple(notes))


def fitted(spans: Sequence[Span], room: int, more: str) -> list[Span]:
    """Return spans that take no more than `room` columns."""
    if sum(cells(span.text) for span in spans) <= room:
        return list(spans)
    room -= len(more)
    kept: list[Span] = []
    for role, text in spans:
        fits = _start(text, room)
        kept.append(Span(role, fits if fits == text else fits + more))
        if fits != text:
            break
        room -= cells(text)
    return kept


def _start(text: str, room: int) -> str:
    if cells(text) <= room:
        return text
    taken = 0
    for place, char in enumerate(text):
        taken += cells(char)
        if taken > room:
            return text[:place]
    return text


def cells(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_cells_of, text))


def _cells_of(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
