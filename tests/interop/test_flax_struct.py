"""`flax.struct`, linen modules and `TrainState` next to leafwise classes, inside each other."""

from typing import Any

import flax.core
import flax.linen as nn
import flax.struct
import flax.traverse_util
import jax
import jax.numpy as jnp
import optax
import pytest
from flax.training.train_state import TrainState

import leafwise as lw

from .modules import Holder


@lw.pytree
class Scale:
    w: jax.Array
    power: lw.Static[Any] = 2


@flax.struct.dataclass
class State:
    scale: Any
    count: Any = None
    kind: Any = flax.struct.field(pytree_node=False, default="a")


class Node(flax.struct.PyTreeNode):
    scale: Any
    kind: Any = flax.struct.field(pytree_node=False, default="a")


def scaled(tree: Any) -> Any:
    return jax.tree.map(lambda x: x * 2, tree)


@pytest.mark.works(
    "flax", "leafwise classes in a `struct.dataclass` or `PyTreeNode`, and inside out"
)
@pytest.mark.parametrize("outer", [State, Node], ids=["dataclass", "PyTreeNode"])
def test_nested_both_ways(outer: Any) -> None:
    """Nested in each other they go through the transformations, at any depth."""
    tree = Holder(outer(Holder(outer(Scale(jnp.arange(3.0))))))
    doubled = jax.jit(scaled)(tree)
    assert jax.tree.structure(doubled) == jax.tree.structure(tree)
    assert doubled.it.scale.it.scale.w.tolist() == [0, 2, 4]
    gradient = jax.grad(lambda tree: jnp.sum(tree.it.scale.it.scale.w**2))(tree)
    assert gradient.it.scale.it.scale.w.tolist() == [0, 2, 4]
    assert "power=2" in repr(tree)


@pytest.mark.works("flax", "`.replace` of a `struct.dataclass` around a leafwise class")
def test_replace() -> None:
    """flax's `replace` exchanges a leafwise instance, and `lw.replace` a flax one."""
    state = State(Scale(jnp.ones(2)), 1)
    changed = state.replace(scale=lw.replace(state.scale, power=3))
    assert (changed.scale.power, changed.count) == (3, 1)
    assert lw.replace(state, count=2).count == 2


@pytest.mark.works(
    "flax",
    "type-exact statics of a `struct.dataclass` itself",
    cannot="flax compares its own statics by `==`: `1`, `True` and `1.0` share a program, also "
    "inside a leafwise class. Make the class `@lw.pytree`, or keep it in a static field",
)
def test_statics_of_flax_are_confused() -> None:
    """What flax holds static is compared by flax: the answer is that of the first value."""

    @jax.jit
    def kind(holder: Holder) -> jax.Array:
        return jnp.asarray(holder.it.kind)

    with lw.budget(traces=1, exact=True, eager=False):
        assert kind(Holder(State(1, 1, 1))).dtype == jnp.int32
        assert kind(Holder(State(1, 1, True))).dtype == jnp.int32


@pytest.mark.works("flax", "`struct.field(pytree_node=False)` in a leafwise class is static")
def test_field_metadata() -> None:
    """flax's own field declarations say static and dynamic in a leafwise class too."""

    @lw.pytree
    class Mixed:
        w: jax.Array = flax.struct.field(pytree_node=True)
        act: str = flax.struct.field(pytree_node=False, default="relu")

    assert len(jax.tree.leaves(Mixed(jnp.ones(2)))) == 1
    assert jax.tree.structure(Mixed(1)) != jax.tree.structure(Mixed(1, "gelu"))
    with pytest.raises(lw.errors.StaticFieldError, match=r"Mixed\.act"):
        Mixed(jnp.ones(2), ["relu"])  # type: ignore[arg-type]


@pytest.mark.works("flax", "`FrozenDict` as a dynamic and as a static field")
def test_frozen_dicts() -> None:
    """A `FrozenDict` is a pytree in a dynamic field, read by order and type in a static one."""
    params = flax.core.freeze({"a": {"w": jnp.ones(2)}})
    doubled = jax.jit(scaled)(Holder(params))
    assert doubled.it["a"]["w"].tolist() == [2, 2]

    def structure(content: Any) -> Any:
        return jax.tree.structure(Holder(0, flax.core.freeze(content)))

    assert structure({"a": 1, "b": {"c": 2}}) == structure({"a": 1, "b": {"c": 2}})
    assert structure({"a": 1}) != structure({"a": True})
    with pytest.raises(lw.errors.StaticFieldError, match=r"Holder\.config\['a'\]: a list"):
        structure({"a": [1]})


# flax 0.12.1 calls what JAX 0.10 calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:jax.core.get_opaque_trace_state is deprecated")


@lw.pytree
class Params:
    w: jax.Array
    b: jax.Array
    act: lw.Static[str] = "tanh"

    def __call__(self, x: jax.Array) -> jax.Array:
        return getattr(jnp, self.act)(x @ self.w + self.b)


@lw.pytree
class Net:
    variables: Any
    module: lw.Static[Any]

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.module.apply(self.variables, x)


class Mlp(nn.Module):
    widths: tuple[int, ...]
    inner: Any = None
    flag: Any = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for width in self.widths:
            x = nn.tanh(nn.Dense(width)(x))
        return x if self.inner is None else self.inner(x)


@jax.jit
def apply(net: Net, x: jax.Array) -> jax.Array:
    return net(x)


@pytest.mark.works("flax", "the configuration of a static linen module is read type-exactly")
def test_configurations_are_distinct() -> None:
    """`1` and `True` in a module are equal to flax, and two keys here."""
    assert Mlp((3,), None, 1) == Mlp((3,), None, True), "the hazard"
    keys = [jax.tree.structure(Net(0, Mlp((), Mlp((), None, flag)))) for flag in (1, True, 1)]
    assert keys[0] != keys[1]
    assert keys[0] == keys[2]


@pytest.mark.works("flax", "a leafwise class as the attribute of a linen module")
def test_attribute_of_a_module() -> None:
    """A configuration without arrays is an attribute of a module, which stays hashable."""

    @lw.pytree
    class Config:
        width: lw.Static[int]

    class Model(nn.Module):
        config: Config

        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            return nn.Dense(self.config.width)(x)

    made = {"params": {"Dense_0": {"kernel": jnp.ones((3, 2)), "bias": jnp.ones(2)}}}
    with lw.budget(traces=1, exact=True, eager=False):
        for _ in range(2):
            apply(Net(made, Model(Config(2))), jnp.ones((1, 3)))


def train_state(params: Any, apply_fn: Any, **rest: Any) -> TrainState:
    return TrainState.create(apply_fn=apply_fn, params=params, tx=optax.adam(0.1), **rest)


@pytest.mark.works("flax", "`TrainState` with `params={'net': instance}`, trained, jitted once")
@pytest.mark.works(
    "flax",
    "`TrainState(params=instance)` without a dict around it",
    cannot="`create` and `apply_gradients` evaluate `'...' in params`, which fails for a "
    "dataclass; put the instance into a dict",
)
def test_train_state() -> None:
    """Parameters in a dict are trained by one program; flax cannot do without the dict."""
    params = {"net": Params(jnp.ones((3, 2)), jnp.zeros(2))}

    @jax.jit
    def step(state: TrainState, x: jax.Array) -> TrainState:
        grads = jax.grad(lambda params: jnp.sum(state.apply_fn(params, x)))(state.params)
        return state.apply_gradients(grads=grads)

    state = train_state(params, lambda params, x: params["net"](x))
    state = state.replace(step=jnp.zeros((), int))
    with lw.budget(traces=1, exact=True, eager=False):
        for _ in range(3):
            state = step(state, jnp.ones((1, 3)))
    assert type(state.params["net"]) is Params
    assert state.params["net"].b[0] < 0
    assert state.step == 3
    with pytest.raises(TypeError, match=r"not (a container or )?iterable"):
        train_state(params["net"], params["net"])


def test_a_module_of_linen_that_is_recreated() -> None:
    """What a module keeps beside its fields, such as an id, does not count."""
    layers = {"net": nn.Dense(2)}
    x = jnp.ones(2)
    params = layers["net"].init(jax.random.key(0), x)
    step = lw.jit(lambda x: layers["net"].apply(params, x), on_stale="retrace")
    step(x)
    layers["net"] = nn.Dense(2)
    step(x)
    assert len(step.traces) == 1
    layers["net"] = nn.Dense(2, use_bias=False)
    step(x)
    assert len(step.traces) == 2
