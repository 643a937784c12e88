"""One warning where one field or argument causes trace after trace, and only one."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.inside import storm_module

import leafwise as lw

pytestmark = pytest.mark.oracle


@pytest.fixture(autouse=True)
def _guard() -> Iterator[None]:
    """Each test has the usual guard; it counts by a class of its own."""
    with lw.storm_guard(8):
        yield


class Thing:
    """Compares by identity."""


def define() -> Any:
    """Return a class that has caused no trace so far."""

    @lw.pytree
    class Layer:
        w: Any
        act: Any = lw.static_field(default=None)
        other: Any = lw.static_field(default=None)

    return Layer


def storm(make: Callable[[int], Any], calls: int, jitted: Any = None) -> list[str]:
    """Make calls with another argument each; return the warnings, with the call's number."""

    def step(layer: Any) -> Any:
        return jax.tree.leaves(layer)

    call = lw.jit(step) if jitted is None else jitted
    texts: list[str] = []
    for number in range(calls):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(make(number))
        assert all(each.category is lw.errors.RetraceStormWarning for each in caught)
        texts += [f"{number}: {each.message}" for each in caught]
    return texts


CAUSES: dict[str, tuple[Callable[[Any, int], Any], str]] = {
    "fresh function": (lambda cls, _: cls(1.0, lambda x: x), "Layer.act"),
    "changing number": (lambda cls, n: cls(1.0, n / 10), "Layer.act"),
    "identity object": (lambda cls, _: cls(1.0, Thing()), "Layer.act"),
    "nested": (lambda cls, n: {"a": [cls(1.0, n)]}, "Layer.act"),
    "shape": (lambda cls, n: cls(np.ones(n + 1)), "Layer.w"),
    "argument": (lambda cls, n: np.ones(n + 1), "layer"),
}


@pytest.mark.parametrize("name", CAUSES)
def test_one_warning_at_the_eighth_trace(name: str) -> None:
    """The eighth trace that a field caused warns: of field and function."""
    make, field = CAUSES[name]
    cls = define()
    (warning,) = storm(lambda n: make(cls, n), 20)
    number, _, text = warning.partition(": ")
    assert number == "8", "the first trace has no cause"
    assert f"{field} has caused 8 traces of step" in text


def test_the_warning() -> None:
    """It has the last cause, its fix, and how it is turned off."""
    cls = define()
    (warning,) = storm(lambda n: cls(1.0, n / 10), 9)
    for words in ("0.7 -> 0.8", "make it dynamic", "layer.act", "with leafwise.storm_guard(None):"):
        assert words in warning


def test_never_twice_for_one_field() -> None:
    """The field of a class is one field, in whatever function and at whatever place."""
    cls = define()
    assert len(storm(lambda n: cls(1.0, n), 12)) == 1
    assert storm(lambda n: [cls(1.0, n)], 12) == []


def environment(number: int) -> tuple[Any, Any]:
    """Return an environment and a state, both of classes of their own."""

    class Environment:
        def reset(self) -> None: ...

    return Environment(), define()(np.ones(number + 1), number)


@pytest.mark.slow
def test_many_environments_are_no_storm() -> None:
    """A program for each class, of nodes and of statics, is what there must be."""
    made = [environment(number) for number in range(10)]
    assert storm(lambda n: made[n][1], 10) == []
    assert storm(lambda n: {"state": [made[n][1]], "size": np.ones(n)}, 10) == []
    assert storm(lambda n: made[n][0], 10, lw.jit(lambda env: 0, static_argnums=0)) == []
    for make in (lambda env: (env, env), lambda env: env.reset):
        step = lw.jit(lambda env: 0, static_argnums=0)
        assert storm(lambda n, make=make: make(made[n][0]), 10, step) == []


@pytest.mark.slow
def test_one_environment_with_many_values_is_a_storm() -> None:
    """Its class is the same: only statics, sizes and lengths differ."""
    env, state = environment(0)
    states = [type(state)(jnp.ones(3), number) for number in range(10)]
    assert len(storm(lambda n: states[n], 10)) == 1
    jitted = lw.jit(lambda env: 0, static_argnums=0)
    assert len(storm(lambda _: type(env)(), 10, jitted)) == 1
    assert len(storm(lambda n: states[:1] * (n + 1), 10)) == 1
    assert len(storm(lambda _: lambda: 0, 10, lw.jit(lambda act: 0, static_argnums=0))) == 1


def test_tests_are_counted_apart() -> None:
    """Seven traces in one test and seven in another are no storm; eight in each are two."""
    cls = define()
    step = lw.jit(lambda layer: layer.w)
    for start in (0, 100):
        storm_module.begin_test()
        assert storm(lambda n, start=start: cls(1.0, start + n), 7, step) == []
    for start in (200, 300):
        storm_module.begin_test()
        assert len(storm(lambda n, start=start: cls(1.0, start + n), 9, step)) == 1


def test_traces_made_ahead_are_no_storm() -> None:
    """They are in the log, and are not counted as retraces that one argument caused."""
    function = lw.jit(lambda x: x * 2)
    for size in range(1, 11):  # a warning is an error
        function.lower(jax.ShapeDtypeStruct((size,), jnp.float32))
    assert len(function.traces) == 10


def test_it_warns_at_the_line_that_called() -> None:
    """The warning points at the user's line."""
    jitted = lw.jit(lambda x: x)
    for size in range(1, 9):
        jitted(jnp.ones(size))
    with pytest.warns(lw.errors.RetraceStormWarning) as given:
        jitted(jnp.ones(9))
    assert [Path(each.filename).name for each in given] == ["test_storm.py"]


def threshold() -> int | None:
    """Return after how many traces there is a warning now; None if not after 8."""
    cls = define()
    warned = storm(lambda n: cls(1.0, n), 9)
    return int(warned[0].partition(":")[0]) if warned else None


def test_the_innermost_block_counts() -> None:
    """Blocks nest, also one in itself; what was in force before is again."""
    outer = lw.storm_guard(3)
    with outer:
        with lw.storm_guard(None):
            assert threshold() is None
            with outer:
                assert threshold() == 3
            assert threshold() is None
        assert threshold() == 3
        with lw.storm_guard():
            assert threshold() == 8
    assert threshold() == 8
    with outer:
        assert threshold() == 3


def test_as_a_decorator() -> None:
    """Each call of a decorated function is in a block, recursive ones too."""

    @lw.storm_guard(3)
    def inside(times: int) -> list[int | None]:
        return [*(inside(times - 1) if times else []), threshold()]

    assert inside(1) == [3, 3]
    assert threshold() == 8


@pytest.mark.parametrize(("wrong", "kind"), [(0, ValueError), (1.5, TypeError), (True, TypeError)])
def test_wrong_thresholds(wrong: Any, kind: type[Exception]) -> None:
    """The error says what was given."""
    wanted = f"storm_guard takes a positive number of traces, or None, got {wrong}"
    with pytest.raises(kind, match=wanted):
        lw.storm_guard(wrong)
