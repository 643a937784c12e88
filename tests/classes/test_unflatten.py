"""Unflatten: children come back to where the class keeps them."""

from typing import Any

import jax
import pytest

import leafwise as lw


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
