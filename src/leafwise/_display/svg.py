"""A picture as SVG: text that can be selected, in the reader's own fonts."""

from collections.abc import Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape

from leafwise._display.colors import DARK, FONT, LIGHT, ROLES
from leafwise._display.lines import Span, cells, fitted, size_of, spans_of
from leafwise._display.rows import Kind, Row

_LETTER: Final = 7.85
"""The width of a letter at 13 pixels in the widest of the fonts."""

_LINE: Final = 22
_INDENT: Final = 20
_MARGIN: Final = 16
_BAR: Final = 64
_SIZE: Final = 88
_GAP: Final = 28
_LEAST_ROOM: Final = 24

_STYLE: Final = (
    f".lw-svg {{ {LIGHT} font: 13px {FONT}; }}\n"
    f"@media (prefers-color-scheme: dark) {{ .lw-svg {{ {DARK} }} }}\n"
    ".lw-svg text { fill: var(--lw-text); white-space: pre; }\n"
    ".lw-svg .lw-back { fill: var(--lw-back); stroke: var(--lw-guide); }\n"
    ".lw-svg .lw-bar { fill: var(--lw-bar); }\n"
    ".lw-svg path { fill: none; stroke: var(--lw-guide); stroke-width: 1.2; }\n"
    ".lw-svg .lw-name { font-weight: 600; }\n"
    ".lw-svg .lw-size { text-anchor: end; }\n"
) + "".join(f".lw-svg .lw-{role} {{ fill: var(--lw-{role}); }}\n" for role in ROLES)


def drawing(rows: Sequence[Row], columns: int) -> str:
    """Return the picture.

    Args:
        rows: What to draw.
        columns: The letters that fit into its width, where possible.
    """
    texts = [fitted(spans_of(row), _room(row, columns), "…") for row in rows]
    rights = [_left(row) + _LETTER * _cells(spans) for row, spans in zip(rows, texts, strict=True)]
    right = max(rights) + _GAP + _BAR + _SIZE
    height = _LINE * len(rows) + 2 * _MARGIN
    width = round(right + _MARGIN)
    whole = rows[0].totals.nbytes if rows[0].totals is not None else 0
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="lw-svg" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>\n{_STYLE}</style>",
        f'<rect class="lw-back" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>',
        f'<path d="{"".join(_guides(rows))}"/>',
    ]
    for place, (row, spans) in enumerate(zip(rows, texts, strict=True)):
        lines += _line(row, spans, _MARGIN + place * _LINE, right, whole)
    return "\n".join([*lines, "</svg>"])


def _room(row: Row, columns: int) -> int:
    taken = (_left(row) + _GAP + _BAR + _SIZE) / _LETTER
    return max(columns - round(taken), _LEAST_ROOM)


def _left(row: Row) -> int:
    return _MARGIN + _INDENT * row.depth


def _cells(spans: Sequence[Span]) -> int:
    return sum(cells(span.text) for span in spans)


def _line(row: Row, spans: Sequence[Span], top: float, right: float, whole: int) -> Iterator[str]:
    """Yield one row: the share of the bytes, the text, and the bytes."""
    if row.depth and row.totals is not None and row.totals.nbytes:
        share = _BAR * row.totals.nbytes / whole
        yield (
            f'<rect class="lw-bar" x="{right - _SIZE - _BAR:.1f}" y="{top + 5}" '
            f'width="{share:.1f}" height="{_LINE - 10}" rx="2"/>'
        )
    base = top + 15
    inside = "".join(
        f'<tspan class="lw-{role}">{escape(text)}</tspan>' if role else escape(text)
        for role, text in spans
    )
    yield f'<text x="{_left(row)}" y="{base}" xml:space="preserve">{inside}</text>'
    static = " lw-static" if row.kind is Kind.STATIC else ""
    amount = size_of(row)
    if amount:
        yield f'<text class="lw-size{static}" x="{right:.1f}" y="{base}">{amount}</text>'


def _guides(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line down to each child, from the row above it in its branch."""
    above: list[int] = []  # for each depth, the last row that was met there
    for place, row in enumerate(rows):
        if row.depth:
            same = above[row.depth] if row.depth < len(above) else -1
            start = _MARGIN + _LINE * max(same, above[row.depth - 1])
            # From the foot of the parent's letters, or from the corner of the sibling before.
            start += _LINE // 2 if same > above[row.depth - 1] else _LINE - 3
            across, down = _left(row) - _INDENT + 5, _MARGIN + place * _LINE + _LINE // 2
            yield f"M{across} {start}V{down}H{_left(row) - 4}"
        above[row.depth :] = [place]
