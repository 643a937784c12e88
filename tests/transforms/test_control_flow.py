"""Loops and branches: carries, operands and results keep class and statics."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw

from .specimens import Check

pytestmark = pytest.mark.usefixtures("no_leaks")

XS = jnp.arange(4, dtype=jnp.float32)


def step(layer: Any, by: Any = 1.0) -> Any:
    return jax.tree.map(lambda leaf: leaf + by, layer)


def test_scan_carry(check: Check) -> None:
    """A carry goes round with its statics; the body is traced once."""

    def body(p: Any, x: Any) -> Any:
        return step(check.seen(p), x), p

    last, stacked = jax.lax.scan(body, check.layer, XS)
    assert check.traces == 1
    assert last.w == 6.5
    np.testing.assert_allclose(stacked.w, [0.5, 0.5, 1.5, 3.5])
    assert stacked.rank == 0, "a static, though w has got an axis"
    check.done(last, stacked)


def test_scan_over_a_stacked_instance(check: Check) -> None:
    """Instances are scanned over along the leading axis of their leaves."""
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + 1]), check.layer)
    total, results = jax.lax.scan(
        lambda total, p: (total + check.seen(p).w, p), jnp.float32(0), stacked
    )
    assert total == 2.0
    assert check.traces == 1
    check.done(stacked, results)


def test_a_scan_body_with_a_lambda_compiles_once(check: Check) -> None:
    """Two instances of equal statics, each captured by a new lambda: one trace."""

    @jax.jit
    def run(p: Any) -> Any:
        check.seen(p)
        return jax.lax.scan(lambda c, x: (c + p(x), None), jnp.float32(0), XS)[0]

    for layer in (check.layer, check.again(), check.again()):
        run(layer)
    assert check.traces == 1
    check.done()


def test_while_loop(check: Check) -> None:
    """Condition and body see the statics."""
    last = jax.lax.while_loop(
        lambda p: check.seen(p).w < 3, lambda p: step(check.seen(p)), check.layer
    )
    assert last.w == 3.5
    check.done(last)


def test_fori_loop(check: Check) -> None:
    """The same for a counted loop, compiled and with a traced bound."""
    last = jax.lax.fori_loop(0, 3, lambda _, p: step(check.seen(p)), check.layer)
    program = jax.jit(lambda n, p: jax.lax.fori_loop(0, n, lambda _, q: step(q), p))
    traced = program(3, check.again())
    assert last.w == traced.w == 3.5
    check.done(last, traced)


@pytest.mark.parametrize("pred", [True, False])
def test_cond(check: Check, pred: bool) -> None:
    """Branches return instances of equal statics, in whatever objects."""
    other = check.again()
    result = jax.lax.cond(pred, lambda p: step(check.seen(p)), lambda p: other, check.layer)
    assert result.w == (1.5 if pred else 0.5)
    traced = jax.jit(lambda flag, p: jax.lax.cond(flag, lambda q: step(q), lambda q: q, p))(
        pred, check.layer
    )
    assert traced.w == result.w
    check.done(result, traced)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_switch(check: Check, index: int) -> None:
    """The same for many branches."""
    branches = [lambda p, i=i: step(check.seen(p), float(i)) for i in range(3)]
    result = jax.lax.switch(index, branches, check.layer)
    assert result.w == 0.5 + index
    assert check.traces == 3
    check.done(result)


def test_vmap_over_an_instance(check: Check) -> None:
    """Leaves are mapped over, statics are not."""
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + 1]), check.layer)
    result = jax.vmap(lambda p: step(check.seen(p)))(stacked)
    np.testing.assert_allclose(result.w, [1.5, 2.5])
    assert check.traces == 1
    check.done(stacked, result)


def test_vmap_with_a_tree_of_axes(check: Check) -> None:
    """``in_axes`` and ``out_axes`` may be instances with the same statics."""
    axes = jax.tree.unflatten(jax.tree.structure(check.layer), [0, None])
    stacked = jax.tree.unflatten(jax.tree.structure(check.layer), [jnp.arange(3.0), jnp.float32(1)])
    result = jax.vmap(check.seen, in_axes=(axes,), out_axes=axes)(stacked)
    np.testing.assert_allclose(result.w, [0, 1, 2])
    assert result.b == 1.0
    out = jax.vmap(lambda x: jax.tree.map(lambda leaf: leaf + x, check.layer))(XS)
    assert out.b.shape == (4,)
    prefix = jax.vmap(lambda p: p.w, in_axes=0)(step(stacked, jnp.zeros(3)))
    assert prefix.shape == (3,)
    check.done(axes, stacked, result, out)


@pytest.mark.parametrize("batch_size", [None, 2, 3])
def test_map(check: Check, batch_size: int | None) -> None:
    """`lax.map` with and without batches."""
    stacked = jax.tree.map(lambda leaf: leaf + XS, check.layer)
    result = jax.lax.map(lambda p: step(check.seen(p)), stacked, batch_size=batch_size)
    np.testing.assert_allclose(result.w, XS + 1.5)
    check.done(stacked, result)


def test_associative_scan(check: Check) -> None:
    """Instances as elements of an associative scan."""
    stacked = jax.tree.map(lambda leaf: leaf + XS, check.layer)
    result = jax.lax.associative_scan(lambda a, b: jax.tree.map(jnp.add, a, b), stacked)
    np.testing.assert_allclose(result.w, np.cumsum(np.asarray(stacked.w)))
    check.done(result)


@pytest.mark.parametrize("other", [2, True, 1.0, "1"])
def test_a_static_that_changes_in_a_loop_is_an_error(other: Any) -> None:
    """A carry cannot change its statics, not even to an equal value of another type."""

    @lw.pytree
    class Carry:
        x: Any
        n: Any = lw.static_field(default=1)

    start = Carry(jnp.float32(0))
    with pytest.raises(TypeError, match=rf"n={other!r}"):
        jax.lax.scan(lambda p, _: (lw.replace(p, n=other), None), start, XS)
    last, _ = jax.lax.scan(lambda p, x: (lw.replace(p, x=p.x + x), None), start, XS)
    assert (float(last.x), last.n) == (6.0, 1)


def test_fresh_statics_inside_of_a_traced_function() -> None:
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
