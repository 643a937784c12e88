"""HTML: colours and text."""

import html
from typing import Final

from leafwise._display.words import cut

_COLOR_NAMES: Final = ("text", "back", "note", "guide", "node", "leaf", "static", "problem", "bar")


def _palette(colors: str) -> str:
    pairs = zip(_COLOR_NAMES, colors.split(), strict=True)
    return "".join(f"--lw-{name}:{color};" for name, color in pairs)


LIGHT: Final = _palette("#1f2328 #ffffff #59636e #c3cad1 #0550ae #116329 #8250df #cf222e #b6d7f5")
DARK: Final = _palette("#e6edf3 #0d1117 #9198a1 #3d444d #79c0ff #7ee787 #d2a8ff #ff7b72 #264f7d")
ROLES: Final = ("node", "leaf", "static", "problem", "note")
FONT: Final = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"

COLORS: Final = f"""\
:root {{ {LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}
"""


def preformatted(text: str) -> str:
    """Return lines of text as an element of a notebook's page."""
    lines = (html.escape(cut(line, 1000)) for line in text.splitlines())
    return "<pre>{}</pre>".format("\n".join(lines))
