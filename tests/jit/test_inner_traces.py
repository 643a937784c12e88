"""What JAX keeps of functions that are called inside others is never taken up for old values."""

import functools
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw

ONES = jnp.ones(2)
jit: Any = lw.jit  # so that lambdas need no types
rate = 1.0


def scaled(x: Any) -> Any:
    return x * rate


def weighted(weight: float, x: Any) -> Any:
    return scaled(x) * weight


class Scaling:
    """A callable object."""

    def __call__(self, x: Any) -> Any:
        return x * rate

    def method(self, x: Any) -> Any:
        return x * rate


def body(carry: Any, _: Any) -> Any:
    return carry * rate, None


HELPERS: dict[str, Callable[[], Any]] = {
    "jit": lambda: jax.jit(scaled),
    "deep": lambda: jax.jit(functools.partial(weighted, 1.0)),
    "object": lambda: jax.jit(Scaling()),
    "method": lambda: jax.jit(Scaling().method),
    "checkpoint": lambda: jax.checkpoint(scaled),
    "vmap": lambda: jax.vmap(jax.jit(lambda x: x * rate)),
    "scan": lambda: lambda x: jax.lax.scan(body, x, None, length=1)[0],
    "lw": lambda: jit(scaled, stale="raise"),
    "lw of an object": lambda: jax.vmap(jit(Scaling(), stale="raise")),
}


@pytest.mark.parametrize("held", ["name", "list", "attribute"])
@pytest.mark.parametrize("kind", HELPERS)
def test_a_helper_that_was_traced_before(kind: str, held: str) -> None:
    """Another function that calls it is traced with the values of now, not with those of then."""
    global rate  # noqa: PLW0603  # what is tested
    helper = HELPERS[kind]()
    every, space = [helper], types.SimpleNamespace(helper=helper)
    make: Any = {
        "name": lambda: lambda x: helper(x) + 1,
        "list": lambda: lambda x: every[0](x) + 1,
        "attribute": lambda: lambda x: space.helper(x) + 1,
    }[held]
    rate = 1.0
    first = jit(make(), stale="raise")
    assert np.array_equal(first(ONES), [2, 2])
    rate = 2.0
    for stale in ("raise", "retrace"):
        assert np.array_equal(jit(make(), stale=stale)(ONES), [3, 3])
    with pytest.raises(lw.errors.StaleCaptureError, match=r"was 1\.0 when .* and is 2\.0 now"):
        first(ONES)


def test_a_helper_that_only_jax_has_traced() -> None:
    """What leafwise has not seen before counts as traced with other values."""
    value = 1.0
    helper = jax.jit(lambda x: x * value)
    helper(ONES)
    value = 3.0
    assert np.array_equal(jit(lambda x: helper(x))(ONES), [3, 3])


def test_a_helper_of_two_values() -> None:
    """A trace of its own for another shape does not make the old one right."""
    value = 1.0
    helper = jit(lambda x: x * value, stale="raise")
    helper(ONES)
    value = 2.0
    helper(jnp.ones(3))
    outer = jit(lambda x: helper(x), stale="raise")
    assert np.array_equal(outer(ONES), [2, 2])
    # The helper has a new program, too, and knows why.
    assert np.array_equal(helper(ONES), [2, 2])
    assert [str(each.outcome) for each in helper.traces] == ["retrace"] * 3
    assert "1.0 -> 2.0" in str(helper.traces[-1].explanation)


def test_what_did_not_change_stays() -> None:
    """A helper that captures what it did before is not traced again, inside or by itself."""
    runs: list[int] = []
    value = 1.0

    @jax.jit
    def helper(x: Any) -> Any:
        runs.append(1)
        return x * value

    jit(lambda x: helper(x) + 1)(ONES)
    helper(ONES)
    traced = len(runs)
    jit(lambda x: helper(x) + 2)(ONES)
    helper(ONES)
    assert len(runs) == traced


def test_what_the_trace_itself_writes() -> None:
    """The state before a trace is as good as the one after it: of two equal objects none is old."""

    def make() -> Callable[[Any], Any]:
        steps: Any = 2

        def schedule(x: Any) -> Any:
            nonlocal steps
            steps = float(steps)
            return x * steps

        return schedule

    schedule = make()
    jitted = jit(lambda x: schedule(x), stale="raise")
    for _ in range(2):
        assert np.array_equal(jitted(ONES), [2, 2])
    schedule = make()
    assert np.array_equal(jitted(ONES), [2, 2])
