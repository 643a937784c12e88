"""A `lax.scan` body uses a parameter class through a lambda: does a new instance recompile?

Only if its statics, shapes or dtypes changed. The lambda is made while JAX traces, so it is
not part of the key; passed as an argument, it is. Run me to see it:

    python examples/scan_params.py
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from support.counting import counting

import leafwise as lw


@lw.pytree
class Cell:
    """The weights of one step of a recurrence, and how often to repeat it."""

    weight: jax.Array = lw.field(default_factory=lambda: jnp.ones(3))
    repeats: int = lw.static_field(default=2)

    def step(self, state: jax.Array, x: jax.Array) -> jax.Array:
        """Return the next state; `repeats` is a plain int here, in any transformation."""
        for _ in range(self.repeats):
            state = jnp.tanh(self.weight * state + x)
        return state


class HandWritten:
    """The same class without leafwise."""

    def __init__(self, weight: jax.Array, repeats: int) -> None:
        """Store both."""
        self.weight = weight
        self.repeats = repeats

    def step(self, state: jax.Array, x: jax.Array) -> jax.Array:
        """Return the next state."""
        for _ in range(self.repeats):
            state = jnp.tanh(self.weight * state + x)
        return state


jax.tree_util.register_pytree_node(
    HandWritten,
    lambda cell: ((cell.weight,), cell.repeats),
    lambda repeats, children: HandWritten(children[0], repeats),
)


@jax.jit
def run(cell: Cell | HandWritten, xs: jax.Array) -> jax.Array:
    """Scan with a lambda made in here: it is only part of the trace."""
    state = jnp.zeros_like(cell.weight)
    return lax.scan(lambda carry, x: (cell.step(carry, x), None), state, xs)[0]


@functools.partial(jax.jit, static_argnames="step")
def run_with(step: Callable[..., jax.Array], cell: Cell, xs: jax.Array) -> jax.Array:
    """Scan with a function that the caller made: it is part of the key."""
    state = jnp.zeros_like(cell.weight)
    return lax.scan(lambda carry, x: (step(cell, carry, x), None), state, xs)[0]


@dataclasses.dataclass(frozen=True)
class Row:
    """What JAX did over a series of calls."""

    calls: int
    traces: int
    compiles: int


def watch(title: str, function: Any, calls: Sequence[tuple[Any, ...]]) -> Row:
    """Call a jitted function with each tuple of arguments; print and return what JAX did."""
    with counting(function) as seen:
        for arguments in calls:
            function(*arguments).block_until_ready()
    row = Row(len(calls), seen.traces, seen.compiles)
    print(f"  {title:<48}{row.calls:>6}{row.traces:>8}{row.compiles:>10}")
    return row


def main() -> dict[str, Row]:
    """Print the report and return its rows."""
    xs = jnp.linspace(0.0, 1.0, 20)
    weights = [jnp.full(3, value) for value in (0.5, 1.5)]
    cells = [Cell(weight, 2) for weight in weights]
    rows: dict[str, Row] = {}

    print(f"{'the lambda is made inside the jitted function':<50}{'calls':>6}", end="")
    print(f"{'traces':>8}{'compiles':>10}")
    for kind in (HandWritten, Cell):
        name = kind.__name__
        two = [(kind(weight, 2), xs) for weight in weights]
        rows[name] = watch(f"{name}: two instances", run, two)
        more = [(kind(weight, 3), xs) for weight in weights]
        rows[f"{name}, other int"] = watch(f"{name}: two more, int 2 -> 3", run, more)
        rows[f"{name}, again"] = watch(f"{name}: the first two again", run, two)

    print("the caller passes the function, as a static argument")
    fresh = [(lambda cell, state, x: cell.step(state, x), cell, xs) for cell in cells]
    rows["fresh lambda"] = watch("a lambda made for each call", run_with, fresh)
    named = [(Cell.step, cell, xs) for cell in cells]
    rows["one function"] = watch("one function, Cell.step", run_with, named)

    first, changed = rows["Cell"], rows["Cell, other int"]
    print(
        f"\nA new instance recompiles nothing ({first.calls} calls, {first.compiles} compile); "
        f"another int does ({changed.compiles} more).\nThe lambda matters only where it is an "
        "argument: then make it once, outside the loop."
    )
    return rows


if __name__ == "__main__":
    main()
