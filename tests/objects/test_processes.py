"""Child processes that are made while other threads hold the locks of leafwise."""

import gc
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import jax
import pytest

import leafwise as lw
from leafwise._jax import events
from leafwise._objects import locks
from leafwise._statics import key

pytestmark = pytest.mark.hazard

SOURCES = Path(lw.__file__).parent
can_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


@lw.pytree
class Params:
    x: Any
    n: lw.Static[Any] = 0


@pytest.fixture
def holding() -> Generator[Callable[[list[Any], Callable[[], object]], None], None, None]:
    """Return a function that has another thread hold locks and keep something, until the end."""
    done, threads = threading.Event(), list[threading.Thread]()

    def hold(locks: list[Any], make: Callable[[], object]) -> None:
        held = threading.Event()

        def run() -> None:
            local = threading.local()
            local.kept = make()
            for lock in locks:
                lock.acquire()
            held.set()
            done.wait()
            for lock in locks:
                lock.release()

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        assert held.wait(60)

    yield hold
    done.set()
    for thread in threads:
        thread.join()


def in_child(act: Callable[[], object], seconds: float = 30.0) -> int | None:
    """Run a function in a forked child; return how the child ended, None if it hung."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python and JAX: a fork next to threads
        pid = os.fork()
    if pid == 0:
        try:
            act()
        except BaseException:  # noqa: BLE001  # nothing of pytest may run in the child
            os._exit(1)
        os._exit(0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def all_locks() -> list[Any]:
    gc.collect()
    return [lock for find in list(locks._LOCKS.values()) if (lock := find()) is not None]


def use_instances() -> None:
    made = Params(1.0, (object, 0.5))
    leaves, treedef = jax.tree.flatten(made)
    assert leaves == [1.0]
    assert treedef == jax.tree.structure(Params(2.0, (object, 0.5)))
    assert treedef != jax.tree.structure(Params(2.0, (object, 0.25)))


def take_all() -> None:
    for lock in all_locks():
        assert lock.acquire(timeout=5)
        lock.release()


@can_fork
def test_locks_that_another_thread_holds(holding: Any) -> None:
    """Each lock of leafwise is free in a child, also one of a single function."""
    assert callable(lw.jit)  # which imports it
    before = len(all_locks())
    fun = lw.jit(lambda x: x)
    assert callable(fun)
    assert len(all_locks()) == before + 2  # its log's and its guard's
    holding(all_locks(), object)
    assert in_child(take_all) == 0
    assert in_child(use_instances) == 0


@can_fork
def test_a_child_in_which_an_instance_dies(holding: Any) -> None:
    """Instances of threads that are gone die at once in a child, whoever held the lock."""
    holding([], lambda: Params(1.0, "of this thread alone"))
    holding([key.LOCK], object)

    def collect() -> None:
        gc.collect()
        use_instances()

    assert in_child(collect) == 0


def test_a_key_that_dies_while_a_thread_has_the_lock(holding: Any) -> None:
    """It waits for nobody, and the keys that are made later remove it from the table."""
    table = Params(1.0).__leafwise_key__.owner.table  # type: ignore[attr-defined]
    kept = Params(1.0, "kept")
    released = threading.Event()
    held = threading.Event()

    def hold() -> None:
        with key.LOCK:
            held.set()
            released.wait(60)

    dying = Params(1.0, "dies")
    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    del dying
    released.set()
    thread.join()
    later = Params(1.0, "a later one"), Params(1.0, "the latest")
    assert {form[-1] for form in table.plain} == {"kept", *(made.n for made in later)}
    assert jax.tree.structure(Params(2.0, "kept")) == jax.tree.structure(kept)


def test_no_other_locks() -> None:
    """Locks are made in one place; a cached_property of Python 3.11 has one, and ours has not."""
    pattern = re.compile(r"thread(ing)?\.(R?Lock|Condition|Sema)|@functools\.cached_property")
    found = [path.name for path in SOURCES.rglob("*.py") if pattern.search(path.read_text())]
    assert found == ["locks.py"]


def test_listening_that_was_left_half_done() -> None:
    """Each event is counted once, where a thread that is gone had just begun to listen."""
    duration = "/jax/core/compile/jaxpr_trace_duration"
    counted: list[Any] = []
    count = counted.append
    others = events._subscribers
    for each in others:
        events.unsubscribe(each)
    jax.monitoring.register_event_duration_secs_listener(events._on_duration)
    events.subscribe(count)
    events.subscribe(count)
    try:
        jax.monitoring.record_event_duration_secs(duration, 1.0, fun_name="f")
        assert len(counted) == 1
    finally:
        events.unsubscribe(count)
    jax.monitoring.record_event_duration_secs(duration, 1.0, fun_name="f")
    assert len(counted) == 1
    for each in others:
        events.subscribe(each)


@pytest.mark.slow
def test_a_class_by_content_imports_what_it_needs() -> None:
    """When it is made: an instance in a forked child could wait for an import for ever."""
    program = """
        import sys, leafwise as lw
        name = "leafwise._statics.content"
        assert name not in sys.modules
        @lw.pytree
        class P:
            f: object = lw.static_field(compare_by="content")
        assert name in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)
