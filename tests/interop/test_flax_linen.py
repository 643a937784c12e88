"""`flax.linen` modules next to leafwise classes: as statics, with parameters, in `TrainState`."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import pytest
from flax.training.train_state import TrainState

import leafwise as lw

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


@pytest.mark.works("flax", "linen modules in static fields: equal configuration, one program")
def test_modules_as_statics() -> None:
    """A module that is built again with equal configuration is the same static; another is not."""
    x = jnp.ones((1, 3))
    made = {"params": {"kernel": jnp.ones((3, 3)), "bias": jnp.ones(3)}}
    with lw.budget(traces=1, exact=True, eager=False):
        for _ in range(3):
            assert apply(Net(made, nn.Dense(3)), x).tolist() == [[4, 4, 4]]
    with lw.budget(traces=1, exact=True, eager=False):
        assert apply(Net(made, nn.Dense(3, dtype=jnp.bfloat16)), x).dtype == jnp.bfloat16


@pytest.mark.works("flax", "the configuration of a static linen module is read type-exactly")
def test_configurations_are_told_apart() -> None:
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
def test_train_state() -> None:
    """Leafwise parameters in flax's train state are trained by one program."""
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


@pytest.mark.works(
    "flax",
    "`TrainState(params=instance)` without a dict around it",
    cannot="`create` and `apply_gradients` evaluate `'...' in params`, which fails for a "
    "dataclass; put the instance into a dict",
)
def test_train_state_needs_a_mapping() -> None:
    """flax asks parameters for a name, so that no class of its own would do either."""
    params = Params(jnp.ones((3, 2)), jnp.ones(2))
    with pytest.raises(TypeError, match=r"not (a container or )?iterable"):
        train_state(params, params)


def test_a_module_of_linen_that_is_made_again() -> None:
    """What a module keeps beside its fields, an id among it, is no change."""
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
