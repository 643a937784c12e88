"""Leafwise classes in equinox modules, and modules in them, through what equinox has."""

import io
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import leafwise as lw

from .modules import works

NESTED = "leafwise classes in modules and modules in leafwise classes"


def through(what: str) -> pytest.MarkDecorator:
    return works(f"{NESTED}, through {what}")


@lw.pytree
class Params:
    w: jax.Array
    power: int = lw.static_field(default=1)

    def apply(self, x: jax.Array) -> jax.Array:
        """Return ``w * x ** power``."""
        return self.w * x**self.power


class Net(eqx.Module):
    """A module with a leafwise class in it."""

    params: Params
    linear: eqx.nn.Linear
    act: Callable[[jax.Array], jax.Array]
    name: str = eqx.field(static=True, default="net")

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.act(self.linear(self.params.apply(x)))


@lw.pytree
class State:
    """A leafwise class with modules in it."""

    net: Net
    step: jax.Array
    mode: lw.Static[str] = "train"

    def __call__(self, x: jax.Array) -> jax.Array:
        scale = 1.0 if self.mode == "train" else 2.0
        return scale * self.net(x)


def made(power: int = 1, mode: str = "train", name: str = "net") -> State:
    linear = eqx.nn.Linear(3, 2, key=jax.random.key(0))
    return State(
        Net(Params(jnp.arange(3.0), power), linear, jax.nn.tanh, name), jnp.zeros(()), mode
    )


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


def host(state: State) -> Any:
    """Call a function outside JAX, which is given the instance."""
    shape = jax.ShapeDtypeStruct((2,), jnp.float32)
    return eqx.filter_pure_callback(lambda state: state(X), state, result_shape_dtypes=shape)


def scanned(state: State) -> Any:
    """Carry the arrays of an instance through a scan."""
    dynamic, static = eqx.partition(state, eqx.is_array)
    step = lambda carry, x: (carry, eqx.combine(carry, static)(x))  # noqa: E731
    return jax.lax.scan(step, dynamic, X[None])[1][0]


THROUGH: dict[str, Callable[[State], Any]] = {
    "`filter_checkpoint`": lambda state: eqx.filter_checkpoint(lambda state: state(X))(state),
    "`filter_vmap`": lambda state: eqx.filter_vmap(lambda s: s(X))(
        eqx.filter_vmap(lambda _: state)(X)  # an ensemble with one set of statics
    )[0],
    "`filter_closure_convert`": lambda state: eqx.filter_closure_convert(lambda x: state(x), X)(X),
    "`filter_pure_callback`": host,
    "`filter_jvp` and `filter_vjp`": lambda state: eqx.filter_vjp(lambda s: s(X), state)[0],
    "`filter_make_jaxpr` and `filter_cond`-like control flow of JAX": scanned,
}


@pytest.mark.filterwarnings("ignore:jax.core.find_top_trace:DeprecationWarning")
@pytest.mark.parametrize(
    "call", [pytest.param(call, marks=through(what), id=what) for what, call in THROUGH.items()]
)
def test_calls_through(call: Callable[[State], Any]) -> None:
    """What they hand to a function is an instance with its statics."""
    state = made(power=2, mode="test")
    assert jnp.allclose(eqx.filter_jit(call)(state), state(X))


@works(
    "`tree_at` on a static field", cannot="a static is not a leaf: use `lw.replace` or `lw.update`"
)
def test_tree_at_static() -> None:
    """Equinox says that a static is not a leaf."""
    with pytest.raises((TypeError, ValueError), match=r"leaf|node|PyTree"):
        eqx.tree_at(lambda state: state.net.params.power, made(), 3)
    assert lw.replace(made().net.params, power=3).power == 3


@works("`tree_serialise_leaves` and `tree_deserialise_leaves`")
@works(
    "`tree_deserialise_leaves` into another static configuration",
    cannot="equinox stores leaves only: `leafwise.interop.orbax` stores statics, too",
)
def test_serialise_leaves() -> None:
    """Leaves come back; statics are not stored or compared: those of the filled instance win."""
    file, saved, target = io.BytesIO(), made(2, "test"), made(3, "train")
    eqx.tree_serialise_leaves(file, lw.replace(saved, step=jnp.ones(())))
    file.seek(0)
    restored = eqx.tree_deserialise_leaves(file, target)
    assert eqx.tree_equal(restored, lw.replace(target, step=jnp.ones(())))
