"""The rows of whole programs: compiled, lowered, exported, sharded, donated."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import leafwise as lw

from .row import NO_QUESTION, Function, Rows, Seen, floats, stack, step, total
from .rows_autodiff import NO_FORWARD

ROWS = Rows("Programs")

ONCE = ("1", "0", "1")
EACH_CALL = ("1", "1", "1")


@ROWS.add("`jax.jit`", step, ONCE)
def jit(seen: Seen) -> Function:
    return jax.jit(seen.step)


@ROWS.add("`jax.jit(donate_argnums=)`", step, ONCE)
def donate(seen: Seen) -> Function:
    program = jax.jit(seen.step, donate_argnums=0)
    return lambda p: program(jax.tree.map(jnp.copy, p))


@ROWS.add("`jax.jit(in_shardings=, out_shardings=)`", step, ONCE)
def shardings(seen: Seen) -> Function:
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    known: dict[Any, Any] = {}

    body = seen.step

    def run(p: Any) -> Any:
        structure = jax.tree.structure(p)
        if structure not in known:
            tree = jax.tree.map(lambda _: device, p)
            known[structure] = jax.jit(body, in_shardings=(tree,), out_shardings=tree)
        return known[structure](p)

    return run


@ROWS.add("`jax.disable_jit`", step, EACH_CALL)
def disable_jit(seen: Seen) -> Function:
    program = jax.jit(seen.step)

    def run(p: Any) -> Any:
        with jax.disable_jit():
            return program(p)

    return run


@ROWS.add("`jax.named_call`", step, EACH_CALL)
def named_call(seen: Seen) -> Function:
    return jax.named_call(seen.step, name="named")


def _structs(p: Any) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), p)


@ROWS.add(
    "`jax.eval_shape`", _structs, ONCE, forward=NO_QUESTION, reverse=NO_QUESTION, concrete=True
)
def eval_shape(seen: Seen) -> Function:
    body = seen.step
    return lambda p: jax.eval_shape(body, jax.eval_shape(body, p))


@ROWS.add(
    "`jax.make_jaxpr(return_shape=True)`",
    _structs,
    ONCE,
    forward=NO_QUESTION,
    reverse=NO_QUESTION,
    concrete=True,
)
def make_jaxpr(seen: Seen) -> Function:
    body = seen.step

    def run(p: Any) -> Any:
        jaxpr, shapes = jax.make_jaxpr(body, return_shape=True)(p)
        assert len(jaxpr.in_avals) == len(jaxpr.out_avals) == len(jax.tree.leaves(p))
        return shapes

    return run


@ROWS.add(
    "`lower`, `compile` ahead of time",
    step,
    ONCE,
    forward="Cannot apply JAX transformations to a function lowered and compiled",
    reverse="Cannot apply JAX transformations to a function lowered and compiled",
    concrete=True,
)
def ahead_of_time(seen: Seen) -> Function:
    program = jax.jit(seen.step)

    def run(p: Any) -> Any:
        lowered = program.lower(_structs(p))
        assert lowered.in_tree == jax.tree.structure(((p,), {}))
        assert lowered.out_tree == jax.tree.structure(p)
        return lowered.compile()(p)

    return run


@ROWS.add(
    "`jax.export.export`",
    step,
    ONCE,
    forward=NO_FORWARD,
    concrete=True,
    note="to serialise it, call `leafwise.interop.export.register_serialization` once",
)
def export(seen: Seen) -> Function:
    from jax import export

    program = jax.jit(seen.step)
    return lambda p: export.export(program)(p).call(p)


SHARDS = 8


@ROWS.add(
    "`jax.shard_map`",
    lambda p: step(stack(p, SHARDS)),
    ONCE,
    note="in a jitted function, with `jax.lax.with_sharding_constraint` on the result; before JAX "
    "0.9, which calls an `out_specs` that can be called, with `out_specs=lambda: specs`",
)
def shard_map(seen: Seen) -> Function:
    assert jax.device_count() >= SHARDS, "tests/conftest.py asks XLA for eight devices"
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:SHARDS]), ("i",))

    def body(p: Any) -> Any:
        assert all(leaf.shape == (1,) for leaf in jax.tree.leaves(p))
        return seen.step(p)

    @jax.jit
    def program(p: Any) -> Any:
        stacked = stack(p, SHARDS)
        specs = jax.tree.map(lambda _: P("i"), stacked)
        given = specs if jax.__version_info__ >= (0, 9) else lambda: specs
        out = jax.shard_map(body, mesh=mesh, in_specs=(specs,), out_specs=given)(stacked)
        return jax.lax.with_sharding_constraint(out, NamedSharding(mesh, P()))

    return program


@ROWS.add("`jax.experimental.checkify`", step, ONCE)
def checkify(seen: Seen) -> Function:
    from jax.experimental import checkify

    @jax.jit
    def program(p: Any) -> Any:
        moved = seen.step(p)
        checkify.check(jnp.isfinite(total(moved)), "not finite")
        return moved

    checked = checkify.checkify(program)

    def run(p: Any) -> Any:
        _, out = checked(p)
        return out

    return run


@ROWS.add("`jax.new_ref`, `jax.freeze`", lambda p: step(floats(p)[0]), ONCE)
def refs(seen: Seen) -> Function:
    @jax.jit
    def program(made: Any, rest: Any) -> None:
        seen(lw.combine(made, rest))
        moved = step(jax.tree.map(lambda ref: ref[...], made))
        for ref, value in zip(jax.tree.leaves(made), jax.tree.leaves(moved), strict=True):
            ref[...] = value

    def run(p: Any) -> Any:
        numbers, rest = floats(p)
        made = jax.tree.map(jax.new_ref, numbers)
        program(made, rest)
        return jax.tree.map(jax.freeze, made)

    return run
