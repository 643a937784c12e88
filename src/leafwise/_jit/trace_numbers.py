"""The number with which the body of a function is traced: see `leafwise._jax.context`.

What is traced inside it, the body of a loop or a function under `jax.jit`, JAX keeps under that
number. So the next body may be traced with the same number, and take that up, as long as what
they both read is as it was; otherwise the number is a new one.
"""

import contextlib
import threading
from collections.abc import Callable, Generator
from typing import Any, Final, TypeAlias

from leafwise._captures.fingerprint import CaptureState, FingerprintedFunction, changed
from leafwise._captures.fingerprinter import ByWeakId
from leafwise._jax.context import new_number, with_number
from leafwise._objects.locks import new_lock

_MOST_PLACES: Final = 10_000
"""After so many places the number is a new one, as they are kept."""


_Places: TypeAlias = dict[Any, CaptureState]


class _Numbers:
    """The number of the latest trace, and what all traces with that number have read.

    Attributes:
        latest: The number.
        read: What was in each place.
        threads: The threads that are tracing.
    """

    def __init__(self) -> None:
        self.latest = new_number()
        self.read: _Places = {}
        self.threads: dict[int, int] = {}
        self._lock = new_lock()

    def begin(self, thread: int, places: _Places | None) -> int:
        """Return the number for a trace that reads these places; a new one if None."""
        with self._lock:
            known = {place: self.read[place] for place in places or () if place in self.read}
            if (
                places is None
                or self.threads.keys() - {thread}
                or len(self.read) > _MOST_PLACES
                or changed(known, {place: places[place] for place in known})
            ):
                self.renew()
            self.threads[thread] = self.threads.get(thread, 0) + 1
            self.read.update(places or {})
            return self.latest

    def end(self, thread: int) -> None:
        """Note that a trace has ended."""
        with self._lock:
            self.threads[thread] -= 1
            if not self.threads[thread]:
                del self.threads[thread]

    def note(self, number: int, places: _Places) -> None:
        """Note what a trace with a number has left in these places."""
        with self._lock:
            if number == self.latest:
                self.read.update(places)

    def renew(self) -> None:
        """Let nothing be taken up that was traced so far."""
        with self._lock:
            self.latest, self.read = new_number(), {}


_NUMBERS: Final = _Numbers()
trace_afresh: Final = _NUMBERS.renew


def is_tracing() -> bool:
    """Return whether this thread traces the body of a function under `leafwise.jit`."""
    return threading.get_ident() in _NUMBERS.threads


Note: TypeAlias = Callable[[FingerprintedFunction], None]


@contextlib.contextmanager
def numbered(began: FingerprintedFunction | None) -> Generator[Note, None, None]:
    """Trace a body in this block; yield what takes the captures as the trace has left them.

    Args:
        began: What the function captures; None where that is not known.
    """
    thread = threading.get_ident()
    number = _NUMBERS.begin(thread, None if began is None else _places_of(began))
    try:
        with with_number(number):
            yield lambda ended: _NUMBERS.note(number, _places_of(ended))
    finally:
        _NUMBERS.end(thread)


def _places_of(found: FingerprintedFunction) -> _Places:
    """Return what is in each place that functions read; the key is the same whatever that is."""
    places: _Places = {}
    for each in found.probes:
        place = each.binding.place
        key = (*place.key, place.steps)
        places[key] = found.fingerprint[each.key]
        if callable(each.value):  # of two functions of one code each has a closure of its own
            places[key, "itself"] = CaptureState(ByWeakId(each.value), "", "")
    return places
