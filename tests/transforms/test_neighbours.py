"""Equinox, chex and optax take instances as they take any pytree."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from .row import Seen
from .specimens import KINDS, RUNS, Kind, statics_of

some_kinds = pytest.mark.parametrize(
    "kind",
    [kind for kind in KINDS if kind.name in ("ForeignLayer", "ManyLayer", "SlottedLayer")],
    ids=lambda kind: kind.name,
)


@pytest.fixture
def no_runs() -> Any:
    """No constructor runs but those of the test: it calls what it gets after it made them."""

    def begin(*instances: Any) -> Any:
        RUNS.clear()
        return instances

    yield begin
    assert RUNS == []


@some_kinds
def test_equinox_filters(kind: Kind, no_runs: Any) -> None:
    """`filter_jit`, `filter_grad`, `partition` and `combine` keep class and statics."""
    eqx = pytest.importorskip("equinox")
    p, again = no_runs(kind.make("tanh"), kind.make("tanh"))
    seen = Seen()
    seen.next(p)
    program = eqx.filter_jit(lambda q: seen(q)(1.0))
    program(p)
    program(again)
    assert str(seen) == "1"
    gradient = eqx.filter_grad(lambda q: q(1.0))(p)
    arrays, rest = eqx.partition(p, eqx.is_array)
    assert rest.w is None
    combined = eqx.combine(arrays, rest)
    for each in (gradient, arrays, combined):
        assert statics_of(each) == statics_of(p)
    assert eqx.tree_equal(combined, p)


@some_kinds
def test_equinox_tree_at(kind: Kind, no_runs: Any) -> None:
    """`tree_at` changes one leaf and runs no constructor."""
    eqx = pytest.importorskip("equinox")
    (p,) = no_runs(kind.make("tanh"))
    changed = eqx.tree_at(lambda q: q.w, p, jnp.float32(9))
    assert (float(changed.w), float(changed.b)) == pytest.approx((9.0, 0.1))
    assert statics_of(changed) == statics_of(p)


@some_kinds
def test_chex_assertions(kind: Kind, no_runs: Any) -> None:
    """chex's assertions see the leaves, and statics that differ."""
    chex = pytest.importorskip("chex")
    p, again, other = no_runs(kind.make("tanh"), kind.make("tanh"), kind.make("sin"))
    chex.assert_trees_all_close(p, again)
    chex.assert_trees_all_equal_structs(p, again)
    chex.assert_trees_all_equal_shapes_and_dtypes(p, again)
    chex.assert_tree_all_finite(p)
    with pytest.raises(AssertionError):
        chex.assert_trees_all_equal_structs(p, other)


@some_kinds
def test_chex_max_traces(kind: Kind) -> None:
    """`assert_max_traces` agrees with the number of traces."""
    chex = pytest.importorskip("chex")
    chex.clear_trace_counter()
    program = jax.jit(chex.assert_max_traces(lambda q: q(1.0), n=1))
    program(kind.make("tanh"))
    program(kind.make("tanh"))
    with pytest.raises(AssertionError):
        program(kind.make("sin"))


@some_kinds
def test_optax_updates(kind: Kind, no_runs: Any) -> None:
    """Optimiser states mirror the instance; updates apply to it."""
    optax = pytest.importorskip("optax")
    optimizer = optax.sgd(0.1, momentum=0.9)
    (p,) = no_runs(kind.make("tanh"))
    seen = Seen()
    seen.next(p)
    state = optimizer.init(p)

    @jax.jit
    def update(q: Any, s: Any) -> Any:
        updates, s = optimizer.update(jax.grad(lambda r: r(1.0))(seen(q)), s, q)
        return optax.apply_updates(q, updates), s

    moved = p
    for _ in range(3):
        moved, state = update(moved, state)
    assert str(seen) == "1"
    assert np.isfinite(float(moved.w))
    assert statics_of(moved) == statics_of(p)
    assert statics_of(state[0].trace) == statics_of(p)
