"""Equinox, chex and optax take instances as they take any pytree."""

from typing import Any

import jax
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
