"""The diagram of `leafwise.show` as HTML, which folds without a script."""

import html
from collections.abc import Sequence
from typing import Final

from leafwise._display.html import COLORS, DARK, FONT, LIGHT, ROLES, document
from leafwise._display.lines import exact_size, size_of, spans_of
from leafwise._display.rows import Kind, Row


def diagram_page(rows: Sequence[Row]) -> str:
    """Return a diagram as a page of its own."""
    return document(html.escape(rows[0].text), _DIAGRAM_STYLE + _PAGE_STYLE, _tree(rows))


def diagram_fragment(rows: Sequence[Row]) -> str:
    """Return a diagram as a notebook puts it into its own page."""
    # A notebook has a theme of its own, whatever the system's is.
    themes = (
        f'[data-jp-theme-light="true"], .vscode-light {{ {LIGHT} }}\n'
        f'[data-jp-theme-light="false"], .vscode-dark {{ {DARK} }}\n'
    )
    return f"<style>\n{COLORS}{themes}{_DIAGRAM_STYLE}</style>\n{_tree(rows)}"


_DIAGRAM_STYLE: Final = f"""\
.lw-show {{ font: 13px/1.55 {FONT}; text-align: left; }}
.lw-show details, .lw-show summary, .lw-show b {{ all: revert; font: inherit; margin: 0; }}
.lw-show summary, .lw-show .lw-row {{ display: flex; gap: 1em; padding: 0 .3em 0 1.2em;
  border-radius: 4px; position: relative; }}
.lw-show summary {{ cursor: pointer; list-style: none; }}
.lw-show summary::-webkit-details-marker {{ display: none; }}
.lw-show summary::before {{ content: "\\25b8"; position: absolute; left: .2em;
  color: var(--lw-note); }}
.lw-show details[open] > summary::before {{ content: "\\25be"; }}
.lw-show summary:hover, .lw-show .lw-row:hover {{ outline: 1px solid var(--lw-guide); }}
.lw-show .lw-in {{ margin-left: .5em; padding-left: .9em; border-left: 1px solid var(--lw-guide); }}
.lw-show .lw-what {{ flex: 1; min-width: 0; overflow-wrap: anywhere; white-space: pre-wrap; }}
.lw-show .lw-size {{ white-space: nowrap; min-width: 12em; text-align: right;
  background: linear-gradient(var(--lw-bar), var(--lw-bar)) no-repeat left center;
  background-size: calc(var(--lw-share, 0) * 5.5em) .8em; }}
.lw-show b {{ font-weight: 600; }}
""" + "".join(f".lw-show .lw-{role} {{ color: var(--lw-{role}); }}\n" for role in ROLES)

_PAGE_STYLE: Final = """\
body { margin: 1rem; background: var(--lw-back); color: var(--lw-text); }
.lw-show { max-width: 56rem; }
"""

_ALL_OPEN: Final = 80
"""Up to so many rows all branches are open; of more only the first two levels."""


def _tree(rows: Sequence[Row]) -> str:
    """Return the rows, each branch around those below it."""
    whole = rows[0].totals.nbytes if rows[0].totals is not None else 0
    lines = ['<div class="lw-show">']
    path: list[str] = []
    for place, row in enumerate(rows):
        path[row.depth :] = [row.step]
        following = rows[place + 1].depth if place + 1 < len(rows) else 0
        line = _row(row, "".join(path), whole)
        if following > row.depth:
            is_open = " open" if len(rows) <= _ALL_OPEN or row.depth < 2 else ""  # noqa: PLR2004
            lines.append(f'<details{is_open}><summary>{line}</summary><div class="lw-in">')
        else:
            lines.append(f'<div class="lw-row">{line}</div>')
            lines.append("</div></details>" * (row.depth - following))
    return "\n".join([*lines, "</div>"])


def _row(row: Row, path: str, whole: int) -> str:
    spans = [
        f"<b>{html.escape(text)}</b>"
        if role == "name"
        else f'<span class="lw-{role}">{html.escape(text)}</span>'
        if role
        else html.escape(text)
        for role, text in spans_of(row)
    ]
    share = ""
    if row.totals is not None and row.totals.nbytes and row.depth:
        share = f' style="--lw-share:{row.totals.nbytes / whole:.4f}"'
    title = "" if row.totals is None else f' title="{exact_size(row.totals)}"'
    role = " lw-static" if row.kind is Kind.STATIC else ""
    where = f' title="{html.escape(path)}"' if path and row.kind is not Kind.ELIDED else ""
    return (
        f'<span class="lw-what"{where}>{"".join(spans)}</span>'
        f'<span class="lw-size{role}"{title}{share}>{size_of(row)}</span>'
    )
