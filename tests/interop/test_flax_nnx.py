"""`flax.nnx` modules and leafwise classes inside each other."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw
from leafwise.interop.flax import register_nnx_data

from .modules import Holder

with warnings.catch_warnings():  # flax 0.12.1 uses what JAX 0.10 calls deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from flax import nnx

pytestmark = pytest.mark.filterwarnings("ignore:jax.core.get_opaque_trace_state is deprecated")

register_nnx_data()


@lw.pytree
class Scale:
    w: Any
    power: lw.Static[Any] = 2

    def __call__(self, x: jax.Array) -> jax.Array:
        return x * self.w[...] ** self.power


class Model(nnx.Module):
    """Holds instances without `nnx.data` and without annotations."""

    def __init__(self, power: Any = 2) -> None:
        self.linear = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
        self.scale = Scale(nnx.Param(jnp.ones(3)), power)
        self.table = Scale(jnp.full(3, 5.0))

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.scale(self.linear(x))


X = jnp.arange(6.0).reshape(2, 3)


@pytest.mark.works("flax", "a leafwise class as an attribute of an `nnx.Module`")
def test_attribute_of_a_module() -> None:
    """After `register_nnx_data()` an attribute is data; its Variables are the module's."""
    model = Model()
    assert nnx.is_data(model.scale)
    params = nnx.state(model, nnx.Param)
    assert (params["scale"]["w"].shape, "table" in params) == ((3,), False)
    graph, state = nnx.split(model)
    again = nnx.merge(graph, state)
    assert (type(again.scale), again.scale.power) == (Scale, 2)
    assert np.array_equal(again(X), model(X))


@pytest.mark.works("flax", "a leafwise class of statics only as a static attribute")
def test_static_attribute() -> None:
    """A configuration is hashable: as a static attribute it distinguishes GraphDefs, by type."""

    @lw.pytree
    class Config:
        width: lw.Static[int]

    class Static(nnx.Module):
        def __init__(self, width: int) -> None:
            self.config = Config(width)

    one, same, *others = (nnx.split(Static(width))[0] for width in (1, 1, 2, True))
    assert one == same
    assert one not in others


@pytest.mark.works("flax", "type-exact statics of leafwise classes inside an `nnx.Module`")
def test_statics_inside_are_distinct() -> None:
    """The statics of an attribute are part of the GraphDef, and of the treedef, by type."""
    graphs = [nnx.split(Model(power))[0] for power in (1, 1, True)]
    assert graphs[0] == graphs[1]
    assert graphs[0] != graphs[2]
    step = jax.jit(lambda model, x: model(x))
    with lw.budget(traces=2, exact=True, eager=False):
        for power in (1, True, 1):
            step(Model(power), X)


@pytest.mark.works(
    "flax",
    "type-exact statics of an `nnx.Module` itself",
    cannot="flax compares its own statics by `==`: `1` and `True` share a program, also inside "
    "a leafwise class",
)
def test_statics_of_nnx_are_confused() -> None:
    """What nnx holds static is compared by nnx."""

    class Flagged(nnx.Module):
        def __init__(self, flag: Any) -> None:
            self.flag = flag

    assert jax.tree.structure(Holder(Flagged(1))) == jax.tree.structure(Holder(Flagged(True)))
    assert nnx.split(Flagged(1))[0] == nnx.split(Flagged(True))[0]


@pytest.mark.works(
    "flax",
    "`nnx.GraphDef` in a static field",
    cannot="a GraphDef holds lists, which can change in place, so it is rejected; it is a pytree "
    "without leaves, so use a dynamic field",
)
def test_graph_in_a_static_field() -> None:
    """A GraphDef is refused as a static."""
    graph, _ = nnx.split(nnx.Linear(3, 2, rngs=nnx.Rngs(0)))
    with pytest.raises(lw.errors.StaticFieldError, match=r"Holder\.config\.nodes: a list"):
        Holder(0, graph)


@pytest.mark.works(
    "flax",
    "`nnx.update` on a leafwise class that holds a module",
    cannot="the class is immutable, like every pytree in nnx; update the module in its field",
)
def test_update_through_a_holder() -> None:
    """nnx changes modules in place, and nothing else."""
    holder = Holder(nnx.Linear(3, 2, rngs=nnx.Rngs(0)))
    nnx.update(holder.it, jax.tree.map(lambda x: x * 2 + 1, nnx.state(holder))["it"])
    assert holder.it.bias[...].tolist() == [1, 1]
    with pytest.raises(ValueError, match="immutable"):
        nnx.update(Holder(Scale(jnp.ones(2))), nnx.State({"it": {"w": jnp.zeros(2)}}))


class Sized(nnx.Module):
    """Has a static attribute, one in a list, and a parameter."""

    def __init__(self, size: Any, inner: Any = 1) -> None:
        self.size = size
        self.w = nnx.Param(jnp.ones(2))
        self.below = nnx.List([nnx.Linear(inner, 1, rngs=nnx.Rngs(0))])


def test_static_attributes_are_named() -> None:
    """What nnx keeps in its aux_data is named as the attribute that it is, by type and value."""
    assert [str(each) for each in lw.diff(Sized(1), Sized(True))] == ["size (static): 1 -> True"]
    assert [each.path for each in lw.diff(Sized(1), Sized(1, 2))] == [
        "below[0].in_features",
        "below[0].kernel.value",
    ]
    assert not lw.diff(Sized(1), Sized(1))
    called = lw.jit(lambda module: module.w[...] * module.size)
    called(Sized(1))
    called(Sized(2))
    assert "module.size (static): 1 -> 2" in str(called.traces[-1].explanation)


@pytest.mark.hazard
def test_a_captured_model_updated_in_place() -> None:
    """A call is right for the weights of now, and the exact level sees them change."""
    net = Model()
    plain = jax.jit(lambda x: net(x))
    warned, ignored = (lw.jit(lambda x: net(x), on_stale=stale) for stale in ("warn", "ignore"))
    old, *_ = [function(X) for function in (plain, warned, ignored)]
    net.linear.kernel[...] = net.linear.kernel[...] + 1.0
    np.testing.assert_array_equal(plain(X), old)
    with pytest.warns(lw.errors.StaleCaptureWarning, match=r"net\.linear"):
        np.testing.assert_allclose(warned(X), net(X), rtol=1e-5)
    with lw.debug.check_captures(), pytest.raises(lw.errors.StaleCaptureError):
        ignored(X)


def test_attributes_of_a_graph_have_their_paths() -> None:
    """A static that differs is named as it is read, however deep it is."""

    class Net(nnx.Module):
        def __init__(self, rate: float) -> None:
            self.drops = nnx.List([nnx.Dropout(0.5), nnx.Dropout(rate)])
            self.head = nnx.Dropout(0.5)

    train, other = Net(0.1), Net(0.2)
    other.head.eval()
    graphs = [nnx.split(model)[0] for model in (train, other)]
    before, after = (lw.signature(model=graph) for graph in graphs)
    reasons = after.explain(before).reasons
    changes = {reason.path: reason.change for reason in reasons}
    assert changes == {
        "kwargs['model'].drops[1].rate": "0.1 -> 0.2",
        "kwargs['model'].head.deterministic": "False -> True",
    }
