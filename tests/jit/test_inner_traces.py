"""What JAX keeps of functions that are called inside others is never taken up for old values."""

import functools
import gc
import types
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw

pytestmark = pytest.mark.slow  # all of them together: each compiles

ONES = jnp.ones(2)
jit: Any = lw.jit  # so that lambdas need no types
rate = 1.0


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

    def body(self, _: Any, c: Any) -> Any:
        return c * self.value

    def scanned(self, c: Any, _: Any) -> Any:
        return c * self.value, None


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "rate", 1.0)


@pytest.mark.parametrize("wrap", [jax.jit, eqx.filter_jit])
def test_a_helper_that_only_jax_has_traced(wrap: Any) -> None:
    """What leafwise has not seen before counts as traced with other values."""
    value = 1.0
    helper = wrap(lambda x: x * value)
    helper(ONES)
    value = 3.0
    assert np.array_equal(jit(lambda x: helper(x))(ONES), [3, 3])


@pytest.mark.parametrize("way", ["jit", "checkpoint", "by name"])
def test_an_object_that_is_handed_as_a_static_argument(way: str) -> None:
    """The helper reads it by its argument alone, and JAX knows its trace by the object."""

    def read(x: Any, held: Any) -> Any:
        return x * held.value

    held = Held()
    inner: Any = {
        "jit": lambda: jax.jit(read, static_argnums=1),
        "checkpoint": lambda: jax.checkpoint(read, static_argnums=(1,)),
        "by name": lambda: functools.partial(jax.jit(read, static_argnames="held"), held=held),
    }[way]()
    given = () if way == "by name" else (held,)
    jitted = jit(lambda x: inner(x, *given), stale="retrace")
    for value in (2.0, 3.0, 4.0):
        held.value = value
        assert jitted(ONES).tolist() == [value, value]
    assert len(jitted.traces) == 3


def test_a_value_of_another_kind_each_time() -> None:
    """An attribute that comes, becomes an array, a number again, and goes, read by a helper."""
    holder: Any = types.SimpleNamespace()
    inner = jax.jit(lambda x: x * getattr(holder, "rate", 1.0))
    jitted = jit(lambda x: inner(x), stale="retrace")
    assert jitted(ONES).tolist() == [1, 1]
    for rate in (2.0, np.full(2, 4.0), 3.0, jnp.full(2, 5.0), np.float32(6)):
        holder.rate = rate
        assert np.array_equal(jitted(ONES), ONES * rate)
    del holder.rate
    assert jitted(ONES).tolist() == [1, 1]


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


class Stepper:
    """Holds what JAX made of its own method."""

    def __init__(self) -> None:
        self.step = jax.jit(self._step)

    def _step(self, x: Any) -> Any:
        return x * rate


@functools.cache
def build() -> Any:
    return jax.jit(lambda x: x * rate)


STEPPERS = [Stepper()]
FILTERED = eqx.filter_jit(lambda x: x * rate)

OUT_OF_REACH: dict[str, Callable[[Any], Any]] = {
    "of equinox": FILTERED,
    "made by a call": lambda x: build()(x),
    "attribute of an item": lambda x: next(each.step(x) for each in STEPPERS),
}


@pytest.mark.parametrize("kind", OUT_OF_REACH)
def test_what_no_name_leads_to(kind: str) -> None:
    """JAX's own cache knows which traces there are."""
    call = OUT_OF_REACH[kind]
    jitted = jit(lambda x: call(x) + rate, stale="retrace")
    assert jitted(ONES).tolist() == [2, 2]
    globals()["rate"] = 2.0
    assert jitted(ONES).tolist() == [4, 4]
    assert jit(lambda x: call(x) + rate + 1, stale="raise")(ONES).tolist() == [5, 5]
    globals()["rate"] = 3.0
    assert jit(lambda x: call(x) + rate - 1, stale="raise")(ONES).tolist() == [5, 5]


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


def of_nested_helpers(held: Held) -> Any:
    inner = jax.jit(lambda x: x * held.value)
    middle = jax.jit(lambda x: inner(x) + 1)
    return lambda x: middle(x)


def of_a_while(held: Held) -> Any:
    smaller, step = lambda c: c[0] < held.value, lambda c: c + held.value
    return lambda x: jax.lax.while_loop(smaller, step, x)


def of_a_cond(held: Held) -> Any:
    one, other = lambda x: x * held.value, lambda x: x - held.value
    return lambda x: jax.lax.cond(x[0] > 0, one, other, x)


def of_a_fori_loop(held: Held) -> Any:
    def function(x: Any) -> Any:
        few = jax.lax.fori_loop(0, 1, held.body, x)
        return few + jax.lax.fori_loop(0, jnp.int32(few[0]), held.body, x)

    return function


def of_a_custom_jvp(held: Held) -> Any:
    ruled = jax.custom_jvp(lambda x: x * held.value)
    ruled.defjvp(lambda p, t: (p[0] * held.value, t[0] * held.value))
    jitted = jax.jit(ruled)
    return lambda x: jax.grad(lambda y: jitted(y).sum())(x) + ruled(x)


def of_a_custom_vjp(held: Held) -> Any:
    ruled = jax.custom_vjp(lambda x: x * held.value)
    ruled.defvjp(lambda x: (x * held.value, None), lambda _, g: (g * held.value,))
    jitted = jax.jit(ruled)
    return lambda x: jax.grad(lambda y: jitted(y).sum())(x) + ruled(x)


def of_transformations(held: Held) -> Any:
    helper = jax.jit(held.times)
    return lambda x: jax.vmap(helper)(x) + jax.grad(lambda y: helper(y).sum())(x)


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


def scan(body: Any) -> Callable[[Any], Any]:
    return lambda x: jax.lax.scan(body, x, None, length=1)[0]


SHARED: dict[str, Callable[[Held], Any]] = {
    "a jitted helper": lambda held: jax.jit(held.times),
    "a jitted object": lambda held: jax.jit(held),
    "a helper under lw.jit": lambda held: jit(held.times, stale="raise"),
    "an object under lw.jit": lambda held: jax.vmap(jit(held, stale="raise")),
    "two helpers": of_two_helpers,
    "nested helpers": of_nested_helpers,
    "a partial": lambda held: jax.jit(functools.partial(lambda h, x: h.times(x), held)),
    "an object that is called": lambda held: jax.jit(lambda x: held(x)),
    "an argument": lambda held: jax.jit(lambda x: step(held, x)),
    "a scan": lambda held: scan(lambda c, _: (c * held.value, None)),
    "a method in a scan": lambda held: scan(held.scanned),
    "a while": of_a_while,
    "a cond": of_a_cond,
    "a fori_loop": of_a_fori_loop,
    "a checkpoint": lambda held: jax.checkpoint(lambda x: x * held.value),
    "a checkpoint of a jit": lambda held: jax.checkpoint(jax.jit(lambda x: x * held.value)),
    "a custom_jvp": of_a_custom_jvp,
    "a custom_vjp": of_a_custom_vjp,
    "transformations": of_transformations,
    "a closure bound again": bound_again,
}


@pytest.mark.hazard
@pytest.mark.parametrize(
    "why", ["the change", "another shape", "another function", "another jit", "a first trace"]
)
@pytest.mark.parametrize("kind", SHARED)
def test_a_capture_of_several_functions(kind: str, why: str) -> None:
    """All traces of old values go, whichever function reads them first, and why it is traced."""
    held = Held()
    inner = SHARED[kind](held)
    function = lambda x: inner(x) + held.value  # noqa: E731
    fresh = jit(function, stale="retrace")
    if why == "a first trace":
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
    strict = jit(function, stale="raise")
    assert np.array_equal(strict(ONES), wanted[0])
    held.assign(3.5)
    with pytest.raises(lw.errors.StaleCaptureError, match=r"3\.0.*3\.5"):
        strict(ONES)
