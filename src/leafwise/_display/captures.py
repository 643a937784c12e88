"""What functions capture, as text: the table that `lw.captures` prints, and the stale calls."""

from collections.abc import Iterable, Iterator
from typing import Final

from leafwise._findings.records import CapturesRecord
from leafwise._findings.words import clean, count, cut, size

_COLUMNS: Final = ("name", "treatment", "bytes", "value", "where")
_MOST_ROWS: Final = 200
_LONGEST: Final = 200
_LARGE: Final = 2**20  # from this many bytes on there is a warning


def captures_lines(captured: CapturesRecord) -> Iterator[str]:
    """Yield a table of what a function closes over, then the bytes and a warning."""
    name, own = clean(captured.function), len(captured.captures)
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for capture in captured.captures[:_MOST_ROWS]:
        nbytes = size(capture.nbytes) if capture.nbytes else ""
        rows.append((capture.name, capture.treatment, nbytes, capture.value, capture.where))
    rows = [tuple(cut(text, _LONGEST) for text in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows if own else ():
        padded = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        padded[2] = row[2].rjust(widths[2])
        yield "  ".join(padded).rstrip()
    if not own:
        yield f"{name} captures nothing"
    if own > _MOST_ROWS:
        yield f"and {count(own - _MOST_ROWS, 'more capture')}"
    if captured.nbytes:
        yield f"captured arrays of {name}: {size(captured.nbytes)}"
    if captured.nbytes >= _LARGE:
        yield (
            f"warning: {size(captured.nbytes)} of captured arrays are kept by every program of "
            f"{name}: pass them as arguments"
        )


def stale_calls(several: Iterable[CapturesRecord]) -> Iterator[tuple[str, str]]:
    """Yield each call that used an old value of a capture, and what it used, with the fix."""
    for captured in several:
        for stale in captured.stale:
            texts = stale.name, stale.before, stale.after
            path, before, after = (cut(text, _LONGEST) for text in texts)
            read = f" (read at {clean(stale.line)})" if stale.line else ""
            used = f"{clean(captured.function)} used {path} = {before}"
            yield stale.call, f"{used}, which was {after} by then{read}: pass it as an argument"


def stale_lines(captured: CapturesRecord) -> Iterator[str]:
    """Yield a line for each call that used an old value of a capture."""
    calls = list(stale_calls([captured]))
    for call, text in calls[:_MOST_ROWS]:
        yield f"stale: {clean(call)}: {text}"
    if len(calls) > _MOST_ROWS:
        yield f"and {count(len(calls) - _MOST_ROWS, 'more stale call')}"
