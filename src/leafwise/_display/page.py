"""A report as one HTML page that loads nothing; an explanation as a table for notebooks."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from leafwise._display import captures_table
from leafwise._display.html import FONT, code, document, headings, prose, safe, table_rows
from leafwise._display.repeats import (
    Repeat,
    RepeatReason,
    busy,
    covered,
    first_calls,
    folded,
    headline,
    joined,
    reasons_of,
    repeats,
)
from leafwise._display.shape import ExplanationRecord, FunctionRecord, Report
from leafwise._display.words import (
    NOTHING,
    audit_lines,
    cache_lines,
    count,
    duration,
    home,
    is_empty,
    lost,
    outcome_of,
    place,
    plural,
    sentence,
)

MOST_FUNCTIONS: Final = 200
MOST_REPEATS: Final = 100
MOST_REASONS: Final = 20
MOST_VALUES: Final = 2
MOST_LINES: Final = 50
_OPEN: Final = 5
_LONGEST_VALUE: Final = 160


def page(report: Report) -> str:
    """Return a report as an HTML page that needs no other file.

    Args:
        report: The report.

    Returns:
        The page: totals, the functions, and why JAX did what again. Where it does not show
        all, a sentence says how much is left out.

    Examples:
        >>> Path("report.html").write_text(page(report), encoding="utf-8")  # doctest: +SKIP
    """
    again = repeats(report)
    body = [_headline(report, again)]
    if again:
        body.append(f"<p>{safe(headline(report, again))}</p>")
    if is_empty(report):
        body.append(f"<p>{NOTHING}</p>")
    else:
        body.append(_section("Functions", _functions(report["functions"])))
        body.append(_section("Retraced and recompiled", _again(report, again)))
        body.append(_PERFETTO)
    if found := report.get("captures"):
        tables = [
            f"<h3>{code(each['function'])}</h3>{captures_table.format_html(each)}" for each in found
        ]
        more = _more(len(found) - MOST_FUNCTIONS, "function")
        body.append(_section("Captures", "\n".join(tables[:MOST_FUNCTIONS]) + more))
    if lines := cache_lines(report):
        texts = "\n".join(f"<p>{safe(line)}</p>" for line in lines[:MOST_LINES])
        body.append(_section("The cache on disk", texts + _more(len(lines) - MOST_LINES, "reason")))
    if lines := audit_lines(report):
        body.append(_section("Audit", "\n".join(f"<p>{safe(line)}</p>" for line in lines)))
    if report["warnings"]:
        texts = "\n".join(_warning(text) for text in report["warnings"])
        body.append(_section("Warnings", texts))
    title = f"{safe(report['program'], 80)} - leafwise"
    return document(title, _STYLE, "\n".join(["<main>", *body, "</main>"]))


_PERFETTO: Final = (
    '<p class="faint">As a timeline: <code>leafwise explain --perfetto FILE</code> writes a file '
    "for ui.perfetto.dev.</p>"
)


def explanation(explanation: Mapping[str, Any]) -> str:
    """Return an explanation as a fragment of HTML, for notebooks.

    Args:
        explanation: What `Explanation.as_dict` returns.

    Returns:
        A table of the reasons under a sentence that says what JAX does. Its style is in its
        elements, so that it changes nothing else of the notebook.
    """
    explained = cast("ExplanationRecord", explanation)
    every = joined(reasons_of(explained))
    outcome = safe(outcome_of(explained), 80)
    head = f"<p><b>{outcome}</b>: {safe(sentence(explained))}</p>"
    if not every:
        return f"<div>{head}</div>"
    cell = 'style="text-align:left;vertical-align:top;padding:0.2em 1.2em 0.2em 0"'
    titles = "".join(f'<th scope="col" {cell}>{title}</th>' for title in _TITLES)
    lines = "".join(
        "<tr>" + "".join(f"<td {cell}>{inside}</td>" for inside in _reason(reason)) + "</tr>"
        for reason in every[:MOST_REASONS]
    )
    table = f"<table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table>"
    return f"<div>{head}{table}{_more(len(every) - MOST_REASONS, 'reason')}</div>"


def _section(title: str, inside: str) -> str:
    return f"<section>\n<h2>{title}</h2>\n{inside}\n</section>"


def _warning(text: str) -> str:
    # The only kind of text whose line breaks are kept.
    lines = text.splitlines()
    shown = "\n".join(prose(line, 1000) for line in lines[:MOST_LINES])
    return f"<pre>{shown}</pre>{_more(len(lines) - MOST_LINES, 'line')}"


def _more(number: int, what: str, why: str = "") -> str:
    if number <= 0:
        return ""
    return f'<p class="left-out">and {number:,} more {plural(number, what)}{why}</p>'


def _headline(report: Report, again: list[Repeat]) -> str:
    spent = busy(report)
    share = f", {spent / report['seconds']:.0%} of the time" if report["seconds"] > 0 else ""
    functions = sum(1 for each in report["functions"] if not each["eager"])
    calls = sum(len(repeat.events) for repeat in again)
    number_of_repeats = count(calls, "retrace or recompile", "retraces and recompiles")
    repeated = covered(part for repeat in again for part in repeat.intervals)
    traces, lowerings, compiles, hits = (
        sum(each[key] for each in report["functions"])
        for key in ("traces", "lowerings", "compiles", "cache_hits")
    )
    totals = [
        (duration(repeated), f"could be saved: {number_of_repeats}", ""),
        (duration(spent), f"tracing, lowering and compiling in all{share}", ""),
        (f"{functions:,}", f"{plural(functions, 'function')} jitted", ""),
        (f"{traces:,}", plural(traces, "trace"), ""),
        (f"{lowerings:,}", plural(lowerings, "lowering"), ""),
        (f"{compiles:,}", plural(compiles, "compilation"), ""),
    ]
    if again:
        totals[0] = (*totals[0][:2], ' class="again"')
    if misses := sum("miss" in each for each in report["events"]):
        totals.append((f"{misses:,}", "not found in the cache on disk", ""))
    if hits:
        totals.append((f"{hits:,}", "found in the cache on disk", ""))
    boxes = "".join(
        f"<div{kind}><dt>{words}</dt><dd>{number}</dd></div>\n" for number, words, kind in totals
    )
    ran = f"ran {duration(report['seconds'])}"
    versions = f"leafwise {report['leafwise']}, JAX {report['jax']}, Python {report['python']}"
    ended = report["ended"]
    failed = "" if not ended else f'\n<p class="failed">The program ended: {code(ended)}</p>'
    return (
        f"<header>\n<h1>{code(report['program'])}</h1>\n"
        f'<p class="faint">{ran}; {safe(versions)}</p>{failed}\n'
        f'<dl class="totals">\n{boxes}</dl>\n</header>'
    )


def _functions(functions: list[FunctionRecord]) -> str:
    number = "number"
    columns = {
        "function": "",
        "where": "where",
        "traces": number,
        "lowerings": number,
        "compiles": number,
        "cache hits": number,
        "tracing": number,
        "lowering": number,
        "compiling": number,
        "in all": "number total",
    }
    cells = [_function(each) for each in functions[:MOST_FUNCTIONS]]
    table = (
        f'<table class="functions">{headings(columns, columns.values())}\n'
        f"<tbody>\n{table_rows(cells, columns.values())}\n</tbody></table>"
    )
    rest = functions[MOST_FUNCTIONS:]
    why = f", with {duration(sum(map(lost, rest)))} in all: those above lost the most."
    # Focusable, so that the keyboard scrolls a table that is wider than the page.
    region = (
        f'<div class="scroll" role="region" aria-label="Functions" tabindex="0">\n{table}\n</div>'
    )
    return region + _more(len(rest), "function", why)


def _function(function: FunctionRecord) -> Iterable[str]:
    seconds = function["seconds"]
    yield safe(function["name"]) if function["eager"] else code(function["name"])
    yield code(home(function))
    for each in ("traces", "lowerings", "compiles", "cache_hits"):
        yield f"{function[each]:,}"
    for spent in (seconds["trace"], seconds["lower"], seconds["compile"], lost(function)):
        yield duration(spent)


def _again(report: Report, again: list[Repeat]) -> str:
    first = first_calls(report, again)
    parts = [f'<p class="faint">First calls, not listed: {first:,}.</p>'] if first else []
    if not again:
        return "\n".join(["<p>Nothing was retraced or recompiled.</p>", *parts])
    large, small = folded(report, again)
    for number, repeat in enumerate(large[:MOST_REPEATS], 1):
        parts.append(_repeat(number, repeat))
    rest = large[MOST_REPEATS:] + small
    calls = count(sum(len(repeat.events) for repeat in rest), "call")
    took = duration(covered(part for repeat in rest for part in repeat.intervals))
    why = f" with {calls}, {took} in all: those above took the longest."
    parts.append(_more(len(rest), "line", why))
    return "\n".join(parts)


def _repeat(number: int, repeat: Repeat) -> str:
    times = len(repeat.events)
    often = "" if times == 1 else f", {times:,} times"
    what = f"{safe(repeat.outcome)} of {code(repeat.name)}{repeat.what}{often}"
    what += f", {duration(repeat.seconds)}"
    text = repeat.site["text"].strip() if repeat.site else ""
    source = f"<pre>{code(text)}</pre>\n" if text else ""
    within = repeat.site["function"] if repeat.site else ""
    inside = f", in {code(within)}" if within else ""
    open_ = " open" if number <= _OPEN else ""
    return (
        f"<details{open_}>\n<summary><h3>{code(place(repeat.site))}</h3> "
        f'<span class="what">{what}{inside}</span></summary>\n\n'
        f"{source}{_reasons(repeat.joined())}\n</details>"
    )


_TITLES: Final = ("path", "kind", "before → after", "what to do")


def _reasons(every: list[RepeatReason]) -> str:
    if not every:
        return "<p>No reason was found in the arguments.</p>"
    cells = [_reason(reason) for reason in every[:MOST_REASONS]]
    classes = ("path", "kind", "values", "fix")
    table = (
        f'<table class="reasons">{headings(_TITLES, classes)}\n'
        f"<tbody>\n{table_rows(cells, classes)}\n</tbody></table>"
    )
    return table + _more(len(every) - MOST_REASONS, "reason")


def _reason(reason: RepeatReason) -> tuple[str, str, str, str]:
    kind = safe(reason.kind, 80)
    if reason.unsound:
        kind += ' <span class="unsound">unsound</span>'
    values = [
        f"<div>{_value(before)} → {_value(after)}</div>"
        for before, after in reason.values[:MOST_VALUES]
    ]
    if len(reason.values) > MOST_VALUES:
        left = count(len(reason.values) - MOST_VALUES, "more change")
        values.append(f'<div class="left-out">and {left}</div>')
    return code(reason.path), kind, "".join(values), prose(reason.fix)


def _value(text: str) -> str:
    return code(text, _LONGEST_VALUE) or "<i>empty</i>"


_STYLE: Final = (
    """\
:root { --panel: color-mix(in srgb, var(--lw-text) 4%, var(--lw-back)); }
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 68rem;
  background: var(--lw-back); color: var(--lw-text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem; }
h3 { font-size: 1rem; margin: 0; display: inline; font-weight: 600; }
p { margin: .5rem 0; }
code, pre { font-family: """
    + FONT
    + """; font-size: .9em; overflow-wrap: anywhere; }
pre { margin: .5rem 0; padding: .5rem .75rem; background: var(--panel); border-radius: 6px;
  white-space: pre-wrap; }
:focus-visible { outline: 2px solid var(--lw-node); outline-offset: 2px; }
.faint, .left-out { color: var(--lw-note); }
.left-out { font-size: .9em; }
.failed { border-left: 4px solid var(--lw-problem); padding-left: .75rem; overflow-wrap: anywhere; }

.totals { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr));
  gap: .75rem; margin: 1.25rem 0 0; padding: 0; }
.totals div { background: var(--panel); border: 1px solid var(--lw-guide); border-radius: 8px;
  padding: .6rem .8rem; display: flex; flex-direction: column-reverse;
  justify-content: flex-end; }
.totals dt { color: var(--lw-note); font-size: .85em; line-height: 1.35; }
.totals dd { margin: 0; font-size: 1.4rem; font-weight: 600; line-height: 1.3;
  font-variant-numeric: tabular-nums; }
.totals .again dd { color: var(--lw-problem); }

.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35rem .75rem .35rem 0;
  border-bottom: 1px solid var(--lw-guide); font-weight: 400; }
thead th { color: var(--lw-note); font-size: .85em; white-space: nowrap; vertical-align: bottom; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.functions th:first-child { min-width: 9rem; max-width: 24rem; overflow-wrap: anywhere; }
.functions .where { overflow-wrap: anywhere; min-width: 9rem; max-width: 20rem; }
.total { font-weight: 600; }

details { border: 1px solid var(--lw-guide); border-radius: 8px; margin: .75rem 0;
  padding: .6rem .9rem; }
summary { cursor: pointer; overflow-wrap: anywhere; }
details[open] > summary { margin-bottom: .5rem; }
.what { color: var(--lw-note); }
.reasons .path { font-weight: 600; width: 28%; }
.reasons .kind { white-space: nowrap; }
.reasons .values { width: 34%; }
.unsound { color: var(--lw-problem); }
.fix { overflow-wrap: anywhere; }

@media (max-width: 640px) {
  .reasons thead { position: absolute; clip-path: inset(50%); width: 1px; height: 1px;
    overflow: hidden; }
  .reasons, .reasons tbody, .reasons tr, .reasons th, .reasons td { display: block; }
  .reasons .path, .reasons .values { width: auto; }
  .reasons th, .reasons td { border: 0; padding: .1rem 0; }
  .reasons tr { border-bottom: 1px solid var(--lw-guide); padding: .5rem 0; }
}
@media print { details { break-inside: avoid; } }
"""
)
