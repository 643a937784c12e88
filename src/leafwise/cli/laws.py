"""The laws, tried on one class in limited time: for `leafwise check` and the pytest plugin."""

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
from leafwise.cli.records import LawResult, Verdict, verdict_of
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


def too_long(options: CheckOptions) -> str:
    """Return what is said of what there was no time for."""
    return f"took longer than {options.seconds:g} seconds"


Told = tuple[str, str]
"""A law and the library, or the part, of which a warning has said that it does not keep it."""


def told_by(result: LawResult) -> Told | None:
    """Return what a warning says of every class of a library; None for one that names a field."""
    if result.law == str(Law.AUX_DATA_HASH) and "." in result.path:
        return None
    return result.law if result.library in LIBRARIES else "", result.library


def try_laws(
    cls: Any,
    options: CheckOptions,
    base: Any = None,
    on_step: OnStep = lambda _: None,
    told: Container[Told | None] = (),
) -> list[LawResult]:
    """Try laws on the same instances, and find the smallest that breaks each.

    What the library does not promise, and another class has told, is not searched for.
    """
    strategy, note = cls, ""
    failures: dict[Law, BaseException] = {}
    most = math.inf if options.seconds == math.inf else SLOW
    for _ in range(_ROUNDS):
        tried: list[Law] = []
        laws = [law for law in options.laws if law not in failures]

        def note_law(law: Law, tried: list[Law] = tried) -> None:
            tried[:] = [law]
            on_step(f"law {law}")

        try:
            with time_limit(options.seconds):
                found, slow = broken_laws(
                    strategy, laws, most_seconds=most, on_law=note_law, **options.drawing
                )
            failures |= found
            note = slow or note
            break
        except CannotBuildError:
            if base is None:
                raise
            strategy, note = st.just(base), "tried on one instance, as no others were found"
        except TooLong as error:  # this law may be at fault, or the strategy
            failures |= dict.fromkeys(tried or laws, error)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # user code
            failures |= dict.fromkeys(laws, error)
    else:
        failures |= {law: TooLong() for law in options.laws if law not in failures}
    results = {law: LawResult(str(law), Verdict.OK, message=note) for law in options.laws}
    # What breaks on the simplest instance need not be searched for among others.
    sources = [strategy] if base is None else [st.just(base), strategy]
    until = time.process_time() + 2 * most
    for law, failure in failures.items():
        on_step(f"law {law}")
        first = _result(cls, law, failure, options)
        if first and told_by(first) in told and is_unpromised(cls, law, first.message):
            results[law] = first
        else:
            smallest = _smallest(cls, law, failure, sources, options, until=until)
            results[law] = smallest or results[law]
    return list(results.values())


_WIDTH: Final = 200
_ROUNDS: Final = 3
"""How often all laws are tried, each time without one that takes too long."""


def _smallest(
    cls: Any,
    law: Law,
    failure: BaseException,
    sources: list[Any],
    options: CheckOptions,
    *,
    until: float,
) -> LawResult | None:
    """Return what is said of the first smallest failure with the verdict of one that is known."""
    known = result = _result(cls, law, failure, options)
    for source in sources:
        found: BaseException | None = failure
        with contextlib.suppress(TooLong), time_limit(options.seconds):
            found = smallest_failure(source, law, failure, until=until, **options.drawing)
        result = _result(cls, law, found, options)
        if found is not failure and result and known and result.verdict is known.verdict:
            break
    return result


def _result(
    cls: Any, law: Law, error: BaseException | None, options: CheckOptions
) -> LawResult | None:
    if error is None:
        return None
    if isinstance(error, TooLong):
        return LawResult(str(law), Verdict.NOT_CHECKED, message=too_long(options), error=error)
    if not isinstance(error, LawViolation):
        verdict, message = verdict_of(error), format_error(without_notes(error))
        if verdict is Verdict.NOT_CHECKED:  # an error of ours, or inside Hypothesis
            message = cut(message.partition("\n")[0], _WIDTH)
        return LawResult(str(law), verdict, message=message, error=error)
    message = without_addresses(error.message)
    owner = error.owner or cls
    is_of_part = isinstance(cls, type) and cls not in owner.__mro__
    is_known = isinstance(owner, type) and is_unpromised(owner, law, message)
    if not is_of_part and not is_known:
        return LawResult(str(law), Verdict.VIOLATION, error.path, message, error=error)
    if is_of_part:
        message += f"\n  the fault is one of {public_name(owner)}, not of {cls.__name__}"
    library = library_of(owner) if is_known else public_name(owner)
    return LawResult(str(law), Verdict.WARNING, error.path, message, library, error)


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
    clocks = [each for each in clocks if not signal.getitimer(each[0])[0]]

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
