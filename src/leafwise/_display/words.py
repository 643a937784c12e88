"""Words that all outputs share: counts, sizes, times, places, and what JAX does for a call."""

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leafwise._display.findings import Finding
    from leafwise._display.report import CapturesRecord, Report, SiteRecord

# Controls, which HTML and terminals obey or refuse; marks that turn the direction of what
# follows; halves of surrogate pairs, which UTF-8 cannot encode.
_UNPRINTABLE: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def clean(text: str) -> str:
    """Return a text on one line, with what cannot be shown spelled out as in a repr."""
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def without_addresses(text: str) -> str:
    """Cut out what differs from run to run."""
    return re.sub(r" \(compared by identity, at 0x[0-9a-f]+\)|,? at 0x[0-9a-f]+", "", text)


def cut(text: str, longest: int) -> str:
    """Return a clean text; of a long one the start, and how long it is."""
    if len(text) <= longest:
        return clean(text)
    return f"{clean(text[:longest])}... ({len(text):,} characters)"


def plural(number: int, one: str, many: str = "") -> str:
    """Return the word for one, or that for any other number."""
    return one if number == 1 else many or one + "s"


def count(number: int, one: str, many: str = "") -> str:
    """Return ``1 trace``, ``2,000 traces``."""
    return f"{number:,} {plural(number, one, many)}"


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it: ``850 us``, ``12.3 ms``, ``3.21 s``."""
    if seconds < 59.95:  # noqa: PLR2004  # what rounds to a minute is one
        for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
            if seconds >= 0.9995 * size:
                # Three digits, and not the exponent that the format `g` has for 1000.
                amount = seconds / size
                digits = 2 if amount < 9.995 else 1 if amount < 99.95 else 0  # noqa: PLR2004
                return f"{amount:.{digits}f} {unit}"
        return "0 s" if seconds <= 0 else "under 1 us"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes:,} min {rest} s"


def size(nbytes: int) -> str:
    """Return ``512 B``, ``1.25 MiB``; without a point if that is exact."""
    unit, scale = "B", 1
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if nbytes < 1024 * scale:
            break
        unit, scale = larger, 1024 * scale
    if nbytes % scale == 0:
        return f"{nbytes // scale:,} {unit}"
    amount = nbytes / scale
    return f"{amount:,.{2 if amount < _TWO_DIGITS else 1}f} {unit}"


_TWO_DIGITS: Final = 9.995
"""Smaller amounts get two decimals: they do not round to ten."""


def place(site: "SiteRecord | None") -> str:
    """Return ``churn.py:40``, or that the line is not known."""
    return f"{clean(site.file)}:{site.line}" if site else "line not known"


def left_out_lines(report: "Report") -> Iterator[str]:
    """Yield what JAX did not show, and what is left out for that."""
    lost = report.left_out
    for what in dict.fromkeys(lost.values()):
        shown = " or ".join(name for name, part in lost.items() if part == what)
        yield (
            f"JAX {report.jax} does not show {shown} to this version of leafwise: {what} are "
            f"left out. `pip install -U leafwise`"
        )


def described(path: str, kind: str, change: str) -> str:
    """Return ``x: shape (3,) -> (4,)``; of what is no property of an array ``f (static): ...``."""
    return f"{path}: {kind} {change}" if kind in _OF_ARRAYS else f"{path} ({kind}): {change}"


_OF_ARRAYS: Final = ("shape", "dtype", "weak type", "sharding", "kind", "value")


def paths_of(paths: Iterable[str]) -> str:
    """Return the paths of one reason in short: ``mu.w, nu.w and 10 more``."""
    first, *rest = dict.fromkeys(paths)
    more = f" and {len(rest) - 1:,} more" if len(rest) > 1 else ""
    return f"{first}, {rest[0]}{more}" if rest else first


def cache_lines(report: "Report") -> list[str]:
    """Return why JAX's cache on disk missed, a line for each reason; the longest first."""
    misses = sorted(
        (event for event in report.events if event.miss),
        key=lambda event: event.seconds,
        reverse=True,
    )
    names: dict[str, list[str]] = {}
    for event in misses:
        names.setdefault(clean(event.miss), []).append(clean(event.name))
    return [
        f"cache miss of {paths_of(group)}: {why}"
        if len(group) == 1
        else f"{len(group):,} cache misses of {paths_of(group)}: {why}"
        for why, group in names.items()
    ]


def audit_lines(report: "Report") -> list[str]:
    """Return what the audit found, a line each, and what it cost; nothing if there was none."""
    audit = report.audit
    if audit is None:
        return []
    lines = [
        f"{clean(wrong.call)}: {clean(wrong.what)}"
        + (f", {wrong.times:,} times" if wrong.times > 1 else "")
        for wrong in audit.found
    ]
    cost = f"audit: {count(audit.calls, 'call')} compared in {duration(audit.seconds)}"
    return [*lines, cost]


_COLUMNS: Final = ("name", "treatment", "bytes", "value", "where")
_MOST_ROWS: Final = 200
_LONGEST: Final = 200
_LARGE: Final = 2**20
"""From so many bytes on there is a warning."""


def captures_lines(captured: "CapturesRecord") -> Iterator[str]:
    """Yield what a function closes over as a table; below it the bytes, and a warning."""
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


def stale_lines(captured: "CapturesRecord") -> Iterator[str]:
    """Yield a line for each call that was answered for an old value."""
    name, calls = clean(captured.function), captured.stale
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


class ShownAsText:
    """What a notebook and `rich.print` show as its text."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the text, for notebooks."""
        lines = (html.escape(cut(line, 1000)) for line in str(self).splitlines())
        return "<pre>{}</pre>".format("\n".join(lines))

    def __rich__(self) -> object:
        """Return the text, for `rich.print`."""
        from rich.text import Text  # noqa: PLC0415  # rich asks, so rich is there

        return Text(str(self))


def tried_lines(finding: "Finding") -> Iterator[str]:
    """Yield how an edit did that was tried, and the edit if it helped."""
    tried = finding.tried
    if tried is not None and tried.verdict in CONFIRMED:
        yield f"fix, tried: {finding.effect(tried)}, {CONFIRMED[tried.verdict]}"
        yield from (f"  {line}" for line in tried.edit)
    elif tried is not None:
        yield f"tried: {tried.verdict}"


SAME: Final = "confirmed"
ROUNDED: Final = "confirmed up to rounding"
UNKNOWN: Final = "confirmed by counts alone"
CONFIRMED: Final = {
    SAME: "output the same",
    ROUNDED: "output the same up to rounding",
    UNKNOWN: "no output to compare",
}


def together_lines(report: "Report") -> Iterator[str]:
    """Yield how the edits that helped did together."""
    if together := report.together:
        every = count(len(report.findings) + len(report.first), "finding")
        number = together.findings
        text = f"{number} of {every} {plural(number, 'has', 'have')} a fix that was tried; together"
        repeats = f"{count(together.before, 'repeat')} -> {together.after:,}, "
        repeats = repeats if together.before else ""
        seconds = f"{duration(report.seconds)} -> {duration(together.seconds)}"
        hint = "`--diff` prints the patch, `--write` applies it"
        hint = "`--write` has applied the patch" if together.written else hint
        yield f"{text}: {repeats}{seconds}. {hint}."
    if report.untried:
        untried = count(report.untried, "finding")
        yield f"not tried: {untried}, of which no edit is known, or beyond `--tries`"


def process_lines(report: "Report") -> list[str]:
    """Return of how many processes a folder has the records."""
    number = report.recorded
    return [f"records of {count(number, 'process', 'processes')}"] if number else []


def annotation(level: str, text: str, title: str, file: str = "", line: int = 0) -> str:
    """Return a command of GitHub Actions: ``::warning file=train.py,line=13,title=...::...``."""
    where = f"file={_escaped(file, _IN_PROPERTY)},line={max(line, 1)}," if file else ""
    return f"::{level} {where}title={_escaped(title, _IN_PROPERTY)}::{_escaped(text, _IN_TEXT)}"


_IN_TEXT: Final = {ord(each): f"%{ord(each):02X}" for each in "%\r\n"}
_IN_PROPERTY: Final = {ord(each): f"%{ord(each):02X}" for each in "%\r\n:,"}


def _escaped(text: str, marks: Mapping[int, str]) -> str:
    return text.translate(marks)
