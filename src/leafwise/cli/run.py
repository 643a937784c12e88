"""Checking classes, one after the other, whatever they do."""

import contextlib
import dataclasses
import difflib
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import hypothesis
import jax
from hypothesis import strategies as st
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import leafwise
from leafwise._trees.roles import field_order
from leafwise.cli.cautions import SHOWN, cautions, cautions_of_part
from leafwise.cli.changes import Builder
from leafwise.cli.observe import check_fields, untraceable
from leafwise.cli.records import Caution, CheckedRow, ClassReport, LawResult, UsageError, Verdict
from leafwise.cli.targets import CheckTarget, is_own, library_of, place_of
from leafwise.errors import LawViolation
from leafwise.testing._check import check_pytree
from leafwise.testing._laws.law import Law
from leafwise.testing._words import plain, short, tell
from leafwise.testing.strategies._constructor import CannotBuildError
from leafwise.testing.strategies._find import find
from leafwise.testing.strategies._instances import instances

EXAMPLES: Final = 20
"""How many examples of a class each law sees."""


class TooLong(BaseException):  # not an Exception, which a user's code may catch
    """What was to be done in a limited time was not."""


SLOW: Final = 2.0
"""How many seconds a few instances may take to make, if each law is to see some of its own."""
_FEW: Final = 5


def is_slow(cls: Any, seconds: float) -> bool:
    """Return whether instances take long to make: some compile for each shape.

    Args:
        cls: A pytree class.
        seconds: When to give up.
    """
    started = time.perf_counter()

    def look(_: object) -> bool:
        if time.perf_counter() - started > SLOW:
            raise TooLong
        return False

    try:
        with time_limit(seconds):
            find(instances(cls), look, _FEW)
    except TooLong:
        return True
    except Exception:  # noqa: BLE001  # laws tell of it
        return False
    return False


def check_law(
    cls: Any,
    law: Law,
    instance: Any,
    *,
    examples: int,
    seed: int,
    seconds: float,
    alone: bool = False,
) -> LawResult:
    """Try one law on a class, whatever the class does.

    Args:
        cls: A pytree class.
        law: The law.
        instance: What it is tried on if a search by chance finds no instances.
        examples: How many instances are tried.
        seed: Another one, and the instances are others.
        seconds: When to give up.
        alone: Whether it is tried on `instance` only: others take long to make.
    """
    settings = hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,  # the seed decides
        print_blob=False,
    )
    verdict, path, message = Verdict.OK, "", ""
    owner: type | None = None
    try:
        with time_limit(seconds):
            one = st.just(instance)
            message = _SLOWLY if alone else ""
            try:
                check_pytree(one if alone else cls, laws=[law], settings=settings, seed=seed)
            except CannotBuildError:
                message = "tried on one instance, as no others were found"
                check_pytree(one, laws=[law], settings=settings, seed=seed)
    except LawViolation as error:
        verdict, path, message = Verdict.VIOLATION, error.path, plain(str(error))
        owner = error.owner
    except TooLong:
        verdict, message = Verdict.ERROR, f"took longer than {seconds:g} seconds"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # user code: go on with the next law
        verdict, message = Verdict.ERROR, _told(error)
    return LawResult(str(law), verdict, path, message, owner)


_SLOWLY: Final = "tried on one instance, as others take long to make"
_NOTES: Final = ("while generating", "Failing test case", "Explanation", "Falsifying example")
"""How the notes begin in which Hypothesis speaks of our own test."""


def _told(error: BaseException) -> str:
    notes: list[str] = getattr(error, "__notes__", [])
    notes[:] = [note for note in notes if not note.strip().startswith(_NOTES)]
    return tell(error)


_LOST_IN: Final = ("gc_callback", "__del__")
"""Functions that Python calls in between; what they raise goes nowhere."""
_MACHINERY: Final = (
    *(
        str(Path(module.__file__).parent)
        for module in (hypothesis, jax, leafwise)
        if module.__file__
    ),
    contextlib.__file__,
)
"""Where an exception out of the blue may leave things half done, for the classes to come."""
_AGAIN: Final = 0.1
"""After how many seconds more an interruption is tried again."""
_PATIENCE: Final = 100
"""How often that is, before the machinery itself is interrupted."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Generator[None, None, None]:
    """Raise `TooLong` in the block after some time, where the system can interrupt it."""
    can_interrupt = (
        hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    )
    if not can_interrupt or signal.getitimer(signal.ITIMER_REAL)[0]:  # somebody else's clock runs
        yield
        return

    running = True

    asked = 0

    def give_up(_: int, frame: types.FrameType | None) -> None:
        nonlocal asked
        asked += 1
        code = None if frame is None else frame.f_code
        if not running or (code is not None and code.co_name in _LOST_IN):
            return
        if asked > _PATIENCE or code is None or not code.co_filename.startswith(_MACHINERY):
            raise TooLong

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield
    finally:
        running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


SECONDS: Final = 120.0
"""How long one law, or all changes of a class, may take."""
_WIDTH: Final = 200
_OF_JAX: Final = (Law.STATIC_TYPES, Law.DISTINCT_CLASSES)
"""Laws that JAX itself does not keep: no class of another library can be blamed for them."""
_LAWS: Final = {str(law): law for law in Law}


@dataclasses.dataclass(frozen=True)
class CheckOptions:
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
class CheckRun:
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
    target: CheckTarget,
    options: CheckOptions | None = None,
    watched: Callable[[str], None] = _unwatched,
) -> ClassReport:
    """Check one class.

    Args:
        target: The class.
        options: What to check.
        watched: Is called with what is looked at next: a field, a law.
    """
    chosen = options or CheckOptions()
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


def _too_long(cls: type, options: CheckOptions) -> str:
    return f"{cls.__name__}: took longer than {options.seconds:g} seconds"


def _build(target: CheckTarget, options: CheckOptions) -> tuple[Builder, str]:
    """Return what has an instance, and what is wrong with its leaves."""
    with time_limit(options.seconds):
        builder = Builder(target.cls)
        return builder, untraceable(builder.base)


def _rows(
    builder: Builder, options: CheckOptions, watched: Callable[[str], None]
) -> Iterator[CheckedRow]:
    """Yield the rows of all fields, as far as there is time."""
    made = check_fields(builder, options.only, lambda name: watched(f"field {name}"))
    rows: list[CheckedRow] = []
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
        yield CheckedRow("", static=False, kind="", change="", predicted="", traces=0, compiles=0,
                  verdict=Verdict.ERROR, note=note)  # fmt: skip


def _laws(
    builder: Builder, options: CheckOptions, watched: Callable[[str], None]
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


def _with_warnings(report: ClassReport, builder: Builder, options: CheckOptions) -> ClassReport:
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


def run_checks(targets: Sequence[CheckTarget], options: CheckOptions | None = None) -> CheckRun:
    """Check all classes, with progress on a terminal's standard error.

    After Ctrl-C, what was found so far is returned.

    Raises:
        UsageError: No class has a field that was asked for.
    """
    chosen = options or CheckOptions()
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
    run = CheckRun(tuple(reports), len(targets))
    if not run.interrupted:
        _refuse_unknown_fields(reports, chosen)
    return run


def find_laws(names: Sequence[str]) -> tuple[Law, ...]:
    """Return the laws of these names, each once; all laws for no names.

    Raises:
        UsageError: There is no law of that name.
    """
    for name in names:
        if name not in _LAWS:
            text = f"--law {name}: no law has that name"
            raise _unknown(text, name, list(_LAWS), "there are")
    return tuple(dict.fromkeys(_LAWS[name] for name in names)) or tuple(Law)


def _refuse_unknown_fields(reports: list[ClassReport], options: CheckOptions) -> None:
    names = list(dict.fromkeys(name for report in reports for name in report.fields))
    if any(report.error for report in reports):
        return  # it may have the field
    for name in options.only:
        if name not in names:
            text = f"--field {name}: no class has a field of that name"
            raise _unknown(text, name, names, "they have")


def _unknown(text: str, name: str, known: list[str], there_are: str) -> UsageError:
    close = difflib.get_close_matches(name, known, 1)
    if close:
        return UsageError(f"{text}; did you mean {close[0]}?")
    return UsageError(f"{text}: {there_are} {', '.join(known) or 'none'}")
