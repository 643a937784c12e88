"""The law of own objects: what compares by its own ``==`` is never exchanged for an equal one."""

import dataclasses
import functools
from typing import Any

import jax
from hypothesis import assume, given

import leafwise as lw

from .zoo import Own, Pair, Params, Real, Recipe, Text, Whole, build, recipes

OWNED = (Own, Text, Whole, Real, Pair, functools.partial)


def holds_own(value: Any) -> bool:
    """Return whether there is an object in `value` that an equal one could not stand for."""
    if isinstance(value, OWNED) or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    ):
        return True
    if isinstance(value, tuple | frozenset):
        return hasattr(value, "_fields") or any(map(holds_own, value))
    if isinstance(value, lw.FrozenMapping):
        return any(map(holds_own, [*value.keys(), *value.values()]))
    if isinstance(value, slice):
        return holds_own(value.start) or holds_own(value.stop)
    receiver = getattr(value, "__self__", None)
    return hasattr(value, "__func__") and holds_own(receiver)


@given(recipes)
def test_own_objects_come_back(recipe: Recipe) -> None:
    """The very object comes back from the attribute and from `tree.map`, equal ones or not."""
    other, value = build(recipe), build(recipe)
    assume(holds_own(value))
    first = Params(1.0, other)
    second = Params(2.0, value)
    third = Params(3.0, build(recipe))
    assert jax.tree.structure(first) == jax.tree.structure(second) == jax.tree.structure(third)
    for params, own in ((first, other), (second, value)):
        assert params.s is own
        assert jax.tree.map(lambda x: x, params).s is own
        assert jax.tree.map(lambda a, b: a + b, params, third).s is own
        leaves, structure = jax.tree.flatten(params)
        assert jax.tree.unflatten(structure, leaves).s is own
        assert lw.replace(params, x=5.0).s is own
