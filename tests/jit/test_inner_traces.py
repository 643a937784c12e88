"""What JAX keeps of functions that are called inside others is never taken up for old values."""

import functools
import gc
import types
from collections.abc import Callable
from contextlib import closing
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.property.drawn_programs import WAYS, program_of

import leafwise as lw

pytestmark = pytest.mark.slow  # all of them together: each compiles

ONES = jnp.ones(2)
jit: Any = lw.jit  # so that lambdas need no types


class Held:
    """Something that can be assigned to, and what follows it."""

    def __init__(self, value: float = 2.0) -> None:
        self.value = value
        self.follow: Callable[[float], Any] = float

    def assign(self, value: float) -> None:
        self.value = value
        self.follow(value)

    def __call__(self, x: Any) -> Any:
        return x * self.value

    def times(self, x: Any) -> Any:
        return x * self.value


def test_a_helper_of_two_values() -> None:
    """A trace of its own for another shape does not make the old one right."""
    value = 1.0
    helper = jit(lambda x: x * value, on_stale="raise")
    helper(ONES)
    value = 2.0
    helper(jnp.ones(3))
    outer = jit(lambda x: helper(x), on_stale="raise")
    assert np.array_equal(outer(ONES), [2, 2])
    # The helper has a new program, too, and knows why.
    assert np.array_equal(helper(ONES), [2, 2])
    assert [str(each.outcome) for each in helper.traces] == ["retrace"] * 3
    assert "1.0 -> 2.0" in str(helper.traces[-1].explanation)


def test_a_variable_of_a_function_that_is_gone() -> None:
    """It may change for another function that shares it, and of which JAX keeps the trace."""

    def functions(value: float) -> tuple[Any, ...]:
        inner: Any = jax.jit(lambda x: x * value)
        outer: Any = lambda x: value + inner(x)  # noqa: E731

        def assign(number: float) -> None:
            nonlocal value
            value = number

        return inner, outer, assign

    inner, outer, assign = functions(1.0)
    assert jit(outer)(ONES).tolist() == [2, 2]
    del outer
    gc.collect()
    assign(3.0)
    assert jit(lambda x: inner(x))(ONES).tolist() == [3, 3]


def test_a_trace_that_raised() -> None:
    """JAX keeps what it traced inside: later traces do not take it up for an old value."""
    value = 1.0
    helper: Any = jax.jit(lambda x: x * value)

    def failing(x: Any) -> None:
        raise ValueError(helper(x))

    with pytest.raises(ValueError, match="Trace"):
        jit(failing)(ONES)
    value = 3.0
    assert jit(lambda x: helper(x) + 1)(ONES).tolist() == [4, 4]


KEPT = Held()


def by_kept(c: Any, _: Any) -> Any:
    return c * KEPT.value, None


@functools.partial(jit, on_stale="retrace")
def by_kept_alone(x: Any) -> Any:
    return x * KEPT.value


def scanned_by_kept(x: Any) -> Any:
    return jax.lax.scan(by_kept, x, None, length=1)[0]


def test_a_loop_that_the_unfinished_trace_around_has_traced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A function under `lw.jit` knows what the loop's body read that JAX takes up from there."""
    held = Held(1.0)
    inner = jit(lambda x: scanned_by_kept(x) + held.value, on_stale="retrace")
    function = lambda x: KEPT.value * x + scanned_by_kept(x) + inner(x)  # noqa: E731
    assert jax.jit(lambda x: function(x))(ONES).tolist() == [7, 7]
    outer = jit(function, on_stale="retrace")
    assert outer(ONES).tolist() == [7, 7]
    held.value = 2.0  # from here on the inner one has a state of its own
    assert outer(ONES).tolist() == [8, 8]
    monkeypatch.setattr(KEPT, "value", 3.0)
    assert outer(ONES).tolist() == [11, 11]


def test_a_function_inside_that_is_not_traced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has read counts for the one around it, which another change has traced again."""
    held = Held(1.0)
    function = lambda x: x * held.value + by_kept_alone(x)  # noqa: E731
    assert jax.jit(lambda x: function(x))(ONES).tolist() == [3, 3]
    monkeypatch.setattr(KEPT, "value", 4.0)  # from here on it has a state of its own
    outer = jit(function, on_stale="retrace")
    assert outer(ONES).tolist() == [5, 5]
    held.value = 2.0
    assert outer(ONES).tolist() == [6, 6]
    monkeypatch.setattr(KEPT, "value", 3.0)
    assert outer(ONES).tolist() == [5, 5]


def test_a_value_that_two_functions_read() -> None:
    """It is a capture of the helper, too, if the function around it read it first."""
    rate = 2.0
    helper = jax.jit(lambda x: x * rate)
    first = jit(lambda x: x * rate + helper(x), on_stale="retrace")
    second = jit(lambda x: helper(x) * 2, on_stale="retrace")
    assert (first(1.0), second(1.0)) == (4.0, 4.0)
    rate = 5.0
    assert (second(1.0), first(1.0)) == (10.0, 10.0)


def test_what_did_not_change_stays() -> None:
    """A helper that captures what it did before is not traced again, inside or by itself."""
    runs: list[int] = []
    value = 1.0

    @jax.jit
    def helper(x: Any) -> Any:
        runs.append(1)
        return x * value

    first, second = jit(lambda x: helper(x) + 1), jit(lambda x: helper(x) + 2)
    first(ONES)
    helper(ONES)
    traced = len(runs)
    second(ONES)
    helper(ONES)
    assert len(runs) == traced


def of_two_helpers(held: Held) -> Any:
    one, other = jax.jit(lambda x: x * held.value), jax.jit(lambda x: x + held.value)
    return lambda x: one(x) + other(x) + one(x + 1)


def of_a_static_argument(held: Held) -> Any:
    inner = jax.jit(lambda x, held: x * held.value, static_argnums=1)
    named = functools.partial(jax.jit(step, static_argnames="it"), it=held)
    checkpointed = jax.checkpoint(lambda x, held: x * held.value, static_argnums=(1,))
    return lambda x: inner(x, held) + named(x=x) + checkpointed(x, held)


def of_a_while(held: Held) -> Any:
    smaller, step = lambda c: c[0] < held.value, lambda c: c + held.value
    return lambda x: jax.lax.while_loop(smaller, step, x)


def bound_again(held: Held) -> Any:
    make = lambda value: lambda x: x * value  # noqa: E731
    inner = make(held.value)

    def bind(value: float) -> None:
        nonlocal inner
        inner = make(value)

    held.follow = bind
    helper = jax.jit(lambda x: inner(x))
    return lambda x: helper(x) + inner(x)


def step(it: Any, x: Any) -> Any:
    return x * it.value


def out_of_reach(held: Held) -> Any:
    """Call helpers to which no name leads."""
    make, its = functools.cache(lambda: jax.jit(held.times)), [types.SimpleNamespace()]
    its[0].step = jax.jit(held)
    return lambda x: make()(x) + next(each.step(x) for each in its)


def plus_one(inner: Any, x: Any) -> Any:
    return inner(x) + 1


def of_way(way: str) -> Callable[[Held], Any]:
    """Return what makes a helper that is written in one way."""

    def make(held: Held) -> Any:
        with closing(program_of([], WAYS[way], "x * held.value").build(held=held)) as built:
            return built.function

    return make


KEPT_WAYS = (  # of which JAX keeps a trace
    *("jit", "jitted method", "partial", "checkpoint", "checkpoint of jit", "scan"),
    *("fori", "cond", "custom_jvp", "custom_vjp", "vmap", "grad"),
)
SHARED: dict[str, Callable[[Held], Any]] = {way: of_way(way) for way in KEPT_WAYS} | {
    "a jitted object": lambda held: jax.jit(held),
    "a helper under lw.jit": lambda held: jit(held.times, on_stale="raise"),
    "an object under lw.jit": lambda held: jax.vmap(jit(held, on_stale="raise")),
    "two helpers": of_two_helpers,
    "nested helpers": lambda held: jax.jit(functools.partial(plus_one, jax.jit(held))),
    "a helper of equinox": lambda held: eqx.filter_jit(lambda x: x * held.value),
    "out of reach": out_of_reach,
    "a static argument": of_a_static_argument,
    "an argument": lambda held: jax.jit(lambda x: step(held, x)),
    "a while": of_a_while,
    "a closure bound again": bound_again,
}


WHY = ["the change", "another shape", "another function", "another jit", "a first trace"]


@pytest.mark.hazard
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        pytest.param(kind, why, marks=[pytest.mark.nightly] * ((place - turn) % len(WHY) > 1))
        for turn, kind in enumerate(SHARED)
        for place, why in enumerate(WHY)
    ],
)
def test_a_capture_of_several_functions(kind: str, why: str) -> None:
    """All traces of old values go, whichever function reads them first, and why it is traced."""
    held = Held()
    inner = SHARED[kind](held)
    function = lambda x: inner(x) + held.value  # noqa: E731
    fresh = jit(function, on_stale="retrace")
    if why == "a first trace":
        inner(ONES)
        jax.jit(lambda x: function(x) * 1)(ONES)
    else:
        fresh(ONES)
    if why == "another jit":
        jax.jit(lambda x: function(x) * 1)(jnp.ones(3))
    held.assign(3.0)
    with jax.disable_jit():
        wanted = [function(ONES), function(jnp.ones(3))]
    if why == "another function":
        assert np.array_equal(jit(lambda x: function(x))(ONES), wanted[0])
    if why.startswith("another"):
        assert np.array_equal(fresh(jnp.ones(3)), wanted[1])
    assert np.array_equal(fresh(ONES), wanted[0])
    strict = jit(function, on_stale="raise")
    assert np.array_equal(strict(ONES), wanted[0])
    held.assign(3.5)
    with pytest.raises(lw.errors.StaleCaptureError, match=r"3\.0.*3\.5"):
        strict(ONES)


def multiplied(held: list[float]) -> Any:
    return jax.jit(lambda x: x * held[0])


@pytest.mark.hazard
@pytest.mark.parametrize("order", ["first", "last"])
def test_one_of_two_helpers_is_reused_under_vmap(order: str) -> None:
    """In a trace that runs the other helper of that line, a change of what each reads is seen."""
    rates = [2.0], [3.0]
    reused, run = map(multiplied, rates)
    batched = lambda x: jax.vmap(reused)(x[None])[0]  # noqa: E731
    functions = [
        jit(body, on_stale="retrace")
        for body in (reused, lambda x: batched(x) + run(x), lambda x: batched(x) + 1)
    ]
    assert [function(ONES)[0] for function in functions] == [2.0, 5.0, 3.0]
    rates[0][0] = 5.0
    wanted = [5.0, 8.0, 6.0]
    turns = range(3) if order == "first" else (2, 1, 0)
    assert all(functions[turn](ONES)[0] == wanted[turn] for turn in turns)
    rates[1][0] = 1.0
    assert functions[1](ONES)[0] == 6.0


def core(x: Any, held: list[float]) -> Any:
    return x * held[0]


def test_a_second_shape_that_reads_the_same_in_another_function() -> None:
    """Who has read a capture is known of all traces, also of those with equal captures."""
    held = [2.0]
    small = jax.jit(lambda x: core(x, held))
    large = jax.jit(lambda x: core(x, held))
    both = jit(lambda x: (small if x.ndim == 0 else large)(x), on_stale="retrace")
    alone = jit(lambda x: large(x) + 1, on_stale="retrace")
    assert (both(1.0), both(ONES)[0], alone(ONES)[0]) == (2.0, 2.0, 3.0)
    held[0] = 5.0
    assert (alone(ONES)[0], both(ONES)[0]) == (6.0, 5.0)
