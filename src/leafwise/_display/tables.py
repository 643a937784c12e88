"""Printing a report with rich, or for GitHub; cannot be imported without rich."""

import io
import textwrap
from collections.abc import Iterator
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from leafwise._display.captures import captures_lines, stale_calls, stale_lines
from leafwise._findings.findings import (
    LEAST,
    MOST_FINDINGS,
    Finding,
    findings,
    is_batch,
    nothing_again,
    seconds_of,
)
from leafwise._findings.first_compiles import MOST_FIRST, first_seconds
from leafwise._findings.reasons import Act, grouped
from leafwise._findings.records import CapturesRecord, place
from leafwise._findings.report import Report, cache_off_lines, once_each
from leafwise._findings.words import (
    CONFIRMED,
    UNKNOWN,
    annotation,
    clean,
    count,
    cut,
    described,
    duration,
    paths_of,
)

_MOST_FUNCTIONS: Final = 10
_MOST_LINES: Final = 3
_SMALL: Final = 0.01
"""The share of JAX's time below which a line that compiled nothing again is not shown."""

_LONGEST: Final = 400
_LONGEST_PLACE: Final = 26


def print_report(report: Report, console: Console) -> None:
    """Print the findings, the functions, what was compiled outside them, and the warnings."""
    for finding in report.shown():
        _print_finding(finding, report, console)
    _print_number(report.findings[MOST_FINDINGS:], "more finding", console)
    _print_number(findings(report.events, small=True), "small repeat", console)
    _print_calls(report, console)
    _print_functions(report, console)
    _print_once_each(report, console)
    for captured in report.captures[:_MOST_FUNCTIONS]:
        _print_captures(captured, console)
    for line in (*cache_lines(report)[:_MOST_FUNCTIONS], *_audit_lines(report)):
        _print(line, console)
    if report.ended:
        what = "cell" if report.program.startswith("Cell In[") else "program"
        _print(f"the {what} ended: {cut(report.ended, _LONGEST)}", console, style="bold red")
    for text in report.warnings:
        for line in f"warning: {text}".replace("\n", "\n  ").splitlines():
            _print(cut(line, _LONGEST), console, style="yellow")
    for line in map(clean, _closing_lines(report)):
        _print(line, console)
    left_by_patch = report.together.left if report.together is not None else []
    for finding in left_by_patch[:MOST_FINDINGS]:
        _print_finding(finding, report, console)


def _print_number(left: list[Finding], name: str, console: Console) -> None:
    if left:
        spent = duration(seconds_of(left))
        _print(f"{count(len(left), name)}, {spent}", console, style="dim")
        console.print()


FRAGMENT: Final = (
    '<pre style="font-family:monospace;line-height:normal;white-space:pre-wrap">{code}</pre>'
)
"""The HTML element for a notebook."""


def html_page(report: Report, form: str | None = None) -> str:
    """Return the report as a self-contained HTML page, or in another `form`, as `FRAGMENT`."""
    facts: Any = {"force_terminal": True, "force_jupyter": False}  # which would display each line
    console = Console(record=True, file=io.StringIO(), width=100, **facts)
    print_report(report, console)
    return console.export_html(inline_styles=True, code_format=form)


def _print_captures(captured: CapturesRecord, console: Console) -> None:
    console.print()
    _print(f"{cut(captured.function, _LONGEST)} captures", console, style="bold")
    for line in captures_lines(captured):
        console.print(Text(f"  {line}"), soft_wrap=True)
    for line in stale_lines(captured):
        _print(line, console, 2, style="bold red")


def _summary(report: Report) -> str:
    ran, findings = duration(report.seconds), report.findings
    if not (report.functions or report.events):
        return "No compile was recorded." if report.warnings else "JAX compiled nothing."
    if findings:
        spent = duration(seconds_of(findings))
        return f"{count(len(findings), 'finding')}: {spent} of {ran} went into repeats"
    worked = f"JAX took {duration(report.jax_seconds)} of {ran}"
    is_long = (seconds := first_seconds(report.events)) >= LEAST
    worked += f": {duration(seconds)} in first compiles" if is_long else ""
    separator = "." if is_long else ":"
    if report.left_out or report.warnings:
        return worked
    if nothing_again(report.events):
        return f"nothing was compiled again{separator} {worked}"
    return worked if report.first else f"no findings{separator} {worked}"


def cache_lines(report: Report) -> list[str]:
    """Return a line for each reason why JAX's cache on disk missed, the longest compile first."""
    misses = [event for event in report.events if event.miss]
    misses.sort(key=lambda event: -event.seconds)
    lines: list[str] = []
    for why, events in grouped(misses, lambda event: clean(event.miss)).items():
        misses_of = f"{len(events):,} cache misses of" if len(events) > 1 else "cache miss of"
        lines.append(f"{misses_of} {paths_of(clean(event.name) for event in events)}: {why}")
    return lines


def _audit_lines(report: Report) -> Iterator[str]:
    """Yield a line for each result of the audit, then its cost; nothing without an audit."""
    if (audit := report.audit) is not None:
        for wrong in audit.found:
            times = f", {wrong.times:,} times" if wrong.times > 1 else ""
            yield f"{clean(wrong.call)}: {clean(wrong.what)}{times}"
        yield f"audit: {count(audit.calls, 'call')} compared in {duration(audit.seconds)}"


def _closing_lines(report: Report) -> Iterator[str]:
    """Yield the summary, the improvement by `--try`, and what JAX did not expose."""
    yield _summary(report)
    if report.shown():
        share = report.explained_seconds / (report.jax_seconds or 1.0)
        explained = f"{duration(report.explained_seconds)} ({share:.0%})"
        lines = seconds_of(report.shown()) - report.explained_seconds
        more = (
            f", and {duration(lines)} without a cause" if lines >= 0.01 * report.jax_seconds else ""
        )
        yield f"explained above: {explained} of JAX's {duration(report.jax_seconds)}{more}"
    if report.recorded:
        yield f"records of {count(report.recorded, 'process', 'processes')}"
    if (expected := report.expected) is not None:
        lines, were = len(expected.lines), "was" if expected.repeats == 1 else "were"
        what = f"{count(expected.repeats, 'repeat')} at {count(lines, 'line')} {were}"
        yield f"{what} marked `# leafwise: expected`, {duration(expected.seconds)}"
    yield from cache_off_lines(report)
    together = report.together
    if together is not None:
        every = count(len(report.findings) + len(report.first), "finding")
        has = "has" if together.findings == 1 else "have"
        text = f"{together.findings} of {every} {has} a fix that was tried; together"
        repeats = f"{count(together.before, 'repeat')} -> {together.after:,}, "
        repeats = repeats if together.before else ""
        seconds = f"{duration(report.seconds)} -> {duration(together.seconds)}"
        hint = "`--diff` prints the patch, `--write` applies it"
        hint = "`--write` has applied the patch" if together.written else hint
        if together.verdict == UNKNOWN:
            hint = "`--diff` prints it: no output was compared, so `--write` leaves it to you"
        yield f"{text}: {repeats}{seconds}. {hint}."
    if report.untried:
        untried = count(report.untried, "finding")
        yield f"not tried: {untried}, without a known edit or beyond `--max-tries`"
    lost = report.left_out
    for what in dict.fromkeys(lost.values()):
        shown = " or ".join(name for name, part in lost.items() if part == what)
        yield (
            f"JAX {report.jax} does not show {shown} to this version of leafwise: {what} are "
            f"left out. `pip install -U leafwise`"
        )
    if together is not None and together.left:
        yield "left with the patch:"


def _print(text: str, console: Console, indent: int = 0, style: str = "") -> None:
    """Print a text in lines that fit, all with the same indent; a word is never broken."""
    space = " " * indent
    lines = textwrap.wrap(
        text,
        max(console.width, 40),
        initial_indent=space,
        subsequent_indent=space,
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in lines or [space]:
        console.print(Text(line, style), soft_wrap=True)


def _print_finding(finding: Finding, report: Report, console: Console) -> None:
    via = map(_shorten_place, finding.via[:1])
    where = " ".join((place(finding.site), *(f"[{line}]" for line in via)))
    _print_line(where, finding.text, console)
    for text in _reason_lines(finding, report):
        _print(text, console, 2)
    fixes = finding.fixes()
    if finding.tried is not None and len(fixes) == 1:
        # The tried patch shows this fix. It is repeated only if the patch failed, as the value
        # has to be static.
        is_dynamic = fixes[0].act is Act.MAKE_DYNAMIC
        fixes = fixes if is_dynamic and finding.tried.verdict not in CONFIRMED else []
    for fix in fixes[:_MOST_LINES]:
        _print(f"fix: {clean(str(fix))}", console, 2, "green")  # code must not be cut
    for text in _tried_lines(finding, report):
        style = {"f": "green", "+": "green", "-": "red"}.get(text.lstrip()[0], "")
        console.print(Text(f"  {clean(text)}", style), soft_wrap=True)
    console.print()


def _print_line(where: str, text: str, console: Console) -> None:
    line = Text(f"{where}  {cut(text, _LONGEST)}")
    line.stylize("bold cyan", 0, len(where))
    line.truncate(console.width, overflow="ellipsis")
    console.print(line, soft_wrap=True)


def _tried_lines(finding: Finding, report: Report) -> Iterator[str]:
    """Yield the result of the edit that was tried, and once the edit if it helped."""
    tried = finding.tried
    if tried is not None and tried.verdict in CONFIRMED:
        every = (*report.findings, *report.first)
        if next(first for first in every if first.tried == tried) is finding:
            yield f"fix, tried: {finding.effect(tried)}, {CONFIRMED[tried.verdict]}"
            yield from (f"  {line}" for line in tried.edit)
        else:
            yield "fix, tried: the same edit as above"
    elif tried is not None:
        wrong = (f": {cut(answer.what, _LONGEST)}" for answer in tried.wrong[:1])
        alone = " alone" if len(finding.fixes()) > 1 else ""
        yield f"tried{alone}: {tried.verdict}{''.join(wrong)}"


def _reason_lines(finding: Finding, report: Report) -> Iterator[str]:
    every = {event.process for event in report.events}
    where = ""
    if finding.processes and len(finding.processes) < len(every):
        where = f", in {paths_of(finding.processes)}"
    yield f"{cut(finding.headline, _LONGEST)}{where}"
    reasons = finding.reasons()
    for reason, others in reasons[:_MOST_LINES]:
        if is_batch(reason):  # shown in the first line
            continue
        path, change = (cut(text, _LONGEST) for text in (reason.path, reason.change))
        more = f", and {others:,} more" if others else ""
        yield f"{described(path, reason.kind, change)}{more}"
    if len(reasons) > _MOST_LINES:
        yield f"and {count(len(reasons) - _MOST_LINES, 'more reason')}"
    yield from filter(None, [cut(finding.also, _LONGEST)])


def _shorten_place(text: str) -> str:
    return f"...{text[-_LONGEST_PLACE:]}" if len(text) > _LONGEST_PLACE + 3 else text


def _print_calls(report: Report, console: Console) -> None:
    for call in report.calls[:MOST_FINDINGS]:
        _print_line(place(call.site), call.site.text if call.site else "", console)
        for text in call.lines():
            _print(text, console, 2, "green" if text.startswith("fix: ") else "")
        console.print()


def _print_functions(report: Report, console: Console) -> None:
    functions = [function for function in report.functions if not function.eager]
    if not functions:
        return
    shown, rest = functions[:_MOST_FUNCTIONS], functions[_MOST_FUNCTIONS:]
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("function", overflow="ellipsis", no_wrap=True, max_width=22)
    table.add_column("where", no_wrap=True)
    for name in ("traces", "compiles", "time"):
        table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
    for function in shown:
        where = f"{clean(function.file)}:{function.line}" if function.file else ""
        table.add_row(
            Text(cut(function.name, 80), "bold"),
            Text(_shorten_place(where)),
            f"{function.traces:,}",
            f"{function.compiles + function.cache_hits:,}",
            duration(function.total),
        )
    console.print(table)
    if rest:
        seconds = duration(sum(function.total for function in rest))
        _print(f"and {count(len(rest), 'more function')}, {seconds}", console, style="dim")
    console.print()


def _print_once_each(report: Report, console: Console) -> None:
    """Print the lines outside `jit` that took longest among those without repeats."""
    least = _SMALL * report.jax_seconds
    rows = [row for row in once_each(report)[:_MOST_LINES] if row[2] >= least]
    if rows:
        _print("compiled once each, outside `jit`", console, style="dim")
        for line, number, seconds in rows:
            _print(f"{line}  {count(number, 'program')}, {duration(seconds)}", console, 2)
        console.print()


def annotations_of(report: Report) -> str:
    """Return GitHub annotations for findings, stale captures and the results of the audit."""
    lines: list[str] = []
    for finding in (*report.findings, *report.first[:MOST_FIRST]):
        title = finding.headline
        reasons = [described(why.path, why.kind, why.change) for why, _ in finding.reasons()]
        fixes = [f"fix: {fix}" for fix in finding.fixes()]
        text = "\n".join(filter(None, (*reasons, finding.also, *fixes))) or title
        where = (finding.site.file, finding.site.line) if finding.site else ("", 0)
        lines.append(annotation("warning", text, title, *where))
    for cost in report.calls[:MOST_FINDINGS]:
        where = (cost.site.file, cost.site.line) if cost.site else ("", 0)
        lines.append(annotation("warning", "\n".join(cost.lines()), "cost of each call", *where))
    calls = [(*call, "an old value was used") for call in stale_calls(report.captures)]
    wrong = report.audit.found if report.audit is not None else ()
    calls += [(answer.call, answer.what, "another program answered") for answer in wrong]
    for call, what, title in calls:
        file, _, number = call.rpartition(":")  # or "line not known"
        at = (file, int(number)) if file else ("", 0)
        lines.append(annotation("warning", what, title, *at))
    lines += [annotation("warning", text, "not recorded") for text in report.warnings]
    return "\n".join(lines)
