"""Checking the fields and laws of classes, for `leafwise check` and for pytest."""

import contextlib
import dataclasses
import functools
import math
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from typing import Any, Final

import hypothesis
from hypothesis import strategies as st
from rich.console import Console
from rich.status import Status
from rich.text import Text

from leafwise._findings.words import without_addresses
from leafwise._objects.classes import public_name
from leafwise._trees.roles import field_order
from leafwise.cli.check_fields import Example, check_fields, untraceable
from leafwise.cli.check_result import (
    CheckRun,
    CheckVerdict,
    ClassResult,
    FieldChange,
    LawResult,
    verdict_of,
)
from leafwise.cli.check_targets import (
    CheckTarget,
    FoundTargets,
    UsageError,
    flattened_by,
    source_location,
)
from leafwise.errors import CannotBuildError, LawViolation
from leafwise.testing._check import chosen_laws, smallest_failure, try_each
from leafwise.testing._format import cut, format_error, short_repr
from leafwise.testing._laws.law import Law
from leafwise.testing._laws.libraries import LIBRARIES, is_unpromised, library_of
from leafwise.testing._laws.run import NO_TIME, drop_notes

EXAMPLES: Final = 20
"""How many instances of a class are drawn for its laws."""
SECONDS: Final = 8.0
"""How many CPU seconds a class may take."""

_WIDTH: Final = 200

WarningKey = tuple[str, str]
"""A law (or an empty text), and the library or class that a warning says does not keep it."""


@dataclasses.dataclass(frozen=True)
class CheckOptions:
    laws: tuple[Law, ...] = tuple(Law)
    fields: bool = True
    only: tuple[str, ...] = ()
    examples: int = EXAMPLES
    seed: int | None = 0
    seconds: float = SECONDS
    until: float = math.inf
    warnings_as_errors: bool = False

    @property
    def left(self) -> float:
        """The CPU seconds left for the class, at least 0.1: a timer of 0 never fires."""
        return max(self.until - time.process_time(), 0.1)

    @property
    def half(self) -> float:
        """The CPU time at which half of them are over: the limit for changes, laws and searches."""
        return time.process_time() + self.left / 2

    @property
    def drawing(self) -> Any:
        settings = hypothesis.settings(max_examples=self.examples, derandomize=False)
        return {"settings": settings, "seed": self.seed}

    @property
    def timeout_message(self) -> str:
        return f"took longer than {self.seconds:g} seconds"


def run_checks(
    targets: FoundTargets,
    options: CheckOptions,
    *,
    on_result: Callable[[ClassResult], None] = lambda _: None,
) -> CheckRun:
    """Check all classes, or those before Ctrl-C, and show progress on a terminal."""
    # Not `console.is_terminal`, which FORCE_COLOR sets for any file.
    visible = sys.stderr.isatty()
    console = Console(stderr=True, quiet=not visible, force_terminal=visible)
    results: list[ClassResult] = []
    known: set[WarningKey] = set()
    interrupted = 0
    is_done = threading.Event()
    with console.status("checking") as status:

        def add(result: ClassResult) -> None:
            results.append(result)
            status.stop()  # or it would be between the lines
            on_result(result)
            status.start()

        if not visible:
            threading.Thread(target=_name_class, args=(status, is_done), daemon=True).start()
        try:
            for name, reason in targets.unloaded.items():
                add(ClassResult(name, error=reason, is_module=True))
            for number, target in enumerate(targets.targets, 1):
                status.update(Text(f"{number} of {len(targets.targets)}: {target.name}"))
                add(check_class(target, options, known))
        except KeyboardInterrupt:
            interrupted = signal.SIGINT
        finally:
            is_done.set()
    if not interrupted and not any(result.error for result in results):  # which may have the field
        names = dict.fromkeys(name for result in results for name in result.fields)
        for name in (name for name in options.only if name not in names):
            they_have = ", ".join(names) or "none"
            raise UsageError(f"--field {name}: no class has this field: they have {they_have}")
    longer = f"`--timeout {2 * options.seconds:g}` takes longer"
    late = [f"{result.name}: {text}: {longer}" for result in results if (text := _late(result))]
    return CheckRun(tuple(results), (*targets.notes, *late), interrupted)


_SILENCE: Final = 10.0
"""Seconds between two lines that name the class being checked, where no terminal shows it."""


def _name_class(status: Status, is_done: threading.Event) -> None:
    while not is_done.wait(_SILENCE):
        sys.stderr.write(f"leafwise check: {status.status}\n")


def _late(result: ClassResult) -> str:
    fields = [row.field for row in result.rows if row.note == NO_TIME]
    texts = {f"laws were {law.message}" for law in result.laws if NO_TIME in law.message}
    texts |= {f"not changed: {cut(', '.join(fields), _WIDTH)}"} if fields else set()
    return "; ".join(sorted(texts))


def find_laws(names: Sequence[str], without: Sequence[str] = ()) -> tuple[Law, ...]:
    try:
        chosen, left_out = chosen_laws("--law", names), chosen_laws("--without", without)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if laws := tuple(law for law in chosen or Law if law not in left_out):
        return laws
    raise UsageError("--without: no law is left to test; to only change fields, write --fields")


def check_class(
    target: CheckTarget, options: CheckOptions, known: set[WarningKey] | None = None
) -> ClassResult:
    """Check one class, add its warnings to `known`, and mark those already in it as repeated."""
    cls = target.cls
    options = dataclasses.replace(options, until=time.process_time() + options.seconds)
    file, line = source_location(cls)
    facts: Any = {"library": library_of(cls), "flattened_by": flattened_by(cls)}
    result = functools.partial(ClassResult, target.name, file=file, line=line, **facts)
    known = set() if known is None else known
    # A class that warns would warn for each drawn value.
    with warnings.catch_warnings(action="ignore"):
        example, problem, is_refused = _build(target, options)
        if example is None:
            return result(error=problem)
        result = functools.partial(result, instance=short_repr(example.base, _WIDTH))
        if not problem or is_refused:
            result = functools.partial(result, fields=tuple(field_order(example.base)))
        if is_refused:  # JAX cannot flatten or unflatten it, perhaps only with tracers
            few = dataclasses.replace(options, laws=(Law.ROUND_TRIP, Law.TRANSFORMATIONS))
            tried = try_laws(st.just(example.base), few, example.base)
            if broken := [law for law in tried if law.verdict.is_bad]:
                return result(laws=tuple(broken[:1]))
        if problem:
            # Left out only if it is known not to be an argument of jitted functions.
            return result(left_out=problem) if target.optional else result(error=problem)
        rows: list[FieldChange] = []
        try:
            with time_limit(options.left):
                if options.fields:
                    rows.extend(check_fields(example, options.only, options.half))
        except TooLong:
            late, why = CheckVerdict.NOT_CHECKED, f"{cls.__name__}: {options.timeout_message}"
            rows.append(FieldChange("", static=False, kind="", change="", verdict=late, note=why))
        laws = try_laws(cls, options, example.base, known) if options.laws else []
    if options.warnings_as_errors:
        rows, laws = list(map(_as_error, rows)), list(map(_as_error, laws))
    return result(rows=tuple(rows), laws=tuple(_marked(laws, known)))


def _build(target: CheckTarget, options: CheckOptions) -> tuple[Example | None, str, bool]:
    """Return an example of a class, why it cannot be checked, and whether that is a fault."""
    cls: Any = target.cls
    example, is_refused = None, False
    try:
        with time_limit(options.left):
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


def _as_error(result: Any) -> Any:
    is_warning = result.verdict is CheckVerdict.WARNING
    return dataclasses.replace(result, verdict=CheckVerdict.VIOLATION) if is_warning else result


def warning_key(result: LawResult) -> WarningKey | None:
    """Return the key of a warning about a whole library or class; None if it concerns a field."""
    if result.law in (Law.AUX_DATA_HASH, Law.COPIES, Law.SAME_ARGUMENTS) and "." in result.path:
        return None
    return result.law if result.library in LIBRARIES else "", result.library


def _marked(laws: list[LawResult], known: set[WarningKey]) -> Iterator[LawResult]:
    """Yield results of laws, with the warnings whose key is known marked as repeated."""
    for law in laws:
        key = warning_key(law) if law.verdict is CheckVerdict.WARNING else None
        yield dataclasses.replace(law, is_repeated=key in known)
        known |= {key} if key else set()


def try_laws(
    cls: Any, options: CheckOptions, base: Any, known: Container[WarningKey | None] = ()
) -> list[LawResult]:
    """Test laws on the same instances, and find the smallest that breaks each, unless `known`."""
    strategy, failures, note = _first_failures(cls, options, base)
    results = {law: LawResult(str(law), CheckVerdict.OK, message=note) for law in options.laws}
    until = options.half
    for law, failure in failures.items():
        first = _result(cls, law, failure, options)
        if warning_key(first) in known and is_unpromised(cls, law, first.message):
            results[law] = first
            continue
        # A law that breaks on the simplest instance needs no search.
        for source in (st.just(base), strategy):
            smallest: BaseException | None = failure
            with contextlib.suppress(TooLong), time_limit(options.left):
                smallest = smallest_failure(source, law, failure, until=until, **options.drawing)
            result = smallest and _result(cls, law, smallest, options)
            results[law] = result or LawResult(str(law), CheckVerdict.OK, message=note)
            if smallest is not failure and result and result.verdict is first.verdict:
                break
    return list(results.values())


def _first_failures(
    cls: Any, options: CheckOptions, base: Any
) -> tuple[Any, dict[Law, BaseException], str]:
    """Return the strategy that worked, the error of each broken law, and a note."""
    strategy, note = cls, ""
    failures: dict[Law, BaseException] = {}
    done: set[Law] = set()
    while laws := [law for law in options.laws if law not in done]:
        tried: list[Law] = []
        try:
            with time_limit(0.75 * options.left):  # a law that never ends leaves time for others
                limits: Any = {"until": options.half, **options.drawing}
                late = try_each(strategy, laws, broken=failures, on_law=tried.append, **limits)
            note = late or note
            break
        except CannotBuildError:
            strategy, note = st.just(base), "tested on one instance, as no others were found"
        except TooLong as error:  # due to this law, or to the strategy
            last = [law for law in tried[-1:] if tried.count(law) == 1] if tried else laws
            failures |= dict.fromkeys(last, error)
            done |= {*tried, *last}  # the others run on one instance at least
            note = f"tested on few instances, as {NO_TIME}"
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # user code
            return strategy, dict.fromkeys(laws, error) | failures, note
    return strategy, failures, note


def _result(cls: Any, law: Law, error: BaseException, options: CheckOptions) -> LawResult:
    if isinstance(error, TooLong):
        return LawResult(str(law), CheckVerdict.NOT_CHECKED, message=options.timeout_message)
    if not isinstance(error, LawViolation):
        drop_notes(error)
        verdict, message = verdict_of(error), format_error(error)
        if verdict is CheckVerdict.NOT_CHECKED:  # our own error, or one inside Hypothesis
            message = cut(message.partition("\n")[0], _WIDTH)
        return LawResult(str(law), verdict, message=message)
    message = without_addresses(error.message)
    owner = error.owner or cls
    is_of_part = isinstance(cls, type) and cls not in owner.__mro__
    is_known = isinstance(owner, type) and is_unpromised(owner, law, message)
    if not is_of_part and not is_known:
        return LawResult(str(law), CheckVerdict.VIOLATION, error.path, message)
    if is_of_part:
        message += f"\n  the fault is in {public_name(owner)}, not in {cls.__name__}"
    library = library_of(owner) if is_known else public_name(owner)
    return LawResult(str(law), CheckVerdict.WARNING, error.path, message, library)


class TooLong(BaseException):  # not an Exception, which user code may catch
    """A time limit was exceeded."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Generator[None, None, None]:
    """Raise `TooLong` in the block after some CPU seconds, on systems with timer signals."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or not hasattr(signal, "setitimer") or seconds == math.inf:
        yield
        return
    clocks = [
        (signal.ITIMER_PROF, signal.SIGPROF, seconds),
        (signal.ITIMER_REAL, signal.SIGALRM, 10 * seconds),  # if the block sleeps or waits
    ]
    # A timer that is already set belongs to other code, such as pytest-timeout.
    clocks = [clock for clock in clocks if not signal.getitimer(clock[0])[0]]

    def give_up(*_: object) -> None:
        raise TooLong

    before = [(number, signal.signal(number, give_up)) for _, number, _ in clocks]
    for clock, _, limit in clocks:
        signal.setitimer(clock, limit, 1.0)  # again, in case it was caught
    try:
        yield
    finally:
        for clock, _, _ in clocks:
            signal.setitimer(clock, 0)
        for number, handler in before:
            signal.signal(number, handler)
