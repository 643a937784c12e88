"""The rows of batching: trees of axes have the statics of what they are for."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import leafwise as lw

from .row import Function, Rows, Seen, stack, step
from .specimens import inexact

ROWS = Rows("Batching")

EACH_CALL = ("1", "1", "1")


def _twice(p: Any) -> Any:
    return step(stack(p))


@ROWS.add("`jax.vmap`", "argument and result", _twice, EACH_CALL)
def vmap(seen: Seen) -> Function:
    mapped = jax.vmap(lambda p: step(seen(p)))
    return lambda p: mapped(stack(p))


def _stack_some(tree: Any) -> Any:
    """Give an axis to the leaves that have derivatives."""
    return jax.tree.map(lambda x: stack(x) if inexact(x) else x, tree)


@ROWS.add(
    "`jax.vmap(in_axes=, out_axes=)`",
    "the trees of axes, which are instances too",
    lambda p: step(_stack_some(p)),
    EACH_CALL,
    note="`lw.axes` makes them, with the statics of the argument",
)
def vmap_axes(seen: Seen) -> Function:
    def run(p: Any) -> Any:
        paths = {path: 0 for path, leaf in jax.tree.leaves_with_path(p) if inexact(leaf)}
        axes = lw.axes(p, paths=paths)
        mapped = jax.vmap(lambda q: step(seen(q)), in_axes=(axes,), out_axes=axes)
        return mapped(_stack_some(p))

    return run


@ROWS.add(
    "`jax.vmap(axis_size=, out_axes=-1)`",
    "an instance that is not mapped over, and one that is a result",
    lambda p: jax.tree.map(lambda x: jnp.stack([x, x], -1), step(p)),
    EACH_CALL,
)
def vmap_size(seen: Seen) -> Function:
    return jax.vmap(lambda p: step(seen(p)), in_axes=None, out_axes=-1, axis_size=2)


@ROWS.add("`jax.vmap(spmd_axis_name=)`", "argument and result", _twice, EACH_CALL)
def vmap_spmd(seen: Seen) -> Function:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    constraint = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    def body(p: Any) -> Any:
        return jax.lax.with_sharding_constraint(step(seen(p)), constraint)

    mapped = jax.vmap(body, spmd_axis_name="i")
    return lambda p: mapped(stack(p))


@ROWS.add(
    "`jax.vmap(axis_name=)` and collectives",
    "the operand and result of `jax.lax.psum`",
    lambda p: jax.tree.map(lambda x: jnp.stack([x[0] + x[1]] * 2), _numbers(stack(p))),
    EACH_CALL,
)
def psum(seen: Seen) -> Function:
    mapped = jax.vmap(lambda p: jax.lax.psum(_numbers(seen(p)), "i"), axis_name="i")
    return lambda p: mapped(stack(p))


def _numbers(p: Any) -> Any:
    return jax.tree.map(lambda x: x.astype(jnp.int32) if x.dtype == jnp.bool_ else x, p)


@ROWS.add(
    "`jax.custom_batching.custom_vmap`",
    "argument, and arguments of the rule",
    _twice,
    ("fun 1, rule 1", "rule 1", "fun 1, rule 1"),
    oldest_traces=("fun 1, rule 1", "fun 1, rule 1", "fun 1, rule 1"),
)
def custom_vmap(seen: Seen) -> Function:
    @jax.custom_batching.custom_vmap
    def function(p: Any) -> Any:
        return step(seen(p, "fun"))

    @function.def_vmap
    def rule(axis_size: int, in_batched: Any, p: Any) -> Any:
        seen(in_batched[0], "rule")
        return step(seen.check(p)), jax.tree.map(lambda _: True, p)

    return lambda p: jax.vmap(function)(stack(p))
