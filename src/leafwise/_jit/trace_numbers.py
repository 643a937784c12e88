"""The number in JAX's trace context while a body is traced: see `leafwise._jax.context`.

JAX caches what is traced inside it, such as a loop body or a function under `jax.jit`, under that
number. So the next body may be traced with the same number, and reuse it, while everything that was
read is unchanged; otherwise it gets a new number.
"""

import contextlib
import functools
import threading
import types
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, TypeAlias

from leafwise._captures.observe import Run
from leafwise._captures.reads import Captured, Current, Read, changed, reads_of
from leafwise._jax.context import new_number, with_number
from leafwise._objects.locks import new_lock

Source: TypeAlias = tuple[str, int]
"""The file and the first line of a function."""


def file_and_line(code: types.CodeType) -> Source:
    """Return the file and the first line of a code object."""
    return code.co_filename, code.co_firstlineno


class Observation:
    """The reads of the functions in a trace, with the values at its end, none kept alive."""

    def __init__(
        self, runs: list[Run], root: Callable[..., Any], reused: Iterable[Read] = ()
    ) -> None:
        self.reads = {each.place.key: each for each in (*reads_of(runs, root), *reused)}
        current = Current(self.reads.values(), is_weak=True)
        self.captured: dict[Any, Captured] = current.captured
        self.words = frozenset[str]().union(*(each.words for each in self.reads.values()))
        self._check = current.check(_yes, _no)
        self._around: dict[types.CodeType, set[types.CodeType]] = {}
        for run in runs:
            self._around.setdefault(run.code, {run.code}).update(run.inside)

    def read_in(self, source: Source) -> list[Read]:
        """Return the reads of the functions at `source` in this trace, and of code run inside them.

        Receivers of methods, which every function reads, are included.
        """
        inside = {
            code for code, around in self._around.items() if source in map(file_and_line, around)
        }
        if not inside:
            return []
        return [read for read in self.reads.values() if read.code in inside or read.itself]

    def is_unchanged(self) -> bool:
        """Return whether all places have the values that they had."""
        if self._check():
            return True
        current = Current(self.reads.values(), is_weak=True)
        self._check = current.check(_yes, _no)  # without dead owners
        return not changed(self.captured, current.captured)


def _yes() -> bool:
    return True


def _no() -> bool:
    return False


class _Numbers:
    """The number of the latest trace, and what all traces with that number have read."""

    def __init__(self) -> None:
        self.threads = Counter[int]()  # how many traces each thread is in
        self.renew()

    def renew(self) -> None:
        """Start a new number, so that nothing traced so far is reused."""
        with _LOCK:
            self.latest, self.observations = new_number(), dict[int, Observation]()


_MOST_READ: Final = 256
"""The number of traces, of functions that may be gone, after which a new number is started."""
_LOCK: Final = new_lock()
_NUMBERS: Final = _Numbers()
_NOTED: Final[dict[int, weakref.ref[Observation]]] = {}  # of all numbers, while a program lives
trace_afresh: Final = _NUMBERS.renew


def is_in_body() -> bool:
    """Return whether this thread is tracing the body of a function under `leafwise.jit`."""
    return threading.get_ident() in _NUMBERS.threads


@contextlib.contextmanager
def numbered() -> Generator[int, None, None]:
    """Trace a body in this block; yield its number."""
    thread = threading.get_ident()
    with _LOCK:
        known = list(_NUMBERS.observations.values())
        is_alone = _NUMBERS.threads.keys() <= {thread}
        if not is_alone or len(known) > _MOST_READ or not all(o.is_unchanged() for o in known):
            _NUMBERS.renew()
        number = _NUMBERS.latest
        _NUMBERS.threads[thread] += 1
    try:
        with with_number(number):
            yield number
    finally:
        with _LOCK:
            _NUMBERS.threads += Counter({thread: -1})  # without those that are in none


def note(number: int, observation: Observation) -> None:
    """Record what a trace with a number has read."""
    key = id(observation)
    with _LOCK:
        _NOTED[key] = weakref.ref(observation, functools.partial(_NOTED.pop, key))
        if number == _NUMBERS.latest and observation.reads:
            _NUMBERS.observations[key] = observation


def read_before(reused: Iterable[Source]) -> list[Read]:
    """Return the reads of functions that JAX has reused from other traces."""
    known = [each for find in list(_NOTED.values()) if (each := find()) is not None]
    return [read for source in reused for each in known for read in each.read_in(source)]
