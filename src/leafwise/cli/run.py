"""Checking classes, one after the other, whatever they do."""

import dataclasses
import difflib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from leafwise._trees.roles import field_order
from leafwise.cli.cautions import SHOWN, cautions, cautions_of_part
from leafwise.cli.changes import Builder
from leafwise.cli.laws import EXAMPLES, TooLong, check_law, is_slow, time_limit
from leafwise.cli.library import is_own, library_of, place_of
from leafwise.cli.observe import check_fields, untraceable
from leafwise.cli.records import Caution, ClassReport, LawResult, Row, UsageError, Verdict
from leafwise.cli.targets import Target
from leafwise.testing._laws.law import Law
from leafwise.testing._words import plain, short, tell
from leafwise.testing.strategies._constructor import CannotBuildError

SECONDS: Final = 120.0
"""How long one law, or all changes of a class, may take."""
_WIDTH: Final = 200
_OF_JAX: Final = (Law.STATIC_TYPES, Law.TOLD_APART)
"""Laws that JAX itself does not keep: no class of another library can be blamed for them."""
_LAWS: Final = {str(law): law for law in Law}


@dataclasses.dataclass(frozen=True)
class Options:
    """What is to be checked, and how.

    Attributes:
        laws: The laws; none to change fields only.
        fields: Whether fields are changed.
        only: The fields to change; empty for all.
        examples: How many examples of a class each law sees.
        seed: Another one, and they are others.
        seconds: How long one law, or all changes of a class, may take.
        strict: Whether a warning fails the class.
    """

    laws: tuple[Law, ...] = tuple(Law)
    fields: bool = True
    only: tuple[str, ...] = ()
    examples: int = EXAMPLES
    seed: int = 0
    seconds: float = SECONDS
    strict: bool = False


@dataclasses.dataclass(frozen=True)
class Run:
    """All that was found.

    Attributes:
        reports: One a class, in the order of the targets.
        total: How many classes there are: more than reports after Ctrl-C.
    """

    reports: tuple[ClassReport, ...]
    total: int

    @property
    def passed(self) -> bool:
        """Whether every class was checked, or left out, and nothing is wrong."""
        return not self.interrupted and all(report.passed for report in self.reports)

    @property
    def interrupted(self) -> bool:
        """Whether some classes were not reached."""
        return len(self.reports) < self.total


def _unwatched(_: str) -> None:
    """Show no progress."""


def check_class(
    target: Target, options: Options | None = None, watched: Callable[[str], None] = _unwatched
) -> ClassReport:
    """Check one class.

    Args:
        target: The class.
        options: What to check.
        watched: Is called with what is looked at next: a field, a law.
    """
    chosen = options or Options()
    cls = target.cls
    file, line = place_of(cls)
    report = ClassReport(target.name, "", (), library=library_of(cls), file=file, line=line)
    try:
        builder, problem = _build(target, chosen)
    except CannotBuildError as error:
        builder, problem = None, plain(str(error))
    except TooLong:
        fix = f"hypothesis.strategies.register_type_strategy({cls.__name__}, ...)"
        problem = f"{_too_long(cls, chosen)}\n  fix: beside the class:\n       {fix}"
        builder = None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # user code: go on with the next class
        builder, problem = None, f"{cls.__name__}: while it was checked: {tell(error)}"
    if builder is None or problem:
        instance = "" if builder is None else short(builder.base, _WIDTH)
        report = dataclasses.replace(report, instance=instance)
        if target.optional:
            return dataclasses.replace(report, left_out=problem)
        return dataclasses.replace(report, error=problem)
    rows = tuple(_rows(builder, chosen, watched)) if chosen.fields else ()
    laws = tuple(_laws(builder, chosen, watched))
    report = dataclasses.replace(
        report,
        instance=short(builder.base, _WIDTH),
        fields=tuple(field_order(builder.base)),
        rows=rows,
        laws=laws,
    )
    return _with_warnings(report, builder, chosen)


def _too_long(cls: type, options: Options) -> str:
    return f"{cls.__name__}: took longer than {options.seconds:g} seconds"


def _build(target: Target, options: Options) -> tuple[Builder, str]:
    """Return what has an instance, and what is wrong with its leaves."""
    with time_limit(options.seconds):
        builder = Builder(target.cls)
        return builder, untraceable(builder.base)


def _rows(builder: Builder, options: Options, watched: Callable[[str], None]) -> Iterator[Row]:
    """Yield the rows of all fields, as far as there is time."""
    made = check_fields(builder, options.only, lambda name: watched(f"field {name}"))
    rows: list[Row] = []
    note = ""
    try:
        with time_limit(options.seconds):
            rows.extend(made)
    except TooLong:
        note = _too_long(builder.cls, options)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # as above
        note = tell(error)
    yield from rows
    if note:
        yield Row("", static=False, kind="", change="", predicted="", traces=0, compiles=0,
                  verdict=Verdict.ERROR, note=note)  # fmt: skip


def _laws(
    builder: Builder, options: Options, watched: Callable[[str], None]
) -> Iterator[LawResult]:
    if not options.laws:
        return
    watched("how long instances take")
    alone = is_slow(builder.cls, options.seconds)
    for law in options.laws:
        watched(f"law {law}")
        yield check_law(
            builder.cls,
            law,
            builder.base,
            examples=options.examples,
            seed=options.seed,
            seconds=options.seconds,
            alone=alone,
        )


def _with_warnings(report: ClassReport, builder: Builder, options: Options) -> ClassReport:
    """Turn what the libraries of a class and its parts are known for into warnings.

    They show what happens.
    """
    own = is_own(builder.cls)
    confused = any(row.verdict is Verdict.WARNING for row in report.rows)
    found: list[Caution] = []
    laws: list[LawResult] = []
    for result in report.laws:
        law = _LAWS[result.law]
        broken = result.verdict is Verdict.VIOLATION and (law in SHOWN or law in _OF_JAX)
        shown = cautions(builder, law) if law in SHOWN and not own else []
        if broken and not shown:
            shown = cautions_of_part(builder.base, law, result)
        found.extend(shown)
        known = shown or (law in _OF_JAX and broken and not own)
        if known and result.verdict in (Verdict.OK, Verdict.VIOLATION):
            if not shown:
                found.append(Caution(result.law, result.path, result.message))
            message = result.message or shown[0].message
            path = result.path or shown[0].path
            result = dataclasses.replace(  # noqa: PLW2901  # the same law, said in another way
                result, verdict=Verdict.WARNING, path=path, message=message
            )
        laws.append(result)
    if confused and Law.STATIC_TYPES not in options.laws:
        found.extend(cautions(builder, Law.STATIC_TYPES))
    rows = report.rows
    if options.strict:
        rows = tuple(_strict(row) for row in rows)
        laws = [_strict(result) for result in laws]
    return dataclasses.replace(report, rows=rows, laws=tuple(laws), warnings=tuple(found))


def _strict(found: Any) -> Any:
    if found.verdict is not Verdict.WARNING:
        return found
    return dataclasses.replace(found, verdict=Verdict.VIOLATION)


def run_checks(targets: Sequence[Target], options: Options | None = None) -> Run:
    """Check all classes, with progress on a terminal's standard error.

    After Ctrl-C, what was found so far is returned.

    Raises:
        UsageError: No class has a field that was asked for.
    """
    chosen = options or Options()
    console = Console(stderr=True)
    description = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), description, TimeElapsedColumn())
    # Not what rich says of the console: FORCE_COLOR makes a terminal of any file.
    visible = sys.stderr.isatty()
    reports: list[ClassReport] = []
    with Progress(*columns, console=console, transient=True, disable=not visible) as bar:
        task = bar.add_task("checking", total=len(targets))
        try:
            for number, target in enumerate(targets, 1):
                where = f"{number} of {len(targets)}: {target.name}"

                def watched(what: str, where: str = where) -> None:
                    bar.update(task, description=f"{where}: {what}")

                bar.update(task, description=where)
                reports.append(check_class(target, chosen, watched))
                bar.advance(task)
        except KeyboardInterrupt:
            pass
    run = Run(tuple(reports), len(targets))
    if not run.interrupted:
        _refuse_unknown_fields(reports, chosen)
    return run


def _refuse_unknown_fields(reports: list[ClassReport], options: Options) -> None:
    names = list(dict.fromkeys(name for report in reports for name in report.fields))
    if any(report.error for report in reports):
        return  # it may have the field
    for unknown in (name for name in options.only if name not in names):
        close = difflib.get_close_matches(unknown, names, 1)
        hint = (
            f"; did you mean {close[0]}?" if close else f": they have {', '.join(names) or 'none'}"
        )
        msg = f"--field {unknown}: no class has a field of that name{hint}"
        raise UsageError(msg)
