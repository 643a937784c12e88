"""The rows of loops, branches and callbacks, and of batches."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback as jax_io_callback

import leafwise as lw

from .row import Function, Rows, Seen, stack, step, steps
from .specimens import inexact

LOOPS = Rows("Loops and branches")

ONCE = ("1", "0", "1")
NO_REVERSE = "Reverse-mode differentiation does not work for lax.while_loop"


@LOOPS.add("`jax.lax.scan`", steps(3), ONCE)
def scan(seen: Seen) -> Function:
    def body(p: Any, _: Any) -> Any:
        return seen.step(p), None

    return lambda p: lax.scan(body, p, None, length=3)[0]


@LOOPS.add(
    "`jax.lax.scan(reverse=True, unroll=2)`",
    lambda p: (steps(3)(p), stack(step(p), 3)),
    ONCE,
    note="a static made from a shape is unchanged, although the leaves get an axis",
)
def scan_over(seen: Seen) -> Function:
    def body(p: Any, x: Any) -> Any:
        return seen.step(p), step(seen.check(x))

    return lambda p: lax.scan(body, p, stack(p, 3), reverse=True, unroll=2)


@LOOPS.add(
    "`jax.lax.while_loop`",
    steps(3),
    ("cond_fun 1, body_fun 1", "0", "cond_fun 1, body_fun 1"),
    reverse=NO_REVERSE,
)
def while_loop(seen: Seen) -> Function:
    def less(carry: Any) -> Any:
        seen(carry[1], "cond_fun")
        return carry[0] < 3

    def body(carry: Any) -> Any:
        return carry[0] + 1, seen.step(carry[1], "body_fun")

    return lambda p: lax.while_loop(less, body, (0, p))[1]


@LOOPS.add("`jax.lax.fori_loop`, bounds known", steps(3), ONCE)
def fori_loop(seen: Seen) -> Function:
    def body(_: Any, p: Any) -> Any:
        return seen.step(p)

    return lambda p: lax.fori_loop(0, 3, body, p)


@LOOPS.add("`jax.lax.fori_loop`, bounds traced", steps(3), ONCE, reverse=NO_REVERSE)
def fori_loop_traced(seen: Seen) -> Function:
    def body(_: Any, p: Any) -> Any:
        return seen.step(p)

    program = jax.jit(lambda n, p: lax.fori_loop(0, n, body, p))
    return lambda p: program(3, p)


@LOOPS.add(
    "`jax.lax.cond`",
    lambda p: (step(p), p),
    ("true_fun 1, false_fun 1", "0", "true_fun 1, false_fun 1"),
    note="both branches are traced, whichever is taken",
)
def cond(seen: Seen) -> Function:
    yes = functools.partial(seen.step, part="true_fun")
    no = functools.partial(seen, part="false_fun")
    return lambda p: tuple(lax.cond(jnp.bool_(flag), yes, no, p) for flag in (True, False))


@LOOPS.add("`jax.lax.switch`", steps(2), ("branch 3", "0", "branch 3"))
def switch(seen: Seen) -> Function:
    def branch(p: Any, times: int) -> Any:
        return steps(times)(seen(p, "branch"))

    branches = [functools.partial(branch, times=i) for i in range(3)]
    return lambda p: lax.switch(jnp.int32(2), branches, p)


@LOOPS.add(
    "`jax.lax.select`, `jax.numpy.where`",
    lambda p: (step(p), p),
    ("0", "0", "0"),
    note="both take arrays, not trees, so `jax.tree.map` passes them the leaves",
)
def select(seen: Seen) -> Function:
    def run(p: Any) -> Any:
        chosen = jax.tree.map(functools.partial(lax.select, jnp.bool_(True)), step(p), p)
        other = jax.tree.map(functools.partial(jnp.where, jnp.bool_(False)), step(p), p)
        return chosen, other

    return run


def _three(p: Any) -> Any:
    return step(stack(p, 3))


@LOOPS.add("`jax.lax.map`", _three, ("1", "1", "1"))
def lax_map(seen: Seen) -> Function:
    body = seen.step
    return lambda p: lax.map(body, stack(p, 3))


@LOOPS.add(
    "`jax.lax.map(batch_size=)`",
    _three,
    ("2", "2", "2"),
    note="once for the batches, once for the rest",
)
def lax_map_batches(seen: Seen) -> Function:
    body = seen.step
    return lambda p: lax.map(body, stack(p, 3), batch_size=2)


@LOOPS.add(
    "`jax.lax.associative_scan`",
    lambda p: jax.tree.map(
        lambda x: jnp.stack([x[0], x[0] + x[1], x[0] + x[1] + x[2]]), stack(p, 3)
    ),
    ("2", "2", "2"),
    note="at each level of the tree of sums",
)
def associative_scan(seen: Seen) -> Function:
    def combine(a: Any, b: Any) -> Any:
        return jax.tree.map(jnp.add, seen(a), b)

    return lambda p: lax.associative_scan(combine, stack(p, 3))


BATCHING = Rows("Batching")

EACH_CALL = ("1", "1", "1")


def _twice(p: Any) -> Any:
    return step(stack(p))


@BATCHING.add("`jax.vmap`", _twice, EACH_CALL)
def vmap(seen: Seen) -> Function:
    mapped = jax.vmap(seen.step)
    return lambda p: mapped(stack(p))


def _stack_some(tree: Any) -> Any:
    """Give an axis to the leaves that have derivatives."""
    return jax.tree.map(lambda x: stack(x) if inexact(x) else x, tree)


@BATCHING.add(
    "`jax.vmap(in_axes=, out_axes=)`",
    lambda p: step(_stack_some(p)),
    EACH_CALL,
    note="`lw.axes` makes them, with the statics of the argument",
)
def vmap_axes(seen: Seen) -> Function:
    def run(p: Any) -> Any:
        paths = {path: 0 for path, leaf in jax.tree.leaves_with_path(p) if inexact(leaf)}
        axes = lw.axes(p, paths=paths)
        mapped = jax.vmap(seen.step, in_axes=(axes,), out_axes=axes)
        return mapped(_stack_some(p))

    return run


@BATCHING.add(
    "`jax.vmap(axis_size=, out_axes=-1)`",
    lambda p: jax.tree.map(lambda x: jnp.stack([x, x], -1), step(p)),
    EACH_CALL,
)
def vmap_size(seen: Seen) -> Function:
    return jax.vmap(seen.step, in_axes=None, out_axes=-1, axis_size=2)


@BATCHING.add("`jax.vmap(spmd_axis_name=)`", _twice, EACH_CALL)
def vmap_spmd(seen: Seen) -> Function:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    constraint = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    def body(p: Any) -> Any:
        return jax.lax.with_sharding_constraint(seen.step(p), constraint)

    mapped = jax.vmap(body, spmd_axis_name="i")
    return lambda p: mapped(stack(p))


@BATCHING.add(
    "`jax.vmap(axis_name=)` and collectives",
    lambda p: jax.tree.map(lambda x: jnp.stack([x[0] + x[1]] * 2), _numbers(stack(p))),
    EACH_CALL,
)
def psum(seen: Seen) -> Function:
    mapped = jax.vmap(lambda p: jax.lax.psum(_numbers(seen(p)), "i"), axis_name="i")
    return lambda p: mapped(stack(p))


def _numbers(p: Any) -> Any:
    return jax.tree.map(lambda x: x.astype(jnp.int32) if x.dtype == jnp.bool_ else x, p)


@BATCHING.add(
    "`jax.custom_batching.custom_vmap`",
    _twice,
    ("fun 1, rule 1", "rule 1", "fun 1, rule 1"),
    oldest_traces=("fun 1, rule 1", "fun 1, rule 1", "fun 1, rule 1"),
)
def custom_vmap(seen: Seen) -> Function:
    function = jax.custom_batching.custom_vmap(lambda p: seen.step(p, "fun"))

    @function.def_vmap
    def rule(axis_size: int, in_batched: Any, p: Any) -> Any:
        seen(in_batched[0], "rule")
        return step(seen.check(p)), jax.tree.map(lambda _: True, p)

    return lambda p: jax.vmap(function)(stack(p))


CALLBACKS = Rows("Callbacks")

RUNS = ("1", "1", "1")


def _numpy(p: Any) -> Any:
    return jax.tree.map(np.asarray, step(jax.tree.map(np.asarray, p)))


@CALLBACKS.add(
    "`jax.pure_callback`",
    step,
    RUNS,
    forward="Pure callbacks do not support JVP",
    reverse="Pure callbacks do not support JVP",
    concrete=True,
)
def pure_callback(seen: Seen) -> Function:
    def host(p: Any) -> Any:
        return _numpy(seen(p))

    return lambda p: jax.pure_callback(host, jax.eval_shape(step, p), p)


@CALLBACKS.add(
    "`jax.experimental.io_callback(ordered=True)`",
    step,
    RUNS,
    forward="IO callbacks do not support JVP",
    reverse="IO callbacks do not support JVP",
    concrete=True,
)
def io_callback(seen: Seen) -> Function:
    def host(p: Any) -> Any:
        return _numpy(seen(p))

    return lambda p: jax_io_callback(host, jax.eval_shape(step, p), p, ordered=True)


@CALLBACKS.add("`jax.debug.callback`", step, RUNS, concrete=True)
def debug_callback(seen: Seen) -> Function:
    @jax.jit
    def program(p: Any) -> Any:
        jax.debug.callback(lambda q: seen(q) and None, p)
        return step(p)

    def run(p: Any) -> Any:
        out = program(p)
        jax.effects_barrier()
        return out

    return run


@CALLBACKS.add(
    "`jax.debug.print`",
    step,
    ("0", "0", "0"),
    note="an instance prints shapes, like its `repr`; pass its leaves to see their values",
)
def debug_print(seen: Seen) -> Function:
    def run(p: Any) -> Any:
        jax.debug.print("here: {p}", p=p)
        jax.effects_barrier()
        return step(p)

    return run
