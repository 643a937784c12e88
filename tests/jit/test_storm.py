"""One warning where one field or argument causes trace after trace, and only one."""

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import leafwise as lw

pytestmark = pytest.mark.oracle


@pytest.fixture(autouse=True)
def _guard() -> Iterator[None]:
    """Each test has the usual guard, and leaves it; it counts by a class of its own."""
    lw.storm_guard(8)
    yield
    lw.storm_guard(8)


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

    jitted = lw.jit(step) if jitted is None else jitted
    found: list[str] = []
    for number in range(calls):
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            jitted(make(number))
        assert all(each.category is lw.errors.RetraceStormWarning for each in given)
        found += [f"{number}: {each.message}" for each in given]
    return found


CAUSES: dict[str, tuple[Callable[[Any, int], Any], list[str]]] = {
    "fresh function": (
        lambda cls, _: cls(1.0, lambda x: x),
        ["Layer.act", "fresh function", "define it once", "layer.act"],
    ),
    "changing number": (
        lambda cls, n: cls(1.0, n / 10),
        ["Layer.act", "changing number", "make it dynamic", "layer.act"],
    ),
    "identity object": (
        lambda cls, _: cls(1.0, Thing()),
        ["Layer.act", "identity object", "compares by identity", "layer.act"],
    ),
    "nested": (
        lambda cls, n: {"a": [cls(1.0, n)]},
        ["Layer.act", "changing number", "layer['a'][0].act"],
    ),
    "shape": (
        lambda cls, n: cls(jnp.ones(n + 1)),
        ["Layer.w", "changing shape", "pad", "layer.w"],
    ),
    "argument": (
        lambda cls, n: jnp.ones(n + 1),
        ["layer of step", "changing shape", "pad"],
    ),
}


@pytest.mark.parametrize("name", CAUSES)
def test_one_warning_at_the_eighth_trace(name: str) -> None:
    """The eighth trace that a field caused warns: of field, cause, fix and off-switch."""
    make, words = CAUSES[name]
    cls = define()
    (warning,) = storm(lambda n: make(cls, n), 20)
    number, _, text = warning.partition(": ")
    assert number == "8", "the first trace has no cause"
    for word in [*words, "8 traces", "step", "storm_guard(None)"]:
        assert word in text


def test_never_twice_for_one_field() -> None:
    """The field of a class is one field, in whatever function and at whatever place."""
    cls = define()
    assert len(storm(lambda n: cls(1.0, n), 12)) == 1
    assert storm(lambda n: [cls(1.0, n)], 12) == []


def test_two_fields_are_counted_apart() -> None:
    """Seven traces by one field and seven by the other are no storm."""
    cls = define()
    lists = storm(lambda n: cls(1.0, n if n < 8 else 7, max(n - 7, 0)), 15)
    assert lists == []
    assert len(storm(lambda n: cls(1.0, n + 100, n + 100), 10)) == 2


def test_it_warns_at_the_line_that_called() -> None:
    """The warning points at the user's line."""
    jitted = lw.jit(lambda x: x)
    for size in range(1, 9):
        jitted(jnp.ones(size))
    with pytest.warns(lw.errors.RetraceStormWarning) as given:
        jitted(jnp.ones(9))
    assert [Path(each.filename).name for each in given] == ["test_storm.py"]


@pytest.mark.parametrize("threshold", [1, 3, 12])
def test_the_threshold_can_be_set(threshold: int) -> None:
    """It warns at that number."""
    cls = define()
    lw.storm_guard(threshold)
    (warning,) = storm(lambda n: cls(1.0, n), 20)
    assert warning.startswith(f"{threshold}: ")
    assert f"{threshold} trace" in warning


def test_it_can_be_turned_off() -> None:
    """`None` turns it off."""
    cls = define()
    lw.storm_guard(None)
    assert storm(lambda n: cls(1.0, n), 20) == []


def test_reuse_is_no_storm() -> None:
    """Calls that trace nothing, and values that come back, count for nothing."""
    cls = define()
    assert storm(lambda n: cls(1.0, n % 4), 40) == []


def test_a_warning_that_is_an_error_does_not_break_the_function() -> None:
    """With warnings as errors it comes out of the call; the next call works."""
    jitted = lw.jit(lambda x: x * 2)
    for size in range(1, 9):
        jitted(jnp.ones(size))
    argument = jnp.ones(9)
    with pytest.raises(lw.errors.RetraceStormWarning):
        jitted(argument)
    assert jitted(argument).shape == (9,)
    assert jitted(jnp.ones(10)).shape == (10,)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "8"], ids=str)
def test_wrong_thresholds(wrong: Any) -> None:
    """The error says what was given."""
    with pytest.raises(ValueError, match="takes a positive number of traces, or None, got"):
        lw.storm_guard(wrong)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "expected"), [(None, "8"), ("3", "3"), ("0", ""), ("nonsense", "8")], ids=str
)
def test_the_environment_variable(setting: str | None, expected: str, tmp_path: Path) -> None:
    """`LEAFWISE_STORM_GUARD` sets the number for a process; 0 turns the guard off."""
    script = tmp_path / "storm.py"
    script.write_text(
        "import warnings, jax, jax.numpy as jnp, leafwise as lw\n"
        "f = lw.jit(lambda x: x)\n"
        "for n in range(12):\n"
        "    with warnings.catch_warnings(record=True) as given:\n"
        "        warnings.simplefilter('always')\n"
        "        f(jnp.ones(n + 1))\n"
        "    if given: print(n)\n",
        encoding="utf-8",
    )
    environment = {key: value for key, value in os.environ.items() if "STORM" not in key}
    if setting is not None:
        environment["LEAFWISE_STORM_GUARD"] = setting
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == expected
