"""Locks that are free in a child process, whichever thread held them at `os.fork`.

A child starts with its parent's locks as they were, but without the threads that held them. So
every lock of leafwise is created here, and is free again in the child.

Guarded data may then be halfway through a change. The alternative, in which the forking thread
takes all locks before the fork and releases them afterwards, keeps the tables consistent; but it
waits in the middle of a fork, for threads that run user code under a lock, and that may be waiting
for a lock that another library has taken for the fork. So nothing waits, and instead:

- Guarded data is valid between any two statements that change it: each entry of a table is correct
  without the next one.
- Callbacks of dying objects do not wait for a lock either: see `Cleanup`. In the child, objects of
  the other threads die before the locks are renewed.
"""

import contextlib
import functools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

_LOCKS: Final[dict[int, weakref.ref[Any]]] = {}
"""All locks by id. Not a `weakref.WeakSet`: another thread may be changing that."""

T = TypeVar("T")


def new_lock() -> Any:
    """Return a lock that is free after a fork, unless the thread that forks holds it.

    It is reentrant: ``==``, finalizers and garbage collection run user code.
    """
    lock = threading.RLock()  # noqa: TID251  # only here
    key = id(lock)
    _LOCKS[key] = weakref.ref(lock, functools.partial(_LOCKS.pop, key))
    return lock


def _renew() -> None:
    for find in list(_LOCKS.values()):
        lock = find()
        if lock is None:
            continue
        if lock.acquire(blocking=False):  # it was free, or is this thread's own
            lock.release()
        else:
            lock._at_fork_reinit()  # noqa: SLF001  # as logging and concurrent.futures do


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


class cached_property(functools.cached_property[T]):  # noqa: N801  # as in functools
    """A `functools.cached_property` without the lock that it has in Python 3.11."""

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        self.lock = contextlib.nullcontext()


class Cleanup:
    """The pending actions for dead objects, run under a lock by any thread that holds it."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._todo: deque[Callable[[], object]] = deque()

    def __call__(self, action: Callable[[], object]) -> None:
        """Run an action now, or with the next one if another thread holds the lock."""
        self._todo.append(action)
        if self._lock.acquire(blocking=False):
            try:
                while self._todo:
                    self._todo.popleft()()
            finally:
                self._lock.release()
