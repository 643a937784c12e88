"""The law of sound keys: one treedef exactly if statics are the same; own objects come back."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import pytest
from hypothesis import assume, event, given, settings

import leafwise as lw

from . import zoo
from .oracle import same
from .zoo import Many, Own, Pair, Params, Real, Recipe, Text, Whole, build, edits, recipes

EXAMPLES = {"thorough": 50_000}
many = settings(max_examples=EXAMPLES.get(settings.get_current_profile_name(), 25))


def check_law(a: Any, b: Any) -> None:
    """Compare what leafwise says of two statics with what the oracle says."""
    expected = same(a, b)
    event(f"same: {expected}")
    for cls in (Params, Many):
        left, right = cls(1.0, a), cls(1.0, b)
        first, second = jax.tree.structure(left), jax.tree.structure(right)
        assert (first == second) is expected
        assert (first != second) is not expected
        assert (left == right) is expected
        if expected:
            assert hash(first) == hash(second)
            assert hash(left) == hash(right)


HOLDERS: dict[str, Callable[[Recipe], Recipe]] = {
    "alone": lambda leaf: leaf,
    "tuple": lambda leaf: ("tuple", leaf, ("number", "float(n)", 1)),
    "frozenset": lambda leaf: ("frozenset", leaf, ("number", "str(n)", 1)),
    "mapping": lambda leaf: ("mapping", leaf, leaf),
    "dataclass": lambda leaf: ("config", ("value", "None"), leaf),
    "partial": lambda leaf: ("partial", leaf, leaf),
    "state": lambda leaf: ("text", leaf),
}


@pytest.mark.parametrize("cls", [Params, Many])
@pytest.mark.parametrize("holder", HOLDERS)
def test_all_pairs_of_leaves(holder: str, cls: type[Params]) -> None:
    """Every leaf of the zoo against every other, alone and in containers."""
    drawn = [HOLDERS[holder](leaf) for leaf in zoo.all_leaves()]
    first, second = ([build(recipe) for recipe in drawn] for _ in range(2))
    structures = [jax.tree.structure(cls(1.0, value)) for value in first]
    for value in second:
        mine = jax.tree.structure(cls(1.0, value))
        for other, structure in zip(first, structures, strict=True):
            assert (mine == structure) is same(value, other)


@given(recipes)
def test_a_rebuilt_value_has_the_same_treedef(recipe: Recipe) -> None:
    """Building the same static again never costs a retrace."""
    check_law(build(recipe), build(recipe))


@many
@given(edits())
def test_one_change_anywhere_changes_the_treedef(pair: tuple[Recipe, Recipe]) -> None:
    """A change of type or value in one place, at any depth, is another treedef."""
    check_law(build(pair[0]), build(pair[1]))


@given(edits())
def test_the_order_of_construction_does_not_matter(pair: tuple[Recipe, Recipe]) -> None:
    """A key that lives already never answers for another value, whichever came first."""
    first, second = (build(recipe) for recipe in pair)
    alive = [Params(1.0, build(recipe)) for recipe in (pair[1], pair[0], pair[1])]
    check_law(first, second)
    check_law(second, first)
    assert (alive[0] == alive[1]) is same(first, second)
    assert alive[0] == alive[2]


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
