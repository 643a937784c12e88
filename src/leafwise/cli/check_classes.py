"""One class after the other, its fields and its laws: for `leafwise check` and for pytest."""

import dataclasses
import difflib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from leafwise._display.words import without_addresses
from leafwise._trees.roles import field_order
from leafwise.cli.check_fields import Example, check_fields, untraceable
from leafwise.cli.check_laws import (
    CheckOptions,
    OnStep,
    TooLong,
    WarningKey,
    time_limit,
    try_laws,
    warning_key,
)
from leafwise.cli.check_result import CheckRun, CheckVerdict, ClassResult, FieldChange, LawResult
from leafwise.cli.check_targets import (
    CheckTarget,
    FoundTargets,
    UsageError,
    flattened_by,
    source_location,
)
from leafwise.errors import CannotBuildError
from leafwise.testing._check import chosen_laws
from leafwise.testing._format import format_error, short_repr
from leafwise.testing._laws.law import Law
from leafwise.testing._laws.libraries import library_of

_WIDTH: Final = 200


# ------------------------------------------------------------------------ all classes


def run_checks(
    targets: FoundTargets,
    options: CheckOptions,
    *,
    on_result: Callable[[ClassResult], None] = lambda _: None,
) -> CheckRun:
    """Check all classes, with progress on a terminal's standard error.

    After Ctrl-C, the results so far are returned.
    """
    # Not what rich says of the console: FORCE_COLOR makes a terminal of any file.
    visible = sys.stderr.isatty()
    console = Console(stderr=True, quiet=not visible, force_terminal=visible)
    results: list[ClassResult] = []
    interrupted = False
    with console.status("checking") as status:
        try:
            for result in _results(targets, options, lambda step: status.update(Text(step))):
                results.append(result)
                status.stop()  # it would be in between
                on_result(result)
                status.start()
        except KeyboardInterrupt:
            interrupted = True
    if not interrupted and not any(result.error for result in results):  # it may have the field
        _refuse_unknown_fields(results, options)
    return CheckRun(tuple(results), tuple(targets.notes), interrupted)


def _results(
    targets: FoundTargets, options: CheckOptions, on_step: OnStep
) -> Iterator[ClassResult]:
    for name, reason in targets.unloaded.items():
        yield ClassResult(name, error=reason, is_module=True)
    known: set[WarningKey] = set()
    for number, target in enumerate(targets.targets, 1):
        place = f"{number} of {len(targets.targets)}: {target.name}"
        on_step(place)

        def on_step_of_class(step: str, place: str = place) -> None:
            on_step(f"{place}: {step}")

        yield check_class(target, options, on_step_of_class, known)


def find_laws(names: Sequence[str], without: Sequence[str] = ()) -> tuple[Law, ...]:
    """Return the laws of these names; all laws for no names."""
    try:
        chosen, left_out = chosen_laws("--law", names), chosen_laws("--without", without)
    except ValueError as error:
        raise UsageError(str(error)) from error
    laws = tuple(law for law in chosen or Law if law not in left_out)
    if not laws:
        raise UsageError("--without: no law is left to try; to change fields only, write --fields")
    return laws


def _refuse_unknown_fields(results: list[ClassResult], options: CheckOptions) -> None:
    names = list(dict.fromkeys(name for result in results for name in result.fields))
    for name in options.only:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            they_have = f": they have {', '.join(names) or 'none'}"
            hint = f"; did you mean {close[0]}?" if close else they_have
            raise UsageError(f"--field {name}: no class has a field of that name{hint}")


# ------------------------------------------------------------------------ one class


def check_class(
    target: CheckTarget,
    options: CheckOptions,
    on_step: OnStep = lambda _: None,
    known: set[WarningKey] | None = None,
) -> ClassResult:
    """Check one class; `on_step` is called with what comes next: a field, a law.

    What it warns of is added to the known warnings, and marked if it is among them.
    """
    cls = target.cls
    file, line = source_location(cls)
    result = ClassResult(
        target.name,
        library=library_of(cls),
        flattened_by=flattened_by(cls),
        file=file,
        line=line,
    )
    known = set() if known is None else known
    # What a class warns of, it warns of for each value that we draw.
    with warnings.catch_warnings(action="ignore"):
        example, problem, is_refused = _build(target, options)
        if example is None:
            return dataclasses.replace(result, error=problem)
        result = dataclasses.replace(result, instance=short_repr(example.base, _WIDTH))
        if not problem or is_refused:
            result = dataclasses.replace(result, fields=tuple(field_order(example.base)))
        if is_refused and (broken := _law_of_refusal(example, options)):
            return dataclasses.replace(result, laws=(broken,))
        if problem:
            # Only what is known to be no argument of a jitted function is left out.
            if target.optional:
                return dataclasses.replace(result, left_out=problem)
            return dataclasses.replace(result, error=problem)
        rows = _change_fields(example, options, on_step) if options.fields else []
        laws: list[LawResult] = []
        if options.laws:
            laws = try_laws(cls, options, example.base, on_step, known)
    if options.strict:
        rows, laws = list(map(_strict, rows)), list(map(_strict, laws))
    return dataclasses.replace(result, rows=tuple(rows), laws=tuple(_marked(laws, known)))


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
            f"{cls.__name__}: {options.timeout_message}\n"
            f"  fix: next to the class:\n"
            f"       hypothesis.strategies.register_type_strategy({cls.__name__}, ...)"
        )
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # user code: go on with the next class
        problem = f"{cls.__name__}: while it was checked: {format_error(error)}"
        is_refused = example is not None and not target.optional
    return example, problem, is_refused


def _law_of_refusal(example: Example, options: CheckOptions) -> LawResult | None:
    """Return the law broken by a class that JAX cannot flatten, or unflatten, or with tracers."""
    laws = (Law.ROUND_TRIP, Law.TRANSFORMATIONS)
    options = dataclasses.replace(options, laws=laws)
    results = try_laws(st.just(example.base), options, example.base)
    return next((law for law in results if law.verdict.is_bad), None)


def _change_fields(example: Example, options: CheckOptions, on_step: OnStep) -> list[FieldChange]:
    rows: list[FieldChange] = []
    try:
        with time_limit(options.seconds):
            rows.extend(check_fields(example, options.only, on_step))
    except TooLong:
        late, why = CheckVerdict.NOT_CHECKED, f"{example.cls.__name__}: {options.timeout_message}"
        rows.append(FieldChange("", static=False, kind="", change="", verdict=late, note=why))
    return rows


def _strict(result: Any) -> Any:
    is_warning = result.verdict is CheckVerdict.WARNING
    return dataclasses.replace(result, verdict=CheckVerdict.VIOLATION) if is_warning else result


def _marked(laws: list[LawResult], known: set[WarningKey]) -> Iterator[LawResult]:
    """Yield laws, with a mark on the warnings that say of a library, or a part, what is known."""
    for law in laws:
        key = warning_key(law) if law.verdict is CheckVerdict.WARNING else None
        yield dataclasses.replace(law, is_repeated=key in known)
        known |= {key} if key else set()
