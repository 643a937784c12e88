"""The report of `leafwise check` for people."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from leafwise._display.words import count
from leafwise.cli.records import CheckedRow, ClassReport, LawResult, Verdict
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
_MANY: Final = 20
"""Of more classes, those that are right are only counted."""


class Printer:
    """Prints each class when it is done, and at the end what is wrong with each."""

    def __init__(self, console: Console, *, verbose: bool = False, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._verbose = verbose and not quiet
        self._names: list[str] = []
        self._rows = 0

    def start(self, names: list[str]) -> None:
        """Prepare for classes of these names: their columns have one width from the beginning."""
        self._names = names

    def add(self, report: ClassReport) -> None:
        """Print a class; of many, those that are not right."""
        is_right = report.passed and not report.warnings
        if self._quiet or (is_right and not self._verbose and len(self._names) > _MANY):
            return
        if self._verbose:
            _print_class(report, self._console, report.rows)
        else:
            self._print_row(report)
        self._console.file.flush()

    def finish(self, run: CheckRun) -> None:
        """Print what is wrong with each class, notes, and a summary."""
        console = self._console
        if self._verbose and any(report.laws for report in run.reports):
            for report in run.reports:
                self._print_row(report)
        if self._rows:
            console.print()
        self._print_findings(run)
        if not self._quiet:
            for note in run.notes:
                console.print(Text.assemble(("note", "cyan"), f": {note}"), soft_wrap=True)
        if not self._quiet or run.exit_code:
            style = "bold red" if run.exit_code else "green"
            console.print(summary(run, self._names), style=style, highlight=False, soft_wrap=True)

    def _print_findings(self, run: CheckRun) -> None:
        console = self._console
        shown: dict[tuple[str, str], str] = {}
        at_base: dict[tuple[str, str], str] = {}
        for report in run.reports:
            rows = tuple(row for row in report.rows if row.verdict.is_reported)
            titled = not self._verbose and bool(rows or report.error)
            if titled:
                _print_class(report, console, rows)
            warned = [] if self._quiet else _warned(report, None if self._verbose else shown)
            findings = [*_findings(report, {} if self._verbose else at_base), *warned]
            if findings and not titled:
                _print_title(report, console)
            for line in findings:  # however long: they are copied, and read by programs
                console.print(line, soft_wrap=True)
            if findings:
                console.print()

    def _print_row(self, report: ClassReport) -> None:
        """Print one line for a class."""
        *numbers, result = _cells(report)
        self._rows += 1
        table = Table(
            box=None,
            pad_edge=False,
            header_style="dim",
            padding=(0, 2, 0, 0),
            show_header=self._rows == 1,
        )
        titles = {"fields": 6, "changes": 7, "laws": 5}
        left = self._console.width - sum(titles.values()) - 2 * len(titles) - _RESULT
        longest = max(map(len, [*self._names, "class"]))
        table.add_column("class", overflow="fold", width=max(10, min(longest, left)))
        for title, width in titles.items():
            table.add_column(title, justify="right", no_wrap=True, width=width)
        table.add_column("result", overflow="fold")
        table.add_row(Text(report.name), *numbers, result)
        self._console.print(table)


def print_run(run: CheckRun, console: Console, *, verbose: bool = False) -> None:
    """Print a whole run, as `Printer` does it class by class."""
    printer = Printer(console, verbose=verbose)
    printer.start([report.name for report in run.reports])
    for report in run.reports:
        printer.add(report)
    printer.finish(run)


_RESULT: Final = 24
"""How wide the results are at least."""


def _print_title(report: ClassReport, console: Console) -> None:
    # Texts, as markup would read brackets and emoji codes in what users wrote.
    console.print(Text.assemble((report.name, "bold"), "  ", (report.instance, "dim")))


def _print_class(report: ClassReport, console: Console, rows: tuple[CheckedRow, ...]) -> None:
    _print_title(report, console)
    if problem := report.error or report.left_out:
        label = ("left out", "dim") if report.left_out else ("not checked", "bold yellow")
        console.print(Text.assemble(label, " ", problem), soft_wrap=True)
    if rows:
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
        counts = (str(row.traces), str(row.compiles)) if row.predicted else ("", "")
        verdict = f"{row.verdict}: {row.note}" if row.note else str(row.verdict)
        table.add_row(
            Text(row.field),
            Text("static", "magenta") if row.static else Text("dynamic", "cyan"),
            row.kind,
            Text(row.change),
            row.predicted,
            *counts,
            Text(verdict, _STYLES[row.verdict]),
        )
    return table


def _cells(report: ClassReport) -> tuple[str, str, str, Text]:
    """Return how many fields, changes and laws a class has, and the result."""
    if report.error:
        return "-", "-", "-", Text("not checked", _STYLES[Verdict.NOT_CHECKED])
    if report.left_out:
        return "-", "-", "-", Text("left out", "dim")
    parts = _outcome([report])
    if not (report.rows or report.laws):  # `--field` may name fields of other classes
        parts = [("nothing checked", "dim")]
    elif report.passed:
        parts.insert(0, ("ok", "green"))
    elsewhere = [law for law in report.laws if law.verdict is Verdict.WARNING]
    elsewhere = [law for law in elsewhere if law not in report.warnings]
    if elsewhere:  # an earlier class has shown that the library does not promise them
        text = f"{', '.join(each.law for each in elsewhere)} by {elsewhere[0].library}, see above"
        parts.append((text, "dim"))
    kept = sum(1 for result in report.laws if result.verdict is Verdict.OK)
    laws = f"{kept}/{len(report.laws)}" if report.laws else "-"
    tried = str(len(report.tried)) if report.rows else "-"
    result = Text(", ").join(Text(*part) for part in parts)
    return str(len(report.fields)), tried, laws, result


def _outcome(reports: Sequence[ClassReport]) -> list[tuple[str, str]]:
    """Return what is not right in some classes, counted, each with its style."""
    changes = [row.verdict for report in reports for row in report.rows]
    laws = [law.verdict for report in reports for law in report.laws]
    unchecked = [each.is_module for each in reports if each.error]
    # Changes of fields count where no law is tried.
    warnings = [row for each in reports if not each.laws for row in each.rows]
    warned = sum(row.verdict is Verdict.WARNING for row in warnings)
    warned += sum(len(each.warnings) for each in reports)
    bad, missing = _STYLES[Verdict.VIOLATION], _STYLES[Verdict.NOT_CHECKED]
    numbers = [
        (sum(each.is_bad for each in changes), "change wrong", "changes wrong", bad),
        (sum(each.is_bad for each in laws), "law broken", "laws broken", bad),
        (changes.count(Verdict.NOT_CHECKED), "change not checked", "changes not checked", missing),
        (laws.count(Verdict.NOT_CHECKED), "law not checked", "laws not checked", missing),
        (unchecked.count(False), "class not checked", "classes not checked", missing),
        (unchecked.count(True), "module not checked", "modules not checked", missing),
        (warned, "warning", "warnings", "yellow"),
        (sum(bool(each.left_out) for each in reports), "class left out", "classes left out", "dim"),
    ]
    return [(count(number, *words), style) for number, *words, style in numbers if number]


_BASIC: Final = ("round-trip", "identity-map", "treedef-equality")


def _faults(report: ClassReport) -> list[list[LawResult]]:
    """Return the laws that are broken or not checked, those of one fault together."""
    groups: list[list[LawResult]] = []
    for result in sorted(report.laws, key=lambda each: not _breaks_all(each)):
        group = next((each for each in groups if _explains(each[0], result)), None)
        if group is not None and (result.verdict.is_reported or result in report.warnings):
            group.append(result)
        elif result.verdict.is_reported:
            groups.append([result])
    return groups


def _findings(report: ClassReport, shown: dict[tuple[str, str], str]) -> Iterator[Text]:
    """Yield each fault: the first law that it breaks in full, and the names of the others."""
    for first, *others in _faults(report):
        same = [first, *(each for each in others if each.message == first.message)]
        word = "broken" if first.verdict is Verdict.VIOLATION else str(first.verdict)
        laws = ", ".join(each.law for each in same)
        title = (f"{word}: law{'s' if len(same) > 1 else ''} {laws}", _STYLES[first.verdict])
        fault = f"{report.flattened_by}.tree_flatten", laws
        if report.flattened_by and shown.setdefault(fault, report.name) != report.name:
            also = f"  as shown for {shown[fault]}: both have {fault[0]}"
            yield Text.assemble(title, also)
            continue
        yield Text(*title)
        yield from (Text(f"  {line}") for line in first.message.splitlines())
        if also := ", ".join(each.law for each in others if each not in same):
            yield Text(f"  also breaks: {also}")


def _explains(first: LawResult, other: LawResult) -> bool:
    """Return whether two broken laws are one fault: of one field, or with one message."""
    if first.verdict is other.verdict and first.message == other.message:
        return True
    if Verdict.NOT_CHECKED in (first.verdict, other.verdict):
        return False
    return _breaks_all(first) or (first.path == other.path and "." in first.path)


def _breaks_all(result: LawResult) -> bool:
    """Return whether a law is broken without which no other holds."""
    return result.law in _BASIC and result.verdict is Verdict.VIOLATION


def _warned(report: ClassReport, shown: dict[tuple[str, str], str] | None) -> Iterator[Text]:
    """Yield the warnings; in full the first of each kind."""
    explained = [each for fault in _faults(report) for each in fault]
    for warning in report.warnings:
        if warning in explained:
            continue
        kind = warning.law, warning.library
        title = (f"warning: law {warning.law}, {warning.path}", "yellow")
        if shown is not None and kind in shown:
            yield Text.assemble(title, f"  as shown for {shown[kind]}")
            continue
        yield Text(*title)
        yield from (Text(f"  {line}") for line in warning.message.splitlines())
        if shown is not None:
            shown[kind] = warning.path


def summary(run: CheckRun, names: Sequence[str] = ()) -> str:
    """Return one line: how many classes, changes and laws, and how they turned out."""
    rows = sum(len(report.tried) for report in run.reports)
    laws = sum(len(report.laws) for report in run.reports)
    classes = sum(not report.is_module for report in run.reports)
    counted = [count(classes, "class", "classes")]
    if rows or not laws:
        counted.append(count(rows, "change", "changes"))
    if laws:
        counted.append(count(laws, "law", "laws"))
    parts = [text for text, _ in _outcome(run.reports)]
    if not parts:
        parts.append("all as promised" if rows or laws else "nothing was checked")
    if run.interrupted:
        left = names[len(run.reports) :]
        to_go = f"{count(len(left), 'class', 'classes')} to go" if names else "all to go"
        parts.append(f"interrupted, {to_go}{f', {left[0]} the next' if left else ''}")
    return f"{', '.join(counted)}: {', '.join(parts)}"


def make_console(file: TextIO) -> Console:
    """Return the console for reports; wide where no terminal sets a width."""
    return _Console(file=file, width=None if file.isatty() else 120, emoji=False)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise it on: rich would end the process."""
        raise BrokenPipeError
