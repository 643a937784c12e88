"""The reports of `leafwise check`: a table for people, JSON for programs."""

import dataclasses
import json
import platform
import sys
from collections.abc import Iterable
from typing import Final

import jax
from rich.console import Console
from rich.padding import Padding
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

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
    description = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), description, TimeElapsedColumn())
    # Not what rich says of the console: FORCE_COLOR makes a terminal of any file.
    watched = sys.stderr.isatty()
    with Progress(*columns, console=console, transient=True, disable=not watched) as bar:
        task = bar.add_task("checking", total=len(targets))
        reports: list[ClassReport] = []
        for number, target in enumerate(targets, 1):
            bar.update(task, description=f"{number} of {len(targets)}: {target.name}")
            reports.append(check_class(target))
            bar.advance(task)
    return reports


_NARROW: Final = 80
"""Below this width a table would lose or fold too much."""


def print_reports(reports: Iterable[ClassReport], console: Console) -> None:
    """Print one table a class, and a line that sums up."""
    all_reports = list(reports)
    for report in all_reports:
        # Texts, as markup would read brackets and emoji codes in what users wrote.
        console.print(Text.assemble((report.name, "bold"), "  ", (report.instance, "dim")))
        if report.error:
            error = Text.assemble(("not checked", "bold red"), " ", report.error)
            console.print(error, soft_wrap=True)
        elif console.width < _NARROW:
            _print_lines(report.rows, console)
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
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    for row in rows:
        skipped = row.verdict is Verdict.SKIPPED
        table.add_row(
            Text(row.field),
            _kind(row),
            row.kind,
            Text(row.change),
            row.predicted,
            "" if skipped else str(row.traces),
            "" if skipped else str(row.compiles),
            _verdict(row),
        )
    return table


def _print_lines(rows: Iterable[Row], console: Console) -> None:
    """Print what the table says, a few lines for each change."""
    for row in rows:
        console.print(Text.assemble(row.field, " ", _kind(row), f" {row.kind}: {row.change}"))
        seen = f"predicted {row.predicted}, traces {row.traces}, compiles {row.compiles}"
        lines = [] if row.verdict is Verdict.SKIPPED else [Text(seen)]
        lines.append(Text.assemble("verdict ", _verdict(row)))
        for line in lines:
            console.print(Padding(line, (0, 0, 0, 2), expand=False))


def _kind(row: Row) -> Text:
    return Text("static", "magenta") if row.static else Text("dynamic", "cyan")


def _verdict(row: Row) -> Text:
    text = f"{row.verdict}: {row.note}" if row.note else str(row.verdict)
    return Text(text, _STYLES[row.verdict])


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
    return Console(width=None if sys.stdout.isatty() else 120, emoji=False)
