"""`static_field(by="content")`: classes and plain objects that functions close over."""

import abc
import argparse
import dataclasses
import enum
import functools
import pickle
import threading
import types
from collections import namedtuple
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import numpy as np
import pytest

import leafwise as lw


@lw.pytree
class P:
    x: Any
    f: Any = lw.static_field(by="content")


def program() -> Callable[[Any], Any]:
    """Return a compiled program that calls the static function of an instance."""
    return jax.jit(lambda p: p.f(p.x))


def over(held: Any) -> Any:
    """Return a function over an object that has a `k`."""
    return lambda x: x * held.k


def over_items(held: list[Any]) -> Any:
    """Return a function over a list of what has a `k`."""
    return lambda x: x * held[0].k


def over_class(held: Any) -> Any:
    """Return a function that makes an instance, which has a `k`."""
    return lambda x: x * held().k


class Meta(type):
    k: float


class Me:
    k: float

    @classmethod
    def of_class(cls, x: Any) -> Any:
        """Multiply by what the class holds."""
        return x * cls.k

    def of_instance(self, x: Any) -> Any:
        """Multiply by what the class holds, through an instance."""
        return x * self.k


class OfMeta(metaclass=Meta):
    pass


class Heir(Me):
    pass


class Abstract(abc.ABC):
    k: float


class Kind(enum.Enum):
    ONE = 1


class Slotted:
    __slots__ = ("__weakref__", "k", "lock")


class Bare:
    k: Any
    lock: Any


class Compared:
    def __init__(self, k: float) -> None:
        self.k = k

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compared) and self.k == other.k

    def __hash__(self) -> int:
        return hash(self.k)


class Alike:
    k: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike)

    def __hash__(self) -> int:
        return 1


@dataclasses.dataclass(frozen=True)
class Frozen:
    k: ClassVar[float]


Named = namedtuple("Named", ["a"])  # noqa: PYI024  # whose subclass has attributes


class Tagged(Named):
    k: float


def member(holder: Any, function: Any) -> tuple[Any, Callable[[], Any]]:
    """Return a class, and what makes a function of it, the same one each time."""
    return holder, lambda: function


OWNER = Me()
SETTINGS = types.ModuleType("settings_in_a_cell")

CLASSES: dict[str, Callable[[], tuple[Any, Callable[[], Any]]]] = {
    "class, same function": lambda: member(Me, over(Me)),
    "class, new function": lambda: (Me, lambda: over(Me)),
    "class that is called": lambda: member(Me, over_class(Me)),
    "base class": lambda: member(Me, over(Heir)),
    "metaclass": lambda: member(Meta, over(OfMeta)),
    "abstract class": lambda: member(Abstract, over(Abstract)),
    "bound classmethod": lambda: member(Me, Me.of_class),
    "inherited classmethod": lambda: member(Me, Heir.of_class),
    "bound method": lambda: member(Me, OWNER.of_instance),
    "classmethod by its name": lambda: member(Me, lambda x: Me.of_class(x)),
    "object, same function": lambda: member(Me, over(OWNER)),
    "object, new function": lambda: (Me, lambda: over(OWNER)),
    "object of an heir": lambda: member(Me, over(Heir())),
    "object that compares": lambda: member(Alike, over(Alike())),
    "frozen dataclass": lambda: member(Frozen, over(Frozen())),
    "tuple": lambda: member(Tagged, over(Tagged(1))),
    "enum": lambda: member(Kind, over(Kind.ONE)),
    "class in a list": lambda: member(Me, over_items([Me])),
    "class as a default": lambda: member(Me, lambda x, held=Me: x * held.k),
    "class in a partial": lambda: member(Me, functools.partial(lambda h, x: x * h.k, Me)),
    "module": lambda: member(SETTINGS, over(SETTINGS)),
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_attribute_that_changed(name: str) -> None:
    """The next instance that is built sees what code finds on a class that it reaches."""
    holder, make = CLASSES[name]()
    run = program()
    try:
        for k in (2.0, 5.0, 2.0):
            holder.k = k
            assert run(P(1.0, make())) == k
        first = P(1.0, make())
        before = jax.tree.structure(first)
        assert jax.tree.structure(P(1.0, make())) == before
        holder.k = 5.0
        with pytest.raises(lw.errors.StaticMutatedError, match=r"P\.f"), lw.debug.check_statics():
            jax.tree.structure(first)
        assert jax.tree.structure(first) == before  # as with globals: documented
    finally:
        del holder.k


def test_what_a_class_holds_that_changed_in_place() -> None:
    """A list on a class counts by what is in it."""

    class Config:
        sizes: ClassVar = [2.0]

    def function(x: Any) -> Any:
        return x * Config.sizes[0]

    run = program()
    assert run(P(1.0, function)) == 2
    Config.sizes[0] = 5.0
    assert run(P(1.0, function)) == 5


def test_what_python_keeps_on_a_class_is_no_change() -> None:
    """Pickling, copying and annotations leave notes on a class, which do not count."""
    held = Me()
    before = jax.tree.structure(P(1.0, over(held)))
    pickle.dumps(held, protocol=2)
    assert "__slotnames__" in vars(Me)
    assert jax.tree.structure(P(1.0, over(held))) == before
    vars(Me)["__annotations__"].update(other=int)
    assert jax.tree.structure(P(1.0, over(held))) == before


# Objects


@dataclasses.dataclass
class Mutable:
    k: float


def inside(outer: Any, held: Any) -> Any:
    """Return an object that holds another."""
    outer.k = held
    return outer


def deep(held: Any) -> Any:
    """Return a function over an object in an object."""
    return lambda x: x * held.k.k


def with_lock(held: Any) -> Any:
    """Return an object beside a lock, which cannot be compared."""
    held.lock = threading.Lock()
    return held


def in_dict(held: Any) -> Any:
    """Return a function over an object whose dict holds another one, and a lock."""
    outer = inside(Bare(), {"lock": threading.Lock(), "held": [held]})
    return lambda x: x * outer.k["held"][0].k


OBJECTS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "object": (Bare, over),
    "slots": (Slotted, over),
    "its ==": (lambda: Compared(0.0), over),
    "nested": (Bare, lambda held: deep(inside(Bare(), held))),
    "nested slots": (Slotted, lambda held: deep(inside(Slotted(), held))),
    "beside a lock": (lambda: with_lock(Bare()), over),
    "slots beside a lock": (lambda: with_lock(Slotted()), over),
    "namespace": (types.SimpleNamespace, lambda held: deep(inside(Bare(), held))),
    "arguments": (argparse.Namespace, lambda held: deep(inside(Bare(), held))),
    "dataclass": (lambda: Mutable(0.0), lambda held: deep(inside(Bare(), held))),
    "in a list": (Bare, lambda held: over_items([held])),
    "in a dict with a lock": (Bare, in_dict),
    "in a default": (Bare, lambda held: lambda x, by=held: x * by.k),
    "in a partial": (Bare, lambda held: functools.partial(lambda by, x: x * by.k, held)),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_that_changed(name: str) -> None:
    """An instance whose function reaches a changed object is refused; a new one is new."""
    make, reach = OBJECTS[name]
    held = make()
    held.k = 2.0
    function = reach(held)
    run = program()
    first = P(1.0, function)
    assert run(first) == 2
    held.k = 5.0
    with pytest.raises(lw.errors.StaticMutatedError, match=r"P\.f.*changed in place"):
        run(first)
    assert run(P(1.0, function)) == 5
    held.k = 2.0
    assert run(first) == 2  # taken back
    del held.k
    with pytest.raises((lw.errors.StaticMutatedError, AttributeError)):
        run(first)


def test_an_object_that_leads_to_itself() -> None:
    """A cycle of objects ends, and what changes in it is seen."""
    held = Bare()
    held.k, held.lock = 2.0, held
    first = P(1.0, lambda x: x * held.lock.k)
    assert program()(first) == 2
    held.k = 5.0
    with pytest.raises(lw.errors.StaticMutatedError):
        jax.tree.structure(first)


def test_what_a_cached_property_keeps_is_no_change() -> None:
    """An object that only remembers what it was asked is as it was."""

    class Lazy:
        k = 2.0

        @functools.cached_property
        def rate(self) -> float:
            return self.k

    held = Lazy()
    first = P(1.0, lambda x: x * held.rate)
    before = jax.tree.structure(first)
    assert program()(first) == 2
    assert "rate" in vars(held)
    assert jax.tree.structure(first) == before


def test_arrays_in_frozen_dataclasses() -> None:
    """A frozen dataclass without a hash is compared by its fields, and they are looked at."""

    @dataclasses.dataclass(frozen=True)
    class Table:
        k: Any

    table = Table(np.full(2, 2.0))
    first = P(1.0, over(table))
    assert jax.tree.structure(P(1.0, over(Table(np.full(2, 2.0))))) == jax.tree.structure(first)
    table.k[0] = 3.0
    with pytest.raises(lw.errors.StaticMutatedError, match=r"P\.f"):
        jax.tree.structure(first)


def test_the_hazard_of_objects_of_packages() -> None:
    """What an object of an installed class holds is not looked at: documented."""
    held = argparse.ArgumentParser()
    held.prog = "one"
    first = P(1.0, lambda x: (x, held)[0])
    before = jax.tree.structure(first)
    held.prog = "two"
    assert jax.tree.structure(first) == before
    assert jax.tree.structure(P(1.0, first.f)) == before


def test_combinations_of_a_flag_are_no_change() -> None:
    """The class keeps each one that was asked for."""

    class Mode(enum.Flag):
        FAST = 1
        EXACT = 2

    first = P(1.0, Mode.FAST)
    before = jax.tree.structure(first)
    assert (Mode.FAST | Mode.EXACT).value == 3
    with lw.debug.check_statics():
        assert jax.tree.structure(first) == before == jax.tree.structure(P(1.0, Mode.FAST))
