"""`lw.register`: pytrees from classes that one does not own."""

import dataclasses
import pickle
import sys
from typing import Any, NamedTuple

import attrs
import jax
import numpy as np
import pydantic
import pytest

import leafwise as lw


class Plain:
    def __init__(self, x: Any, a: Any) -> None:
        self.x = x
        self.a = a


class Slots:
    __slots__ = ("a", "x")

    def __init__(self, x: Any, a: Any) -> None:
        self.x = x
        self.a = a


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any
    a: Any = 1


@dataclasses.dataclass
class Open:
    x: Any
    a: Any = 1


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlots:
    x: Any
    a: Any = 1


class Typed(NamedTuple):
    a: Any
    x: Any


@attrs.define
class Defined:
    x: Any
    a: Any = 1


@attrs.frozen
class Attrs:
    x: Any
    a: Any = 1


for each in (Plain, Slots, Frozen, Open, FrozenSlots, Typed, Defined, Attrs):
    lw.register(each, dynamic=["x"], static=["a"])

CLASSES: dict[str, Any] = {
    "plain": Plain,
    "slots": Slots,
    "frozen dataclass": Frozen,
    "dataclass": Open,
    "slotted dataclass": FrozenSlots,
    "namedtuple": lambda x, a: Typed(a=a, x=x),
    "attrs define": Defined,
    "attrs frozen": Attrs,
}


@pytest.mark.parametrize("name", CLASSES)
def test_is_a_pytree(name: str) -> None:
    """Dynamic attributes are children, static ones part of a sound key."""
    make = CLASSES[name]
    made = make(1.0, "s")
    assert jax.tree.leaves(made) == [1.0]
    again = jax.tree.map(lambda v: v + 1, made)
    assert type(again) is type(made)
    assert (again.x, again.a) == (2.0, "s")
    structure = jax.tree.structure(made)
    assert structure == jax.tree.structure(make(5.0, "s"))
    assert pickle.loads(pickle.dumps(structure)) == structure  # noqa: S301
    for other in ("t", b"s"):
        assert jax.tree.structure(made) != jax.tree.structure(make(1.0, other))
    for one, two in ((1, True), (1, 1.0), (0.0, -0.0), ((1,), (1.0,))):
        assert jax.tree.structure(make(0, one)) != jax.tree.structure(make(0, two))
    assert jax.tree.structure(make(0, float("nan"))) == jax.tree.structure(make(0, float("nan")))


def test_loading_where_the_class_is_not_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A treedef pickled elsewhere names the class that this process has not registered."""
    data = pickle.dumps(jax.tree.structure(Plain(0, 1)).node_data()[1])
    unregistered = type("Plain", (), {"__module__": __name__})
    monkeypatch.setattr(sys.modules[__name__], "Plain", unregistered)
    with pytest.raises(lw.errors.DefinitionError, match="Plain: not registered as a pytree"):
        pickle.loads(data)  # noqa: S301


@pytest.mark.parametrize("name", CLASSES)
def test_statics_are_validated(name: str) -> None:
    """A static that cannot be part of a key is refused at the flatten, by class and attribute."""
    make = CLASSES[name]
    kind = type(make(1, 1)).__name__
    with pytest.raises(lw.errors.StaticFieldError, match=rf"{kind}\.a\[0\]: a list"):
        jax.tree.leaves(make(1.0, ([],)))
    with pytest.raises(lw.errors.StaticFieldError, match=rf"{kind}\.a"):
        jax.jit(lambda p: p)(make(1.0, np.ones(2)))
    with pytest.raises(lw.errors.StaticFieldError, match=rf"{kind}\.a"):
        jax.jit(lambda v: jax.tree.leaves(make(1.0, v)))(1.0)


def test_leaf_order_is_the_order_given() -> None:
    """Leaves come in the order of `dynamic`, not of the class."""

    class P:
        def __init__(self) -> None:
            self.a, self.b, self.c = 1, 2, 3

    assert lw.register(P, dynamic=["c", "a", "b"]) is P
    assert jax.tree.leaves(P()) == [3, 1, 2]
    assert jax.tree.map(lambda v: v * 2, P()).c == 6


def local() -> type:
    """Return a class that is registered nowhere."""

    class P:
        def __init__(self) -> None:
            self.x = self.y = 1

    return P


BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no class": (3, {"dynamic": ["x"]}, "register takes a class"),
    "twice": (local(), {"dynamic": ["x"], "static": ["x"]}, "'x' is given twice"),
    "text": (local(), {"dynamic": "xy"}, "register"),
    "known": (Plain, {"dynamic": ["x"], "static": ["a"]}, "already registered"),
    "leafwise": (
        lw.pytree(type("P", (), {"__annotations__": {"x": Any}})),
        {"dynamic": ["x"]},
        "already registered",
    ),
    "field lost": (
        dataclasses.make_dataclass("P", ["x", "y"]),
        {"dynamic": ["x"]},
        "'y' is neither dynamic nor static",
    ),
    "attrs field lost": (
        attrs.make_class("P", ["x", "y"]),
        {"dynamic": ["x"]},
        "'y' is neither dynamic nor static",
    ),
    "known namedtuple": (Typed, {"dynamic": ["x"], "static": ["a"]}, "already registered"),
    "dict": (type("P", (dict,), {}), {"dynamic": ["x"]}, "outside attributes"),
    "pydantic": (pydantic.create_model("P", x=int), {"dynamic": ["x"]}, "outside attributes"),
    "int": (int, {"dynamic": []}, "register"),
}


@pytest.mark.parametrize("name", BAD)
def test_refusals(name: str) -> None:
    """What cannot be registered as asked is a `DefinitionError` that says why."""
    cls, arguments, message = BAD[name]
    with pytest.raises(lw.errors.DefinitionError, match=message):
        lw.register(cls, **arguments)


def test_attribute_that_is_not_there() -> None:
    """A missing attribute is an error at the flatten that names it."""

    class P:
        pass

    lw.register(P, dynamic=["x"])
    with pytest.raises(AttributeError, match="x"):
        jax.tree.leaves(P())


class Net:
    def __init__(self, w: Any) -> None:
        self.w, self.depth = w, 2


class Computed(Net):
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def test_an_attribute_that_is_misspelled() -> None:
    """It is refused with the nearest name, unless the class may have it, or it is a third one."""
    for names in ({"dynamic": ["w"], "static": ["dept"]}, {"dynamic": ["dept", "w"]}):
        with pytest.raises(lw.errors.DefinitionError, match=r"no attribute 'dept'\n.*'depth'"):
            lw.register(Net, **names)
    annotated: Any = type("Annotated", (), {"__annotations__": {"w": Any, "depth": int}})
    slotted: Any = type("Slotted", (), {"__slots__": ("w", "depth")})
    for cls in (annotated, slotted):
        with pytest.raises(lw.errors.DefinitionError, match=r"no attribute 'dept'\n.*'depth'"):
            lw.register(cls, dynamic=["w"], static=["dept"])
        lw.register(cls, dynamic=["w"], static=["depth"])
    lw.register(type("Other", (Net,), {}), dynamic=["w"], static=["depth", "dept"])
    lw.register(Computed, dynamic=["w"], static=["dept"])
    assert jax.tree.leaves(Computed(w=1.0, dept=2)) == [1.0]
