"""What `jax.jit` and its relatives need beyond a row of the matrix."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.flatten_util import ravel_pytree

import leafwise as lw

from .row import same, step
from .specimens import KINDS, RUNS, Kind

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@each_kind
def test_placed_and_ravelled(kind: Kind) -> None:
    """`device_put`, `device_get`, `ravel_pytree` and `tree.reduce` keep class and statics."""
    p = kind.make("tanh")
    RUNS.clear()
    same(jax.device_put(p, jax.devices()[0]), p)
    same(jax.device_put(p, jax.tree.map(lambda _: jax.devices()[0], p)), p)
    same(jax.device_get(p), p)
    same(jax.block_until_ready(p), p)
    numbers = jax.tree.map(lambda x: x.astype(jnp.float32), p)
    flat, unravel = ravel_pytree(numbers)
    same(unravel(flat), numbers)
    assert jax.tree.reduce(jnp.add, numbers) == pytest.approx(float(flat.sum()))
    assert RUNS == []


@lw.pytree
class State:
    x: Any
    n: Any = lw.static_field(default=1)


def test_a_donated_instance_is_used_up() -> None:
    """Its buffers are gone, its class and statics are there, and what is made of it is refused."""
    program = jax.jit(step, donate_argnums=0)
    given = State(jnp.float32(1) + 0, "kept")
    assert program(given).x == 1.75
    assert (given.x.is_deleted(), given.n) == (True, "kept")
    for used in (given, lw.replace(given, n="other")):
        with pytest.raises((RuntimeError, ValueError), match="deleted"):
            program(used)
