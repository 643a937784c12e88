"""Unflatten: no user code runs, and any leaf is accepted."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import leafwise as lw

RUNS: list[str] = []


def noted(name: str, value: Any) -> Any:
    """Note that user code ran."""
    RUNS.append(name)
    return value


@lw.pytree
class Loud:
    x: Any = lw.field(
        converter=lambda v: noted("converter", v),
        validator=lambda v: noted("check", True),
    )
    a: lw.Static[Any] = lw.static_field(
        default=1,
        converter=lambda v: noted("converter", v),
        validator=lambda v: noted("check", True),
    )

    def __post_init__(self) -> None:
        noted("post_init", None)


def test_runs_no_user_code() -> None:
    """`tree.map`, `unflatten`, `jit`, `vmap` and `grad` run no `__init__` nor hooks."""
    made = Loud(1.0)
    assert "post_init" in RUNS
    RUNS.clear()
    leaves, structure = jax.tree.flatten(made)
    jax.tree.unflatten(structure, leaves)
    jax.tree.map(lambda v: v * 2, made)
    jax.jit(lambda p: p)(made)
    jax.vmap(lambda p: p)(jax.tree.map(lambda _: jnp.ones(3), made))
    jax.grad(lambda p: p.x * 2.0)(made)
    assert RUNS == []


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
