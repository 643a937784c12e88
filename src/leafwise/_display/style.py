"""The style of the page."""

from typing import Final

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
/* Inside of its details, so that a link to it opens them. */
.why { scroll-margin-top: 4rem; }
details:has(:target) { border-color: var(--again); }
summary { cursor: pointer; overflow-wrap: anywhere; }
details[open] > summary { margin-bottom: .5rem; }
.what { color: var(--faint); }
.reasons .path { font-weight: 600; width: 28%; }
.reasons .kind { white-space: nowrap; }
.reasons .values { width: 34%; }
.unsound { color: var(--again); }
.advice { overflow-wrap: anywhere; }

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
