"""`static_field(compare_by="content")`: classes and plain objects that functions close over."""

import argparse
import dataclasses
import enum
import pickle
import threading
import types
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import numpy as np
import pytest

import leafwise as lw

from .test_by_content import P


def program() -> Callable[[Any], Any]:
    """Return a compiled program that calls the static function of an instance."""
    return jax.jit(lambda p: p.f(p.x))


def over(held: Any) -> Any:
    """Return a function over an object that has a `k`."""
    return lambda x: x * held.k


def in_items(held: Any) -> Any:
    """Return a function over an object whose dict holds another one, and a lock."""
    outer = Bare()
    outer.k = {"lock": threading.Lock(), "held": [held]}
    return lambda x: x * outer.k["held"][0].k


class Bare:
    k: Any
    lock: Any

    @classmethod
    def of_class(cls, x: Any) -> Any:
        """Multiply by what the class holds."""
        return x * cls.k

    def of_instance(self, x: Any) -> Any:
        """Multiply by what the class holds, through an instance."""
        return x * self.k


class Heir(Bare):
    pass


class Slotted:
    __slots__ = ("__weakref__", "k", "lock")


class Compared:
    """It has an ``==`` of its own."""

    def __init__(self, k: float) -> None:
        self.k = k

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compared) and self.k == other.k

    def __hash__(self) -> int:
        return hash(self.k)


class Kind(enum.Enum):
    ONE = 1


@dataclasses.dataclass(frozen=True)
class Frozen:
    k: ClassVar[float]


@dataclasses.dataclass
class Mutable:
    k: float


SETTINGS = types.ModuleType("settings_in_a_cell")

CLASSES: dict[str, tuple[Any, Any]] = {
    "class": (Bare, over(Bare)),
    "classmethod": (Bare, Heir.of_class),
    "method": (Bare, Bare().of_instance),
    "object": (Bare, over(Heir())),
    "frozen dataclass": (Frozen, over(Frozen())),
    "enum": (Kind, over(Kind.ONE)),
    "class that is called, in a default": (Bare, lambda x, held=Bare: x * held().k),
    "module": (SETTINGS, over(SETTINGS)),
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_attribute_that_changed(name: str) -> None:
    """The next instance that is built sees what code finds on a class that it reaches."""
    holder, function = CLASSES[name]
    run = program()
    try:
        for k in (2.0, 5.0, 2.0):
            holder.k = k
            assert run(P(1.0, function)) == k
        first = P(1.0, function)
        before = jax.tree.structure(first)
        assert jax.tree.structure(P(1.0, function)) == before
        holder.k = 5.0
        with pytest.raises(lw.errors.StaticMutatedError, match=r"P\.f"), lw.debug.check_statics():
            jax.tree.structure(first)
        assert jax.tree.structure(first) == before  # as with globals: documented
    finally:
        del holder.k


def test_what_python_keeps_on_a_class_is_no_change() -> None:
    """Pickling, annotations and combinations of flags leave notes on a class, which count not."""

    class Mode(enum.Flag):
        FAST = 1
        EXACT = 2

    first = P(1.0, (over(Bare()), Mode.FAST))
    before = jax.tree.structure(first)
    pickle.dumps(Bare(), protocol=2)
    Bare.__annotations__.update(other=int)
    assert "__slotnames__" in vars(Bare)
    assert (Mode.FAST | Mode.EXACT).value == 3
    with lw.debug.check_statics():
        assert jax.tree.structure(first) == before == jax.tree.structure(P(1.0, first.f))


# Objects


def with_lock(held: Any) -> Any:
    """Return an object next to a lock, which cannot be compared."""
    held.lock = threading.Lock()
    return held


OBJECTS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "object": (Bare, over),
    "its ==": (lambda: Compared(0.0), over),
    "next to a lock": (lambda: with_lock(Slotted()), over),
    "itself": (Bare, lambda held: setattr(held, "lock", held) or over(held)),
    "dataclass": (lambda: Mutable(0.0), over),
    "in a dict with a lock": (Bare, in_items),
    "in a default": (Bare, lambda held: lambda x, by=held: x * by.k),
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
