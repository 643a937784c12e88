"""Where instances keep their fields: `slots=True`, a `__dict__`, and both."""

import functools
import gc
import weakref
from typing import Any

import jax
import pytest

import leafwise as lw


def test_zero_argument_super_and_class() -> None:
    """`super()` and `__class__` lead to the class that came out, behind decorators as well."""

    def logged(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @lw.pytree(slots=True)
    class A:
        x: Any

        def value(self) -> Any:
            return self.x

        @classmethod
        def make(cls) -> "A":
            return cls(1.0)

    @lw.pytree(slots=True)
    class B(A):
        y: Any = 1.0

        @logged
        def value(self) -> Any:
            return super().value() + self.y

        @jax.jit
        def fast(self) -> Any:
            return super().value() + 2

        @property
        def double(self) -> Any:
            return super().value() + __class__(0.0).x  # type: ignore[name-defined]

        @classmethod
        def make(cls) -> "A":
            return super().make()

        def __post_init__(self) -> None:
            super().__setattr__("y", self.y + 1)

    instance = B(1.0)
    assert (instance.value(), instance.double, instance.fast()) == (3.0, 1.0, 3.0)
    assert type(B.make()) is B


def test_own_slots_are_refused() -> None:
    """`__slots__` beside `slots=True` is a TypeError, as in dataclasses."""
    with pytest.raises(TypeError, match="already specifies __slots__"):
        lw.pytree(slots=True)(type("P", (), {"__slots__": ("x",), "__annotations__": {"x": Any}}))


def test_the_class_that_was_replaced_is_not_registered() -> None:
    """Only the slotted copy is a pytree; nothing refers to the first class for long."""
    found: list[Any] = []

    class Seen:
        def __init_subclass__(cls) -> None:
            found.append(weakref.ref(cls))

    @lw.pytree(slots=True)
    class P(Seen):
        x: Any

    gc.collect()
    assert [ref() for ref in found if ref() is not None] == [P]


class Slot:
    __slots__ = ("x",)


class Room:
    pass


@lw.pytree
class HalfSlotted(Slot, Room):
    """One child lives in a slot, the other in the instance's dict."""

    x: Any
    y: Any
    a: lw.Static[int] = 1


@lw.pytree(slots=True)
class AllSlotted:
    x: Any
    y: Any
    a: lw.Static[int] = 1


@lw.pytree
class OfDict:
    x: Any
    y: Any
    a: lw.Static[int] = 1


def test_has_no_dict() -> None:
    """Fields live in slots; leaves and statics are as without."""
    instance = AllSlotted(1.0, 2.0)
    assert not hasattr(instance, "__dict__")
    assert jax.tree.leaves(instance) == [1.0, 2.0]
    assert jax.tree.structure(instance) != jax.tree.structure(AllSlotted(1.0, 2.0, 2))
    assert set(AllSlotted.__slots__) >= {"x", "y"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("cls", [HalfSlotted, AllSlotted, OfDict])
def test_every_layout_is_rebuilt_in_its_place(cls: Any) -> None:
    """Children come back to where the class keeps them, in slots or in a dict of its own."""
    made = cls(1.0, 2.0, 3)
    leaves, structure = jax.tree.flatten(made)
    first, second = (jax.tree.unflatten(structure, leaves) for _ in range(2))
    assert first == made
    assert (first.x, first.y, first.a) == (1.0, 2.0, 3)
    if hasattr(made, "__dict__"):
        assert vars(first).keys() == vars(made).keys()
        assert vars(first) is not vars(second)
    object.__setattr__(first, "x", 5.0)
    assert (first.x, second.x, made.x) == (5.0, 1.0, 1.0)
    assert jax.tree.leaves(first) == [5.0, 2.0]
