"""What a retrace costs does not grow with the number of earlier ones, and loses no reason."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.kit.inside import Callee, Outcome, ProgramEntry, ProgramLog, checked_calls

import leafwise as lw
from leafwise._compare import signature as comparing
from leafwise._compare.signature import StaticArguments


def function(*_: Any) -> None: ...


@lw.pytree
class State:
    """Two statics and a leaf."""

    w: Any
    mode: str = lw.static_field(default="a")
    depth: int = lw.static_field(default=0)


@pytest.fixture
def log() -> ProgramLog:
    """The log of a function with one static argument."""
    return ProgramLog(Callee("function", lambda: function, StaticArguments((0,))))


def traced(log: ProgramLog, *args: Any) -> ProgramEntry:
    """Add the program of a call that JAX traced."""
    program = log.new_program(Outcome.RETRACE, None, args, {})
    log.add(program)
    return program


CALLS: dict[str, Callable[[int], Any]] = {
    "fresh lambda": lambda n: (lambda: n, np.float32(0)),
    "shape": lambda n: (0, np.zeros(n)),
    "statics": lambda n: (0, State(1.0, str(n % 7), n)),
    "unhashable": lambda n: ([n], np.zeros(n % 3)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_few_are_compared(
    log: ProgramLog, call: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retrace is compared with a handful of programs, however many there are."""
    counted: list[Any] = []
    compare = comparing.differences

    def counting(*args: Any, **options: Any) -> Any:
        counted.append(args)
        return compare(*args, **options)

    monkeypatch.setattr(comparing, "differences", counting)
    with lw.storm_guard(None):
        for number in range(150):
            before = len(counted)
            program = traced(log, *call(number))
            assert len(counted) - before <= 6
            assert number == 0 or program.explanation.reasons


def differing(program: ProgramEntry) -> list[str]:
    return [reason.path for reason in program.explanation.reasons]


@pytest.mark.parametrize("place", [0, 1])
def test_one_of_the_same_structure_is_nearer(log: ProgramLog, place: int) -> None:
    """Of calls that differ in one thing each, one with the same classes of nodes is named."""
    calls: list[Any] = [State(1.0, "a", depth) for depth in range(4)]
    calls.insert(place, {"w": 1.0})
    last = [differing(traced(log, 0, each)) for each in calls][-3:]
    assert last == [["_[1].depth"]] * 3


def test_the_nearest_is_found_among_many(log: ProgramLog) -> None:
    """Of a hundred programs, that which differs in one part alone is the nearest."""
    with lw.storm_guard(None):
        traced(log, 0, State(np.zeros(3), "a", 5))
        for number in range(120):
            traced(log, 1, State(np.zeros(number % 9 + 1), "b", number % 30))
        for change, path in (
            (State(np.zeros(3), "a", 6), "args[1].depth"),
            (State(np.zeros(3), "c", 5), "args[1].mode"),
            (State(np.zeros(20), "a", 5), "args[1].w"),
        ):
            found = log.explain(log.callee.record((0, change), {}))
            assert [reason.path for reason in found.reasons] == [path.replace("args[1]", "_[1]")]
            assert found.nearest == 0


ROWS: dict[str, tuple[Callable[[int], Any], Callable[[int], Any], str]] = {
    "spelling": (lambda n: ((np.ones(n), 0), {}), lambda n: ((), {"x": np.ones(n), "y": 0}), "x"),
    "keys": (
        lambda n: (({"a": np.ones(n)},), {}),
        lambda n: (({"a": np.ones(n), "b": 1},), {}),
        "b",
    ),
    "static": (lambda n: ((np.ones(n), "a"), {}), lambda n: ((np.ones(n), "b"), {}), "y"),
    "dtype": (
        lambda n: ((np.ones(1, f"i{n}"), "a"), {}),
        lambda n: ((np.ones(1, f"i{n}"), "b"), {}),
        "y",
    ),
}


@pytest.mark.parametrize(("before", "after", "path"), ROWS.values(), ids=ROWS)
def test_of_equally_near_calls(before: Any, after: Any, path: str) -> None:
    """That of equal shapes counts, and else the cause that other calls of the line share."""
    step = lw.jit(lambda x, y=None: 0, static_argnames=() if path == "x" else "y")
    sizes = (1, 2, 4)
    for args, kwargs in map(before, sizes):
        step(*args, **kwargs)
    args, kwargs = after(2)
    assert path in step.explain(*args, **kwargs).reasons[0].path
    for args, kwargs in map(after, sizes):
        step(*args, **kwargs)
    blamed = [program.explanation.reasons[0].path for program in step.traces[3:]]
    assert len(blamed) == 3
    assert all(path in each for each in blamed), blamed


def test_retired_programs_are_not_near(log: ProgramLog) -> None:
    """What JAX let go of explains nothing."""
    with lw.storm_guard(None):
        for number in range(8):
            traced(log, number)
        log.retire([])
        assert traced(log, 3).explanation.nearest is None
        assert differing(traced(log, 4)) == ["_[0]"]


rate = 0.5


def scaled(x: Any, n: int) -> Any:
    return x * rate * n


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The fingerprints that were compared."""
    counted: list[Any] = []
    original = checked_calls.changed

    def counting(old: Any, new: Any) -> Any:
        counted.append(old)
        return original(old, new)

    monkeypatch.setattr(checked_calls, "changed", counting)
    return counted


def test_captures_of_one_value_are_compared_once(compared: list[Any]) -> None:
    """After a trace, the captures of all programs of one value are compared once."""
    step = lw.jit(scaled, static_argnums=1)
    with lw.storm_guard(None):
        for number in range(12):
            compared.clear()
            step.trace(1.0, number)
            assert len(compared) <= 8, number


calls: list[int] = []
sizes = {"a": 1}


def counting_step(x: Any, n: int) -> Any:
    calls.append(n)
    sizes["a"] += len(calls)
    return x * sizes["a"]


def test_what_a_trace_changes_is_as_the_trace_left_it() -> None:
    """What a trace itself changes is found after it, and makes no call stale."""
    step = lw.jit(counting_step, static_argnums=1, on_stale="raise")
    for _ in range(2):
        step(1.0, 0)
    assert len(calls) == 1
    sizes["a"] = 100
    with pytest.raises(lw.errors.StaleCaptureError, match="sizes"):
        step(1.0, 0)
