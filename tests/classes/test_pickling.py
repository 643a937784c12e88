"""Pickle, cloudpickle, `copy` and `deepcopy`, of instances, treedefs and errors."""

import copy
import functools
import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.processes import run_python
from tests.statics.judge import Value

import leafwise as lw

from .test_equality import P

LOADED: list[str] = []


@lw.pytree
class Awkward:
    x: Any = lw.field(converter=lambda v: LOADED.append("converter") or v)
    n: Any = lw.static_field(init=False)
    later: Any = lw.field(init=False)

    def __post_init__(self) -> None:
        LOADED.append("post_init")
        self.n = 3
        self.later = 4.0


@lw.pytree
class OwnInit:
    x: Any
    a: lw.Static[str]

    def __init__(self, size: int) -> None:
        LOADED.append("init")
        self.x = np.zeros(size)
        self.a = "a" * size


@lw.pytree
class Empty:
    pass


@lw.pytree(slots=True)
class Slotted:
    x: Any
    a: lw.Static[int] = 1


def relu(x: Any) -> Any:
    """Stand in a static field."""
    return x


STATICS: dict[str, Any] = {
    "text": "relu",
    "nan": float("nan"),
    "nested": (1, ("a", frozenset({1.5, None})), range(3)),
    "function": relu,
    "partial": functools.partial(relu, 1),
    "dtype": np.dtype("float32"),
    "scalar": np.float32(1),
    "table": lw.StaticArray([1.0, 2.0]),
    "mapping": lw.freeze({"k": [1, 2]}),
    "value": Value(3),
    "instance": P(None, 2),
    "class": P,
}
PROTOCOLS = (0, 2, pickle.HIGHEST_PROTOCOL)


def through_pickle(value: Any, protocol: int = pickle.HIGHEST_PROTOCOL) -> Any:
    """Send a value through pickle."""
    return pickle.loads(pickle.dumps(value, protocol))  # noqa: S301


@pytest.mark.parametrize("name", STATICS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_pickle(protocol: int, name: str) -> None:
    """An instance comes back equal, with the same treedef, for any kind of static."""
    p = P({"k": jnp.ones(2)}, STATICS[name])
    again = through_pickle(p, protocol)
    assert type(again) is P
    assert again == p
    assert hash(again) == hash(p)
    structure = jax.tree.structure(p)
    assert through_pickle(structure) == jax.tree.structure(again) == structure
    with pytest.raises(lw.errors.FrozenInstanceError):
        again.x = 1


def test_other_shapes_of_class() -> None:
    """`init=False`, own constructors, no fields and slots travel, and no constructor runs."""
    for p in (Awkward(1.0), OwnInit(2), Empty(), Slotted(1.0)):
        LOADED.clear()
        for again in (through_pickle(p), copy.copy(p), copy.deepcopy(p)):
            assert again == p
            assert jax.tree.structure(again) == jax.tree.structure(p)
        assert LOADED == []


def test_copy_shares_and_deepcopy_does_not() -> None:
    """`copy` shares children, `deepcopy` copies them; both keep the very statics."""
    value = Value(1)
    p = P([np.ones(2)], value)
    assert copy.copy(p).x is p.x
    deep = copy.deepcopy(p)
    assert deep.x is not p.x
    assert deep.x[0] is not p.x[0]
    assert deep.a is value
    assert jax.tree.structure(deep) == jax.tree.structure(p)


def test_static_array_and_mapping_pickle_and_copy() -> None:
    """`StaticArray` and `FrozenMapping` pickle and copy by content."""
    for value in (lw.StaticArray(np.arange(6.0).reshape(2, 3)), lw.FrozenMapping(a=1)):
        for protocol in PROTOCOLS:
            again = through_pickle(value, protocol)
            assert type(again) is type(value)
            assert again == value
            assert hash(again) == hash(value)
        assert copy.copy(value) == value
    table = lw.StaticArray([1])
    assert copy.deepcopy(table) is table
    assert not np.asarray(through_pickle(table)).flags.writeable


SAVE = """
import enum, sys
from typing import Any
import cloudpickle, jax, jax.numpy as jnp, leafwise as lw

class Color(enum.Enum):
    RED = 1

@lw.pytree
class Base:
    x: Any
    color: lw.Static[Color] = Color.RED

@lw.pytree(slots={slots})
class Model(Base):
    n: int = lw.static_field(default=2)
    made: Any = lw.field(default_factory=lambda: 1.0, converter=float)
    held: lw.Static[Any] = lw.static_field(default=(1, 2), freeze=True)

    def __post_init__(self):
        assert self.n != 99

    def apply(self, y):
        return self.x * self.n + y

model = Model(jnp.ones(2), n=3)
with open(sys.argv[1], "wb") as file:
    cloudpickle.dump((model, Model, jax.tree.structure(model)), file)
"""
LOAD = """
import pickle, sys
with open(sys.argv[1], "rb") as file:
    model, Model, structure = pickle.load(file)
import jax, leafwise as lw, pytest
assert type(model) is Model
assert len(jax.tree.leaves(model)) == 2, jax.tree.leaves(model)
assert jax.tree.structure(model) == structure
assert jax.jit(lambda m: m.apply(1.0))(model).tolist() == [4.0, 4.0]
other = Model(model.x, n=4)
assert jax.tree.structure(other) != structure
assert jax.jit(lambda m: m.apply(1.0))(other).tolist() == [5.0, 5.0]
assert Model(model.x, n=3) == model and hash(Model(model.x, n=3)) == hash(model)
assert jax.tree.structure(Model(model.x, n=3)) == structure
assert Model(model.x, held=[1, [2]]).held == (1, (2,))
assert jax.tree.leaves(Model(model.x))[1] == 1.0
assert repr(jax.tree.map(lambda v: v, model)).startswith("Model(x=f32[2]")
with pytest.raises(lw.errors.StaticFieldError, match=r"Model\\.n"):
    Model(model.x, n=[])
with pytest.raises(lw.errors.FrozenInstanceError):
    model.x = 1
@lw.pytree
class Sub(Model):
    z: lw.Static[str] = "z"
assert jax.tree.structure(Sub(model.x)) != jax.tree.structure(Sub(model.x, z="y"))
"""


@pytest.mark.nightly
@pytest.mark.parametrize("slots", [False, True])
def test_cloudpickle_of_a_class_in_main(tmp_path: Path, slots: bool) -> None:
    """A class of `__main__` arrives in a fresh process registered, statics and all."""
    file = str(tmp_path / "model.pickle")
    for source in (SAVE.replace("{slots}", str(slots)), LOAD):
        run_python(source, file, PYTHONWARNINGS="error")


@lw.pytree
class Layer:
    w: Any
    act: lw.Static[Any] = jax.nn.relu


@pytest.mark.parametrize("library", [pickle, cloudpickle])
def test_a_function_that_is_importable_by_name(library: Any) -> None:
    """Pickle refuses `jax.nn.relu`, and cloudpickle makes another one: it is imported."""
    layer = Layer(jnp.ones(2))
    again = library.loads(library.dumps(layer))
    assert again.act is jax.nn.relu
    assert jax.tree.structure(again) == jax.tree.structure(layer)
