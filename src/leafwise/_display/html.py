"""HTML: colours, tables, and a page of its own."""

import html
import re
from collections.abc import Iterable
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

_LONGEST: Final = 400


def safe(text: str, longest: int = _LONGEST) -> str:
    """Return a text for HTML, in an element or in a quoted attribute."""
    return html.escape(cut(text, longest))


def code(text: str, longest: int = _LONGEST) -> str:
    """Return a text in monospace; nothing for an empty one."""
    return f"<code>{safe(text, longest)}</code>" if text else ""


def prose(text: str, longest: int = _LONGEST) -> str:
    """Return a text for HTML in which what stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", safe(text, longest))


def document(title: str, style: str, body: str) -> str:
    """Return a page of its own, from a title and a body that are HTML already."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>\n{COLORS}{style}</style>\n</head>\n<body>\n"
        f"{body}\n</body>\n</html>\n"
    )


def headings(titles: Iterable[str], classes: Iterable[str]) -> str:
    """Return the row of headings of a table."""
    cells = "".join(
        f'<th scope="col" class="{name}">{title}</th>' if name else f'<th scope="col">{title}</th>'
        for title, name in zip(titles, classes, strict=True)
    )
    return f"<thead><tr>{cells}</tr></thead>"


def table_rows(cells: Iterable[Iterable[str]], classes: Iterable[str]) -> str:
    """Return table rows of cells that are HTML, the first of each row its heading."""
    names = list(classes)
    lines: list[str] = []
    for row in cells:
        line = ""
        for place, (cell, name) in enumerate(zip(row, names, strict=True)):
            tag, scope = ("th", ' scope="row"') if place == 0 else ("td", "")
            kind = f' class="{name}"' if name else ""
            line += f"<{tag}{scope}{kind}>{cell}</{tag}>"
        lines.append(f"<tr>{line}</tr>")
    return "\n".join(lines)
