"""`lw.jit` does what `jax.jit` does: the same results, errors and counts, side by side."""

import copy
import dataclasses
import functools
import gc
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import SingleDeviceSharding
from tests.kit.inside import Counts, count_events

import leafwise as lw

pytestmark = pytest.mark.oracle

Jit = Any
Scenario = Callable[[Jit], Any]
SCENARIOS: dict[str, Scenario] = {}


def scenario(run: Scenario) -> Scenario:
    """Add what is run with both."""
    return SCENARIOS.setdefault(run.__name__, run)


def ones() -> Any:
    return jnp.ones(3)


def adding() -> Any:
    """Return a function that JAX has not seen."""
    return lambda x: x + 1


def calls(function: Any, *arguments: Any) -> Any:
    """Call a function with each argument, and return what JAX has in the cache then."""
    for argument in arguments:
        function(argument)
    return getattr(function, "_cache_size", lambda: None)()


@scenario
def two_jits_share_programs(jit: Jit) -> Any:
    f = adding()
    first, second = jit(f), jit(f)
    calls(first, ones())
    calls(second, ones())
    first.clear_cache()
    return calls(second, ones()), calls(first, ones()), second._cache_size()


@scenario
def bound_methods(jit: Jit) -> Any:
    class Model:
        def step(self, x: Any) -> Any:
            return x + 1

    model = Model()
    for _ in range(2):
        jit(model.step)(ones())
    return float(jit(Model().step)(1.0))


@scenario
def a_method(jit: Jit) -> Any:
    @lw.pytree
    class Model:
        w: Any

        @jit
        def step(self, x: Any) -> Any:
            return self.w + x

    calls(Model(1.0).step, ones(), ones())
    return float(Model(2.0).step(1.0)), Model.step._cache_size()


@scenario
def a_method_with_a_static_self(jit: Jit) -> Any:
    class Model:
        @functools.partial(jit, static_argnums=0)
        def step(self, x: Any) -> Any:
            return x

        @staticmethod
        @jit
        def helper(x: Any) -> Any:
            return x + 1

        @classmethod
        @functools.partial(jit, static_argnums=0)
        def make(cls, x: Any) -> Any:
            return x + 2

        @property
        @functools.partial(jit, static_argnums=0)
        def size(self) -> Any:
            return jnp.ones(2)

    model = Model()
    calls(model.step, 1.0, 1.0)
    Model().step(1.0)
    made = float(Model.make(1.0)), float(Model.helper(1.0)), model.size.tolist()
    return made, Model.step._cache_size()


@scenario
def a_callable_object(jit: Jit) -> Any:
    class Model:
        def __call__(self, x: Any) -> Any:
            return x + 1

    model = Model()
    for _ in range(2):
        jit(model)(ones())
    return float(jit(Model())(1.0))


@scenario
def statics_by_position_and_name(jit: Jit) -> Any:
    jitted = jit(lambda x, n=1: x + n, static_argnames="n")
    jitted(1.0)
    jitted(1.0, 1)
    for n in (1, 2, True):
        jitted(1.0, n=n)
    last = jit(lambda x, n: x + n, static_argnums=-1)
    last(1.0, 2)
    last(1.0, 3)
    last(1.0, n=2)
    return jitted._cache_size(), last._cache_size()


@scenario
def varargs(jit: Jit) -> Any:
    jitted = jit(lambda *xs, **named: sum(xs) + len(named), static_argnums=(0,))
    jitted(1, 1.0)
    jitted(1, 1.0, 1.0)
    jitted(1, 1.0, z=1.0)
    return jitted._cache_size()


@scenario
def donation_by_position(jit: Jit) -> Any:
    given = jnp.ones(3) + 1
    jit(lambda x: x + 1, donate_argnums=0)(given)
    return given.is_deleted()


@scenario
def keep_unused(jit: Jit) -> Any:
    f = lambda x, y: x  # noqa: E731
    texts = [jit(f, keep_unused=keep).lower(1.0, 2.0).as_text() for keep in (False, True)]
    return [text.count("%arg") for text in texts], texts


@scenario
def shardings(jit: Jit) -> Any:
    device = jax.devices()[-1]
    place = SingleDeviceSharding(device)
    jitted = jit(adding(), in_shardings=place, out_shardings=place)
    result = jitted(ones())
    size = calls(jitted, jax.device_put(ones(), jax.devices()[0]), result, np.ones(3, np.float32))
    out = jit(adding(), out_shardings=place)
    out(ones())
    return str(result.sharding), str(out(1.0).sharding), size


@scenario
def ahead_of_time(jit: Jit) -> Any:
    jitted = jit(lambda x, y=2: x + y)
    lowered = jitted.lower(ones())
    traced = jitted.trace(ones())
    result = lowered.compile()(ones())
    shapes = jitted.eval_shape(jax.ShapeDtypeStruct((3,), np.float32))
    words = lowered.as_text(), str(traced.jaxpr), traced.fun_name, str(shapes)
    return words, result.tolist(), calls(jitted, ones())


@scenario
def parts_outlive_the_whole(jit: Jit) -> Any:
    lower, trace = jit(lambda x: x + 1).lower, jit(lambda x: x + 2).trace
    mapped, derived = jax.vmap(jit(lambda x: x + 3)), jax.grad(jit(lambda x: x * 4))
    gc.collect()
    texts = lower(1.0).as_text(), str(trace(1.0).jaxpr)
    return texts, mapped(ones()).tolist(), float(derived(1.0))


@scenario
def exported(jit: Jit) -> Any:
    f = adding()
    made = export.export(jit(f))(jax.ShapeDtypeStruct((3,), np.float32))
    return made.fun_name, str(jax.make_jaxpr(jit(f))(ones()))


@scenario
def metadata(jit: Jit) -> Any:
    def f(x: Any, *, y: int = 2) -> Any:
        """Say something."""
        return x

    g = jit(f)
    names = g.__name__, g.__qualname__, g.__doc__, g.__module__
    same = g.__wrapped__ is f, inspect.unwrap(g) is f, copy.deepcopy(g) is g
    return names, same, str(inspect.signature(g)), callable(g), repr(g).split(" at 0x")[0]


@scenario
def caches_cleared(jit: Jit) -> Any:
    jitted = jit(adding())
    sizes = []
    for clear in (jitted.clear_cache, jax.clear_caches):
        calls(jitted, 1.0)
        clear()
        sizes.append(jitted._cache_size())
    return [*sizes, calls(jitted, 1.0)]


SCENARIOS |= {
    "static_without_a_hash": lambda jit: jit(lambda x, n: x, static_argnums=1)(1.0, [1]),
    "static_out_of_range": lambda jit: jit(lambda x: x, static_argnums=5)(1.0),
    "too_many_arguments": lambda jit: jit(lambda x: x)(1.0, 2.0),
    "a_string": lambda jit: jit(lambda x: x)("a"),
    "a_branch_on_a_tracer": lambda jit: jit(lambda x: 1 if x else 2)(1.0),
    "static_and_donated": lambda jit: jit(lambda x: x, static_argnums=0, donate_argnums=0)(1),
}


@scenario
def jit_of_jit(jit: Jit) -> Any:
    return calls(jit(jit(adding())), ones(), ones())


@scenario
def nested(jit: Jit) -> Any:
    inner = jit(adding())
    outer = jit(lambda x: inner(x) + inner(x))
    outer(ones())
    return calls(inner, ones()), calls(outer, ones())


@scenario
def grad(jit: Jit) -> Any:
    f = jit(lambda x: (x**2).sum())
    for function in (jax.grad(f), jax.grad(f), f, jit(jax.grad(f))):
        function(ones())
    return f._cache_size()


@scenario
def vmap(jit: Jit) -> Any:
    f = jit(adding())
    for function in (jax.vmap(f), jax.vmap(f), f, jit(jax.vmap(f))):
        function(ones())
    return f._cache_size()


@scenario
def control_flow(jit: Jit) -> Any:
    step = jit(lambda carry, x: (carry + x, carry))
    choose = jit(lambda x: jax.lax.cond(x.sum() > 0, lambda: step(x, x)[0], lambda: x))
    for _ in range(2):
        jax.lax.scan(step, 1.0, ones())
    choose(ones())
    step(ones(), ones())
    return step._cache_size(), choose._cache_size()


@scenario
def custom_rules_of_jit_with_keywords_and_defaults(jit: Jit) -> Any:
    def f(x: Any, y: Any = 2.0) -> Any:
        return x * y

    jvp, vjp = jax.custom_jvp(jit(f)), jax.custom_vjp(jit(f))
    vmap = jax.custom_batching.custom_vmap(jit(f))
    jvp.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * 3))
    vjp.defvjp(lambda x, y: (f(x, y), y), lambda y, g: (g * y * 5, g))
    vmap.def_vmap(lambda _, __, x, y: (x * y * 7, True))
    return [
        *[float(each(1.0)) for each in (jvp, vjp, vmap)],
        *[float(each(1.0, y=3.0)) for each in (jvp, vjp, vmap)],
        *[float(jax.grad(lambda x, each=each: each(x, y=3.0))(1.0)) for each in (jvp, vjp)],
        *[float(jax.grad(each)(1.0)) for each in (jvp, vjp, jit(jax.checkpoint(f)))],
    ]


@scenario
def partials_of_jit(jit: Jit) -> Any:
    @jit
    def f(x: Any, y: Any = 2.0) -> Any:
        return x * y * outer

    outer = 2.0
    f(1.0)
    for make in (functools.partial, jax.tree_util.Partial):
        assert float(make(f, y=3.0)(1.0)) == 6.0
    taken_apart: Any = f
    while isinstance(taken_apart, functools.partial):
        taken_apart = taken_apart.func
    found = lw.captures(jax.tree_util.Partial(f, 1.0))
    return taken_apart.__name__, [each.name for each in found][1:], f._cache_size()


@scenario
def disabled(jit: Jit) -> Any:
    runs: list[int] = []

    f = jit(lambda x: (runs.append(1), x + 1)[1])
    with jax.disable_jit():
        calls(f, ones(), ones())
    return calls(f, ones(), ones()), len(runs)


@scenario
def a_body_that_raises(jit: Jit) -> Any:
    fail = True

    @jit
    def f(x: Any) -> Any:
        if fail:
            raise ValueError("boom")
        return x + 1

    errors = []
    for _ in range(2):
        with pytest.raises(ValueError, match="boom") as caught:
            f(ones())
        errors.append(str(caught.value))
    fail = False
    return errors, calls(f, ones(), ones())


def outcome(run: Scenario, jit: Jit) -> tuple[Any, Counts]:
    """Run it; return its result, or its error, and what JAX did."""
    with count_events() as counts:
        try:
            result = run(jit)
        except (TypeError, ValueError, RuntimeError) as error:
            result = type(error), _text(error)
    return result, counts


def _text(error: Exception) -> str:
    """Return what an error says, without addresses; before 0.9 `jax.jit` had to have a function."""
    text = str(error).split(" at 0x")[0]
    return text.replace("from 0 to 1 positional arguments but", "1 positional argument but")


@pytest.mark.parametrize("name", SCENARIOS)
def test_side_by_side(name: str) -> None:
    """Results, errors, traces, lowerings and compiles are those of `jax.jit`.

    A function that is called inside another one and alone is traced for each.
    """
    run = SCENARIOS[name]
    lw.jit(abs)  # the first of a process changes JAX's keys, once
    outcome(run, jax.jit)  # so that what is run eagerly is compiled
    result, counts = outcome(run, jax.jit)
    more = name in ("nested", "control_flow")
    assert outcome(run, lw.jit) == (
        result,
        dataclasses.replace(counts, traces=counts.traces + more),
    )
