"""Figures as SVG: text in boxes, and arrows between them, in colours for a light and a dark page.

They are drawn narrow and tall, so that they can be read on a phone.
"""

from collections.abc import Iterable, Sequence
from typing import Final
from xml.sax.saxutils import escape

WIDTH: Final = 440
LINE: Final = 20
MARGIN: Final = 14
LETTER: Final = 7.85
"""The width of a letter at 13 pixels in the widest of the fonts."""

_COLORS: Final = ("text", "back", "note", "guide", "node", "leaf", "static", "problem", "bar")


def _palette(colors: str) -> str:
    pairs = zip(_COLORS, colors.split(), strict=True)
    return "".join(f"--lw-{name}:{color};" for name, color in pairs)


LIGHT: Final = _palette("#1f2328 #ffffff #59636e #c3cad1 #0550ae #116329 #8250df #cf222e #b6d7f5")
DARK: Final = _palette("#e6edf3 #0d1117 #9198a1 #3d444d #79c0ff #7ee787 #d2a8ff #ff7b72 #264f7d")
ROLES: Final = ("node", "leaf", "static", "problem", "note")
FONT: Final = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"

Span = tuple[str, str]
"""Roles, if any, and a text. `strong` is a role, besides the colours."""

_STYLE: Final = (
    f".lw-fig {{ {LIGHT} font: 13px {FONT}; }}\n"
    f"@media (prefers-color-scheme: dark) {{ .lw-fig {{ {DARK} }} }}\n"
    ".lw-fig text { fill: var(--lw-text); white-space: pre; }\n"
    ".lw-fig .lw-back { fill: var(--lw-back); }\n"
    ".lw-fig .lw-box { fill: none; stroke: var(--lw-guide); stroke-width: 1.2; }\n"
    ".lw-fig .lw-arrow { fill: none; stroke: var(--lw-note); stroke-width: 1.4; }\n"
    ".lw-fig .lw-head { fill: var(--lw-note); }\n"
    ".lw-fig .lw-strong { font-weight: 600; }\n"
) + "".join(
    f".lw-fig .lw-{role} {{ fill: var(--lw-{role}); }}\n"
    f".lw-fig .lw-line-{role} {{ fill: none; stroke: var(--lw-{role}); stroke-width: 1.6; }}\n"
    for role in ROLES
)


def _classes(roles: str) -> str:
    return " ".join(f"lw-{role}" for role in roles.split())


class Figure:
    """A figure that is being drawn, from the top down."""

    def __init__(self, title: str, description: str) -> None:
        """Begin a figure; both texts are for readers who cannot see it."""
        self._texts = title, description
        self._parts: list[str] = []
        self.height = 0.0

    def text(self, x: float, y: float, spans: Iterable[Span] | str, *, until: float = 0) -> None:
        """Write a line, whose baseline is at `y`.

        Raises:
            ValueError: If it would not end before `until`, by default the right margin.
        """
        spans = [("", spans)] if isinstance(spans, str) else list(spans)
        whole = "".join(text for _, text in spans)
        if x + LETTER * len(whole) > (until or WIDTH - MARGIN / 2):
            raise ValueError(f"too long for the figure: {whole!r}")
        inside = "".join(
            f'<tspan class="{_classes(role)}">{escape(text)}</tspan>' if role else escape(text)
            for role, text in spans
        )
        self._add(f'<text x="{x:g}" y="{y:g}" xml:space="preserve">{inside}</text>', y)

    def note(self, x: float, y: float, words: str, *, until: float = 0) -> None:
        """Write a line in grey."""
        self.text(x, y, [("note", words)], until=until)

    def lines(self, x: float, y: float, lines: Sequence[Sequence[Span] | str]) -> float:
        """Write lines below each other; return the position of the next one."""
        for line in lines:
            self.text(x, y, line)
            y += LINE
        return y

    def box(self, x: float, y: float, width: float, height: float, role: str = "") -> None:
        """Draw a frame."""
        kind = f"lw-line-{role}" if role else "lw-box"
        self._add(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            'rx="6"/>',
            y + height,
        )

    def arrow(self, points: Sequence[tuple[float, float]]) -> None:
        """Draw an arrow along points; it comes in from above or from the left."""
        (before, _), (x, y) = points[-2:]
        path = "L".join(f"{px:g} {py:g}" for px, py in points)
        down = before == x
        head = f"M{x - 4:g} {y - 6:g}h8l-4 6z" if down else f"M{x - 6:g} {y - 4:g}v8l6 -4z"
        self._add(f'<path class="lw-arrow" d="M{path}"/><path class="lw-head" d="{head}"/>', y)

    def line(self, points: Sequence[tuple[float, float]], role: str) -> None:
        """Draw a line in the colour of a role."""
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self._add(f'<path class="lw-line-{role}" d="M{path}"/>', max(y for _, y in points))

    def guide(self, points: Sequence[tuple[float, float]]) -> None:
        """Draw a thin grey line."""
        path = "L".join(f"{x:g} {y:g}" for x, y in points)
        self._add(f'<path class="lw-box" d="M{path}"/>', max(y for _, y in points))

    def _add(self, part: str, bottom: float) -> None:
        self._parts.append(part)
        self.height = max(self.height, bottom)

    def svg(self) -> str:
        """Return the figure."""
        height = round(self.height + MARGIN)
        title, description = map(escape, self._texts)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="lw-fig" role="img" width="{WIDTH}" '
            f'height="{height}" viewBox="0 0 {WIDTH} {height}">'
        )
        back = f'<rect class="lw-back" width="{WIDTH}" height="{height}" rx="8"/>'
        texts = f"<title>{title}</title>\n<desc>{description}</desc>"
        style = f"<style>\n{_STYLE}</style>"
        return "\n".join([head, texts, style, back, *self._parts, "</svg>", ""])
