"""The laws of digests and of `lw.diff`: two trees differ exactly where JAX, types or classes do.

A digest leaves out what means nothing to another process, and objects with their own ``==``.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from hypothesis import event, given
from tests.kit.processes import run_python
from tests.kit.trees import pytrees

import leafwise as lw
from leafwise.types import ReasonKind

from . import zoo
from .calls import CONTEXTS, CallRecipe
from .calls import edits as edited_calls
from .oracle import same
from .zoo import Params, Recipe, build, edits


def digested(tree: Any) -> str | None:
    """Return the digest of a tree; None if it is refused."""
    try:
        return lw.digest(tree)
    except lw.errors.PortableError:
        return None


def of_recipe(recipe: Recipe) -> str | None:
    """Return the digest of an instance; None if none is promised."""
    if "Own" in str(recipe):
        return None
    return digested(Params(1.0, build(recipe)))


def check_law(one: Any, other: Any) -> None:
    """Compare digests with what JAX compares."""
    texts = digested(one), digested(other)
    if None not in texts:
        (mine, first), (its, second) = jax.tree.flatten(one), jax.tree.flatten(other)
        avals = [*map(jax.typeof, mine)] == [*map(jax.typeof, its)]
        assert (texts[0] == texts[1]) is (first == second and avals)


def test_all_pairs_of_leaves() -> None:
    """Every leaf of the zoo against every other."""
    leaves = [leaf for leaf in zoo.all_leaves() if of_recipe(leaf) is not None]
    texts = [of_recipe(leaf) for leaf in leaves]
    structures = [jax.tree.structure(Params(1.0, build(leaf))) for leaf in leaves]
    for leaf, text in zip(leaves, texts, strict=True):
        mine = jax.tree.structure(Params(1.0, build(leaf)))
        for structure, its in zip(structures, texts, strict=True):
            assert (text == its) is (mine == structure)
    assert len(leaves) > 150


@given(edits())
def test_edited_statics(pair: tuple[Recipe, Recipe]) -> None:
    """Random statics, and the same with one place changed."""
    one, other = pair
    if None not in (of_recipe(one), of_recipe(other)):
        check_law(Params(1.0, build(one)), Params(1.0, build(one)))
        check_law(Params(1.0, build(one)), Params(1.0, build(other)))


@given(pytrees(), pytrees())
def test_trees(one: Any, other: Any) -> None:
    """The trees that the kit draws, with the shapes, dtypes and weak types of their leaves."""
    check_law(one, one)
    check_law(one, other)


SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import jax, jax.numpy as jnp, leafwise as lw, zoo

def digest(make):
    try:
        return lw.digest(make())
    except lw.errors.LeafwiseError as error:
        return type(error).__name__

found = {}
for leaf in zoo.all_leaves():
    for held in (leaf, ("frozenset", leaf, ("number", "str(n)", 1)), ("config", leaf, leaf)):
        found[repr(held)] = digest(lambda: zoo.Params(jnp.ones(3), zoo.build(held)))

print(json.dumps(found))
"""


def in_a_process(seed: int, python: str = sys.executable) -> dict[str, str]:
    variables = {"PYTHONHASHSEED": str(seed), "PYTHONWARNINGS": "error"}
    if python != sys.executable:  # which has packages of its own
        variables["PYTHONPATH"] = str(Path(lw.__file__).parents[1])
    printed = run_python(SCRIPT, str(Path(__file__).parent), python=python, **variables)
    digests: dict[str, str] = json.loads(printed)
    return digests


@pytest.mark.nightly
def test_digests_are_the_same_under_another_hash_seed() -> None:
    """Neither the order of sets nor an address reaches a digest: 600 values in two processes."""
    one, other = map(in_a_process, (0, 1))
    assert one == other
    assert len(set(one.values())) > 300


OTHER_PYTHON = "LEAFWISE_OTHER_PYTHON"


@pytest.mark.nightly
@pytest.mark.skipif(OTHER_PYTHON not in os.environ, reason=f"{OTHER_PYTHON} names no interpreter")
def test_digests_are_the_same_on_another_python_and_jax() -> None:
    """They hold between versions of Python, NumPy and JAX."""
    assert in_a_process(0) == in_a_process(1, os.environ[OTHER_PYTHON])


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
        static = tree.func if isinstance(tree, jax.tree_util.Partial) else getattr(tree, "n", None)
        yield type(tree), (static,)
        for child in level[0]:
            yield from nodes(child)


@pytest.mark.slow
@given(edited_calls())
def test_trees_of_all_libraries(edit: tuple[CallRecipe, CallRecipe, set[str]]) -> None:
    """Structure, classes and statics differ for `diff` exactly if they do."""
    trees: list[Any] = []
    for call in edit[:2]:
        with CONTEXTS[call.context]():
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
