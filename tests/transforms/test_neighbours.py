"""Equinox, chex and optax take instances as they take any pytree."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from .specimens import Check


def test_equinox_filters(check: Check) -> None:
    """`filter_jit`, `filter_grad`, `partition` and `combine` keep class and statics."""
    eqx = pytest.importorskip("equinox")
    program = eqx.filter_jit(lambda p: check.seen(p)(1.0))
    program(check.layer)
    program(check.again())
    assert check.traces == 1
    gradient = eqx.filter_grad(lambda p: p(1.0))(check.layer)
    arrays, rest = eqx.partition(check.layer, eqx.is_array)
    assert rest.w is None
    combined = eqx.combine(arrays, rest)
    check.done(gradient, arrays, rest, combined)
    assert eqx.tree_equal(combined, check.layer)


def test_equinox_tree_at(check: Check) -> None:
    """`tree_at` changes one leaf and runs no constructor."""
    eqx = pytest.importorskip("equinox")
    changed = eqx.tree_at(lambda p: p.w, check.layer, jnp.float32(9))
    assert (float(changed.w), float(changed.b)) == pytest.approx((9.0, 0.1))
    check.done(changed)


def test_inside_of_an_equinox_module(check: Check) -> None:
    """An instance in a field of a module is a node of its tree."""
    eqx = pytest.importorskip("equinox")

    class Model(eqx.Module):
        layer: Any
        name: str = eqx.field(static=True, default="m")

    model = Model(check.layer)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda m, x: m.layer(x)))(model, 1.0)
    assert gradient.name == "m"
    check.done(gradient.layer)


def test_chex_assertions(check: Check) -> None:
    """chex's assertions see the leaves, and statics that differ."""
    chex = pytest.importorskip("chex")
    other = check.again()
    chex.assert_trees_all_close(check.layer, other)
    chex.assert_trees_all_equal_structs(check.layer, other)
    chex.assert_trees_all_equal_shapes_and_dtypes(check.layer, other)
    chex.assert_tree_all_finite(check.layer)
    check.done()
    different = check.cls(jnp.float32(0.5), jnp.float32(0.1), act="sin")
    with pytest.raises(AssertionError):
        chex.assert_trees_all_equal_structs(check.layer, different)


def test_chex_max_traces(check: Check) -> None:
    """`assert_max_traces` agrees with the number of traces."""
    chex = pytest.importorskip("chex")
    chex.clear_trace_counter()
    program = jax.jit(chex.assert_max_traces(lambda p: p(1.0), n=1))
    program(check.layer)
    program(check.again())
    with pytest.raises(AssertionError):
        program(check.cls(jnp.float32(0.5), jnp.float32(0.1), act="sin"))


def test_optax_updates(check: Check) -> None:
    """Optimiser states mirror the instance; updates apply to it."""
    optax = pytest.importorskip("optax")
    optimizer = optax.adam(0.1)
    state = optimizer.init(check.layer)

    @jax.jit
    def step(p: Any, s: Any) -> Any:
        check.seen(p)
        updates, s = optimizer.update(jax.grad(lambda q: q(1.0))(p), s, p)
        return optax.apply_updates(p, updates), s

    layer = check.layer
    for _ in range(3):
        layer, state = step(layer, state)
    assert check.traces == 1
    assert np.isfinite(float(layer.w))
    check.done(layer, state[0].mu)
