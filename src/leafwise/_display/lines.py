"""A diagram as lines of text: spans, each with the role that decides on its colour."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from leafwise._display.rows import Kind, Row, Totals
from leafwise._display.words import count, size

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


def exact_size(totals: Totals) -> str:
    """Return ``1,310,720 bytes``, and how many leaves are not in it."""
    text = count(totals.nbytes, "byte")
    return f"{text}, {totals.unknown:,} of unknown size" if totals.unknown else text


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
