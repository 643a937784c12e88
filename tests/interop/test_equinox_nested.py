"""Methods of leafwise classes in equinox modules; what `tree_at` and equinox's files keep."""

import io
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import leafwise as lw

from .modules import works


@lw.pytree
class Params:
    w: jax.Array
    power: int = lw.static_field(default=1)

    def apply(self, x: jax.Array) -> jax.Array:
        """Return ``w * x ** power``."""
        return self.w * x**self.power


X = jnp.array([0.5, -1.0, 2.0])


@works("`filter_jit(p.method)`: one program for equal keys")
@works("a bound method of a leafwise class, under `filter_jit`")
def test_bound_method_in_filter_jit() -> None:
    """A method of a leafwise class is a pytree for equinox, too: one trace for equal keys."""
    given = eqx.filter_jit(lambda method: method(X))
    for run in (given, lambda method: eqx.filter_jit(method)(X)):
        with lw.budget(traces=2, exact=True, eager=False):
            for w, power in ((1.0, 2), (2.0, 2), (2.0, 3)):
                assert jnp.allclose(run(Params(jnp.full(3, w), power).apply), w * X**power)


@works("`p.method` as a field of a module, and as an argument")
def test_bound_method_in_a_module() -> None:
    """A module holds one as a dynamic field; it is updated with the module."""

    class Holder(eqx.Module):
        call: Any

    apply = eqx.filter_jit(lambda module, x: module.call(x))
    holders = [Holder(Params(jnp.full(3, w)).apply) for w in (1.0, 2.0)]
    with lw.budget(traces=1, exact=True, of=apply):
        for each in holders:
            apply(each, X)
    other = eqx.tree_at(lambda module: module.call.__self__.w, holders[0], jnp.zeros(3))
    assert other.call(X).tolist() == [0.0, 0.0, 0.0]


@works(
    "`tree_at` on a static field", cannot="a static is not a leaf: use `lw.replace` or `lw.update`"
)
def test_tree_at_static() -> None:
    """Equinox says that a static is not a leaf."""
    with pytest.raises((TypeError, ValueError), match=r"leaf|node|PyTree"):
        eqx.tree_at(lambda params: params.power, Params(X), 3)


@works("`tree_serialise_leaves` and `tree_deserialise_leaves`")
@works(
    "`tree_deserialise_leaves` into another static configuration",
    cannot="equinox stores leaves only: `leafwise.interop.orbax` stores statics, too",
)
def test_serialise_leaves() -> None:
    """Leaves come back; statics are not stored or compared: those of the filled instance win."""
    file = io.BytesIO()
    eqx.tree_serialise_leaves(file, Params(X, 2))
    file.seek(0)
    assert eqx.tree_deserialise_leaves(file, Params(jnp.zeros(3), 3)) == Params(X, 3)
