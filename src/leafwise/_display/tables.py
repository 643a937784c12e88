"""A report, an explanation and captures as rich prints them; cannot be imported without rich."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leafwise._display.captures_table import (
    TITLES,
    footer_lines,
    format_lines,
    stale_lines,
    table_cells,
)
from leafwise._display.repeats import (
    Repeat,
    RepeatReason,
    busy,
    first_calls,
    folded,
    headline,
    joined,
    reasons_of,
    repeats,
    split_small,
)
from leafwise._display.shape import CapturesRecord, ExplanationRecord, FunctionRecord, Report
from leafwise._display.words import (
    NOTHING,
    audit_lines,
    cache_lines,
    count,
    cut,
    duration,
    home,
    is_empty,
    lost,
    outcome_of,
    place,
    sentence,
)

MOST_FUNCTIONS: Final = 30
MOST_REPEATS: Final = 30
MOST_REASONS: Final = 12
_LONGEST: Final = 400
_WIDEST: Final = 10_000


def print_report(report: Report, console: Console) -> None:
    """Print the functions, what was traced or compiled again and why, and the warnings.

    The first and the last line say what could be saved, and by what. What took under 1 % of JAX's
    time is one line. A table of functions that does not fit the console becomes two lines for
    each function. If the output is not a terminal, no line is folded: a reason is one line for
    `grep`.

    Args:
        report: The report.
        console: Where to print.
    """
    again = repeats(report)
    saved = Text(headline(report, again))
    if is_empty(report):
        _print(Text(NOTHING), console)
    else:
        name = (cut(report["program"], _LONGEST), "bold")
        _print(Text.assemble(name, ": ", saved), console)
        _print(_summary(report, again), console)
        console.print()
        _print_functions(report["functions"], console)
        for repeat in folded(report, again)[0][:MOST_REPEATS]:
            console.print()
            _print_repeat(repeat, console)
        console.print()
    for each in report.get("captures", [])[:MOST_FUNCTIONS]:
        _print_captures(each, console)
    for line in (*cache_lines(report)[:MOST_REASONS], *audit_lines(report)):
        _print(Text(line), console)
    if report["ended"]:
        ended = cut(report["ended"], _LONGEST)
        _print(Text.assemble(("the program ended: ", "bold red"), ended), console)
    for text in report["warnings"]:
        # A warning may have several lines.
        for number, line in enumerate(text.splitlines()):
            head = ("warning: ", "bold yellow") if number == 0 else "  "
            _print(Text.assemble(head, cut(line, _LONGEST)), console)
    if not is_empty(report):
        _print_left_out(report, again, console)
        _print(saved, console)


def explanation(explanation: Mapping[str, Any]) -> Table:
    """Return an explanation as a table.

    Args:
        explanation: What `Explanation.as_dict` returns.

    Returns:
        The reasons, a row each; what JAX does is the title.
    """
    explained = cast("ExplanationRecord", explanation)
    every = joined(reasons_of(explained))
    outcome = (cut(outcome_of(explained), _LONGEST), "bold")
    title = Text.assemble(outcome, ": ", sentence(explained), style="not italic")
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    # Wide enough for its title, which would be folded to the width of the columns.
    table.title, table.title_justify, table.min_width = title, "left", title.cell_len
    table.caption_justify, table.show_header = "left", bool(every)
    for name in ("path", "kind", "before -> after", "what to do"):
        table.add_column(name, overflow="fold")
    for reason in every[:MOST_REASONS]:
        path = Text(cut(reason.path, _LONGEST), "bold")
        table.add_row(path, _kind(reason), Text(_values(reason)), Text(cut(reason.fix, _LONGEST)))
    if len(every) > MOST_REASONS:
        table.caption = Text(f"and {count(len(every) - MOST_REASONS, 'more reason')}")
    return table


def captures(captured: Mapping[str, Any]) -> Table:
    """Return what a function closes over as a table.

    Args:
        captured: What `Captures.as_dict` returns.

    Returns:
        The captures, a row each; the bytes are below.
    """
    found = cast("CapturesRecord", captured)
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    rows = table_cells(found)
    for title in TITLES if rows else ():
        table.add_column(title, overflow="fold", justify="right" if title == "bytes" else "left")
    for name, treatment, nbytes, value, where in rows:
        table.add_row(Text(name, "bold"), treatment, nbytes, Text(value), Text(where, "dim"))
    below = list(footer_lines(found))
    caption = Text("\n").join(Text(line) for line in below)
    table.caption, table.caption_justify = caption, "left"
    table.min_width = max((len(line) for line in below), default=0)
    return table


def _print_captures(captured: CapturesRecord, console: Console) -> None:
    console.print()
    name = (cut(captured["function"], _LONGEST), "bold")
    _print(Text.assemble(name, " captures"), console)
    for line in format_lines(captured):
        _print(Text(line), console, indent=2)
    for line in stale_lines(captured):
        _print(Text(line, "bold red"), console, indent=2)


def _print(line: Text, console: Console, indent: int = 0) -> None:
    """Print a line: on a terminal folded under its start, elsewhere unfolded."""
    if console.is_terminal:
        console.print(Padding(line, (0, 0, 0, indent), expand=False))
    else:
        # Not a Padding: rich would pad to the console's width, or fold in the middle of a path.
        console.print(Text(" " * indent) + line, soft_wrap=True)


def _summary(report: Report, again: list[Repeat]) -> Text:
    """Return how long JAX worked in all, and on what."""
    functions = sum(1 for each in report["functions"] if not each["eager"])
    every = report["functions"]
    parts = [
        count(functions, "function"),
        count(sum(each["traces"] for each in every), "trace"),
        count(sum(each["lowerings"] for each in every), "lowering"),
        count(sum(each["compiles"] for each in every), "compilation"),
    ]
    if hits := sum(each["cache_hits"] for each in every):
        parts.append(count(hits, "cache hit"))
    if misses := sum("miss" in each for each in report["events"]):
        parts.append(count(misses, "cache miss", "cache misses"))
    parts.append(count(first_calls(report, again), "first call"))
    return Text(f"JAX worked {duration(busy(report))} in all: {', '.join(parts)}")


def _print_functions(functions: list[FunctionRecord], console: Console) -> None:
    large, small = split_small(functions, lost, sum(map(lost, functions)))
    shown, rest = large[:MOST_FUNCTIONS], large[MOST_FUNCTIONS:] + small
    table = _function_table(shown)
    wide = console.options.update(max_width=_WIDEST)
    if Measurement.get(console, wide, table).maximum <= console.width:
        console.print(table)
    else:
        for function in shown:
            _print_function(function, console)
    if rest:
        seconds = duration(sum(map(lost, rest)))
        _print(Text(f"and {count(len(rest), 'more function')}, {seconds}", "dim"), console)


def _function_table(functions: list[FunctionRecord]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("function", "where"):
        table.add_column(name, no_wrap=True)
    for name in ("traces", "lowerings", "compiles", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in functions:
        table.add_row(
            _name(each),
            Text(home(each)),
            f"{each['traces']:,}",
            f"{each['lowerings']:,}",
            f"{each['compiles']:,}",
            duration(lost(each)),
        )
    return table


def _print_function(function: FunctionRecord, console: Console) -> None:
    """Print a row of the table on two lines."""
    _print(
        Text("  ").join(part for part in (_name(function), Text(home(function))) if part), console
    )
    counts = ", ".join(
        (
            count(function["traces"], "trace"),
            count(function["lowerings"], "lowering"),
            count(function["compiles"], "compilation"),
            duration(lost(function)),
        )
    )
    _print(Text(counts), console, indent=2)


def _name(function: FunctionRecord) -> Text:
    return Text(cut(function["name"], _LONGEST), "dim" if function["eager"] else "bold")


def _print_repeat(repeat: Repeat, console: Console) -> None:
    text = cut(repeat.site["text"].strip(), _LONGEST) if repeat.site else ""
    _print(Text.assemble((place(repeat.site), "bold cyan"), "  ", text), console)
    times = len(repeat.events)
    often = "" if times == 1 else f", {times:,} times"
    what = f"{cut(repeat.outcome, _LONGEST)} of {cut(repeat.name, _LONGEST)}{repeat.what}"
    _print(Text(f"{what}{often}, {duration(repeat.seconds)}", "dim"), console, indent=2)
    for line in _reasons(repeat.joined()):
        _print(line, console, indent=2)


def _reasons(every: list[RepeatReason]) -> Iterator[Text]:
    for reason in every[:MOST_REASONS]:
        path = (cut(reason.path, _LONGEST), "bold")
        values = _values(reason)
        line = Text.assemble(path, ": ", _kind(reason), ": " if values else "", values)
        fix = cut(reason.fix, _LONGEST)
        yield line.append(f". {fix}" if fix else "")
    if not every:
        yield Text("no reason was found in the arguments")
    if len(every) > MOST_REASONS:
        yield Text(f"and {count(len(every) - MOST_REASONS, 'more reason')}", "dim")


def _kind(reason: RepeatReason) -> Text:
    kind = Text(cut(reason.kind, 80), "magenta")
    return kind.append(" (unsound)", "bold red") if reason.unsound else kind


def _values(reason: RepeatReason) -> str:
    before, after = next(iter(reason.values), ("", ""))
    if not reason.values:
        return ""
    text = f"{cut(before, _LONGEST)} -> {cut(after, _LONGEST)}"
    more = len(reason.values) - 1
    return f"{text}, and {count(more, 'more change')}" if more else text


def _print_left_out(report: Report, again: list[Repeat], console: Console) -> None:
    """Print how many repeats are not shown."""
    large, small = folded(report, again)
    rest = large[MOST_REPEATS:]
    if calls := sum(len(repeat.events) for repeat in rest + small):
        why = "" if rest else ", under 1 % of the time each"
        plural = "more retraces and recompiles"
        text = f"not shown: {count(calls, 'more retrace or recompile', plural)}{why}"
        _print(Text(text), console)
