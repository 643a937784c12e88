"""`flax.serialization` and `flax.nnx` take leafwise classes, keyed modules and bound methods."""

import subprocess
import sys
import warnings
from typing import Any

import equinox as eqx
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
from leafwise.interop.equinox import Module
from leafwise.interop.flax import register_nnx_data, register_serialization

from .modules import Holder

with warnings.catch_warnings():  # flax 0.12.1 uses what JAX 0.10 calls deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from flax import nnx

pytestmark = pytest.mark.filterwarnings("ignore:jax.core.get_opaque_trace_state is deprecated")

register_serialization()
register_nnx_data()


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


def test_keys_of_a_state_dict() -> None:
    """They are the dynamic fields, at any depth, and one for the statics."""
    state = serialization.to_state_dict(made())
    assert set(state) == {"first", "rest", "scale", "__leafwise__"}
    assert set(state["rest"]["a"]["1"]) == {"w", "b", "__leafwise__"}


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
    n: lw.Static[Any] = 2

    def times(self, x: Any) -> Any:
        return x * self.w * self.n

    def plus(self, x: Any) -> Any:
        return x + self.w

    @jax.jit
    def jitted(self, x: Any) -> Any:
        return x * self.w


class OfNnx(nnx.Module):
    """Holds a value without `nnx.data`."""

    def __init__(self, it: Any) -> None:
        self.it = it


def of_every_kind(value: float) -> list[Any]:
    w = jnp.full(2, value, jnp.float32)
    return [
        Mod(w),
        Sub(w, 3, {"a": w}, Mod(w, "k"), "gelu"),
        Holder([Mod(w), Config()]),
        Net(w).times,
        Net(w).jitted,
        Mod(Net(w, 3).plus),
        made(value),
    ]


@pytest.mark.works("flax", "`to_state_dict`, `from_state_dict`, after `register_serialization()`")
@pytest.mark.works("flax", "`to_bytes`, `from_bytes`, `msgpack_serialize`, `msgpack_restore`")
@pytest.mark.works("flax", "restoring into `jax.eval_shape` of a class")
@pytest.mark.works("flax", MODULES)
@pytest.mark.works("flax", METHODS)
@pytest.mark.parametrize("which", range(len(of_every_kind(1))))
def test_round_trip(which: int) -> None:
    """State dicts and bytes restore it into an equal configuration, and need no new program."""
    saved, target = of_every_kind(1)[which], of_every_kind(0)[which]
    step = jax.jit(lambda tree: jax.tree.map(lambda x: x * 2, tree))
    step(saved)
    state, written = serialization.to_state_dict(saved), serialization.to_bytes(saved)
    for each in (state, flax.core.freeze(state)):
        same(serialization.from_state_dict(target, each), saved)
    same(serialization.from_bytes(jax.eval_shape(lambda: saved), written), saved)
    restored = serialization.from_bytes(target, written)
    same(restored, saved)
    with lw.budget(traces=0, eager=False):
        step(restored)
    again = serialization.msgpack_serialize(serialization.msgpack_restore(written))
    same(serialization.from_bytes(target, again), saved)


OTHERS: list[tuple[Any, Any, str]] = [
    (Net(1.0, "a"), Net(1.0, "b"), "Net.n: saved 'a', target 'b'"),
    (Net(1.0, (1, 2)), Net(1.0, (1, 3)), "Net.n[1]: saved 2, target 3"),
    (Net(1.0, lw.freeze(np.ones(3))), Net(1.0, lw.freeze(np.zeros(3))), "Net.n: saved "),
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
    assert len(raised.value.differences) == 1 or type(saved) is not type(target)


@pytest.mark.works("flax", MODULES)
@pytest.mark.works("flax", METHODS)
@pytest.mark.parametrize(
    ("make", "make_another"),
    [(Mod, lambda w: Mod(w, True)), (lambda w: Net(w).times, lambda w: Net(w).plus)],
    ids=["module", "method"],
)
def test_in_nnx(make: Any, make_another: Any) -> None:
    """Either is data to nnx: its Variables are the nnx module's, statics and function compared."""
    model = OfNnx(make(nnx.Param(jnp.full(2, 3.0))))
    assert nnx.is_data(model.it)
    graph, state = nnx.split(model)
    assert [leaf.shape for leaf in jax.tree.leaves(nnx.state(model, nnx.Param))] == [(2,)]
    assert nnx.merge(graph, state).it(1.0).tolist() == model.it(1.0).tolist()
    assert nnx.split(OfNnx(make(nnx.Param(jnp.ones(2)))))[0] == graph
    assert nnx.split(OfNnx(make_another(nnx.Param(jnp.ones(2)))))[0] != graph


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
