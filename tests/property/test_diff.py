"""Law: `lw.diff` finds a difference exactly where JAX, the types or the classes have one."""

from collections.abc import Iterator
from typing import Any

import jax
import pytest
from hypothesis import event, given

import leafwise as lw
from leafwise.types import ReasonKind

from . import zoo
from .calls import CallRecipe, context
from .calls import edits as edited_calls
from .oracle import same

STRUCTURAL = {ReasonKind.CLASS, ReasonKind.STRUCTURE, ReasonKind.STATIC, ReasonKind.COMPARISON}
ARRAYS = {ReasonKind.SHAPE, ReasonKind.DTYPE, ReasonKind.WEAK_TYPE}


def structural(a: Any, b: Any) -> bool:
    """Whether `lw.diff` finds that two trees differ in more than their leaves."""
    found = {each.kind for each in lw.diff(a, b)}
    assert found <= STRUCTURAL | ARRAYS | {ReasonKind.LEAF_KIND}
    return not STRUCTURAL.isdisjoint(found)


def unequal(a: Any, b: Any) -> bool:
    """Whether JAX takes the structures for different, or cannot compare them."""
    try:
        return bool(jax.tree.structure(a) != jax.tree.structure(b))
    except Exception:  # noqa: BLE001  # a static's own code
        return True


def nodes(tree: Any) -> Iterator[tuple[type, tuple[Any, ...]]]:
    """Yield the classes of all nodes, and their statics."""
    level = jax.tree_util.default_registry.flatten_one_level(tree)
    if level is not None:
        names = [name for name in ("n", "act") if hasattr(tree, name)]
        func = (tree.func,) if isinstance(tree, jax.tree_util.Partial) else ()
        yield type(tree), (*[getattr(tree, name) for name in names], *func)
        for child in level[0]:
            yield from nodes(child)


@pytest.mark.slow
@given(edited_calls())
def test_trees_of_all_libraries(edit: tuple[CallRecipe, CallRecipe, set[str]]) -> None:
    """Structure, classes and statics differ for `diff` exactly if they do."""
    trees: list[Any] = []
    for call in edit[:2]:
        with context(call.context):
            args, kwargs = call.build()
            trees.append((args[call.offset :], kwargs))
    mine, its = (list(nodes(tree)) for tree in trees)
    classes = [cls for cls, _ in mine] != [cls for cls, _ in its]
    expected = unequal(*trees) or classes
    expected = expected or not all(same(a[1], b[1]) for a, b in zip(mine, its, strict=True))
    event(f"differ: {expected}")
    assert structural(*trees) is expected, lw.diff(*trees)
    assert structural(*reversed(trees)) is expected
    if not expected:
        avals = [[jax.typeof(leaf) for leaf in jax.tree.leaves(tree)] for tree in trees]
        found = ARRAYS & {each.kind for each in lw.diff(*trees)}
        assert not (avals[0] == avals[1] and found - {ReasonKind.DTYPE}), lw.diff(*trees)


@given(zoo.edits())
def test_statics_of_every_kind(pair: tuple[zoo.Recipe, zoo.Recipe]) -> None:
    """Two statics differ for `diff` exactly if the key tells them apart."""
    for cls in (zoo.Params, zoo.Many, zoo.Leafless):
        first, again, other = (cls(1.0, zoo.build(recipe)) for recipe in (pair[0], *pair))
        assert structural([first], [other]) is unequal(first, other)
        assert structural({"a": first}, {"a": again}) is unequal(first, again)
