"""An exception of a signal handler, such as a deadline, comes out of leafwise as itself."""

import gc
import random
import signal
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import jax
import pytest

import leafwise as lw

from .judge import ByContent, P

pytestmark = [
    pytest.mark.hazard,
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no such timers here"),
]


class Deadline(Exception):  # noqa: N818  # as users name theirs
    pass


@pytest.fixture
def arm() -> Generator[Callable[[float], None]]:
    """Return a function that raises `Deadline` once, after some seconds of what follows it."""
    is_armed = False

    def handle(_signum: int, _frame: object) -> None:
        nonlocal is_armed
        if is_armed:
            is_armed = False
            raise Deadline

    def start(seconds: float) -> None:
        nonlocal is_armed
        is_armed = True
        signal.setitimer(signal.ITIMER_REAL, seconds)

    before = signal.signal(signal.SIGALRM, handle)
    gc.disable()  # JAX has a callback there, in which Python only prints what is raised
    yield start
    is_armed = False
    gc.enable()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def construct() -> None:
    """Make and flatten two instances, with keys by value and by content."""
    slope = random.random()  # noqa: S311
    jax.tree.flatten([ByContent(1.0, lambda x: x * slope), P(1.0, (slope, frozenset({1})))])


def construct_for(seconds: float) -> None:
    """Construct for some time; CPython 3.13 loses track of a ``with`` around the loop itself."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        construct()


def test_a_deadline_while_instances_are_made(arm: Callable[[float], None]) -> None:
    """Wherever the timer finds leafwise, its exception comes out, and no thread hangs."""
    drawn = random.Random(0)  # noqa: S311
    construct()
    for _ in range(300):
        with pytest.raises(Deadline):  # noqa: PT012  # the timer may be early
            arm(drawn.uniform(0.0005, 0.003))
            construct_for(1.0)
    thread = threading.Thread(target=construct, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


class Slow:
    """A value whose hash is interrupted, or raises on its own."""

    __eq__ = object.__eq__

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act

    def __hash__(self) -> int:
        return hash(self.act())


def fail() -> None:
    raise Deadline("its own")


@pytest.mark.parametrize("cls", [P, ByContent])
def test_the_code_of_a_value(cls: Any, arm: Callable[[float], None]) -> None:
    """What a value's own code raises is about the value; what interrupts that code is not."""
    arm(60)
    failing, interrupted = Slow(fail), Slow(lambda: signal.raise_signal(signal.SIGALRM))
    with pytest.raises(lw.errors.StaticFieldError, match="its __hash__ raises Deadline: its own"):
        cls(1.0, failing)
    with pytest.raises(Deadline):
        cls(1.0, interrupted)
