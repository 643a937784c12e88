"""The laws of pytrees, tried on one class."""

import contextlib
import signal
import threading
import time
import types
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import hypothesis
import jax
from hypothesis import strategies as st

import leafwise
from leafwise.cli.records import LawResult, Verdict
from leafwise.errors import LawViolation
from leafwise.testing._check import check_pytree
from leafwise.testing._laws.law import Law
from leafwise.testing._words import plain, tell
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
    started = time.perf_counter()
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
    return LawResult(str(law), verdict, path, message, time.perf_counter() - started, owner)


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
