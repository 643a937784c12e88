"""What `jax.jit` and its relatives need beyond a row of the matrix."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import leafwise as lw

from .row import Seen, same, step
from .specimens import EAGER, KINDS, RUNS, VALUES, Config, Kind, Layer

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@pytest.mark.parametrize(
    "change", [{"act": "sin"}, {"config": Config(3)}, {"config": Config(2, "b")}]
)
def test_every_static_counts(change: dict[str, Any]) -> None:
    """A change of one static traces again, a change back does not."""
    traces: list[Any] = []
    program = jax.jit(lambda p: traces.append((p.act, p.config, p.config.note)) or p(1.0))
    for settings in ({}, change, {}):
        program(Layer(jnp.float32(0.5), jnp.float32(0.1), **settings))
    assert len(traces) == 2
    assert traces[0] != traces[1]


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


def test_a_loop_with_a_new_lambda_in_a_program() -> None:
    """Bodies that are written in a jitted function cost no trace at the next call."""
    seen = Seen()

    @jax.jit
    def run(p: Any) -> Any:
        return jax.lax.scan(lambda c, _: (step(seen(c)), None), p, None, length=3)[0]

    seen.next(EAGER.make("tanh"))
    for _ in range(3):
        run(EAGER.make("tanh"))
    assert str(seen) == "1"


def test_shapes_and_dtypes_trace_again() -> None:
    """Leaves are traced by shape, dtype and weak type, as anywhere in JAX."""
    traces: list[Any] = []
    program = jax.jit(lambda p: traces.append(p.w) or p.w)
    structure = jax.tree.structure(Layer(jnp.ones(1)))
    for leaf in [
        jnp.ones(2),
        jnp.ones(3),
        jnp.ones(2),
        jnp.ones(2, jnp.int32),
        1.0,
        np.float32(1),
        2.0,
    ]:
        program(jax.tree.unflatten(structure, [leaf, 0.0]))
    assert len(traces) == 5


def test_statics_from_shapes_inside_of_a_program() -> None:
    """Instances may be constructed while tracing; statics are computed from shapes."""

    @lw.pytree
    class Made:
        x: Any
        size: int = lw.static_field()

    @jax.jit
    def program(x: Any) -> Any:
        made = Made(x, x.shape[0])
        return jax.lax.fori_loop(0, made.size, lambda _, p: Made(p.x + 1, p.size), made)

    result = program(jnp.zeros(3))
    assert (type(result.size), result.size) == (int, 3)
    np.testing.assert_allclose(result.x, [3, 3, 3])


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


def test_a_loop_has_a_static_for_what_is_known_only_before_it() -> None:
    """A static may be a bound: a gradient goes through, as the bound is no tracer."""

    @lw.pytree
    class Power:
        x: Any
        n: int = lw.static_field()

    def run(p: Power) -> Any:
        return jax.lax.fori_loop(0, p.n, lambda _, x: x * p.x, jnp.float32(1))

    gradient = jax.jit(jax.grad(run))(Power(jnp.float32(2), 3))
    assert (float(gradient.x), gradient.n) == (12.0, 3)


def test_kinds_are_different() -> None:
    """Each kind is a class of its own, and its third instance has another static."""
    structures = [jax.tree.structure(kind.make("tanh")) for kind in KINDS]
    assert len(set(structures)) == len(KINDS)
    for kind, structure in zip(KINDS, structures, strict=True):
        assert jax.tree.structure(kind.make("tanh")) == structure
        assert jax.tree.structure(kind.make("sin")) != structure
    assert VALUES in KINDS
