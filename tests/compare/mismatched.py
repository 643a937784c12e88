"""A static that disagrees with itself, in every construct of JAX that compares trees."""

from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXES = PartitionSpec("i")


def one(cls: Any) -> Any:
    """Return an instance with the static 2."""
    return cls(jnp.float32(1), 2)


def two(cls: Any) -> Any:
    """Return an instance that differs by the static 3."""
    return cls(jnp.float32(1), 3)


def many(cls: Any) -> Any:
    """Return an instance with an axis to map over."""
    return cls(jnp.ones(2), 2)


def mesh() -> Mesh:
    """Return a mesh of one device."""
    return Mesh(np.array(jax.devices()[:1]), ("i",))


def bwd(cls: Any) -> Any:
    @jax.custom_vjp
    def double(p: Any) -> Any:
        return p.x * 2

    double.defvjp(lambda p: (p.x * 2, None), lambda _, g: (cls(g, 3),))
    return jax.grad(double)(one(cls))


def fwd(cls: Any) -> Any:
    @jax.custom_vjp
    def same(p: Any) -> Any:
        return cls(p.x, 2)

    same.defvjp(lambda p: (cls(p.x, 3), None), lambda _, g: (cls(g.x, 2),))
    return jax.grad(jax.jit(lambda p: same(p).x))(one(cls))


def jvp_rule(cls: Any) -> Any:
    @jax.custom_jvp
    def double(p: Any) -> Any:
        return cls(p.x * 2, 2)

    double.defjvp(lambda ps, ts: (cls(ps[0].x, 2), cls(ts[0].x, 3)))
    return jax.jvp(double, (one(cls),), (one(cls),))


def jvp_rule_output(cls: Any) -> Any:
    @jax.custom_jvp
    def double(p: Any) -> Any:
        return cls(p.x * 2, 2)

    double.defjvp(lambda ps, ts: (cls(ps[0].x, 3), cls(ts[0].x, 3)))
    return jax.jvp(jax.jit(double), (one(cls),), (one(cls),))


def other_in_loop(cls: Any) -> Any:
    return lax.scan(lambda p, _: (cls(p.x, 3), None), one(cls), None, length=2)


def fori(cls: Any, bound: Any = 2) -> Any:
    return lax.fori_loop(0, bound, lambda _, p: cls(p.x, 3), one(cls))


def compiled(cls: Any) -> Any:
    return jax.jit(lambda p: p.x).lower(one(cls)).compile()(two(cls))


def exported(cls: Any) -> Any:
    return jax.export.export(jax.jit(lambda p: p.x))(one(cls)).call(two(cls))


CALLS: dict[str, Callable[[Any], Any]] = {
    "scan": other_in_loop,
    "while_loop": lambda cls: lax.while_loop(lambda p: p.x < 3, lambda p: cls(p.x, 3), one(cls)),
    "fori_loop": fori,
    "fori_loop, traced bound": lambda cls: jax.jit(lambda n: fori(cls, n))(2),
    "cond": lambda cls: lax.cond(jnp.array(True), lambda: one(cls), lambda: two(cls)),
    "switch": lambda cls: lax.switch(jnp.int32(0), [lambda: one(cls), lambda: two(cls)]),
    "vmap in_axes": lambda cls: jax.vmap(lambda p: p.x, in_axes=(cls(0, 3),))(many(cls)),
    "vmap out_axes": lambda cls: jax.vmap(lambda p: p, out_axes=cls(0, 3))(many(cls)),
    "tree.map": lambda cls: jax.tree.map(jnp.add, one(cls), two(cls)),
    "tree.map, third": lambda cls: jax.tree.map(max, one(cls), one(cls), two(cls)),
    "tree.map_with_path": lambda cls: jax.tree.map_with_path(max, one(cls), two(cls)),
    "custom_vjp bwd": bwd,
    "custom_vjp fwd": fwd,
    "custom_jvp": jvp_rule,
    "custom_jvp output": jvp_rule_output,
    "checkpoint": lambda cls: jax.checkpoint(lambda _: other_in_loop(cls))(one(cls)),
    "compiled": compiled,
    "exported": exported,
    "jvp": lambda cls: jax.jvp(lambda p: p.x, (one(cls),), (two(cls),)),
    "vjp": lambda cls: jax.vjp(lambda p: p, one(cls))[1](two(cls)),
    "linearize": lambda cls: jax.linearize(lambda p: p, one(cls))[1](two(cls)),
    "linear_transpose": lambda cls: jax.linear_transpose(lambda p: p, one(cls))(two(cls)),
    "shard_map in_specs": lambda cls: jax.shard_map(
        lambda p: p.x, mesh=mesh(), in_specs=(cls(AXES, 3),), out_specs=AXES
    )(many(cls)),
    "shard_map out_specs": lambda cls: jax.shard_map(
        lambda p: p, mesh=mesh(), in_specs=(AXES,), out_specs=cls(AXES, 3)
    )(many(cls)),
    "in_shardings": lambda cls: jax.jit(
        lambda p: p.x, in_shardings=(cls(NamedSharding(mesh(), AXES), 3),)
    )(many(cls)),
    "device_put": lambda cls: jax.device_put(many(cls), cls(jax.devices()[0], 3)),
}
"""Calls that JAX refuses, by the construct."""
