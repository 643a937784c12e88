"""Keyed modules of equinox, and bound methods, in state dicts and in `flax.nnx` modules."""

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import serialization

import leafwise as lw
from leafwise.errors import CheckpointError
from leafwise.interop.equinox import Module
from leafwise.interop.flax import register_nnx_data, register_serialization

with warnings.catch_warnings():  # flax 0.12.1 uses what JAX 0.10 calls deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from flax import nnx

pytestmark = pytest.mark.filterwarnings("ignore:jax.core.get_opaque_trace_state is deprecated")

register_serialization()
register_nnx_data()

MODULES = "`leafwise.interop.equinox.Module` in state dicts and `nnx.Module` attributes"
METHODS = "bound methods of leafwise classes in state dicts and `nnx.Module` attributes"


class Mod(Module):
    w: Any
    k: Any = eqx.field(static=True, default=1)
    b: Any = None

    def __call__(self, x: Any) -> Any:
        return x * self.w * self.k


class Sub(Mod):
    inner: Any = None
    act: lw.Static[str] = "relu"


class Config(Module):
    width: int = lw.static_field(default=2)


@lw.pytree
class Net:
    w: Any
    n: lw.Static[int] = 2

    def times(self, x: Any) -> Any:
        return x * self.w * self.n

    def plus(self, x: Any) -> Any:
        return x + self.w

    @jax.jit
    def jitted(self, x: Any) -> Any:
        return x * self.w


@lw.pytree
class Holder:
    it: Any


class Model(nnx.Module):
    """Holds a value without `nnx.data`."""

    def __init__(self, it: Any) -> None:
        self.it = it


def same(restored: Any, saved: Any) -> None:
    assert jax.tree.structure(restored) == jax.tree.structure(saved)
    assert jax.tree.all(jax.tree.map(np.array_equal, restored, saved))


def of_every_kind(value: float) -> list[Any]:
    w = jnp.full(2, value, jnp.float32)
    return [
        Mod(w),
        Sub(w, 3, {"a": w}, Mod(w, "k"), "gelu"),
        Holder([Mod(w), Config()]),
        Net(w).times,
        Net(w).jitted,
        Mod(Net(w, 3).plus),
    ]


@pytest.mark.works("flax", MODULES)
@pytest.mark.works("flax", METHODS)
@pytest.mark.parametrize("which", range(len(of_every_kind(1))))
def test_round_trip(which: int) -> None:
    """State dicts and bytes restore it into an equal configuration, and need no new program."""
    saved, target = of_every_kind(1)[which], of_every_kind(0)[which]
    step = jax.jit(lambda tree: jax.tree.map(lambda x: x * 2, tree))
    step(saved)
    same(serialization.from_state_dict(target, serialization.to_state_dict(saved)), saved)
    restored = serialization.from_bytes(target, serialization.to_bytes(saved))
    same(restored, saved)
    with lw.budget(traces=0, eager=False):
        step(restored)


OTHERS: list[tuple[Any, Any, str]] = [
    (Mod(1.0), Mod(1.0, True), "Mod.k: saved 1, target True"),
    (Config(2), Config(3), "Config.width: saved 2, target 3"),
    (Mod(1.0), Sub(1.0), "Sub.inner: saved nothing, target a field"),
    (Net(1.0).times, Net(1.0).plus, "Net.times, target"),
    (Net(1.0), Net(1.0).times, "BoundMethod.__self__: saved nothing, target a field"),
]


@pytest.mark.works("flax", "restoring into another static configuration is refused by field")
@pytest.mark.parametrize(("saved", "target", "text"), OTHERS, ids=range(len(OTHERS)))
def test_others_are_refused(saved: Any, target: Any, text: str) -> None:
    """Another static, or another function of a method, is refused by name, as is another shape."""
    state = serialization.to_state_dict([Holder(saved)])
    with pytest.raises(CheckpointError) as raised:
        serialization.from_state_dict([Holder(target)], state)
    assert text in str(raised.value)
    assert "./0/it" in str(raised.value)


@pytest.mark.works("flax", MODULES)
def test_modules_in_nnx() -> None:
    """A keyed module is data to nnx: its Variables are the nnx module's, its statics compared."""
    model = Model(Mod(nnx.Param(jnp.ones(2))))
    assert nnx.is_data(model.it)
    params = nnx.state(model, nnx.Param)
    assert params["it"]["w"].shape == (2,)
    graph, state = nnx.split(model)
    assert (type(nnx.merge(graph, state).it), nnx.merge(graph, state).it.k) == (Mod, 1)
    assert nnx.split(Model(Mod(nnx.Param(jnp.ones(2)), True)))[0] != graph
    assert nnx.split(Model(Mod(nnx.Param(jnp.ones(2)), 1)))[0] == graph


@pytest.mark.works("flax", METHODS)
def test_methods_in_nnx() -> None:
    """A bound method is data to nnx; another function of the same instance is another graph."""
    net = Net(nnx.Param(jnp.full(2, 3.0)))
    graph, state = nnx.split(Model(net.times))
    assert nnx.merge(graph, state).it(1.0).tolist() == [6, 6]
    assert nnx.split(Model(net.plus))[0] != graph
    assert nnx.split(Model(Net(nnx.Param(jnp.ones(2))).times))[0] == graph


@pytest.mark.works(
    "flax",
    "a plain `equinox.Module` in `to_bytes`",
    cannot="to flax it is a leaf, so its statics are not compared in a state dict either; "
    "use `leafwise.interop.equinox.Module`",
)
def test_plain_modules() -> None:
    """A module without a key is a leaf to flax: kept in a state dict, refused in bytes."""

    class Plain(eqx.Module):
        k: int = eqx.field(static=True)

    one, two = Plain(1), Plain(2)
    state = serialization.to_state_dict(Holder(one))
    assert serialization.from_state_dict(Holder(two), state).it is one
    with pytest.raises(TypeError, match="Plain"):
        serialization.to_bytes(Holder(one))
