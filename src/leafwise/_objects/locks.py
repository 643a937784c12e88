"""Locks that a child process can take, whoever held them when `os.fork` made it.

A child begins with the locks of its parent as they were, and with none of the threads that held
them. So each lock of leafwise is made here, and is free again in the child.

What a lock guards may then be halfway through a change. The other way, in which the thread that
forks takes all locks before and gives them back afterwards, leaves the tables whole; but it waits
in the middle of a fork, for threads that run code of the user's under a lock, and that may be
waiting for a lock which somebody else has taken for the fork. So nothing waits, and instead:

- What is guarded is of use between any two statements that change it: each entry of a table is
  right without the next one.
- What runs when an object dies waits for no lock either: see `Cleanup`. In the child objects of
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

    It is reentrant: user code runs in ``==``, in finalizers, and whenever memory is collected.
    """
    lock = threading.RLock()  # noqa: TID251  # here, and nowhere else
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


class cached_property(functools.cached_property[T]):  # noqa: N801  # as the one it replaces
    """A `functools.cached_property` without the lock that it has in Python 3.11."""

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        self.lock = contextlib.nullcontext()


class Cleanup:
    """What is left to do for objects that died, done under a lock by whoever gets that."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._todo: deque[Callable[[], object]] = deque()

    def __call__(self, action: Callable[[], object]) -> None:
        """Run an action now, or with the next one if another thread has the lock."""
        self._todo.append(action)
        if self._lock.acquire(blocking=False):
            try:
                while self._todo:
                    self._todo.popleft()()
            finally:
                self._lock.release()
