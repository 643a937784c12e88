"""What JAX keeps of functions that are called inside others is never taken up for old values."""

import functools
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

    class Holder:
        rate = 1.0

    def read(x: Any, held: Any) -> Any:
        return x * held.rate

    held = Holder()
    held.rate = 2.0
    inner: Any = {
        "jit": lambda: jax.jit(read, static_argnums=1),
        "checkpoint": lambda: jax.checkpoint(read, static_argnums=(1,)),
        "by name": lambda: functools.partial(jax.jit(read, static_argnames="held"), held=held),
    }[way]()
    given = () if way == "by name" else (held,)
    jitted = jit(lambda x: inner(x, *given), stale="retrace")
    for rate in (2.0, 3.0, 4.0):
        held.rate = rate
        assert jitted(ONES).tolist() == [rate, rate]
    assert len(jitted.traces) == 3


@pytest.mark.parametrize("read", ["holder.rate", "getattr(holder, 'rate', 7.0)"])
def test_a_helper_that_reads_nothing_itself(read: str) -> None:
    """A jitted function that only calls an object: what that reads was another value."""

    class Holder:
        rate = 1.0

    holder: Any = Holder()
    scale = eval(f"lambda self, x: x * {read}", {"holder": holder})  # noqa: S307  # a global
    called = type("Scale", (), {"__call__": scale})()
    inner = jax.jit(lambda x: called(x))
    assert jax.jit(lambda x: inner(x))(ONES).tolist() == [1, 1]
    holder.rate = 2.0
    jitted = jit(lambda x: inner(x), stale="retrace")
    assert jitted(ONES).tolist() == [2, 2]


def test_a_value_of_another_kind_each_time() -> None:
    """An attribute that comes, goes, becomes an object and a number again, read by a helper."""

    class Holder:
        rate: Any

    class Half:
        def __rmul__(self, x: Any) -> Any:
            return x / 2

    holder = Holder()
    inner = jax.jit(lambda x: x * getattr(holder, "rate", 1.0))
    jitted = jit(lambda x: inner(x), stale="retrace")
    assert jitted(ONES).tolist() == [1, 1]
    for rate, result in ((2.0, 2), (Half(), 0.5), (3.0, 3), (np.ones(2), 1), (Half(), 0.5)):
        holder.rate = rate
        assert jitted(ONES).tolist() == [result, result]
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

    def __init__(self, wrap: Any = jax.jit) -> None:
        self.step = wrap(self._step)

    def _step(self, x: Any) -> Any:
        return x * rate


@functools.cache
def build() -> Any:
    return jax.jit(lambda x: x * rate)


STEPPERS, IN_PARTS = [Stepper()], [Stepper(lambda step: jax.vmap(jax.jit(step)))]
FILTERED = eqx.filter_jit(lambda x: x * rate)

OUT_OF_REACH: dict[str, Callable[[Any], Any]] = {
    "of equinox": FILTERED,
    "made by a call": lambda x: build()(x),
    "attribute of an item": lambda x: next(each.step(x) for each in STEPPERS),
    "wrapped attribute of an item": lambda x: next(each.step(x) for each in IN_PARTS),
}


@pytest.mark.parametrize("kind", OUT_OF_REACH)
def test_what_no_name_leads_to(kind: str) -> None:
    """JAX's own cache knows which traces there are."""
    global rate  # noqa: PLW0603  # what is tested
    rate, call = 1.0, OUT_OF_REACH[kind]
    jitted = jit(lambda x: call(x) + rate, stale="retrace")
    assert jitted(ONES).tolist() == [2, 2]
    rate = 2.0
    assert jitted(ONES).tolist() == [4, 4]
    assert jit(lambda x: call(x) + rate + 1, stale="raise")(ONES).tolist() == [5, 5]
    rate = 3.0
    assert jit(lambda x: call(x) + rate - 1, stale="raise")(ONES).tolist() == [5, 5]


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


Change = Callable[[Any], None]


class Held:
    """Something that can be assigned to."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def times(self, x: Any) -> Any:
        return x * self.value


def shared_with_a_jitted_helper() -> tuple[Any, Change]:
    value = 2.0
    helper = jax.jit(lambda x: x * value)

    def change(new: Any) -> None:
        nonlocal value
        value = new

    return lambda x: helper(x) + x * value, change


def shared_by_two_helpers() -> tuple[Any, Change]:
    held = Held(2.0)
    one, other = jax.jit(lambda x: x * held.value), jax.jit(lambda x: x + held.value)
    return lambda x: one(x) + other(x) + one(x + 1), functools.partial(setattr, held, "value")


def nested_helpers() -> tuple[Any, Change]:
    held = Held(2.0)
    inner = jax.jit(lambda x: x * held.value)
    middle = jax.jit(lambda x: inner(x) + 1)
    return lambda x: middle(x) + x * held.value, functools.partial(setattr, held, "value")


def through_a_partial() -> tuple[Any, Change]:
    held = Held(2.0)
    helper = jax.jit(functools.partial(lambda h, x: h.times(x), held))
    return lambda x: helper(x) + held.value, functools.partial(setattr, held, "value")


def through_a_method() -> tuple[Any, Change]:
    held = Held(2.0)
    helper = jax.jit(held.times)
    return lambda x: helper(x) + held.value, functools.partial(setattr, held, "value")


def through_containers() -> tuple[Any, Change]:
    held = Held(2.0)
    every = {"a": [(jax.jit(lambda x: x * held.value),)]}
    space = types.SimpleNamespace(every=every)

    def function(x: Any) -> Any:
        for each in space.every["a"]:
            x = each[0](x)
        return x + held.value

    return function, functools.partial(setattr, held, "value")


def of_a_scan() -> tuple[Any, Change]:
    held = Held(2.0)

    def body(c: Any, _: Any) -> Any:
        return c * held.value, None

    def function(x: Any) -> Any:
        return jax.lax.scan(body, x, None, length=1)[0] + held.value

    return function, functools.partial(setattr, held, "value")


def of_a_method_in_a_scan() -> tuple[Any, Change]:
    class Cell(Held):
        def body(self, c: Any, _: Any) -> Any:
            return c * self.value, None

    held = Cell(2.0)

    def function(x: Any) -> Any:
        return jax.lax.scan(held.body, x, None, length=1)[0] + held.value

    return function, functools.partial(setattr, held, "value")


def of_a_while() -> tuple[Any, Change]:
    held = Held(2.0)
    smaller, step = lambda c: c[0] < held.value, lambda c: c + held.value

    def function(x: Any) -> Any:
        return jax.lax.while_loop(smaller, step, x) + held.value

    return function, functools.partial(setattr, held, "value")


def of_a_cond() -> tuple[Any, Change]:
    held = Held(2.0)
    one, other = lambda x: x * held.value, lambda x: x - held.value

    def function(x: Any) -> Any:
        return jax.lax.cond(x[0] > 0, one, other, x) + held.value

    return function, functools.partial(setattr, held, "value")


def of_a_checkpoint() -> tuple[Any, Change]:
    held = Held(2.0)
    helper = jax.checkpoint(lambda x: x * held.value)
    return lambda x: helper(x) + held.value, functools.partial(setattr, held, "value")


def of_a_checkpoint_of_a_jitted_function() -> tuple[Any, Change]:
    held = Held(2.0)
    helper = jax.checkpoint(jax.jit(lambda x: x * held.value))
    return lambda x: helper(x) + held.value, functools.partial(setattr, held, "value")


def of_a_fori_loop() -> tuple[Any, Change]:
    held = Held(2.0)

    def body(_: Any, c: Any) -> Any:
        return c * held.value

    def function(x: Any) -> Any:
        few = jax.lax.fori_loop(0, 1, body, x)
        return few + jax.lax.fori_loop(0, jnp.int32(few[0]), body, x) + held.value

    return function, functools.partial(setattr, held, "value")


def bound_again() -> tuple[Any, Change]:
    def make(value: Any) -> Any:
        return lambda x: x * value

    inner = make(2.0)
    helper = jax.jit(lambda x: inner(x))

    def change(new: Any) -> None:
        nonlocal inner
        inner = make(new)

    return lambda x: helper(x) + inner(x), change


def partial_bound_again() -> tuple[Any, Change]:
    def times(value: Any, x: Any) -> Any:
        return x * value

    inner = functools.partial(times, 2.0)
    helper = jax.jit(lambda x: inner(x))

    def change(new: Any) -> None:
        nonlocal inner
        inner = functools.partial(times, new)

    return lambda x: helper(x) + inner(x), change


def keyword_of_a_partial() -> tuple[Any, Change]:
    def times(x: Any, value: Any) -> Any:
        return x * value

    inner = functools.partial(times, value=2.0)
    helper = jax.jit(lambda x: inner(x))
    return lambda x: helper(x) + inner(x), lambda new: inner.keywords.update(value=new)


def method_bound_again() -> tuple[Any, Change]:
    inner = Held(2.0).times
    helper = jax.jit(lambda x: inner(x))

    def change(new: Any) -> None:
        nonlocal inner
        inner = Held(new).times

    return lambda x: helper(x) + inner(x), change


def of_a_custom_rule() -> tuple[Any, Change]:
    held = Held(2.0)
    helper = jax.custom_jvp(lambda x: x * held.value)
    helper.defjvp(lambda p, t: (p[0] * held.value, t[0] * held.value))
    jitted = jax.jit(helper)

    def function(x: Any) -> Any:
        return jax.grad(lambda y: jitted(y).sum())(x) + helper(x) + held.value

    return function, functools.partial(setattr, held, "value")


def under_transformations() -> tuple[Any, Change]:
    held = Held(2.0)
    helper = jax.jit(lambda x: x * held.value)

    def function(x: Any) -> Any:
        slope = jax.grad(lambda y: helper(y).sum())(x)
        return jax.vmap(helper)(x) + slope + held.value

    return function, functools.partial(setattr, held, "value")


def of_an_argument() -> tuple[Any, Change]:
    held = Held(2.0)

    def step(it: Any, x: Any) -> Any:
        return x * it.value

    helper = jax.jit(lambda x: step(held, x))
    return lambda x: helper(x) + held.value, functools.partial(setattr, held, "value")


SHARED = {
    each.__name__: each
    for each in (
        *(shared_with_a_jitted_helper, shared_by_two_helpers, nested_helpers, through_a_partial),
        *(through_a_method, through_containers, of_a_scan, of_a_method_in_a_scan, of_a_while),
        *(of_a_cond, of_a_checkpoint, of_a_custom_rule, under_transformations, of_an_argument),
        *(of_a_checkpoint_of_a_jitted_function, of_a_fori_loop, bound_again),
        *(partial_bound_again, keyword_of_a_partial, method_bound_again),
    )
}


@pytest.mark.hazard
@pytest.mark.parametrize(
    "why", ["the change", "another shape", "another function", "another jit", "a first trace"]
)
@pytest.mark.parametrize("make", SHARED.values(), ids=SHARED)
def test_a_capture_of_several_functions(make: Callable[[], tuple[Any, Change]], why: str) -> None:
    """All traces of old values go, whichever function reads them first, and why it is traced."""
    function, change = make()
    fresh = jit(function, stale="retrace")
    if why == "a first trace":
        jax.jit(lambda x: function(x) * 1)(ONES)
    else:
        fresh(ONES)
    if why == "another jit":
        jax.jit(lambda x: function(x) * 1)(jnp.ones(3))
    change(3.0)
    with jax.disable_jit():
        wanted = [function(ONES), function(jnp.ones(3))]
    if why == "another function":
        assert np.array_equal(jit(lambda x: function(x))(ONES), wanted[0])
    if why.startswith("another"):
        assert np.array_equal(fresh(jnp.ones(3)), wanted[1])
    assert np.array_equal(fresh(ONES), wanted[0])
    strict = jit(function, stale="raise")
    assert np.array_equal(strict(ONES), wanted[0])
    change(3.5)
    with pytest.raises(lw.errors.StaleCaptureError, match=r"3\.0.*3\.5"):
        strict(ONES)
