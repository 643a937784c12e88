"""`leafwise check` on classes, one after the other, whatever they do."""

import contextlib
import dataclasses
import difflib
import functools
import signal
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

import hypothesis
import jax
from hypothesis import strategies as st
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

import leafwise
from leafwise._objects.text import without_addresses
from leafwise._trees.roles import field_order
from leafwise.cli.baseline import Baseline
from leafwise.cli.cautions import SHOWN, cautions, excuses, once_a_library
from leafwise.cli.changes import Builder
from leafwise.cli.fields import check_fields, untraceable
from leafwise.cli.records import (
    Caution,
    CheckedRow,
    ClassReport,
    LawResult,
    UsageError,
    Verdict,
    verdict_of,
)
from leafwise.cli.targets import (
    CheckTarget,
    FoundTargets,
    flattened_by,
    library_of,
    source_location,
)
from leafwise.errors import CannotBuildError, LawViolation
from leafwise.testing._check import broken_laws, check_pytree
from leafwise.testing._format import format_error, short_repr
from leafwise.testing._laws.law import Law, unknown_law
from leafwise.testing._laws.run import SlowInstancesError, without_notes
from leafwise.testing.strategies._find import find
from leafwise.testing.strategies._instances import instances

EXAMPLES: Final = 20
"""How many instances of a class each law sees."""
SECONDS: Final = 120.0
"""How long one law, or all changes of a class, may take."""
SLOW: Final = 2.0
"""How many seconds a few instances may take to make, if each law is to see some of its own."""
_FEW: Final = 5
SIGPIPE: Final = 13
"""What ends a program whose reader is gone; Windows has no such signal."""

_LAWS: Final = {str(law): law for law in Law}
_WIDTH: Final = 200


@dataclasses.dataclass(frozen=True)
class CheckOptions:
    """What is to be checked, and how.

    Attributes:
        laws: The laws; none to change fields only.
        fields: Whether fields are changed.
        only: The fields to change; empty for all.
        examples: How many instances of a class each law sees.
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
        allow_unchecked: Whether a class that could not be checked is not counted.
        signal: The number of the signal that ended it; 0 for none.
        notes: What else is to be told of the targets.
    """

    reports: tuple[ClassReport, ...]
    total: int
    allow_unchecked: bool = False
    signal: int = 0
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every class was checked, or left out, and nothing is wrong."""
        return not self.interrupted and all(report.passed for report in self.reports)

    @property
    def exit_code(self) -> int:
        """What the command ends with."""
        if self.interrupted:
            return 128 + self.signal  # as a shell has it
        if any(report.failed for report in self.reports):
            return 1
        unchecked = any(report.unchecked for report in self.reports)
        return 3 if unchecked and not self.allow_unchecked else 0

    @property
    def interrupted(self) -> bool:
        """Whether some classes were not reached."""
        return self.signal != 0


# ------------------------------------------------------------------------ all classes


class Interruption:
    """Turns Ctrl-C and SIGTERM into `KeyboardInterrupt`, inside a block.

    Attributes:
        signal: The number of the first signal that came; 0 for none.
        is_held: Whether a first one is only noted, since what was found is being written.
    """

    def __init__(self) -> None:
        self.signal = 0
        self.is_held = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: types.FrameType | None) -> None:
        is_first = not self.signal
        self.signal = self.signal or number
        is_swallowed = frame is not None and frame.f_code.co_name in _SWALLOWED_IN
        if not is_swallowed and not (self.is_held and is_first):
            raise KeyboardInterrupt

    def check(self) -> None:
        """Raise if a signal has come, and somebody has caught what it raised."""
        if self.signal:
            raise KeyboardInterrupt


def run_checks(
    found: FoundTargets,
    options: CheckOptions | None = None,
    *,
    interruption: Interruption | None = None,
    baseline: Baseline | None = None,
    on_report: Callable[[ClassReport], None] = lambda _: None,
) -> CheckRun:
    """Check all classes, with progress on a terminal's standard error.

    After Ctrl-C, what was found so far is returned.

    Args:
        found: The classes.
        options: What to check.
        interruption: Where signals are noted.
        baseline: Accepts findings.
        on_report: Is called with each report as soon as it is there; fields that no class has
            are refused before.

    Raises:
        UsageError: No class has a field that was asked for.
    """
    chosen = options or CheckOptions()
    stop = interruption or Interruption()
    # Not what rich says of the console: FORCE_COLOR makes a terminal of any file.
    visible = sys.stderr is not None and sys.stderr.isatty()
    # Before rich 14.3 even a disabled bar ends with an empty line.
    console = Console(stderr=True, quiet=not visible)
    description = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), description, TimeElapsedColumn())
    reports: list[ClassReport] = []
    told: set[tuple[str, str]] = set()
    shown = 0
    bar = Progress(*columns, console=console, transient=True, disable=not visible)

    def add(report: ClassReport) -> None:
        nonlocal shown
        reports.append(report if baseline is None else baseline.apply(report))
        if not _unknown_fields(reports, chosen):
            bar.stop()  # it would be in between
            while shown < len(reports):
                shown += 1
                on_report(reports[shown - 1])
            bar.start()

    with bar:
        task = bar.add_task("checking", total=len(found.targets))
        try:
            for name, reason in found.unloaded.items():
                add(ClassReport(name, "", (), reason, is_module=True, identity=name))
            for number, target in enumerate(found.targets, 1):
                where = f"{number} of {len(found.targets)}: {target.name}"

                def show_step(step: str, where: str = where) -> None:
                    stop.check()
                    bar.update(task, description=f"{where}: {step}")

                bar.update(task, description=where)
                # What a class warns of, it warns of for each value that we draw.
                with warnings.catch_warnings(action="ignore"):
                    report = once_a_library(check_class(target, chosen, show_step), told)
                stop.check()
                add(report)
                bar.advance(task)
        except KeyboardInterrupt:
            stop.signal = stop.signal or signal.SIGINT
        except BrokenPipeError:  # nobody reads on
            stop.signal = SIGPIPE
    total = len(found.targets) + len(found.unloaded)
    if not stop.signal and (problem := _unknown_fields(reports, chosen)):
        raise UsageError(problem)
    notes = [*found.notes, *(baseline.gone(tuple(reports)) if baseline else ())]
    return CheckRun(tuple(reports), total, signal=stop.signal, notes=tuple(notes))


def find_laws(names: Sequence[str], without: Sequence[str] = ()) -> tuple[Law, ...]:
    """Return the laws of these names, each once; all laws for no names.

    Raises:
        UsageError: There is no law of that name, or none is left.
    """
    for option, given in (("--law", names), ("--without", without)):
        for name in given:
            if name not in _LAWS:
                raise UsageError(f"{option}: {unknown_law(name)}")
    found = tuple(law for law in dict.fromkeys(names or _LAWS) if law not in without)
    if not found:
        raise UsageError("--without: no law is left to try; to change fields only, write --fields")
    return tuple(_LAWS[law] for law in found)


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
    on_step: Callable[[str], None] = lambda _: None,
) -> ClassReport:
    """Check one class.

    Args:
        target: The class.
        options: What to check.
        on_step: Is called with what comes next: a field, a law.
    """
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
    builder: Builder | None = None
    is_refused = False
    try:
        with time_limit(chosen.seconds):
            builder = Builder(cls)
            problem = untraceable(builder)
    except CannotBuildError as error:
        problem = without_addresses(error.message)
    except TooLong:
        problem = (
            f"{cls.__name__}: {_too_long(chosen.seconds)}\n"
            f"  fix: next to the class:\n"
            f"       hypothesis.strategies.register_type_strategy({cls.__name__}, ...)"
        )
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # user code: go on with the next class
        problem = f"{cls.__name__}: while it was checked: {format_error(error)}"
        is_refused = builder is not None and not target.optional
    instance = "" if builder is None else short_repr(builder.base, _WIDTH)
    report = dataclasses.replace(report, instance=instance)
    if builder is not None and is_refused:
        fields = tuple(field_order(builder.base))
        # JAX may be unable to flatten it, or to unflatten it again, or only with tracers.
        for law in (Law.ROUND_TRIP, Law.TRANSFORMATIONS):
            broken = check_law(cls, law, builder.base, chosen, alone=True)
            if broken.verdict.is_bad:
                return dataclasses.replace(report, fields=fields, laws=(broken,))
    if builder is None or problem:
        # Only what is known to be no argument of a jitted function is left out.
        if target.optional and builder is not None:
            return dataclasses.replace(report, left_out=problem)
        return dataclasses.replace(report, error=problem)
    rows = tuple(_change_fields(builder, chosen, on_step)) if chosen.fields else ()
    laws = tuple(_try_laws(builder, chosen, on_step))
    fields = tuple(field_order(builder.base))
    report = dataclasses.replace(report, fields=fields, rows=rows, laws=laws)
    return _with_warnings(report, builder, chosen)


def _too_long(seconds: float) -> str:
    return f"took longer than {seconds:g} seconds"


def _change_fields(
    builder: Builder, options: CheckOptions, on_step: Callable[[str], None]
) -> Iterator[CheckedRow]:
    """Yield the rows of all fields, as far as there is time."""
    rows: list[CheckedRow] = []
    note, verdict = "", Verdict.NOT_CHECKED
    try:
        with time_limit(options.seconds):
            rows.extend(check_fields(builder, options.only, lambda name: on_step(f"field {name}")))
    except TooLong:
        note = f"{builder.cls.__name__}: {_too_long(options.seconds)}"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # user code: go on with the laws
        note, verdict = format_error(error), verdict_of(error)
    yield from rows
    if note:
        yield CheckedRow("", static=False, kind="", change="", predicted="", traces=0, compiles=0,
                  verdict=verdict, note=note)  # fmt: skip


def _try_laws(
    builder: Builder, options: CheckOptions, on_step: Callable[[str], None]
) -> Iterator[LawResult]:
    if not options.laws:
        return
    kept, alone = _kept_laws(builder, options, on_step)
    for law in options.laws:
        if law in kept:
            yield LawResult(str(law), Verdict.OK, message=_ALONE if alone else "")
        else:
            on_step(f"law {law}")
            yield check_law(builder.cls, law, builder.base, options, alone=alone)


_ALONE: Final = "tried on one instance, as others take long to make"


def _kept_laws(
    builder: Builder, options: CheckOptions, on_step: Callable[[str], None]
) -> tuple[set[Law], bool]:
    """Return the laws that no instance has broken, and whether only the one was tried.

    The others are tried one by one.
    """
    try_laws = functools.partial(
        broken_laws,
        laws=options.laws,
        settings=_settings(options),
        seed=options.seed,
        most_seconds=SLOW,
        on_law=lambda law: on_step(f"law {law}"),
    )
    alone = False
    try:
        with time_limit(options.seconds):
            try:
                broken = try_laws(builder.cls)
            except SlowInstancesError:
                alone = True
                broken = try_laws(st.just(builder.base))
    except KeyboardInterrupt:
        raise
    except TooLong:
        return set(), is_slow(builder.cls, options.seconds)
    except BaseException:  # noqa: BLE001  # user code: one law is at fault, or the strategy
        return set(), alone
    return set(options.laws) - broken, alone


def _with_warnings(report: ClassReport, builder: Builder, options: CheckOptions) -> ClassReport:
    """Turn what the libraries of a class and its parts are known for into warnings.

    They show what happens.
    """
    found: list[Caution] = []
    laws: list[LawResult] = []
    for result in report.laws:
        law = _LAWS[result.law]
        shown = excuses(builder, law, result) if law in SHOWN else []
        found.extend(shown)
        if shown and result.verdict in (Verdict.OK, Verdict.VIOLATION):
            path, message = result.path or shown[0].path, result.message or shown[0].message
            warning = Verdict.WARNING
            laws.append(dataclasses.replace(result, verdict=warning, path=path, message=message))
        else:
            laws.append(result)
    confused = any(row.verdict is Verdict.WARNING for row in report.rows)
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


# ------------------------------------------------------------------------ one law


def is_slow(cls: Any, seconds: float) -> bool:
    """Return whether instances take long to make: some compile for each shape.

    Args:
        cls: A pytree class.
        seconds: When to give up.
    """
    started = time.perf_counter()

    def refuse_until_late(_: object) -> bool:
        if time.perf_counter() - started > SLOW:
            raise TooLong
        return False

    try:
        with time_limit(seconds):
            find(instances(cls), refuse_until_late, _FEW)
    except TooLong:
        return True
    except Exception:  # noqa: BLE001  # the laws will report it
        return False
    return False


def check_law(
    cls: Any, law: Law, instance: Any, options: CheckOptions, *, alone: bool = False
) -> LawResult:
    """Try one law on a class, whatever the class does.

    Args:
        cls: A pytree class.
        law: The law.
        instance: What it is tried on if a search by chance finds no instances.
        options: How many instances are tried, the seed, and when to give up.
        alone: Whether it is tried on `instance` only: others take long to make.
    """
    one, seed, settings = st.just(instance), options.seed, _settings(options)
    message = _ALONE if alone else ""
    try:
        with time_limit(options.seconds):
            try:
                check_pytree(one if alone else cls, laws=[law], settings=settings, seed=seed)
            except CannotBuildError:
                message = "tried on one instance, as no others were found"
                check_pytree(one, laws=[law], settings=settings, seed=seed)
    except LawViolation as error:
        message = without_addresses(error.message)
        return LawResult(str(law), Verdict.VIOLATION, error.path, message, error.owner)
    except TooLong:
        return LawResult(str(law), Verdict.NOT_CHECKED, message=_too_long(options.seconds))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # user code: go on with the next law
        return LawResult(str(law), verdict_of(error), message=format_error(without_notes(error)))
    return LawResult(str(law), Verdict.OK, message=message)


def _settings(options: CheckOptions) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=options.examples,
        database=None,
        deadline=None,
        derandomize=False,  # the seed decides
        print_blob=False,
    )


# ------------------------------------------------------------------------ limited time


class TooLong(BaseException):  # not an Exception, which a user's code may catch
    """What was to be done in a limited time was not."""


_SWALLOWED_IN: Final = ("gc_callback", "__del__")
"""Functions that Python calls in between; what they raise is ignored."""
_MACHINERY: Final = (
    *(
        str(Path(module.__file__).parent)
        for module in (hypothesis, jax, leafwise)
        if module.__file__
    ),
    contextlib.__file__,
)
"""Where an exception out of the blue may leave things half done, for the classes to come."""
_RETRY_AFTER: Final = 0.1
"""Seconds until an interruption is tried again that came at a bad place."""
_MOST_RETRIES: Final = 100
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
    running, alarms = True, 0

    def give_up(_: int, frame: types.FrameType | None) -> None:
        nonlocal alarms
        alarms += 1
        code = None if frame is None else frame.f_code
        if not running or (code is not None and code.co_name in _SWALLOWED_IN):
            return
        late = alarms > _MOST_RETRIES
        if late or code is None or not code.co_filename.startswith(_MACHINERY):
            raise TooLong

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds, _RETRY_AFTER)
    try:
        yield
    finally:
        running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
