"""What `jax.jit` and its relatives need beyond a row of the matrix."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.flatten_util import ravel_pytree

from .row import Seen, same, step
from .specimens import KINDS, RUNS, VALUES, Kind, Layer

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@each_kind
def test_in_containers_beside_static_arguments(kind: Kind) -> None:
    """Class and statics stay in lists and dicts; the result of the second call has them too."""
    seen = Seen()

    def program(tree: Any, mode: str) -> Any:
        seen(tree["a"][0])
        return {"b": (step(tree["a"][0]), None)}, len(mode)

    jitted = jax.jit(program, static_argnames="mode")
    seen.next(kind.make("tanh"))
    RUNS.clear()
    given = [kind.make("tanh") for _ in range(2)]
    RUNS.clear()
    results = [jitted({"a": [p]}, mode="x")[0]["b"][0] for p in given]
    assert str(seen) == "1"
    assert RUNS == []
    for result in results:
        same(result, step(given[0]))


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


def test_debug_print_shows_shapes(capfd: pytest.CaptureFixture[str]) -> None:
    """An instance prints as its `repr`, a leaf with its value."""

    @jax.jit
    def program(p: Any) -> Any:
        jax.debug.print("{p} and {w}", p=p, w=p.w)
        return p.w

    program(Layer(jnp.float32(0.5), 0.0)).block_until_ready()
    jax.effects_barrier()
    out = capfd.readouterr().out
    assert "Layer(w=f32[], b=" in out
    assert "and 0.5" in out


def test_kinds_are_different() -> None:
    """Each kind is a class of its own, and its third instance has another static."""
    structures = [jax.tree.structure(kind.make("tanh")) for kind in KINDS]
    assert len(set(structures)) == len(KINDS)
    for kind, structure in zip(KINDS, structures, strict=True):
        assert jax.tree.structure(kind.make("tanh")) == structure
        assert jax.tree.structure(kind.make("sin")) != structure
    assert VALUES in KINDS
