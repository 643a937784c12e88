"""`jit` around and inside JAX's transformations, and of itself."""

import functools
from typing import Any

import jax
import pytest

import leafwise as lw

from .scenarios import Jit, ones, scenario


@scenario
def jit_of_jit(jit: Jit) -> Any:
    def f(x: Any) -> Any:
        return x + 1

    twice = jit(jit(f))
    twice(ones())
    twice(ones())
    return twice._cache_size()


@scenario
def nested(jit: Jit) -> Any:
    @jit
    def inner(x: Any) -> Any:
        return x * 2

    @jit
    def outer(x: Any) -> Any:
        return inner(x) + inner(x)

    outer(ones())
    inner(ones())
    outer(ones())
    return outer._cache_size(), inner._cache_size()


@scenario
def grad(jit: Jit) -> Any:
    @jit
    def f(x: Any) -> Any:
        return (x**2).sum()

    jax.grad(f)(ones())
    jax.grad(f)(ones())
    f(ones())
    jit(jax.grad(f))(ones())
    return f._cache_size()


@scenario
def vmap(jit: Jit) -> Any:
    @jit
    def f(x: Any) -> Any:
        return x**2

    jax.vmap(f)(ones())
    jax.vmap(f)(ones())
    f(2.0)
    jit(jax.vmap(f))(ones())
    return f._cache_size()


@scenario
def control_flow(jit: Jit) -> Any:
    @jit
    def step(carry: Any, x: Any) -> Any:
        return carry + x, carry

    @jit
    def choose(x: Any) -> Any:
        return jax.lax.cond(x.sum() > 0, lambda: step(x, x)[0], lambda: x)

    jax.lax.scan(step, 1.0, ones())
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

    @jit
    def f(x: Any) -> Any:
        runs.append(1)
        return x + 1

    with jax.disable_jit():
        f(ones())
        f(ones())
    f(ones())
    f(ones())
    return len(runs)


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
    f(ones())
    f(ones())
    return errors, f._cache_size()
