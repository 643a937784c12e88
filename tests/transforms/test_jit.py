"""What `jax.jit` and its relatives need beyond a row of the matrix."""

import jax
import jax.numpy as jnp
import pytest
from jax.flatten_util import ravel_pytree

from .row import same
from .specimens import KINDS, RUNS, VALUES, Kind

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


def test_kinds_are_different() -> None:
    """Each kind is a class of its own, and its third instance has another static."""
    structures = [jax.tree.structure(kind.make("tanh")) for kind in KINDS]
    assert len(set(structures)) == len(KINDS)
    for kind, structure in zip(KINDS, structures, strict=True):
        assert jax.tree.structure(kind.make("tanh")) == structure
        assert jax.tree.structure(kind.make("sin")) != structure
    assert VALUES in KINDS
