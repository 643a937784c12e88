"""The reports of `leafwise check`: a table for people, JSON for programs."""

import dataclasses
import json
import platform
import sys
from collections.abc import Iterable

import jax
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from leafwise.check.observe import ClassReport, Row, Verdict, check_class
from leafwise.check.targets import Target

_STYLES = {
    Verdict.OK: "green",
    Verdict.MISMATCH: "bold red",
    Verdict.VIOLATION: "bold red",
    Verdict.SKIPPED: "dim",
}


def run_checks(targets: list[Target]) -> list[ClassReport]:
    """Check all classes, with progress on a terminal's standard error."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("checking", total=len(targets))
        reports: list[ClassReport] = []
        for number, target in enumerate(targets, 1):
            bar.update(task, description=f"{number} of {len(targets)}: {escape(target.name)}")
            reports.append(check_class(target))
            bar.advance(task)
    return reports


def print_reports(reports: Iterable[ClassReport], console: Console) -> None:
    """Print one table a class, and a line that sums up."""
    all_reports = list(reports)
    for report in all_reports:
        title = f"[bold]{escape(report.name)}[/bold]  [dim]{escape(report.instance)}[/dim]"
        console.print(title, highlight=False)
        if report.error:
            console.print(
                f"[bold red]not checked[/bold red] {escape(report.error)}", soft_wrap=True
            )
        else:
            console.print(_table(report.rows))
        console.print()
    style = "green" if passed(all_reports) else "bold red"
    console.print(summary(all_reports), style=style, highlight=False)


def _table(rows: Iterable[Row]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in ("field", "kind", "changed", "change", "predicted"):
        table.add_column(title, overflow="fold")
    for title in ("traces", "compiles"):
        table.add_column(title, justify="right")
    table.add_column("verdict", overflow="fold")
    for row in rows:
        skipped = row.verdict is Verdict.SKIPPED
        verdict = f"{row.verdict}: {row.note}" if row.note else str(row.verdict)
        table.add_row(
            escape(row.field),
            "[magenta]static[/magenta]" if row.static else "[cyan]dynamic[/cyan]",
            row.kind,
            escape(row.change),
            row.predicted,
            "" if skipped else str(row.traces),
            "" if skipped else str(row.compiles),
            f"[{_STYLES[row.verdict]}]{escape(verdict)}[/]",
        )
    return table


def passed(reports: Iterable[ClassReport]) -> bool:
    """Return whether every class was checked and nothing is wrong."""
    return all(report.passed for report in reports)


def summary(reports: list[ClassReport]) -> str:
    """Return one line: how many classes and changes, and how they turned out."""
    rows = [row for report in reports for row in report.rows]
    tried = [row for row in rows if row.verdict is not Verdict.SKIPPED]
    wrong = [row for row in tried if row.verdict is not Verdict.OK]
    unbuilt = sum(1 for report in reports if report.error)
    text = f"{_count(len(reports), 'class', 'classes')}, "
    text += f"{_count(len(tried), 'change', 'changes')}: "
    text += "all as predicted" if not wrong else f"{len(wrong)} not as promised"
    return text + (f", {_count(unbuilt, 'class', 'classes')} not checked" if unbuilt else "")


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def as_json(reports: list[ClassReport]) -> str:
    """Return the reports as JSON text.

    The object has ``version`` (of this layout), ``python``, ``jax``, ``passed`` and
    ``classes``, each with ``name``, ``instance``, ``error``, ``passed`` and ``rows``.
    """
    classes = [{**dataclasses.asdict(report), "passed": report.passed} for report in reports]
    document = {
        "version": 1,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "passed": passed(reports),
        "classes": classes,
    }
    return json.dumps(document, indent=2)


def make_console() -> Console:
    """Return the console for reports; wide where no terminal sets a width."""
    return Console() if sys.stdout.isatty() else Console(width=120)
