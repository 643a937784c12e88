"""The reports of `leafwise check`: text, and GitHub annotations."""

import ast
import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from leafwise._findings.reasons import grouped
from leafwise._findings.words import annotation, count
from leafwise._objects.source.call_site import tree_of
from leafwise.cli.check_result import CheckRun, CheckVerdict, ClassResult, FieldChange, LawResult

_STYLES: Final = dict.fromkeys(CheckVerdict, "bold red") | {
    CheckVerdict.OK: "green",
    CheckVerdict.WARNING: "yellow",
    CheckVerdict.NOT_CHECKED: "bold yellow",
    CheckVerdict.SKIPPED: "dim",
}
_MANY: Final = 20
"""With more classes, those without a problem are only counted."""
_COLUMNS: Final = {"fields": 6, "changes": 7, "laws": 5}
_RESULT: Final = 24  # characters at least


class CheckPrinter:
    """Prints each class when it is done, and all problems at the end."""

    def __init__(self, console: Console, *, verbose: bool = False, quiet: bool = False) -> None:
        self._console = console
        self._quiet, self._verbose = quiet, verbose and not quiet
        self._names: list[str] = []
        self._lines = 0

    def start(self, names: list[str]) -> None:
        """Set the width of the column of names, which are those of all classes."""
        self._names = names

    def add(self, result: ClassResult) -> None:
        """Print a class; if there are many, only one with a problem."""
        is_right = result.passed and not result.warnings
        if self._quiet or (is_right and not self._verbose and len(self._names) > _MANY):
            return
        if self._verbose:
            self._print_class(result, result.rows)
        else:
            self._print_line(result)
        self._console.file.flush()

    def finish(self, run: CheckRun) -> None:
        if self._verbose and any(result.laws for result in run.classes):
            for result in run.classes:
                self._print_line(result)
        if self._lines:
            self._console.print()
        shown: dict[tuple[str, str], str] = {}
        for result in run.classes:
            self._print_problems(result, {} if self._verbose else shown)
        if not self._quiet:
            for note in run.notes:
                self._console.print(Text.assemble(("note", "cyan"), f": {note}"), soft_wrap=True)
        if not self._quiet or run.exit_code:
            style = "bold red" if run.exit_code else "green"
            self._console.print(Text(summary(run, self._names), style), soft_wrap=True)

    def _print_problems(self, result: ClassResult, shown: dict[tuple[str, str], str]) -> None:
        rows = tuple(row for row in result.rows if row.verdict.is_reported)
        titled = not self._verbose and bool(rows or result.error)
        if titled:
            self._print_class(result, rows)
        lines = list(_broken(result, shown))
        if not self._quiet:
            lines += _warned(result, shown)
        if lines and not titled:
            self._print_title(result)
        for line in lines:  # unwrapped: they are copied, and read by programs
            self._console.print(line, soft_wrap=True)
        if lines:
            self._console.print()

    def _print_line(self, result: ClassResult) -> None:
        self._lines += 1
        table = _table(show_header=self._lines == 1)
        left = self._console.width - sum(_COLUMNS.values()) - 2 * len(_COLUMNS) - _RESULT
        longest = max(map(len, [*self._names, "class"]))
        table.add_column("class", overflow="fold", width=max(10, min(longest, left)))
        for title, width in _COLUMNS.items():
            table.add_column(title, justify="right", no_wrap=True, width=width)
        table.add_column("result", overflow="fold")
        table.add_row(Text(result.name), *_numbers(result), _outcome(result))
        self._console.print(table)

    def _print_title(self, result: ClassResult) -> None:
        # `Text`, since markup would interpret brackets and emoji codes in names and values.
        self._console.print(Text.assemble((result.name, "bold"), "  ", (result.instance, "dim")))

    def _print_class(self, result: ClassResult, rows: Sequence[FieldChange]) -> None:
        self._print_title(result)
        if problem := result.error or result.left_out:
            self._console.print(Text.assemble(_outcome(result), " ", problem), soft_wrap=True)
        if rows:
            self._console.print(_table_of_changes(rows))
        self._console.print()


def _table(*, show_header: bool = True) -> Table:
    style: Any = {"box": None, "pad_edge": False, "header_style": "dim", "padding": (0, 2, 0, 0)}
    return Table(show_header=show_header, **style)


def _table_of_changes(rows: Sequence[FieldChange]) -> Table:
    table = _table()
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


def _numbers(result: ClassResult) -> tuple[str, str, str]:
    """Return the counts of fields, changes and laws of a class, as text."""
    if result.error or result.left_out:
        return "-", "-", "-"
    kept = sum(law.verdict is CheckVerdict.OK for law in result.laws)
    laws = f"{kept}/{len(result.laws)}" if result.laws else "-"
    return str(len(result.fields)), str(len(result.tried)) if result.rows else "-", laws


def _outcome(result: ClassResult) -> Text:
    if result.error:
        return Text("not checked", _STYLES[CheckVerdict.NOT_CHECKED])
    if result.left_out:
        return Text("left out", "dim")
    parts = _counted([result])
    if not (result.rows or result.laws):  # `--field` may name fields of other classes
        parts = [("nothing checked", "dim")]
    elif result.passed:
        parts.insert(0, ("ok", "green"))
    if repeated := [law for law in result.laws if law.is_repeated]:
        names = ", ".join(law.law for law in repeated)
        parts.append((f"{names} by {repeated[0].library}, see above", "dim"))
    return Text(", ").join(Text(*part) for part in parts)


def _counted(results: Sequence[ClassResult]) -> list[tuple[str, str]]:
    """Return the counts of what is wrong or unchecked in some classes, each with its style."""
    changes = [row.verdict for result in results for row in result.rows]
    laws = [law.verdict for result in results for law in result.laws]
    unchecked = [result.is_module for result in results if result.error]
    # Changes of fields count where no law is tested.
    fields_alone = [row.verdict for result in results if not result.laws for row in result.rows]
    warned = fields_alone.count(CheckVerdict.WARNING)
    warned += sum(len(result.warnings) for result in results)
    left_out = sum(bool(result.left_out) for result in results)
    bad, missing = _STYLES[CheckVerdict.VIOLATION], _STYLES[CheckVerdict.NOT_CHECKED]
    unsure = CheckVerdict.NOT_CHECKED
    numbers = [
        (sum(verdict.is_bad for verdict in changes), "change wrong", "changes wrong", bad),
        (sum(verdict.is_bad for verdict in laws), "law broken", "laws broken", bad),
        (changes.count(unsure), "change not checked", "changes not checked", missing),
        (laws.count(unsure), "law not checked", "laws not checked", missing),
        (unchecked.count(False), "class not checked", "classes not checked", missing),
        (unchecked.count(True), "module not checked", "modules not checked", missing),
        (warned, "warning", "warnings", "yellow"),
        (left_out, "class left out", "classes left out", "dim"),
    ]
    return [(count(number, *words), style) for number, *words, style in numbers if number]


def summary(run: CheckRun, names: Sequence[str] = ()) -> str:
    rows = sum(len(result.tried) for result in run.classes)
    laws = sum(len(result.laws) for result in run.classes)
    totals = [count(sum(not result.is_module for result in run.classes), "class", "classes")]
    if rows or not laws:
        totals.append(count(rows, "change", "changes"))
    if laws:
        totals.append(count(laws, "law", "laws"))
    parts = [text for text, _ in _counted(run.classes)]
    if not parts:
        parts.append("all as promised" if rows or laws else "nothing was checked")
    if run.interrupted:
        left = names[len(run.classes) :]
        to_go = f"{count(len(left), 'class', 'classes')} to go" if names else "all to go"
        parts.append(f"interrupted, {to_go}{f', {left[0]} the next' if left else ''}")
    return f"{', '.join(totals)}: {', '.join(parts)}"


def _faults(result: ClassResult) -> list[list[LawResult]]:
    """Return the laws that are broken or not checked, grouped by fault."""
    groups: list[list[LawResult]] = []
    for law in sorted(
        result.laws, key=lambda law: (not _breaks_all(law), law.law != "no-hidden-state")
    ):
        group = next((group for group in groups if _explains(group[0], law)), None)
        if group is not None and (law.verdict.is_reported or law in result.warnings):
            group.append(law)
        elif law.verdict.is_reported:
            groups.append([law])
    return groups


def _explains(first: LawResult, other: LawResult) -> bool:
    """Return whether two broken laws have the same cause: one field, or one message."""
    if first.verdict is other.verdict and first.message == other.message:
        return True
    if CheckVerdict.NOT_CHECKED in (first.verdict, other.verdict):
        return False
    if other.law == "recompilation" and first.law in ("any-leaf", "stable-treedef"):
        return True  # aux_data depends on more than the statics
    return _breaks_all(first) or (first.path == other.path and "." in first.path)


def _breaks_all(law: LawResult) -> bool:
    """Return whether a law is broken that all others depend on."""
    is_basic = law.law in ("round-trip", "identity-map", "treedef-equality")
    return is_basic and law.verdict is CheckVerdict.VIOLATION


def _broken(result: ClassResult, shown: dict[tuple[str, str], str]) -> Iterator[Text]:
    """Yield each fault: the first broken law in full, and the names of the others."""
    for first, *others in _faults(result):
        same = [first, *(law for law in others if law.message == first.message)]
        word = "broken" if first.verdict is CheckVerdict.VIOLATION else str(first.verdict)
        laws = ", ".join(law.law for law in same)
        title = (f"{word}: law{'s' if len(same) > 1 else ''} {laws}", _STYLES[first.verdict])
        fault = f"{result.flattened_by}.tree_flatten", laws
        if result.flattened_by and shown.setdefault(fault, result.name) != result.name:
            also = f"  as shown for {shown[fault]}: both have {fault[0]}"
            yield Text.assemble(title, also)
            continue
        yield from _in_full(title, first)
        if also := ", ".join(law.law for law in others if law not in same):
            yield Text(f"  also breaks: {also}")


def _warned(result: ClassResult, shown: dict[tuple[str, str], str]) -> Iterator[Text]:
    """Yield the warnings that no fault explains, the first of each library or cause in full."""
    explained = [law for fault in _faults(result) for law in fault]
    for warning in result.warnings:
        if warning in explained:
            continue
        title = (f"warning: law {warning.law}, {warning.path}", "yellow")
        key = warning.law, warning.library
        if warning.law in ("copies", "same-arguments"):  # each static has a line of its own
            key = warning.law, warning.message.partition("got: ")[2].partition("\n")[0]
        if key in shown:
            yield Text.assemble(title, f"  as shown for {shown[key]}")
            continue
        shown[key] = warning.path
        yield from _in_full(title, warning)


def _in_full(title: tuple[str, str], law: LawResult) -> Iterator[Text]:
    yield Text(*title)
    for line in law.message.splitlines():
        yield Text(f"  {line}")


def as_github(run: CheckRun) -> str:
    unchecked = "notice" if run.allow_unchecked else "error"
    lines: list[str] = []
    for result in run.classes:
        for verdict, rule, text, path in _findings(result):
            level = "error" if verdict.is_bad else "warning"
            if verdict is CheckVerdict.NOT_CHECKED:
                level, rule = unchecked, "not-checked"  # noqa: PLW2901
            line = _field_line(result, path) if result.file else 0
            lines.append(annotation(level, text, rule, result.file, line))
    return "\n".join(lines)


def _findings(result: ClassResult) -> Iterator[tuple[CheckVerdict, str, str, str]]:
    """Yield what is wrong, once for each cause: a fault with the laws and changes it breaks."""
    if result.error:
        yield CheckVerdict.NOT_CHECKED, "", result.error, ""
    rows = [row for row in result.rows if row.verdict.is_reported]
    faults = _faults(result)
    explained = [law for fault in faults for law in fault]
    warned = (law for law in result.warnings if law not in explained)
    for first, *others in (*faults, *grouped(warned, lambda law: law.law).values()):
        names = [law.path if law.law == first.law else law.law for law in others]
        for row in list(rows) if first.verdict.is_bad else ():
            if row.verdict.is_bad and (_breaks_all(first) or row.field == _field_of(first.path)):
                names.append(f"a change of {row.field}")
                rows.remove(row)
        word = "also breaks" if first.verdict.is_bad else "also"
        also = f"\n{word}: {', '.join(dict.fromkeys(names))}" if names else ""
        text = first.message or f"{result.name}: {first.law}"
        yield first.verdict, first.law, text + also, first.path
    for alike in grouped(rows, lambda row: (row.field, row.verdict, row.note)).values():
        row = alike[0]
        texts = [": ".join(filter(None, (row.kind, row.change))) for row in alike]
        text = "\n".join([f"{result.name}.{row.field}", *filter(None, texts)])
        yield row.verdict, "field-change", f"{text}\n{row.verdict}: {row.note}", f".{row.field}"


def _field_of(path: str) -> str:
    """Return the field in a path such as ``Model.layers.w``; empty if it is of a whole class."""
    return re.sub(r"^[^.]*\.?(\w*).*", r"\1", path)


def _field_line(result: ClassResult, path: str) -> int:
    """Return the line that declares a field, or the line of the class if none does."""
    name = _field_of(path)
    with contextlib.suppress(SyntaxError):
        for node in ast.walk(tree_of(result.file)):
            first = min((tag.lineno for tag in getattr(node, "decorator_list", ())), default=0)
            if isinstance(node, ast.ClassDef) and result.line in (first, node.lineno):
                for statement in node.body:
                    target = statement.target if isinstance(statement, ast.AnnAssign) else None
                    if isinstance(target, ast.Name) and target.id == name:
                        return statement.lineno
    return max(result.line, 1)


def make_console(file: TextIO) -> Console:
    """Return the console for reports, wide unless a terminal sets its width."""
    return _Console(file=file, width=None if file.isatty() else 120, emoji=False)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error again: rich would exit the process."""
        raise BrokenPipeError
