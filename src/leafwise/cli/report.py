"""The report of `leafwise check` for people."""

import sys
from collections.abc import Iterable, Iterator
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leafwise.cli.records import Caution, CheckedRow, ClassReport, LawResult, Verdict
from leafwise.cli.run import CheckRun

_STYLES: Final = {
    Verdict.OK: "green",
    Verdict.MISMATCH: "bold red",
    Verdict.VIOLATION: "bold red",
    Verdict.WARNING: "yellow",
    Verdict.ERROR: "bold red",
    Verdict.NOT_CHECKED: "bold yellow",
    Verdict.SKIPPED: "dim",
}
_NARROW: Final = 80
"""Below this width a table would lose or fold too much."""


def print_run(run: CheckRun, console: Console, *, verbose: bool = False) -> None:
    """Print a table with a line for each class, what is wrong with each, and a summary.

    Args:
        run: What was found.
        console: Where to.
        verbose: Whether every change of every field is shown, not only those that are wrong,
            and every warning in full.
    """
    if verbose:
        for report in run.reports:
            _print_class(report, console, report.rows)
    if not verbose or any(report.laws for report in run.reports):
        _print_summary(run.reports, console)
        console.print()
    shown: dict[tuple[str, str], str] = {}
    for report in run.reports:
        rows = tuple(row for row in report.rows if row.verdict.is_reported)
        titled = not verbose and bool(rows or report.error)
        if titled:
            _print_class(report, console, rows)
        findings = [*_broken(report), *_warned(report, None if verbose else shown)]
        if findings and not titled:
            _print_title(report, console)
        for line in findings:  # however long: they are copied, and read by programs
            console.print(line, soft_wrap=True)
        if findings:
            console.print()
    style = "bold red" if run.exit_code else "green"
    console.print(summary(run), style=style, highlight=False)


def _print_title(report: ClassReport, console: Console) -> None:
    # Texts, as markup would read brackets and emoji codes in what users wrote.
    console.print(Text.assemble((report.name, "bold"), "  ", (report.instance, "dim")))


def _print_class(report: ClassReport, console: Console, rows: tuple[CheckedRow, ...]) -> None:
    _print_title(report, console)
    for label, problem, style in (
        ("not checked", report.error, _STYLES[Verdict.NOT_CHECKED]),
        ("left out", report.left_out, "dim"),
    ):
        if problem:
            console.print(Text.assemble((label, style), " ", problem), soft_wrap=True)
    if console.width < _NARROW:
        _print_lines(rows, console)
    elif rows:
        console.print(_table(rows))
    console.print()


def _table(rows: Iterable[CheckedRow]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in ("field", "kind", "changed", "change", "predicted"):
        table.add_column(title, overflow="fold")
    for title in ("traces", "compiles"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    for row in rows:
        counted = row.predicted != ""
        table.add_row(
            Text(row.field),
            _kind(row),
            row.kind,
            Text(row.change),
            row.predicted,
            str(row.traces) if counted else "",
            str(row.compiles) if counted else "",
            _verdict(row),
        )
    return table


def _print_lines(rows: Iterable[CheckedRow], console: Console) -> None:
    """Print what `_table` shows, a few lines for each change."""
    for row in rows:
        console.print(Text.assemble(row.field, " ", _kind(row), f" {row.kind}: {row.change}"))
        counts = f"predicted {row.predicted}, traces {row.traces}, compiles {row.compiles}"
        lines = [Text(counts)] if row.predicted else []
        lines.append(Text.assemble("verdict ", _verdict(row)))
        for line in lines:
            console.print(Padding(line, (0, 0, 0, 2), expand=False))


def _kind(row: CheckedRow) -> Text:
    return Text("static", "magenta") if row.static else Text("dynamic", "cyan")


def _verdict(row: CheckedRow) -> Text:
    text = f"{row.verdict}: {row.note}" if row.note else str(row.verdict)
    return Text(text, _STYLES[row.verdict])


def _print_summary(reports: Iterable[ClassReport], console: Console) -> None:
    """Print one line a class; on a narrow console, one paragraph."""
    summaries = [_summary_of(report) for report in reports]
    if console.width < _NARROW:
        for name, fields, changes, laws, result in summaries:
            console.print(Text(name, "bold"))
            numbers = f"fields {fields}, changes {changes}, laws {laws}: "
            console.print(Padding(Text.assemble(numbers, result), (0, 0, 0, 2), expand=False))
        return
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("class", overflow="fold")
    for title in ("fields", "changes", "laws"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("result", overflow="fold")
    for name, fields, changes, laws, result in summaries:
        table.add_row(Text(name), fields, changes, laws, result)
    console.print(table)


def _summary_of(report: ClassReport) -> tuple[str, str, str, str, Text]:
    """Return name, how many fields, changes and laws, and the result, as text."""
    if report.error:
        return report.name, "-", "-", "-", Text("not checked", _STYLES[Verdict.NOT_CHECKED])
    if report.left_out:
        return report.name, "-", "-", "-", Text("left out", "dim")
    changes = [row for row in report.tried if row.verdict.is_bad]
    laws = [result for result in report.laws if result.verdict.is_bad]
    kept = sum(1 for result in report.laws if result.verdict is Verdict.OK)
    parts = []
    if changes:
        parts.append((f"{count(len(changes), 'change')} wrong", "bold red"))
    if laws:
        parts.append((f"{count(len(laws), 'law')} broken", "bold red"))
    if unchecked := _unchecked((*report.rows, *report.laws)):
        parts.append((unchecked, _STYLES[Verdict.NOT_CHECKED]))
    if not parts:
        checked = report.rows or report.laws  # `--field` may name fields of other classes
        parts.append(("ok", "green") if checked else ("nothing checked", "dim"))
    if report.warnings:
        parts.append((count(len(report.warnings), "warning"), "yellow"))
    result = Text(", ").join(Text(*part) for part in parts)
    of_laws = f"{kept}/{len(report.laws)}" if report.laws else "-"
    tried = str(len(report.tried)) if report.rows else "-"
    return report.name, str(len(report.fields)), tried, of_laws, result


def _broken(report: ClassReport) -> Iterator[Text]:
    """Yield the laws that are broken or not checked; those with the same message together."""
    warned = {warning.law for warning in report.warnings}
    found: dict[tuple[Verdict, str], list[str]] = {}
    for result in report.laws:
        if result.verdict.is_reported and result.law not in warned:
            found.setdefault((result.verdict, result.message), []).append(result.law)
    for (verdict, message), laws in found.items():
        word = "broken" if verdict is Verdict.VIOLATION else str(verdict)
        named = f"{word}: {'law' if len(laws) == 1 else 'laws'} {', '.join(laws)}"
        yield Text(named, _STYLES[verdict])
        yield from (Text(f"  {line}") for line in message.splitlines())


def _warned(report: ClassReport, shown: dict[tuple[str, str], str] | None) -> Iterator[Text]:
    """Yield the warnings; in full the first of each kind.

    Args:
        report: Has the warnings.
        shown: Where each law was shown for each library; added to. None to show all in full.
    """
    for warning in report.warnings:
        kind = warning.law, report.library
        if shown is None or kind not in shown:
            yield from _warning_lines(warning)
            if shown is not None:
                shown[kind] = warning.path
        else:
            title = (f"warning: law {warning.law}, {warning.path}", "yellow")
            yield Text.assemble(title, f"  as shown for {shown[kind]}")


def _warning_lines(warning: Caution) -> list[Text]:
    """Return a warning: both calls and both results, what is right, and the fix."""
    lines = [Text(f"warning: law {warning.law}, {warning.path}", "yellow")]
    lines.extend(Text(f"  {line}") for line in warning.message.splitlines())
    lines.extend(Text(f"    {line}") for line in warning.program.splitlines())
    calls = [*warning.calls, *([warning.truth] if warning.truth else [])]
    width = max((len(call.text) for call in calls), default=0)
    for call in calls:
        right = call is warning.truth
        style = "green" if right else "yellow" if call is warning.calls[-1] else ""
        lines.append(Text.assemble(f"    {call.text:<{width}}  -> ", (call.result, style)))
    if warning.fix:
        lines.append(Text("  fix:"))
        lines.extend(Text(f"    {line}", "green") for line in warning.fix.splitlines())
    return lines


def summary(run: CheckRun) -> str:
    """Return one line: how many classes, changes and laws, and how they turned out."""
    rows = [row for report in run.reports for row in report.tried]
    laws = [result for report in run.reports for result in report.laws]
    counted = [count(len(run.reports), "class", "classes")]
    if rows or not laws:
        counted.append(count(len(rows), "change"))
    if laws:
        counted.append(count(len(laws), "law"))
    changes = sum(1 for row in rows if row.verdict.is_bad)
    broken = sum(1 for result in laws if result.verdict.is_bad)
    wrong = [count(changes, "change")] if changes else []
    wrong += [count(broken, "law")] if broken else []
    unchecked = _unchecked((*rows, *laws))
    right = "all as promised" if rows or laws else "nothing was checked"
    parts = [f"{' and '.join(wrong)} not as promised"] if wrong else [] if unchecked else [right]
    parts += [unchecked] if unchecked else []
    warnings = sum(len(report.warnings) for report in run.reports)
    if warnings:
        parts.append(count(warnings, "warning"))
    for label, problems in (
        ("not checked", [report.error for report in run.reports if report.error]),
        ("left out", [report.left_out for report in run.reports if report.left_out]),
    ):
        if problems:
            parts.append(f"{count(len(problems), 'class', 'classes')} {label}")
    if run.interrupted:
        parts.append(
            f"interrupted, {count(run.total - len(run.reports), 'class', 'classes')} to go"
        )
    return f"{', '.join(counted)}: {', '.join(parts)}"


def _unchecked(results: Iterable[CheckedRow | LawResult]) -> str:
    """Return how many changes and laws could not be checked; empty for none."""
    found = [each for each in results if each.verdict is Verdict.NOT_CHECKED]
    laws = sum(isinstance(each, LawResult) for each in found)
    counted = ((len(found) - laws, "change"), (laws, "law"))
    texts = [count(number, word) for number, word in counted if number]
    return f"{' and '.join(texts)} not checked" if texts else ""


def count(number: int, one: str, many: str = "") -> str:
    """Return ``1 change``, ``2 changes``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def make_console() -> Console:
    """Return the console for reports; wide where no terminal sets a width."""
    return Console(width=None if sys.stdout.isatty() else 120, emoji=False)
