"""Methods of leafwise classes as functions of other libraries."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import leafwise as lw

X = jnp.arange(3.0)
FILTER_JIT = pytest.mark.works("equinox", "`filter_jit(p.method)`: one program for equal keys")
INSIDE = pytest.mark.works("equinox", "`p.method` as a field of a module, and as an argument")


@lw.pytree
class Scale:
    w: jax.Array
    act: str = lw.static_field(default="relu")

    def by(self, x: jax.Array) -> jax.Array:
        return self.w * x


def make(w: float, act: str = "relu") -> Scale:
    return Scale(jnp.full(3, w), act)


def traces_of(call: Any) -> int:
    with lw.watch(eager=False) as log:
        call()
    return len(log.traces)


@FILTER_JIT
def test_filter_jit() -> None:
    """It retraces where key or avals of the instance change, as for a module's method."""

    def calls(*instances: Scale) -> None:
        for each in instances:
            assert jnp.array_equal(eqx.filter_jit(each.by)(X), each.w * X)

    assert traces_of(lambda: calls(make(1.0), make(2.0))) == 1
    assert traces_of(lambda: calls(make(3.0, "gelu"))) == 1
    assert traces_of(lambda: calls(Scale(jnp.float32(1)))) == 1


@INSIDE
def test_in_a_module() -> None:
    """A module holds one as a dynamic field; it is updated with the module."""

    class Holder(eqx.Module):
        call: Any

        def __call__(self, x: jax.Array) -> jax.Array:
            return self.call(x)

    apply = eqx.filter_jit(lambda module, x: module(x))
    holders = [Holder(make(1.0).by), Holder(make(2.0).by)]
    assert traces_of(lambda: [apply(each, X) for each in holders]) == 1
    other = eqx.tree_at(lambda module: module.call.__self__.w, holders[0], jnp.zeros(3))
    assert other(X).tolist() == [0.0, 0.0, 0.0]
