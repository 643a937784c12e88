"""Pieces of HTML: everything that a user wrote goes through here."""

import html
from collections.abc import Iterable
from typing import Final

from leafwise._display.words import cut

LONGEST: Final = 400
"""How many characters of a text a page shows."""


def safe(text: str, longest: int = LONGEST) -> str:
    """Return a text for HTML, in an element or in a quoted attribute."""
    return html.escape(cut(text, longest))


def code(text: str, longest: int = LONGEST) -> str:
    """Return a text in monospace; nothing for an empty one."""
    return f"<code>{safe(text, longest)}</code>" if text else ""


def rows(cells: Iterable[Iterable[str]], classes: Iterable[str]) -> str:
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


def headings(titles: Iterable[str], classes: Iterable[str]) -> str:
    """Return the row of headings of a table."""
    cells = "".join(
        f'<th scope="col" class="{name}">{title}</th>' if name else f'<th scope="col">{title}</th>'
        for title, name in zip(titles, classes, strict=True)
    )
    return f"<thead><tr>{cells}</tr></thead>"


def scrolling(label: str, inside: str) -> str:
    """Return what may be wider than the page, to be scrolled by keyboard as well."""
    return (
        f'<div class="scroll" role="region" aria-label="{html.escape(label)}" tabindex="0">\n'
        f"{inside}\n</div>"
    )
