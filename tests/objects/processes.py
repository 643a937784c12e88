"""Processes that are made while threads construct instances; `test_processes.py` runs it.

    python tests/objects/processes.py METHOD ROUNDS

METHOD is ``os.fork``, or a start method of `multiprocessing`. It ends with 0 if each child built
and flattened what it should; a child that hangs is killed, after it has written where it stands.
"""

import contextlib
import faulthandler
import itertools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax

import leafwise as lw

SECONDS = 60
"""How long a child may take, on a machine that is busy."""


class Own:
    """Compares by value, and takes its time: keys are looked up under a lock."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        time.sleep(0)
        return isinstance(other, Own) and self.number == other.number

    def __hash__(self) -> int:
        return 7


def act(x: float) -> float:
    return 2 * x


@lw.pytree
class Params:
    x: Any
    n: lw.Static[Any] = 0
    name: lw.Static[str] = "a"


@lw.pytree(slots=True, many_statics=True)
class Many:
    x: Any
    n: lw.Static[Any] = 0


@lw.pytree
class Content:
    x: Any
    fun: Any = lw.static_field(by="content")


def scaled(by: float) -> Callable[[float], float]:
    return lambda x: by * x


NUMBERS = itertools.count()
HERE = threading.local()


def construct() -> None:
    """Make keys, drop them, and begin and end blocks."""
    number = next(NUMBERS)
    HERE.last = Params(1.0, (number, 0.5, "x" * 40))  # dies with the thread
    Params(1.0, Own(number % 5), str(number % 3))
    Many(1.0, number % 1000)
    Content(1.0, scaled(number % 7))
    with lw.watch(), lw.storm_guard(9), lw.debug.check_captures(), lw.debug.check_statics():
        jax.tree.leaves((Params(1.0, number), Many(1.0, number)))
    lw.signature(act, 1.0)


def load(stop: threading.Event, problems: list[str]) -> None:
    try:
        while not stop.is_set():
            construct()
            lw.jit(scaled(next(NUMBERS)))  # not in a child: there `jax.jit` itself may hang
    except Exception as error:  # noqa: BLE001  # reported by the main thread
        problems.append(f"a thread ended with {error!r}")


SAMPLES: list[Any] = [
    Params(1.0, 3),
    Params(1.0, (1.5, "b", None)),
    Params(1.0, Own(2)),
    Many(1.0, 5),
    Content(1.0, act),
]
TREEDEFS = [jax.tree.structure(sample) for sample in SAMPLES]


def use(pickled: bytes) -> None:
    """Do in a child what a child may do, with what the parent had."""
    for sample, treedef in zip(SAMPLES, TREEDEFS, strict=True):
        assert jax.tree.structure(sample) == treedef
    instances, treedefs, keys = pickle.loads(pickled)  # noqa: S301  # our own
    assert [jax.tree.structure(each) for each in instances] == treedefs == TREEDEFS
    assert all(map(lambda a, b: hash(a) == hash(b), treedefs, TREEDEFS))
    assert keys == [each.__leafwise_key__ for each in instances]
    for number in range(0, 1000, 50):
        made = Params(2.0, number, str(number))
        leaves, treedef = jax.tree.flatten(made)
        assert jax.tree.unflatten(treedef, leaves).n == number
        assert treedef == jax.tree.structure(Params(3.0, int(str(number)), str(number)))
        assert treedef != jax.tree.structure(lw.replace(made, n=float(number)))
        assert Many(1.0, number).__leafwise_key__ is Many(2.0, number).__leafwise_key__
        assert jax.tree.structure(Params(1.0, Own(number))) == jax.tree.structure(
            Params(1.0, Own(number))
        )
        assert jax.tree.structure(Content(1.0, scaled(number))) == jax.tree.structure(
            Content(1.0, scaled(number))
        )
    for _ in range(10):
        construct()

    @lw.pytree
    class New:
        x: Any
        n: lw.Static[int] = 1

    assert jax.tree.leaves(New(1.0)) == [1.0]


def child(pickled: bytes) -> None:
    faulthandler.dump_traceback_later(SECONDS * 0.8, exit=True)
    use(pickled)


def by_fork(pickled: bytes) -> str | None:
    """Run `child` in a process made by `os.fork`; return what went wrong."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child(pickled)
            status = 0
        except BaseException as error:  # noqa: BLE001  # whatever it is, the child ends here
            sys.stderr.write(f"{error!r}\n")
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(status)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return f"a child ended with {status}" if status else None
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "a child hangs"


def by_start_method(method: str, pickled: bytes) -> str | None:
    """Run `child` in a process of `multiprocessing`; return what went wrong."""
    process = multiprocessing.get_context(method).Process(target=child, args=(pickled,))
    process.start()
    process.join(SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
        return "a child hangs"
    return f"a child ended with {process.exitcode}" if process.exitcode else None


def main(method: str, rounds: int) -> int:
    keys = [sample.__leafwise_key__ for sample in SAMPLES]
    pickled = pickle.dumps((SAMPLES, TREEDEFS, keys))
    # No thread may be importing: in the child nobody would finish that (Python's own limit).
    construct()
    lw.jit(act)
    stop, problems = threading.Event(), list[str]()
    threads = [threading.Thread(target=load, args=(stop, problems)) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(rounds):
            found = by_fork(pickled) if method == "os.fork" else by_start_method(method, pickled)
            if found is not None:
                problems.append(found)
            if problems:
                break
            time.sleep(0.003)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    with contextlib.suppress(IndexError):
        sys.stderr.write(f"{problems[0]}\n")
    return len(problems)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of Python and JAX: forks next to threads
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
