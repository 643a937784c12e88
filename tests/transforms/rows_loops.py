"""The rows of loops and branches: carries, operands and results."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .row import Function, Rows, Seen, stack, step, steps

ROWS = Rows("Loops and branches")

ONCE = ("1", "0", "1")
NO_REVERSE = "Reverse-mode differentiation does not work for lax.while_loop"


@ROWS.add("`jax.lax.scan`", "the carry", steps(3), ONCE)
def scan(seen: Seen) -> Function:
    def body(p: Any, _: Any) -> Any:
        return step(seen(p)), None

    return lambda p: lax.scan(body, p, None, length=3)[0]


@ROWS.add(
    "`jax.lax.scan(reverse=True, unroll=2)`",
    "the carry, what is scanned over, and what is stacked",
    lambda p: (steps(3)(p), stack(step(p), 3)),
    ONCE,
    note="a static made from a shape is unchanged, although the leaves get an axis",
)
def scan_over(seen: Seen) -> Function:
    def body(p: Any, x: Any) -> Any:
        return step(seen(p)), step(seen.check(x))

    return lambda p: lax.scan(body, p, stack(p, 3), reverse=True, unroll=2)


@ROWS.add(
    "`jax.lax.while_loop`",
    "the carry",
    steps(3),
    ("cond_fun 1, body_fun 1", "0", "cond_fun 1, body_fun 1"),
    reverse=NO_REVERSE,
)
def while_loop(seen: Seen) -> Function:
    def less(carry: Any) -> Any:
        seen(carry[1], "cond_fun")
        return carry[0] < 3

    def body(carry: Any) -> Any:
        return carry[0] + 1, step(seen(carry[1], "body_fun"))

    return lambda p: lax.while_loop(less, body, (0, p))[1]


@ROWS.add("`jax.lax.fori_loop`, bounds known", "the carry", steps(3), ONCE)
def fori_loop(seen: Seen) -> Function:
    def body(_: Any, p: Any) -> Any:
        return step(seen(p))

    return lambda p: lax.fori_loop(0, 3, body, p)


@ROWS.add("`jax.lax.fori_loop`, bounds traced", "the carry", steps(3), ONCE, reverse=NO_REVERSE)
def fori_loop_traced(seen: Seen) -> Function:
    def body(_: Any, p: Any) -> Any:
        return step(seen(p))

    program = jax.jit(lambda n, p: lax.fori_loop(0, n, body, p))
    return lambda p: program(3, p)


@ROWS.add(
    "`jax.lax.cond`",
    "the operand, and the result of either branch",
    lambda p: (step(p), p),
    ("true_fun 1, false_fun 1", "0", "true_fun 1, false_fun 1"),
    note="both branches are traced, whichever is taken",
)
def cond(seen: Seen) -> Function:
    def yes(p: Any) -> Any:
        return step(seen(p, "true_fun"))

    def no(p: Any) -> Any:
        return seen(p, "false_fun")

    return lambda p: tuple(lax.cond(jnp.bool_(flag), yes, no, p) for flag in (True, False))


@ROWS.add(
    "`jax.lax.switch`",
    "the operand and the result of each branch",
    steps(2),
    ("branch 3", "0", "branch 3"),
)
def switch(seen: Seen) -> Function:
    def branch(p: Any, times: int) -> Any:
        return steps(times)(seen(p, "branch"))

    branches = [functools.partial(branch, times=i) for i in range(3)]
    return lambda p: lax.switch(jnp.int32(2), branches, p)


@ROWS.add(
    "`jax.lax.select`, `jax.numpy.where`",
    "the leaves, through `jax.tree.map`",
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


@ROWS.add("`jax.lax.map`", "what is mapped over, and the result", _three, ("1", "1", "1"))
def lax_map(seen: Seen) -> Function:
    def body(p: Any) -> Any:
        return step(seen(p))

    return lambda p: lax.map(body, stack(p, 3))


@ROWS.add(
    "`jax.lax.map(batch_size=)`",
    "the same; three in batches of two",
    _three,
    ("2", "2", "2"),
    note="once for the batches, once for the rest",
)
def lax_map_batches(seen: Seen) -> Function:
    def body(p: Any) -> Any:
        return step(seen(p))

    return lambda p: lax.map(body, stack(p, 3), batch_size=2)


@ROWS.add(
    "`jax.lax.associative_scan`",
    "the elements",
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
