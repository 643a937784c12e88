"""Locks that are free in a child process, whichever thread held them at `os.fork`.

A child starts with its parent's locks as they were, but without the threads that held them. So
every lock of leafwise is created here, and is free again in the child.

Guarded data may then be halfway through a change. Taking all locks before the fork would prevent
that, but wait for threads that run user code under a lock, and that may be waiting for a lock that
another library has taken for the fork. So nothing waits, and instead:

- Guarded data is valid between any two statements that change it: each entry of a table is correct
  without the next one.
- Callbacks of dying objects take no lock: in the child, objects of the other threads die before
  the locks are renewed.

Locks are taken by ``with`` alone: a signal handler may raise between any two calls, and so between
an ``acquire()`` and its ``try``.
"""

import _thread
import contextlib
import functools
import os
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeVar

_LOCKS: Final[dict[int, weakref.ref[Any]]] = {}
"""All locks by id. Not a `weakref.WeakSet`: another thread may be changing that."""

T = TypeVar("T")


_RLock: Any = _thread.RLock


class Lock(_RLock):  # type: ignore[misc]  # final in typeshed
    """A reentrant lock that is not held once ``with`` has failed to enter its block.

    CPython 3.14 calls ``__enter__`` like any function, and so may run a signal handler between it
    and the block. ``__exit__`` must be in C: a method in Python may end before it releases.
    """

    __slots__ = ()

    def __enter__(self) -> Any:
        depth = self._recursion_count()
        try:
            return self.acquire()
        except BaseException:  # of a signal handler, before or after the lock was taken
            if self._recursion_count() > depth:
                self.release()
            raise


def new_lock() -> Any:
    """Return a lock that is free after a fork, unless the thread that forks holds it."""
    # It is reentrant: ``==``, finalizers and garbage collection run user code.
    lock = Lock()
    key = id(lock)
    _LOCKS[key] = weakref.ref(lock, functools.partial(_LOCKS.pop, key))
    return lock


def _renew() -> None:
    for find in list(_LOCKS.values()):
        lock = find()
        if lock is None:
            continue
        if not lock._is_owned():  # noqa: SLF001  # else it is this thread's own
            lock._at_fork_reinit()  # noqa: SLF001  # as logging and concurrent.futures do


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


class cached_property(functools.cached_property[T]):  # noqa: N801  # as in functools
    """A `functools.cached_property` without the lock that it has in Python 3.11."""

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        self.lock = contextlib.nullcontext()
