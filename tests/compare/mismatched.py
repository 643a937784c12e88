"""A static that disagrees with itself, where JAX's message has whole treedefs."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def one(cls: Any) -> Any:
    """Return an instance with the static 2."""
    return cls(jnp.float32(1), 2)


def two(cls: Any) -> Any:
    """Return an instance that differs by the static 3."""
    return cls(jnp.float32(1), 3)


def bwd(cls: Any, wrong: Callable[[Any], Any] = lambda g: g) -> Any:
    @jax.custom_vjp
    def double(p: Any) -> Any:
        return p.x * 2

    double.defvjp(lambda p: (p.x * 2, None), lambda _, g: (cls(wrong(g), 3),))
    return jax.grad(double)(one(cls))


def jvp_rule(cls: Any) -> Any:
    @jax.custom_jvp
    def double(p: Any) -> Any:
        return cls(p.x * 2, 2)

    double.defjvp(lambda ps, ts: (cls(ps[0].x, 2), cls(ts[0].x, 3)))
    return jax.jvp(double, (one(cls),), (one(cls),))


CALLS: dict[str, Callable[[Any], Any]] = {
    "custom_vjp bwd": bwd,
    "custom_jvp": jvp_rule,
    "jvp": lambda cls: jax.jvp(lambda p: p.x, (one(cls),), (two(cls),)),
    "linearize": lambda cls: jax.linearize(lambda p: p, one(cls))[1](two(cls)),
    "linear_transpose": lambda cls: jax.linear_transpose(lambda p: p, one(cls))(two(cls)),
}
"""Calls that JAX refuses, by the construct."""
