"""`slots=True`: the same class, without `__dict__`."""

import functools
import gc
import weakref
from typing import Any

import jax
import pytest

import leafwise as lw


@lw.pytree(slots=True)
class Slotted:
    """A slotted class at module level, for pickle."""

    x: Any
    a: lw.Static[int] = 1
    b: Any = lw.field(default_factory=lambda: 2.0)


def test_has_no_dict() -> None:
    """Fields live in slots; leaves and statics are as without."""
    made = Slotted(1.0)
    assert not hasattr(made, "__dict__")
    assert jax.tree.leaves(made) == [1.0, 2.0]
    assert jax.tree.structure(made) != jax.tree.structure(Slotted(1.0, 2))
    assert set(Slotted.__slots__) >= {"x", "b"}  # type: ignore[attr-defined]


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

    made = B(1.0)
    assert (made.value(), made.double, made.fast()) == (3.0, 1.0, 3.0)
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
