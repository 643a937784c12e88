"""`leafwise check` on classes, one after the other, whatever they do."""

import dataclasses
import difflib
import sys
import warnings
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, Final

from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from leafwise._display.words import without_addresses
from leafwise._trees.roles import field_order
from leafwise.cli.fields import Example, check_fields, untraceable
from leafwise.cli.laws import (
    CheckOptions,
    OnStep,
    Told,
    TooLong,
    time_limit,
    told_by,
    too_long,
    try_laws,
)
from leafwise.cli.records import (
    CheckedRow,
    ClassReport,
    LawResult,
    UsageError,
    Verdict,
)
from leafwise.cli.targets import (
    CheckTarget,
    FoundTargets,
    flattened_by,
    source_location,
)
from leafwise.errors import CannotBuildError
from leafwise.testing._check import chosen_laws
from leafwise.testing._format import format_error, short_repr
from leafwise.testing._laws.law import Law
from leafwise.testing._laws.libraries import library_of

_WIDTH: Final = 200


@dataclasses.dataclass(frozen=True)
class CheckRun:
    """All that was found."""

    reports: tuple[ClassReport, ...]
    allow_unchecked: bool = False
    interrupted: bool = False  # some classes were not reached
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every class was checked, or left out, and nothing is wrong."""
        return not self.interrupted and all(report.passed for report in self.reports)

    @property
    def exit_code(self) -> int:
        """What the command ends with."""
        if self.interrupted:
            return 130  # as a shell has it
        if any(report.failed for report in self.reports):
            return 1
        unchecked = any(report.unchecked for report in self.reports)
        return 3 if unchecked and not self.allow_unchecked else 0


# ------------------------------------------------------------------------ all classes


def run_checks(
    found: FoundTargets,
    options: CheckOptions | None = None,
    *,
    on_report: Callable[[ClassReport], None] = lambda _: None,
) -> CheckRun:
    """Check all classes, with progress on a terminal's standard error.

    After Ctrl-C, what was found so far is returned.
    """
    chosen = options or CheckOptions()
    # Not what rich says of the console: FORCE_COLOR makes a terminal of any file.
    visible = sys.stderr.isatty()
    console = Console(stderr=True, quiet=not visible, force_terminal=visible)
    reports: list[ClassReport] = []
    interrupted = False
    with console.status("checking") as status:
        try:
            for report in _reports(found, chosen, lambda step: status.update(Text(step))):
                reports.append(report)
                status.stop()  # it would be in between
                on_report(report)
                status.start()
        except KeyboardInterrupt:
            interrupted = True
    if not interrupted and (problem := _unknown_fields(reports, chosen)):
        raise UsageError(problem)
    return CheckRun(tuple(reports), interrupted=interrupted, notes=tuple(found.notes))


def _reports(found: FoundTargets, options: CheckOptions, on_step: OnStep) -> Iterator[ClassReport]:
    for name, reason in found.unloaded.items():
        yield ClassReport(name, "", (), reason, is_module=True, identity=name)
    told: set[Told] = set()
    reports = _checked(found, options, on_step, told)
    # What a class warns of, it warns of for each value that we draw.
    with warnings.catch_warnings(action="ignore"):
        for report in reports:
            yield once_a_library(report, told)


def _checked(
    found: FoundTargets, options: CheckOptions, on_step: OnStep, told: set[Told]
) -> Iterator[ClassReport]:
    for number, target in enumerate(found.targets, 1):
        where = f"{number} of {len(found.targets)}: {target.name}"
        on_step(where)

        def show_step(step: str, where: str = where) -> None:
            on_step(f"{where}: {step}")

        yield check_class(target, options, show_step, told)


def once_a_library(report: ClassReport, told: set[Told]) -> ClassReport:
    """Return a report without the warnings that say of a library, or a part, what one has said."""
    kept: list[LawResult] = []
    for each in report.warnings:
        about = told_by(each)
        if about is None or about not in told:
            kept.append(each)
            told |= {about} if about else set()
    return dataclasses.replace(report, warnings=tuple(kept))


def find_laws(names: Sequence[str], without: Sequence[str] = ()) -> tuple[Law, ...]:
    """Return the laws of these names; all laws for no names."""
    try:
        chosen, left_out = chosen_laws("--law", names), chosen_laws("--without", without)
    except ValueError as error:
        raise UsageError(str(error)) from error
    found = tuple(law for law in chosen or Law if law not in left_out)
    if not found:
        raise UsageError("--without: no law is left to try; to change fields only, write --fields")
    return found


def _unknown_fields(reports: list[ClassReport], options: CheckOptions) -> str:
    """Return what is wrong with the names of fields that were asked for, after these reports."""
    names = list(dict.fromkeys(name for report in reports for name in report.fields))
    if any(report.error for report in reports):
        return ""  # it may have the field
    for name in options.only:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            they_have = f": they have {', '.join(names) or 'none'}"
            hint = f"; did you mean {close[0]}?" if close else they_have
            return f"--field {name}: no class has a field of that name{hint}"
    return ""


# ------------------------------------------------------------------------ one class


def check_class(
    target: CheckTarget,
    options: CheckOptions | None = None,
    on_step: OnStep = lambda _: None,
    told: Container[Told | None] = (),
) -> ClassReport:
    """Check one class; `on_step` is called with what comes next: a field, a law."""
    chosen = options or CheckOptions()
    cls = target.cls
    file, line = source_location(cls)
    report = ClassReport(
        target.name,
        "",
        (),
        library=library_of(cls),
        flattened_by=flattened_by(cls),
        file=file,
        line=line,
        identity=f"{cls.__module__}:{cls.__qualname__}",
    )
    example, problem, is_refused = _build(target, chosen)
    if example is None:
        return dataclasses.replace(report, error=problem)
    report = dataclasses.replace(report, instance=short_repr(example.base, _WIDTH))
    fields = tuple(field_order(example.base)) if is_refused or not problem else ()
    if is_refused:
        # JAX may be unable to flatten it, or to unflatten it again, or only with tracers.
        asked = dataclasses.replace(chosen, laws=(Law.ROUND_TRIP, Law.TRANSFORMATIONS))
        bad = [each for each in try_laws(st.just(example.base), asked) if each.verdict.is_bad]
        if bad:
            first = dataclasses.replace(bad[0], error=None)  # as below
            return dataclasses.replace(report, fields=fields, laws=(first,))
    if problem:
        # Only what is known to be no argument of a jitted function is left out.
        if target.optional:
            return dataclasses.replace(report, left_out=problem)
        return dataclasses.replace(report, error=problem)
    rows: list[CheckedRow] = []
    if chosen.fields:
        try:
            with time_limit(chosen.seconds):
                rows.extend(check_fields(example, chosen.only, on_step))
        except TooLong:
            late, why = Verdict.NOT_CHECKED, f"{cls.__name__}: {too_long(chosen)}"
            rows.append(CheckedRow("", static=False, kind="", change="", verdict=late, note=why))
    results = try_laws(cls, chosen, example.base, on_step, told) if chosen.laws else []
    # Without the errors, whose tracebacks would keep what was drawn.
    results = [dataclasses.replace(each, error=None) for each in results]
    warned: list[LawResult] = []
    if chosen.strict:
        rows, results = list(map(_strict, rows)), list(map(_strict, results))
    else:
        warned = [each for each in results if each.verdict is Verdict.WARNING]
    return dataclasses.replace(
        report, fields=fields, rows=tuple(rows), laws=tuple(results), warnings=tuple(warned)
    )


def _build(target: CheckTarget, options: CheckOptions) -> tuple[Example | None, str, bool]:
    """Return what changes instances, why they cannot be checked, and whether that is a fault."""
    cls: Any = target.cls
    example: Example | None = None
    is_refused = False
    try:
        with time_limit(options.seconds):
            example = Example(cls)
            problem = untraceable(example)
    except CannotBuildError as error:
        problem = without_addresses(error.message)
    except TooLong:
        problem = (
            f"{cls.__name__}: {too_long(options)}\n"
            f"  fix: next to the class:\n"
            f"       hypothesis.strategies.register_type_strategy({cls.__name__}, ...)"
        )
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # user code: go on with the next class
        problem = f"{cls.__name__}: while it was checked: {format_error(error)}"
        is_refused = example is not None and not target.optional
    return example, problem, is_refused


def _strict(found: Any) -> Any:
    is_warning = found.verdict is Verdict.WARNING
    return dataclasses.replace(found, verdict=Verdict.VIOLATION) if is_warning else found
