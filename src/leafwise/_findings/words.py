"""Text that all outputs share: counts, sizes, times and places."""

import html
import re
from collections.abc import Iterable
from typing import Final

# Control characters, which HTML and terminals obey or reject; marks that change the text
# direction; halves of surrogate pairs, which UTF-8 cannot encode.
_UNPRINTABLE: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def clean(text: str) -> str:
    """Return a text on one line, with unprintable characters escaped as in a repr."""
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def without_addresses(text: str) -> str:
    """Return a text without addresses, which differ from run to run."""
    return re.sub(r" \(compared by identity, at 0x[0-9a-f]+\)|,? at 0x[0-9a-f]+", "", text)


def cut(text: str, longest: int) -> str:
    """Return a clean text; if it is long, its start and its length."""
    if len(text) <= longest:
        return clean(text)
    return f"{clean(text[:longest])}... ({len(text):,} characters)"


def count(number: int, one: str, many: str = "") -> str:
    """Return ``1 trace``, ``2,000 traces``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """Return a time in a suitable unit: ``850 us``, ``12.3 ms``, ``3.21 s``."""
    if seconds < 59.95:  # noqa: PLR2004  # more rounds to a minute
        for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
            if seconds >= 0.9995 * size:
                # Three digits, without the exponent that the format `g` uses for 1000.
                amount = seconds / size
                digits = 2 if amount < 9.995 else 1 if amount < 99.95 else 0  # noqa: PLR2004
                return f"{amount:.{digits}f} {unit}"
        return "0 s" if seconds <= 0 else "under 1 us"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes:,} min {rest} s"


def size(nbytes: int) -> str:
    """Return ``512 B``, ``1.25 MiB``; without decimals if that is exact."""
    unit, scale = "B", 1
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if nbytes < 1024 * scale:
            break
        unit, scale = larger, 1024 * scale
    if nbytes % scale == 0:
        return f"{nbytes // scale:,} {unit}"
    amount = nbytes / scale
    digits = 2 if amount < 9.995 else 1  # noqa: PLR2004  # more rounds to ten
    return f"{amount:,.{digits}f} {unit}"


def described(path: str, kind: str, change: str) -> str:
    """Return ``x: shape (3,) -> (4,)``, or ``f (static): ...`` if `kind` is not about an array."""
    return f"{path}: {kind} {change}" if kind in _OF_ARRAYS else f"{path} ({kind}): {change}"


_OF_ARRAYS: Final = ("shape", "dtype", "weak type", "sharding", "kind", "value")


def paths_of(paths: Iterable[str]) -> str:
    """Return a short text for the paths of one reason: ``mu.w, nu.w and 10 more``."""
    first, *rest = dict.fromkeys(paths)
    more = f" and {len(rest) - 1:,} more" if len(rest) > 1 else ""
    return f"{first}, {rest[0]}{more}" if rest else first


class ShownAsText:
    """A base class of values that notebooks and `rich.print` show as their text."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        lines = (html.escape(cut(line, 1000)) for line in str(self).splitlines())
        return '<pre style="font-family:monospace">{}</pre>'.format("\n".join(lines))

    def __rich__(self) -> object:
        from rich.text import Text  # noqa: PLC0415  # only rich calls this

        return Text(str(self))


SAME: Final = "confirmed"
ROUNDED: Final = "confirmed up to rounding"
UNKNOWN: Final = "confirmed by counts alone"
STALE: Final = "made an answer stale"
COMPARED: Final = {SAME: "output the same", ROUNDED: "output the same up to rounding"}
CONFIRMED: Final = {**COMPARED, UNKNOWN: "no output to compare"}


def annotation(level: str, text: str, title: str, file: str = "", line: int = 0) -> str:
    """Return a GitHub Actions command: ``::warning file=train.py,line=13,title=...::...``."""
    where = f"file={clean(file).translate(_IN_PROPERTY)},line={max(line, 1)}," if file else ""
    text = "%0A".join(clean(part).translate(_IN_TEXT) for part in text.splitlines())
    return f"::{level} {where}title={clean(title).translate(_IN_PROPERTY)}::{text}"


_IN_TEXT: Final = {ord(each): f"%{ord(each):02X}" for each in "%\r\n"}
_IN_PROPERTY: Final = {ord(each): f"%{ord(each):02X}" for each in "%\r\n:,"}
