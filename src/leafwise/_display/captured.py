"""What a function closes over, as a table of text and of HTML, and what stands below it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from leafwise._display.html import code, headings, safe
from leafwise._display.html import rows as html_rows
from leafwise._display.shape import Captured, CapturedValue
from leafwise._display.words import clean, count, cut, size

MOST_CAPTURES: Final = 200
TITLES: Final = ("name", "treatment", "bytes", "value", "where")
_LONGEST: Final = 200
_MOST_NAMES: Final = 8


def lines(captured: Captured) -> Iterator[str]:
    """Yield the table as lines of text, and what stands below it."""
    table = [TITLES, *cells(captured)]
    if len(table) > 1:
        widths = [max(len(row[column]) for row in table) for column in range(len(TITLES))]
        for row in table:
            padded = [
                text.rjust(width) if title == "bytes" else text.ljust(width)
                for text, width, title in zip(row, widths, TITLES, strict=True)
            ]
            yield "  ".join(padded).rstrip()
    yield from below(captured)


def cells(captured: Captured) -> list[tuple[str, ...]]:
    """Return a row for each capture that is the user's own."""
    own = [each for each in captured["captures"] if not each["of_package"]]
    return [_row(each) for each in own[:MOST_CAPTURES]]


def _row(each: CapturedValue) -> tuple[str, ...]:
    value = ", ".join((each["value"], *each["notes"]))
    nbytes = size(each["nbytes"]) if each["nbytes"] else ""
    texts = each["name"], each["treatment"], nbytes, value, each["where"]
    return tuple(cut(text, _LONGEST) for text in texts)


def below(captured: Captured) -> Iterator[str]:
    """Yield the lines below the table: what is folded, the bytes, and a warning."""
    name = clean(captured["function"])
    every = captured["captures"]
    own = sum(not each["of_package"] for each in every)
    folded = list(dict.fromkeys(each["name"] for each in every if each["of_package"]))
    if not own:
        yield f"{name} captures nothing" + (" of the user's own" if folded else "")
    if own > MOST_CAPTURES:
        yield f"and {count(own - MOST_CAPTURES, 'more capture')}"
    if folded:
        names = ", ".join(clean(each) for each in folded[:_MOST_NAMES])
        more = f" and {len(folded) - _MOST_NAMES:,} more" if len(folded) > _MOST_NAMES else ""
        yield f"of installed packages: {names}{more}"
    nbytes = captured["nbytes"]
    if nbytes:
        yield f"captured arrays of {name}: {size(nbytes)}"
    if (warning := too_large(captured)) is not None:
        yield warning


def stale(captured: Captured) -> Iterator[str]:
    """Yield a line for each call that was answered for an old value."""
    calls = captured.get("stale", [])
    name = clean(captured["function"])
    for each in calls[:MOST_CAPTURES]:
        place, before, after = (cut(each[key], _LONGEST) for key in ("name", "before", "after"))
        read = f" (read at {clean(each['line'])})" if each["line"] else ""
        yield (
            f"stale: {clean(each['call'])}: {name} was answered for {place} = {before}, "
            f"which was {after} by then{read}: pass it as an argument"
        )
    if len(calls) > MOST_CAPTURES:
        yield f"and {count(len(calls) - MOST_CAPTURES, 'more stale call')}"


def too_large(captured: Captured) -> str | None:
    """Return a warning of captured arrays, if they are large."""
    if captured["nbytes"] < max(captured["large"], 1):
        return None
    return (
        f"warning: {size(captured['nbytes'])} of captured arrays are kept by every program of "
        f"{clean(captured['function'])}: pass them as arguments"
    )


def page(captured: Mapping[str, Any]) -> str:
    """Return the table as a fragment of HTML, for notebooks."""
    found = cast("Captured", captured)
    body: list[tuple[str, ...]] = []
    for name, treatment, nbytes, value, where in cells(found):
        body.append((code(name), safe(treatment), safe(nbytes), code(value), safe(where)))
    classes = ("", "", "", "", "")
    table = f"<table>{headings(TITLES, classes)}<tbody>{html_rows(body, classes)}</tbody></table>"
    lost = "".join(f"<p><b>{safe(line, 1000)}</b></p>" for line in stale(found))
    rest = lost + "".join(f"<p>{safe(line)}</p>" for line in below(found))
    return f"<div>{table if body else ''}{rest}</div>"
