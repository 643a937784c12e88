"""The rows of callbacks: what runs on the host gets instances, at each call."""

from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback as jax_io_callback

from .row import Function, Rows, Seen, step

ROWS = Rows("Callbacks")

RUNS = ("1", "1", "1")


def _numpy(p: Any) -> Any:
    return jax.tree.map(np.asarray, step(jax.tree.map(np.asarray, p)))


@ROWS.add(
    "`jax.pure_callback`",
    "argument of the host function, its result, and the tree of structs",
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


@ROWS.add(
    "`jax.experimental.io_callback(ordered=True)`",
    "the same",
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


@ROWS.add("`jax.debug.callback`", "argument of the host function", step, RUNS, concrete=True)
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


@ROWS.add(
    "`jax.debug.print`",
    "an argument of the message",
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
