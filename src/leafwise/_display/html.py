"""A picture as HTML: branches that fold, without a script."""

import html
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape

from leafwise._display.lines import Span, cells, exact, fitted, size_of, spans_of
from leafwise._display.rows import Kind, Row
from leafwise._display.words import cut

_NAMES: Final = ("text", "back", "note", "guide", "node", "leaf", "static", "problem", "bar")


def _palette(colors: str) -> str:
    """Return CSS variables, one for each name."""
    pairs = zip(_NAMES, colors.split(), strict=True)
    return "".join(f"--lw-{name}:{color};" for name, color in pairs)


LIGHT: Final = _palette("#1f2328 #ffffff #59636e #c3cad1 #0550ae #116329 #8250df #cf222e #b6d7f5")
DARK: Final = _palette("#e6edf3 #0d1117 #9198a1 #3d444d #79c0ff #7ee787 #d2a8ff #ff7b72 #264f7d")
ROLES: Final = ("node", "leaf", "static", "problem", "note")
FONT: Final = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"


_ALL_OPEN: Final = 80
"""Up to so many rows all branches are open; of more only the first two levels."""

_LONGEST_PATH: Final = 64
"""Up to how many steps a row tells its path."""

_PAGE: Final = """\
body { margin: 1rem; background: var(--lw-back); color: var(--lw-text); }
.lw-show { max-width: 56rem; }
"""

_DARK: Final = f"{{ {DARK} }}"
_LIGHT: Final = f"{{ {LIGHT} }}"

# A notebook has a theme of its own, whatever the system's is.
_STYLE: Final = f"""\
:root {_LIGHT}
@media (prefers-color-scheme: dark) {{ :root {_DARK} }}
[data-jp-theme-light="true"], .vscode-light {_LIGHT}
[data-jp-theme-light="false"], .vscode-dark {_DARK}
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
@media (max-width: 36rem) {{
  .lw-show .lw-size {{ min-width: 0; background: none; }}
  .lw-show .lw-in {{ margin-left: .3em; padding-left: .4em; }}
}}
.lw-show b {{ font-weight: 600; }}
""" + "".join(f".lw-show .lw-{role} {{ color: var(--lw-{role}); }}\n" for role in ROLES)


def page(rows: Sequence[Row]) -> str:
    """Return a whole page."""
    title = html.escape(rows[0].text)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>\n{_STYLE}{_PAGE}</style>\n</head>\n<body>\n"
        f"{_tree(rows)}\n</body>\n</html>\n"
    )


def fragment(rows: Sequence[Row]) -> str:
    """Return what a notebook puts into its own page."""
    return f"<style>\n{_STYLE}</style>\n{_tree(rows)}"


def _tree(rows: Sequence[Row]) -> str:
    return "\n".join(['<div class="lw-show">', *_lines(rows), "</div>"])


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the rows, each branch around those below it."""
    whole = rows[0].totals.nbytes if rows[0].totals is not None else 0
    path: list[str] = []
    for place, row in enumerate(rows):
        path[row.depth :] = [row.step]
        following = rows[place + 1].depth if place + 1 < len(rows) else 0
        line = _row(row, "".join(path) if row.depth <= _LONGEST_PATH else "", whole)
        if following > row.depth:
            is_open = " open" if len(rows) <= _ALL_OPEN or row.depth < 2 else ""  # noqa: PLR2004
            yield f'<details{is_open}><summary>{line}</summary><div class="lw-in">'
        else:
            yield f'<div class="lw-row">{line}</div>'
            yield "</div></details>" * (row.depth - following)


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
    title = "" if row.totals is None else f' title="{exact(row.totals)}"'
    role = " lw-static" if row.kind is Kind.STATIC else ""
    where = f' title="{html.escape(path)}"' if path and row.kind is not Kind.ELIDED else ""
    return (
        f'<span class="lw-what"{where}>{"".join(spans)}</span>'
        f'<span class="lw-size{role}"{title}{share}>{size_of(row)}</span>'
    )


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


STYLE: Final = """\
:root {
  color-scheme: light dark;
  --back: #ffffff; --text: #1f2328; --faint: #59636e; --line: #d1d9e0; --panel: #f6f8fa;
  --trace: #2563eb; --lowering: #b45309; --compile: #7c3aed; --cache: #15803d; --again: #dc2626;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #0d1117; --text: #e6edf3; --faint: #9198a1; --line: #3d444d; --panel: #161b22;
    --trace: #60a5fa; --lowering: #fbbf24; --compile: #a78bfa; --cache: #4ade80;
    --again: #f87171;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 68rem;
  background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem; }
h3 { font-size: 1rem; margin: 0; display: inline; font-weight: 600; }
p { margin: .5rem 0; }
code, pre, .lane text {
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
code, pre { font-size: .9em; overflow-wrap: anywhere; }
pre { margin: .5rem 0; padding: .5rem .75rem; background: var(--panel); border-radius: 6px;
  white-space: pre-wrap; }
a { color: inherit; }
:focus-visible { outline: 2px solid var(--trace); outline-offset: 2px; }
.faint, .left-out { color: var(--faint); }
.left-out, .hint { font-size: .9em; }
.failed { border-left: 4px solid var(--again); padding-left: .75rem; overflow-wrap: anywhere; }

.totals { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr));
  gap: .75rem; margin: 1.25rem 0 0; padding: 0; }
.totals div { background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
  padding: .6rem .8rem; display: flex; flex-direction: column-reverse;
  justify-content: flex-end; }
.totals dt { color: var(--faint); font-size: .85em; line-height: 1.35; }
.totals dd { margin: 0; font-size: 1.4rem; font-weight: 600; line-height: 1.3;
  font-variant-numeric: tabular-nums; }
.totals .again dd { color: var(--again); }

.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; list-style: none;
  margin: 0 0 .5rem; padding: 0; font-size: .9em; }
.legend svg { width: 12px; height: 12px; margin-right: .4em; vertical-align: -1px; }
.timeline { display: block; width: 100%; }
.timeline text { fill: var(--faint); font-size: 12px; }
.timeline .lane text { fill: var(--text); stroke: var(--back); stroke-width: 4px;
  paint-order: stroke; }
.timeline .tick { stroke: var(--line); stroke-width: 1; }
/* The outline is what shows of a bar too short to be seen. */
rect.trace { fill: var(--trace); stroke: var(--trace); }
rect.lowering { fill: var(--lowering); stroke: var(--lowering); }
rect.compile { fill: var(--compile); stroke: var(--compile); }
rect.cache { fill: var(--cache); stroke: var(--cache); }
circle.again { fill: var(--again); stroke: var(--back); stroke-width: 1; }
a:hover circle.again, a:focus circle.again { stroke: var(--text); stroke-width: 2; }

.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35rem .75rem .35rem 0;
  border-bottom: 1px solid var(--line); font-weight: 400; }
thead th { color: var(--faint); font-size: .85em; white-space: nowrap; vertical-align: bottom; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.functions th:first-child { min-width: 9rem; max-width: 24rem; overflow-wrap: anywhere; }
.functions .where { white-space: nowrap; }
.total { font-weight: 600; }

details { border: 1px solid var(--line); border-radius: 8px; margin: .75rem 0;
  padding: .6rem .9rem; }
/* Inside its details, so that a link to it opens them. */
.why { scroll-margin-top: 4rem; }
details:has(:target) { border-color: var(--again); }
summary { cursor: pointer; overflow-wrap: anywhere; }
details[open] > summary { margin-bottom: .5rem; }
.what { color: var(--faint); }
.reasons .path { font-weight: 600; width: 28%; }
.reasons .kind { white-space: nowrap; }
.reasons .values { width: 34%; }
.unsound { color: var(--again); }
.fix { overflow-wrap: anywhere; }

@media (max-width: 640px) {
  .reasons thead { position: absolute; clip-path: inset(50%); width: 1px; height: 1px;
    overflow: hidden; }
  .reasons, .reasons tbody, .reasons tr, .reasons th, .reasons td { display: block; }
  .reasons .path, .reasons .values { width: auto; }
  .reasons th, .reasons td { border: 0; padding: .1rem 0; }
  .reasons tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
}
@media print { details { break-inside: avoid; } }
"""


_LETTER: Final = 7.85
"""The width of a letter at 13 pixels in the widest of the fonts."""

_LINE: Final = 22
_INDENT: Final = 20
_MARGIN: Final = 16
_BAR: Final = 64
_SIZE: Final = 88
_GAP: Final = 28
_LEAST_ROOM: Final = 24

_SVG_STYLE: Final = (
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
        f"<style>\n{_SVG_STYLE}</style>",
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
