"""The laws, tried on one class in limited time."""

import contextlib
import dataclasses
import math
import signal
import threading
import time
from collections.abc import Callable, Container, Generator
from typing import Any, Final

import hypothesis
from hypothesis import strategies as st

from leafwise._display.words import without_addresses
from leafwise._objects.classes import public_name
from leafwise.cli.check_result import CheckVerdict, LawResult, verdict_of
from leafwise.errors import CannotBuildError, LawViolation
from leafwise.testing._check import broken_laws, smallest_failure
from leafwise.testing._format import cut, format_error
from leafwise.testing._laws.law import Law
from leafwise.testing._laws.libraries import LIBRARIES, is_unpromised, library_of
from leafwise.testing._laws.run import without_notes

EXAMPLES: Final = 20
"""How many instances of a class are drawn for its laws."""
SECONDS: Final = 120.0
"""How many CPU seconds one law, or all changes of a class, may take."""
SLOW: Final = 1.5
"""CPU seconds to make instances in; as many to change them, twice as many to find smaller ones."""

OnStep = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class CheckOptions:
    """What is to be checked, and how."""

    laws: tuple[Law, ...] = tuple(Law)
    fields: bool = True
    only: tuple[str, ...] = ()
    examples: int = EXAMPLES
    seed: int | None = 0
    seconds: float = SECONDS
    strict: bool = False

    @property
    def drawing(self) -> Any:
        """How instances are drawn."""
        settings = hypothesis.settings(max_examples=self.examples, derandomize=False)
        return {"settings": settings, "seed": self.seed}

    @property
    def slow(self) -> float:
        """How many CPU seconds there are to make instances in."""
        return math.inf if self.seconds == math.inf else SLOW

    @property
    def timeout_message(self) -> str:
        """What is said of what there was no time for."""
        return f"took longer than {self.seconds:g} seconds"


WarningKey = tuple[str, str]
"""A law and the library, or the part, of which a warning says that it does not keep it."""


def warning_key(result: LawResult) -> WarningKey | None:
    """Return what a warning says of every class of a library; None for one that names a field."""
    if result.law == str(Law.AUX_DATA_HASH) and "." in result.path:
        return None
    return result.law if result.library in LIBRARIES else "", result.library


def try_laws(
    cls: Any,
    options: CheckOptions,
    base: Any,
    on_step: OnStep = lambda _: None,
    known: Container[WarningKey | None] = (),
) -> list[LawResult]:
    """Try laws on the same instances, and find the smallest that breaks each.

    For what the library does not promise, and a known warning has said, none is searched.
    """
    strategy, failures, note = _first_failures(cls, options, base, on_step)
    results = {law: LawResult(str(law), CheckVerdict.OK, message=note) for law in options.laws}
    until = time.process_time() + 2 * options.slow
    for law, failure in failures.items():
        on_step(f"law {law}")
        first = _result(cls, law, failure, options)
        if warning_key(first) in known and is_unpromised(cls, law, first.message):
            results[law] = first
            continue
        # What breaks on the simplest instance need not be searched for among others.
        for source in (st.just(base), strategy):
            smallest: BaseException | None = failure
            with contextlib.suppress(TooLong), time_limit(options.seconds):
                smallest = smallest_failure(source, law, failure, until=until, **options.drawing)
            result = smallest and _result(cls, law, smallest, options)
            results[law] = result or LawResult(str(law), CheckVerdict.OK, message=note)
            if smallest is not failure and result and result.verdict is first.verdict:
                break
    return list(results.values())


_WIDTH: Final = 200
_ROUNDS: Final = 3
"""How often all laws are tried, each time without one that takes too long."""


def _first_failures(
    cls: Any, options: CheckOptions, base: Any, on_step: OnStep
) -> tuple[Any, dict[Law, BaseException], str]:
    """Return what instances are drawn from, what each broken law raised, and a note."""
    strategy, note = cls, ""
    failures: dict[Law, BaseException] = {}
    tried: list[Law] = []

    def note_law(law: Law) -> None:
        tried.append(law)
        on_step(f"law {law}")

    for _ in range(_ROUNDS):
        laws = [law for law in options.laws if law not in failures]
        tried.clear()
        try:
            with time_limit(options.seconds):
                broken, slow = broken_laws(
                    strategy, laws, most_seconds=options.slow, on_law=note_law, **options.drawing
                )
            return strategy, failures | broken, slow or note
        except CannotBuildError:
            strategy, note = st.just(base), "tried on one instance, as no others were found"
        except TooLong as error:  # this law may be at fault, or the strategy
            failures |= dict.fromkeys(tried[-1:] or laws, error)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # user code
            return strategy, failures | dict.fromkeys(laws, error), note
    late = {law: TooLong() for law in options.laws if law not in failures}
    return strategy, failures | late, note


def _result(cls: Any, law: Law, error: BaseException, options: CheckOptions) -> LawResult:
    """Return how a law turned out that raised an error."""
    if isinstance(error, TooLong):
        return LawResult(str(law), CheckVerdict.NOT_CHECKED, message=options.timeout_message)
    if not isinstance(error, LawViolation):
        verdict, message = verdict_of(error), format_error(without_notes(error))
        if verdict is CheckVerdict.NOT_CHECKED:  # an error of ours, or inside Hypothesis
            message = cut(message.partition("\n")[0], _WIDTH)
        return LawResult(str(law), verdict, message=message)
    message = without_addresses(error.message)
    owner = error.owner or cls
    is_of_part = isinstance(cls, type) and cls not in owner.__mro__
    is_known = isinstance(owner, type) and is_unpromised(owner, law, message)
    if not is_of_part and not is_known:
        return LawResult(str(law), CheckVerdict.VIOLATION, error.path, message)
    if is_of_part:
        message += f"\n  the fault is one of {public_name(owner)}, not of {cls.__name__}"
    library = library_of(owner) if is_known else public_name(owner)
    return LawResult(str(law), CheckVerdict.WARNING, error.path, message, library)


# ------------------------------------------------------------------------ limited time


_WALL: Final = 10
"""How many times as long a block may take by the clock as on the processor."""


class TooLong(BaseException):  # not an Exception, which a user's code may catch
    """What was to be done in a limited time was not."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Generator[None, None, None]:
    """Raise `TooLong` in the block after some CPU seconds, where the system can interrupt it."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or not hasattr(signal, "setitimer") or seconds == math.inf:
        yield
        return
    clocks = [
        (signal.ITIMER_PROF, signal.SIGPROF, seconds),
        (signal.ITIMER_REAL, signal.SIGALRM, _WALL * seconds),
    ]
    # Another clock is somebody else's, such as that of pytest-timeout.
    clocks = [clock for clock in clocks if not signal.getitimer(clock[0])[0]]

    def give_up(*_: object) -> None:
        raise TooLong

    before = [(number, signal.signal(number, give_up)) for _, number, _ in clocks]
    for clock, _, limit in clocks:
        signal.setitimer(clock, limit, 1.0)  # again, if somebody has caught it
    try:
        yield
    finally:
        for clock, _, _ in clocks:
            signal.setitimer(clock, 0)
        for number, handler in before:
            signal.signal(number, handler)
