"""`flax.serialization` saves and restores leafwise classes as it does its own."""

import subprocess
import sys
from typing import Any

import flax.core
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import serialization

import leafwise as lw
from leafwise.errors import CheckpointError
from leafwise.interop.flax import register_serialization

register_serialization()


@lw.pytree
class Layer:
    w: jax.Array
    b: jax.Array | None = None
    act: str = lw.static_field(default="relu")
    depth: lw.Static[Any] = 2


@lw.pytree(slots=True, many_statics=True)
class Model:
    first: Layer
    rest: dict[str, list[Layer]]
    scale: float = 1.0
    options: lw.Static[Any] = (1, jnp.float32)


@flax.struct.dataclass
class Run:
    model: Model
    step: int
    name: str = flax.struct.field(pytree_node=False, default="run")


def made(seed: float = 1.0, act: str = "tanh") -> Model:
    def full(*shape: int) -> jax.Array:
        return jnp.full(shape, seed, jnp.float32)

    return Model(
        Layer(full(2, 3)), {"a": [Layer(full(2), full(), act), Layer(full(3))], "b": []}, seed
    )


def same(restored: Any, saved: Any) -> None:
    assert jax.tree.structure(restored) == jax.tree.structure(saved)
    assert jax.tree.all(jax.tree.map(np.array_equal, restored, saved))


@pytest.mark.works("flax", "`to_state_dict`, `from_state_dict`, after `register_serialization()`")
def test_state_dict_round_trip() -> None:
    """A state dict restores what was saved, at any depth, into an equal static configuration."""
    saved = made()
    state = serialization.to_state_dict(saved)
    assert set(state) == {"first", "rest", "scale", "__leafwise__"}
    assert set(state["rest"]["a"]["1"]) == {"w", "b", "__leafwise__"}
    same(serialization.from_state_dict(made(0.0), state), saved)
    same(serialization.from_state_dict(made(0.0), flax.core.freeze(state)), saved)


@pytest.mark.works("flax", "`to_bytes`, `from_bytes`, `msgpack_serialize`, `msgpack_restore`")
def test_bytes_round_trip() -> None:
    """Bytes restore what was saved, and the restored instance needs no new program."""
    saved = made()
    step = jax.jit(lambda model: jax.tree.map(lambda x: x * 2, model))
    step(saved)
    written = serialization.to_bytes(saved)
    restored = serialization.from_bytes(made(0.0), written)
    same(restored, saved)
    with lw.budget(traces=0, eager=False):
        step(restored)
    again = serialization.msgpack_serialize(serialization.msgpack_restore(written))
    same(serialization.from_bytes(made(0.0), again), saved)


@pytest.mark.works("flax", "state dicts of a `struct.dataclass` or optax state around a class")
def test_inside_other_states() -> None:
    """Classes inside flax's and optax's own states are saved and restored with them."""
    model = made()
    opt_state = optax.adam(0.1).init(model)
    tree = {"run": Run(model, 3), "opt": opt_state, "frozen": flax.core.freeze({"p": model})}
    restored = serialization.from_bytes(
        jax.tree.map(jnp.zeros_like, tree), serialization.to_bytes(tree)
    )
    same(restored, tree)


@pytest.mark.works("flax", "restoring into `jax.eval_shape` of a class")
def test_abstract_target() -> None:
    """The target's leaves are never looked at: shapes are enough."""
    saved = made()
    same(serialization.from_bytes(jax.eval_shape(made), serialization.to_bytes(saved)), saved)


OTHER_STATICS: list[tuple[Any, Any, str]] = [
    ("relu", "gelu", "Layer.act: saved 'relu', target 'gelu'"),
    (1, True, "Layer.depth: saved 1, target True"),
    ((1, 2), (1, 3), "Layer.depth[1]: saved 2, target 3"),
    (lw.freeze(np.arange(3)), lw.freeze(np.arange(1, 4)), "Layer.depth: saved"),
]


@pytest.mark.works("flax", "restoring into another static configuration is refused by field")
@pytest.mark.parametrize(("before", "now", "text"), OTHER_STATICS, ids=range(len(OTHER_STATICS)))
def test_other_statics_are_refused(before: Any, now: Any, text: str) -> None:
    """What was saved with other statics is not restored, and the fields are named."""
    name = "act" if isinstance(before, str) else "depth"
    saved = {"net": [Layer(jnp.ones(2), **{name: before})]}
    written = serialization.to_bytes(saved)
    same(serialization.from_bytes(saved, written), saved)
    with pytest.raises(CheckpointError) as raised:
        serialization.from_bytes({"net": [Layer(jnp.ones(2), **{name: now})]}, written)
    assert text in str(raised.value)
    assert "./net/0" in str(raised.value)
    assert [each.path[: 6 + len(name)] for each in raised.value.differences] == [f"Layer.{name}"]


def test_statics_can_be_left_out() -> None:
    """A state dict written by hand says nothing of statics, and is accepted."""
    state = {"w": np.ones(2), "b": None}
    restored = serialization.from_state_dict(Layer(jnp.zeros(2), act="gelu"), state)
    assert (restored.act, restored.w.tolist()) == ("gelu", [1, 1])


WRONG: list[tuple[Any, str]] = [
    ({"w": 1}, "Layer.b: saved nothing, target a field"),
    ({"w": 1, "b": 2, "bias": 3}, "Layer.bias: saved a field, target nothing"),
    ([1, 2], "Layer: its state dict has the keys w, b"),
    ({"w": 1, "b": 2, "__leafwise__": {".act": {'"relu"': {}}}}, "Layer.depth: saved nothing"),
]


@pytest.mark.parametrize(("state", "text"), WRONG, ids=range(len(WRONG)))
def test_wrong_state_dicts(state: Any, text: str) -> None:
    """A state dict that does not fit is refused, with class, field, path and fix."""
    with pytest.raises(CheckpointError) as raised:
        serialization.from_state_dict({"net": Layer(jnp.zeros(2))}, {"net": state})
    assert text in str(raised.value)
    assert "./net" in str(raised.value)


def test_registered_classes() -> None:
    """Classes registered with `lw.register` are saved and restored too."""

    class Point:
        def __init__(self, x: Any, unit: str) -> None:
            self.x, self.unit = x, unit

    lw.register(Point, dynamic=["x"], static=["unit"])
    written = serialization.to_bytes(Point(jnp.ones(2), "m"))
    assert serialization.from_bytes(Point(jnp.zeros(2), "m"), written).x.tolist() == [1, 1]
    with pytest.raises(CheckpointError, match=r"Point\.unit: saved 'm', target 'km'"):
        serialization.from_bytes(Point(jnp.zeros(2), "km"), written)


def local(rate: float) -> Any:
    return lambda x: x * rate


@lw.pytree
class Trained:
    w: jax.Array
    opt: Any = lw.static_field(compare_by="content")


OPAQUE: list[tuple[Any, str]] = [
    (optax.adam(1e-3), "Trained.opt.init"),
    (lambda x: x, "Trained.opt"),
    ((1, local(1.0)), "Trained.opt[1]"),
]
LAMBDAS = "statics without a name (lambdas, optimizers of optax) are refused when saved"


@pytest.mark.works("flax", LAMBDAS)
@pytest.mark.parametrize(("static", "path"), OPAQUE, ids=range(len(OPAQUE)))
def test_opaque_statics_are_refused(static: Any, path: str) -> None:
    """What another process could not compare is refused, with field and fix."""
    trained = Trained(jnp.ones(2), static)
    for save in (serialization.to_bytes, serialization.to_state_dict):
        with pytest.raises(CheckpointError) as raised:
            save({"net": trained})
        assert f"{path}: it has no description that another process" in str(raised.value)


SCRIPT = """
import pickle, sys
import jax.numpy as jnp
import leafwise as lw
from flax import nnx, serialization

@lw.pytree
class Before:
    x: object
    n: lw.Static[int] = 1

class Model(nnx.Module):
    def __init__(self, p):
        self.p = p

assert not [name for name in sys.modules if name.startswith("leafwise.interop.")]
assert not serialization.is_serializable(Before) and not nnx.is_data(Before(jnp.ones(2)))
from leafwise.interop.flax import register_nnx_data, register_serialization
register_serialization()
assert serialization.from_bytes(Before(0), serialization.to_bytes(Before(2))) == Before(2)
register_nnx_data()
Model(Before(jnp.ones(2)))
@lw.pytree
class After:
    x: object
assert serialization.from_bytes(After(0), serialization.to_bytes(After(2))) == After(2)
assert nnx.is_data(After(1)) and Model(After(nnx.Param(jnp.ones(())))).p.x[...] == 1
"""


@pytest.mark.slow
@pytest.mark.works("flax", "one call makes all classes known to flax, later ones included")
def test_registration_is_asked_for() -> None:
    """Nothing is registered before it is asked for; then, classes of before and after are."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT], check=True, timeout=120)


@pytest.mark.works(
    "flax",
    "typed PRNG keys (`jax.random.key`) through `to_bytes`",
    cannot="flax writes NumPy arrays, even in its own classes; save `jax.random.key_data(key)`",
)
def test_prng_keys() -> None:
    """flax keeps typed keys in state dicts, and cannot write them."""
    layer = Layer(jax.random.key(0))
    assert serialization.from_state_dict(layer, serialization.to_state_dict(layer)).w is layer.w
    for tree in (layer, Run(layer, 1)):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="PRNGKey"):
            serialization.to_bytes(tree)
