"""Callables of all kinds, under `jit`."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from .scenarios import Jit, ones, scenario


@scenario
def two_jits_share_programs(jit: Jit) -> Any:
    def f(x: Any) -> Any:
        return x + 1

    first, second = jit(f), jit(f)
    first(ones())
    second(ones())
    first.clear_cache()
    second(ones())
    first(ones())
    return first._cache_size(), second._cache_size()


@scenario
def bound_methods(jit: Jit) -> Any:
    class Model:
        def step(self, x: Any) -> Any:
            return x + 1

    model = Model()
    jit(model.step)(ones())
    jit(model.step)(ones())
    return float(jit(Model().step)(1.0))


@scenario
def a_method(jit: Jit) -> Any:
    @jax.tree_util.register_pytree_node_class
    class Model:
        def __init__(self, w: Any) -> None:
            self.w = w

        def tree_flatten(self) -> Any:
            return (self.w,), None

        @classmethod
        def tree_unflatten(cls, _: None, children: Any) -> Any:
            return cls(*children)

        @jit
        def step(self, x: Any) -> Any:
            return self.w + x

    model = Model(1.0)
    model.step(ones())
    model.step(ones())
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
    model.step(1.0)
    model.step(1.0)
    Model().step(1.0)
    made = float(Model.make(1.0)), float(Model.helper(1.0)), model.size.tolist()
    return made, Model.step._cache_size()


@scenario
def a_callable_object(jit: Jit) -> Any:
    class Model:
        def __call__(self, x: Any) -> Any:
            return x + 1

    model = Model()
    jit(model)(ones())
    jit(model)(ones())
    return float(jit(Model())(1.0))
