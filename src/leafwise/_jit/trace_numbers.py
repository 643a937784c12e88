"""The number with which the body of a function is traced: see `leafwise._jax.context`.

What is traced inside it, the body of a loop or a function under `jax.jit`, JAX keeps under that
number. So the next body may be traced with the same number, and take that up, as long as all that
was read is as it was; otherwise the number is a new one.
"""

import contextlib
import threading
import weakref
from collections.abc import Generator, Iterable
from typing import Final

from leafwise._captures.bindings import Binding
from leafwise._captures.observation import Observation, Source
from leafwise._jax.context import new_number, with_number
from leafwise._objects.locks import new_lock

_LOCK: Final = new_lock()


class _Numbers:
    """The number of the latest trace, and what all traces with that number have read."""

    def __init__(self) -> None:
        self.latest = new_number()
        self.observations: list[weakref.ref[Observation]] = []
        self.threads: dict[int, int] = {}

    def begin(self, thread: int) -> int:
        """Return the number for a trace."""
        with _LOCK:
            known = [each() for each in self.observations]
            unchanged = all(each is not None and each.is_unchanged() for each in known)
            if not unchanged or self.threads.keys() - {thread}:
                self.renew()
            self.threads[thread] = self.threads.get(thread, 0) + 1
            return self.latest

    def end(self, thread: int) -> None:
        """Note that a trace has ended."""
        with _LOCK:
            self.threads[thread] -= 1
            if not self.threads[thread]:
                del self.threads[thread]

    def renew(self) -> None:
        """Let nothing be taken up that was traced so far."""
        with _LOCK:
            self.latest, self.observations = new_number(), []


_NUMBERS: Final = _Numbers()
trace_afresh: Final = _NUMBERS.renew


def is_tracing() -> bool:
    """Return whether this thread traces the body of a function under `leafwise.jit`."""
    return threading.get_ident() in _NUMBERS.threads


@contextlib.contextmanager
def numbered() -> Generator[int, None, None]:
    """Trace a body in this block; yield its number."""
    thread = threading.get_ident()
    number = _NUMBERS.begin(thread)
    try:
        with with_number(number):
            yield number
    finally:
        _NUMBERS.end(thread)


def note(number: int, observation: Observation) -> None:
    """Note what a trace with a number has read."""
    with _LOCK:
        if number == _NUMBERS.latest and observation.bindings:
            _NUMBERS.observations.append(weakref.ref(observation))


def read_before(reused: Iterable[Source]) -> list[Binding]:
    """Return what functions read that JAX has taken up from other traces with this number."""
    with _LOCK:
        known = [each() for each in _NUMBERS.observations]
    found: list[Binding] = []
    for source in reused:
        for each in known:
            if each is not None:
                found += each.read_in(source)
    return found
