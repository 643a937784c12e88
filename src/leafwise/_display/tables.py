"""A report as rich prints it, or GitHub; cannot be imported without rich."""

import io
import textwrap
from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from leafwise._display.captures_table import format_lines, stale_lines
from leafwise._display.findings import (
    Finding,
    busy,
    findings,
    is_batch,
    nothing_again,
    once_each,
    seconds_of,
)
from leafwise._display.shape import CapturesRecord, FindingRecord, FunctionRecord, Report
from leafwise._display.words import (
    NOTHING,
    annotation,
    audit_lines,
    cache_lines,
    clean,
    count,
    cut,
    described,
    duration,
    is_empty,
    left_out_lines,
    lost,
    paths_of,
    together_lines,
    tried_lines,
)

MOST_FINDINGS: Final = 20
_MOST_FUNCTIONS: Final = 10
_MOST_LINES: Final = 3
_SMALL: Final = 0.01
"""The share of JAX's time below which a line that compiled nothing again is not shown."""

_LONGEST: Final = 400
_LONGEST_PLACE: Final = 26


def print_report(report: Report, console: Console) -> None:
    """Print the findings, the functions, what was compiled outside them, and the warnings."""
    found = findings(report)
    records = report.get("findings") or [each.record() for each in found]
    for record in records[:MOST_FINDINGS]:
        _print_finding(record, report, console)
    small = findings(report, small=True)
    for left, name in ((found[MOST_FINDINGS:], "more finding"), (small, "small repeat")):
        if left:
            spent = duration(seconds_of(left))
            _print(f"{count(len(left), name)}, {spent}", console, style="dim")
            console.print()
    _print_functions([each for each in report["functions"] if not each["eager"]], console)
    _print_once_each(report, found, console)
    for captured in report.get("captures", [])[:_MOST_FUNCTIONS]:
        _print_captures(captured, console)
    for line in (*cache_lines(report)[:_MOST_FUNCTIONS], *audit_lines(report)):
        _print(line, console)
    if report["ended"]:
        _print(f"the program ended: {cut(report['ended'], _LONGEST)}", console, style="bold red")
    for text in report["warnings"]:
        for number, line in enumerate(text.splitlines()):
            head = "  " if number else "warning: "
            _print(head + cut(line, _LONGEST), console, style="yellow")
    _print(NOTHING if is_empty(report) else _summary(report, found), console)
    for line in (*together_lines(report), *left_out_lines(report)):
        _print(line, console)


def html_page(report: Report) -> str:
    """Return the report as an HTML page that needs no other file."""
    return _recorded(report).export_html(inline_styles=True)


def html_fragment(report: Report) -> str:
    """Return the report as an element of a notebook's page."""
    form = '<pre style="line-height:normal;white-space:pre-wrap">{code}</pre>'
    return _recorded(report).export_html(inline_styles=True, code_format=form)


def _recorded(report: Report) -> Console:
    console = Console(record=True, file=io.StringIO(), width=100, force_terminal=True)
    print_report(report, console)
    return console


def _summary(report: Report, found: list[Finding]) -> str:
    ran = duration(report["seconds"])
    if found:
        spent = duration(seconds_of(found))
        return f"{count(len(found), 'finding')}: {spent} of {ran} went into repeats"
    what = "nothing was compiled again: " if nothing_again(report) else "no findings: "
    what = "" if report.get("left_out") else what
    return f"{what}JAX worked {duration(busy(report))} of {ran}"


def _print_captures(captured: CapturesRecord, console: Console) -> None:
    console.print()
    _print(f"{cut(captured['function'], _LONGEST)} captures", console, style="bold")
    for line in format_lines(captured):
        console.print(Text(f"  {line}"), soft_wrap=True)
    for line in stale_lines(captured):
        _print(line, console, 2, style="bold red")


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


def _print_finding(record: FindingRecord, report: Report, console: Console) -> None:
    via = map(_shorten_place, record["via"][:1])
    where = " ".join((record["place"], *(f"[{each}]" for each in via)))
    line = Text(f"{where}  {cut(record['text'], _LONGEST)}")
    line.stylize("bold cyan", 0, len(where))
    line.truncate(console.width, overflow="ellipsis")
    console.print(line, soft_wrap=True)
    for text in _lines_of(record, report):
        _print(text, console, 2, "green" if text.startswith("fix: ") else "")
    for text in tried_lines(record):
        style = {"f": "green", "+": "green", "-": "red"}.get(text.lstrip()[0], "")
        console.print(Text(f"  {cut(text, _LONGEST)}", style), soft_wrap=True)
    console.print()


def _lines_of(record: FindingRecord, report: Report) -> Iterator[str]:
    """Yield what was made again, why, and the fixes; not the only one, if it was tried."""
    every = {each["process"] for each in report["events"]}
    where = ""
    if record["processes"] and len(record["processes"]) < len(every):
        where = f", in {paths_of(record['processes'])}"
    yield f"{cut(record['what'], _LONGEST)}, {duration(record['seconds'])}{where}"
    for reason in record["reasons"][:_MOST_LINES]:
        if is_batch(reason):  # which the first line has said
            continue
        path, kind, change = (cut(reason[name], _LONGEST) for name in ("path", "kind", "change"))
        more = f", and {reason['more']:,} more" if reason["more"] else ""
        yield f"{described(path, kind, change)}{more}"
    if len(record["reasons"]) > _MOST_LINES:
        yield f"and {count(len(record['reasons']) - _MOST_LINES, 'more reason')}"
    fixes = [] if "tried" in record and len(record["fixes"]) == 1 else record["fixes"]
    for fix in fixes[:_MOST_LINES]:
        yield f"fix: {cut(fix, _LONGEST)}"


def _shorten_place(text: str) -> str:
    """Return the end of a file and its line."""
    return f"...{text[-_LONGEST_PLACE:]}" if len(text) > _LONGEST_PLACE + 3 else text


def _print_functions(functions: list[FunctionRecord], console: Console) -> None:
    if not functions:
        return
    shown, rest = functions[:_MOST_FUNCTIONS], functions[_MOST_FUNCTIONS:]
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("function", overflow="ellipsis", no_wrap=True, max_width=22)
    table.add_column("where", no_wrap=True)
    for name in ("traces", "compiles", "time"):
        table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
    for each in shown:
        compiles = each["compiles"] + each["cache_hits"]
        table.add_row(
            Text(cut(each["name"], 80), "bold"),
            Text(_shorten_place(f"{clean(each['file'])}:{each['line']}" if each["file"] else "")),
            f"{each['traces']:,}",
            f"{compiles:,}",
            duration(lost(each)),
        )
    console.print(table)
    if rest:
        seconds = duration(sum(map(lost, rest)))
        _print(f"and {count(len(rest), 'more function')}, {seconds}", console, style="dim")
    console.print()


def _print_once_each(report: Report, found: list[Finding], console: Console) -> None:
    """Print the lines that took longest of those that compiled nothing again."""
    least = _SMALL * busy(report)
    rows = [row for row in once_each(report, found)[:_MOST_LINES] if row[2] >= least]
    if rows:
        _print("compiled once each, outside `jit`", console, style="dim")
        for line, number, seconds in rows:
            _print(f"{line}  {count(number, 'program')}, {duration(seconds)}", console, 2)
        console.print()


def annotations_of(report: Report) -> str:
    """Return the lines that GitHub shows beside the code: of findings, and what the audit found."""
    lines: list[str] = []
    for each in findings(report):
        record = each.record()
        title = f"{record['what']}, {duration(record['seconds'])}"
        reasons = [described(one["path"], one["kind"], one["change"]) for one in record["reasons"]]
        text = "\n".join((*reasons, *(f"fix: {fix}" for fix in record["fixes"]))) or title
        where = (each.site["file"], each.site["line"]) if each.site else ("", 0)
        lines.append(annotation("warning", text, title, *where))
    for found in report["audit"]["found"] if "audit" in report else ():
        file, _, number = found["call"].rpartition(":")  # or "line not known"
        place = (file, int(number)) if file else ("", 0)
        lines.append(annotation("warning", found["what"], "another program answered", *place))
    return "\n".join(lines)
