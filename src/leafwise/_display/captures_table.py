"""What a function closes over, as a table of text.

This module must stay importable without rich: ``str(leafwise.captures(step))`` works without
extras. Hence it is apart from `tables`, which imports it.
"""

from collections.abc import Iterator
from typing import Final

from leafwise._display.report import CaptureRecord, CapturesRecord
from leafwise._display.words import clean, count, cut, size

TITLES: Final = ("name", "treatment", "bytes", "value", "where")
_MOST_ROWS: Final = 200
_LONGEST: Final = 200
_LARGE: Final = 2**20
"""From so many bytes on there is a warning."""


def format_lines(captured: CapturesRecord) -> Iterator[str]:
    """Yield the table as lines of text, and what stands below it."""
    table = [TITLES, *map(_row, captured.captures[:_MOST_ROWS])]
    if len(table) > 1:
        widths = [max(len(row[column]) for row in table) for column in range(len(TITLES))]
        for row in table:
            padded = [
                text.rjust(width) if title == "bytes" else text.ljust(width)
                for text, width, title in zip(row, widths, TITLES, strict=True)
            ]
            yield "  ".join(padded).rstrip()
    yield from footer_lines(captured)


def _row(capture: CaptureRecord) -> tuple[str, ...]:
    nbytes = size(capture.nbytes) if capture.nbytes else ""
    texts = capture.name, capture.treatment, nbytes, capture.value, capture.where
    return tuple(cut(text, _LONGEST) for text in texts)


def footer_lines(captured: CapturesRecord) -> Iterator[str]:
    """Yield the lines below the table: the bytes, and a warning."""
    name, own = clean(captured.function), len(captured.captures)
    if not own:
        yield f"{name} captures nothing"
    if own > _MOST_ROWS:
        yield f"and {count(own - _MOST_ROWS, 'more capture')}"
    nbytes = captured.nbytes
    if nbytes:
        yield f"captured arrays of {name}: {size(nbytes)}"
    if nbytes >= _LARGE:
        yield (
            f"warning: {size(nbytes)} of captured arrays are kept by every program of {name}: "
            f"pass them as arguments"
        )


def stale_lines(captured: CapturesRecord) -> Iterator[str]:
    """Yield a line for each call that was answered for an old value."""
    calls = captured.stale
    name = clean(captured.function)
    for stale in calls[:_MOST_ROWS]:
        path, before, after = (
            cut(text, _LONGEST) for text in (stale.name, stale.before, stale.after)
        )
        read = f" (read at {clean(stale.line)})" if stale.line else ""
        yield (
            f"stale: {clean(stale.call)}: {name} was answered for {path} = {before}, "
            f"which was {after} by then{read}: pass it as an argument"
        )
    if len(calls) > _MOST_ROWS:
        yield f"and {count(len(calls) - _MOST_ROWS, 'more stale call')}"
