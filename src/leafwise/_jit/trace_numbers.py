"""The number in JAX's trace context while a body is traced: see `leafwise._jax.context`.

JAX caches what is traced inside it, such as a loop body or a function under `jax.jit`, under that
number. So the next body may be traced with the same number, and reuse it, while everything that was
read is unchanged; otherwise it gets a new number.
"""

import contextlib
import functools
import re
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final

from leafwise._captures.observe import Run, Source, source_of
from leafwise._captures.reads import (
    Captured,
    Current,
    captured_places,
    changed,
    differing,
    reads_of,
)
from leafwise._jax.context import new_number, with_number
from leafwise._objects.locks import new_lock
from leafwise._objects.source.names import names_stored


class Observation:
    """The reads of the functions in a trace, with the values at its end.

    Only what has no weak reference is kept alive.
    Without a number, what JAX reused from earlier traces was read with the values of those.
    """

    def __init__(
        self, runs: list[Run], root: Callable[..., Any], reused: list[Captured], number: int | None
    ) -> None:
        own = {each.place.key: each for each in reads_of(runs, root)}
        earlier = {key: each for each in reused if (key := each.read.place.key) not in own}
        self.reused = frozenset(earlier)
        self.reads = own | {key: each.read for key, each in earlier.items()}
        current = Current(self.reads.values(), is_weak=True)
        self.captured: dict[Any, Captured] = current.captured
        if number is None:
            self.captured |= {key: earlier[key] for key in earlier.keys() & self.captured.keys()}
        self.words = frozenset[str]().union(*(each.words for each in self.reads.values()))
        self._check = current.check(*_YES_OR_NO)
        # By id, as the codes of two modules may be equal. The reads keep those that matter alive.
        self._around: dict[int, set[Source]] = {}
        codes = [(code, ()) for each in self.reads.values() for code in each.readers]
        for code, inside in (*codes, *((run.code, run.inside) for run in runs)):
            self._around.setdefault(id(code), {source_of(code)}).update(inside)

    @property
    def keeps_alive(self) -> bool:
        """Whether it keeps an object alive that may be large."""
        tokens = [token for each in self.captured.values() for token in each.account.values()]
        owners = [read.place for read in self.reads.values() if read.place.keeps_owner]
        return bool(owners) or any(token.keeps_alive for token in tokens)

    def read_in(self, source: Source) -> list[Captured]:
        """Return the captures of the functions at `source` in this trace, and of code inside them.

        Receivers of methods, which every function reads, are included.
        """
        inside = {code for code, around in self._around.items() if source in around}
        reads = self.captured.values() if inside else ()
        return [
            each
            for each in reads
            if each.read.itself or not inside.isdisjoint(map(id, each.read.readers))
        ]

    def is_unchanged(self) -> bool:
        if self._check():
            return True
        current = Current(self.reads.values(), is_weak=True)
        self._check = current.check(*_YES_OR_NO)  # without dead owners
        return not changed(self.captured, current.captured)


class _Numbers:
    """The number of the latest trace, and what all traces with that number have read."""

    def __init__(self) -> None:
        self.threads = Counter[int]()  # how many traces each thread is in
        self.renew()

    def renew(self) -> None:
        """Start a new number, so that nothing traced so far is reused."""
        with _LOCK:
            self.latest = new_number()
            self.observations = dict[int, Callable[[], Observation | None]]()


_YES_OR_NO: Final = (lambda: True), (lambda: False)
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
    thread, threads = threading.get_ident(), _NUMBERS.threads
    with _LOCK:
        known = [find() for find in list(_NUMBERS.observations.values())]
        is_alone = threads.keys() <= {thread} and len(known) <= _MOST_READ
        if not is_alone or not all(each is not None and each.is_unchanged() for each in known):
            _NUMBERS.renew()
        number = _NUMBERS.latest
        threads[thread] += 1
    try:
        with with_number(number):
            yield number
    except BaseException:
        trace_afresh()  # what was traced so far stays in JAX's caches, and its reads are unknown
        raise
    finally:
        with _LOCK:
            threads[thread] -= 1
            if not threads[thread]:
                del threads[thread]


def note(number: int | None, observation: Observation) -> None:
    """Record what a trace, with a number or without one, has read."""
    key = id(observation)
    with _LOCK:
        _NOTED.pop(key, None)  # the latest last
        _NOTED[key] = find = weakref.ref(observation, functools.partial(_NOTED.pop, key))
        if number == _NUMBERS.latest and observation.reads:
            # What it knows by address must not live longer than the function.
            is_held = not observation.keeps_alive
            _NUMBERS.observations[key] = (lambda: observation) if is_held else find


def read_before(reused: Iterable[Source]) -> list[Captured]:
    """Return the captures of functions that JAX has reused from other traces."""
    known = [each for find in list(_NOTED.values()) if (each := find()) is not None]
    return [read for source in reused for each in known for read in each.read_in(source)]


def captures_before(fun: Callable[..., Any], known: dict[Any, Captured]) -> dict[Any, Captured]:
    """Return what a trace should read, where another thread may change it meanwhile.

    `known` is what earlier traces of this state have read. The rest is found by name.
    """
    return captured_places(fun) | known if threading.active_count() > 1 else {}


def changed_meanwhile(
    before: dict[Any, Captured], after: dict[Any, Captured], runs: Iterable[Run]
) -> bool:
    """Return whether a capture changed during a trace, and not by the code that ran in it."""
    stored = set[str]().union(*(names_stored(run.code) for run in runs)) if before else set[str]()
    for key in changed(before, after):
        was, now = before[key].account, after[key].account
        ways = [after[key].name, *(str(step) for path in differing(was, now) for step in path)]
        is_other = any(was[path] != now[path] for path in was.keys() & now.keys())
        if is_other and stored.isdisjoint(re.findall(r"\w+|\[", "".join(ways))):
            return True
    return False
