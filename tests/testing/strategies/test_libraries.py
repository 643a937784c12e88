"""The strategies for testing a library of pytrees, and those of our own property tests."""

import collections
import enum
import functools
import math
import sys
from typing import Any, NamedTuple

import flax.core
import flax.struct
import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import leafwise as lw
from leafwise.testing import strategies
from leafwise.testing.strategies import (
    LeafwiseNode,
    NamedNode,
    RegisteredNode,
    pytrees,
    static_values,
)

from .seeking import assert_reaches, drawn, minimal


@lw.pytree
class Holder:
    it: lw.Static[Any]


# -------------------------------------------------------------------------- static values


@given(static_values())
def test_static_values_are_accepted(value: Any) -> None:
    """leafwise takes every one of them, and so does a hash."""
    hash(value)
    jax.tree.structure(Holder(value))


@pytest.mark.nightly
def test_static_values_of_every_kind() -> None:
    """Each kind that the documentation names is met, and the values that get confused."""

    def of(*kinds: type) -> Any:
        return lambda value: type(value) in kinds

    assert_reaches(
        static_values(),
        of(bool), of(int), of(float), of(complex), of(np.float32), of(str), of(bytes),
        of(tuple), of(frozenset), of(lw.FrozenMapping), of(functools.partial),
        lambda v: isinstance(v, lw.StaticArray),
        lambda v: isinstance(v, enum.Enum) and isinstance(v, int | str),
        lambda v: isinstance(v, enum.Enum) and not isinstance(v, int | str),
        lambda v: isinstance(v, tuple) and hasattr(v, "_fields"),
        lambda v: hasattr(v, "__dataclass_fields__"),
        lambda v: isinstance(v, np.dtype),
        lambda v: isinstance(v, type),
        lambda v: v is None,
        lambda v: isinstance(v, float) and math.isnan(v),
        lambda v: type(v) is float and v == 0 and math.copysign(1, v) < 0,
        of(range),
        count=800,
    )  # fmt: skip
    if sys.version_info >= (3, 12):
        assert type(minimal(static_values(), of(slice))) is slice


@pytest.mark.nightly
def test_static_values_are_equal_and_of_other_types() -> None:
    """Among the values are some that are equal and of another type."""
    kinds = collections.defaultdict(set)
    for value in drawn(static_values(), 400):
        kinds[value].add(type(value))
    assert len(kinds[1]) > 2
    assert sum(len(types) > 1 for types in kinds.values()) > 2


def test_simplest_static_value() -> None:
    """The simplest value is None."""
    assert minimal(static_values()) is None


# --------------------------------------------------------------------------------- trees


@given(pytrees())
def test_trees_round_trip(tree: Any) -> None:
    """Every tree can be flattened, by paths too, and rebuilt, and goes through jit."""
    leaves, structure = jax.tree.flatten(tree)
    assert jax.tree.structure(jax.tree.unflatten(structure, leaves)) == structure
    assert [leaf for _, leaf in jax.tree_util.tree_leaves_with_path(tree)] == leaves or leaves
    for leaf in leaves:
        assert isinstance(leaf, jax.Array | np.ndarray | int | float | bool)
        jax.typeof(leaf)


@pytest.mark.slow
def test_trees_of_every_node() -> None:
    """Each kind of node is met, and each kind of leaf."""

    def holds(kind: type) -> Any:
        def test(tree: Any) -> bool:
            nodes: list[Any] = []
            jax.tree.leaves(tree, is_leaf=lambda node: nodes.append(node) and False)
            return any(type(node) is kind for node in nodes)

        return test

    kinds = [list, tuple, dict, collections.OrderedDict, type(None), NamedNode, LeafwiseNode]
    kinds += [RegisteredNode, np.ndarray, int, float, bool]
    assert_reaches(
        pytrees(),
        *map(holds, kinds),
        lambda tree: any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(tree)),
        lambda tree: len(jax.tree.leaves(tree)) > 3,
        count=300,
    )
    assert jax.tree.leaves(minimal(pytrees())) == []


def test_leaves_of_trees() -> None:
    """Leaves are those that were asked for, and not too many."""
    for tree in drawn(pytrees(st.just("leaf"), max_leaves=3), 100):
        leaves = jax.tree.leaves(tree)
        assert set(leaves) <= {"leaf"}
        assert len(leaves) <= 12
    with pytest.raises(TypeError, match=r"st\.just"):
        pytrees(3)  # type: ignore[arg-type]


def test_a_mapping_of_a_library() -> None:
    """A mapping that is no dict is made from one: flax's FrozenDict."""

    @flax.struct.dataclass
    class State:
        params: flax.core.FrozenDict[str, float]
        bare: flax.core.FrozenDict

    found = drawn(strategies.instances(State))
    for name in ("params", "bare"):
        assert {type(getattr(each, name)) for each in found} == {flax.core.FrozenDict}
        assert any(getattr(each, name) for each in found)


class AnyState(NamedTuple):
    inner: NamedTuple


def test_any_named_tuple() -> None:
    """The annotation ``NamedTuple`` means any of them, as in the states of blackjax."""
    for state in drawn(strategies.instances(AnyState), count=5):
        inner: Any = state.inner
        assert isinstance(inner, tuple)
        assert len(jax.tree.leaves(inner)) == len(inner._fields)


def test_a_mapping_that_is_a_tree() -> None:
    """A mapping of a library is made of a dict, also if no types of its items are said."""
    nnx = pytest.importorskip("flax.nnx")
    holder = lw.pytree(type("Holder", (), {"__annotations__": {"state": nnx.State}}))
    for value in drawn(strategies.instances(holder), count=5):
        assert isinstance(value.state, nnx.State)
        assert len({type(key) for key in value.state}) <= 1
        jax.tree.leaves(value)
