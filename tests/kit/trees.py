"""Trees of every kind of node."""

import collections
import dataclasses
import functools
from typing import Any, Final, NamedTuple

import jax
from hypothesis import strategies as st

import leafwise as lw
from leafwise.testing.strategies import arrays

Strategy = st.SearchStrategy[Any]


class NamedNode(NamedTuple):
    """A node that is a namedtuple."""

    left: Any
    right: Any


@lw.pytree
class LeafwiseNode:
    """A node of leafwise."""

    left: Any
    right: Any
    tag: str = lw.static_field(default="a")


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["left", "right"], meta_fields=["tag"]
)
@dataclasses.dataclass
class RegisteredNode:
    """A node registered with JAX itself."""

    left: Any
    right: Any
    tag: str = "a"


_TAGS: Final = st.sampled_from(["a", "b"])
_NAMES: Final = st.sampled_from(["a", "b", "c"])


def pytrees(leaves: Strategy | None = None, *, max_leaves: int = 8) -> Strategy:
    """Return a strategy for trees of every kind of node."""
    if leaves is None:
        shapes = st.lists(st.integers(1, 3), max_size=2).map(tuple)
        halves = st.integers(-8, 8).map(lambda number: number / 2)
        scalars = st.integers(-10, 10) | halves | st.booleans()
        leaves = st.one_of(arrays(shapes), scalars, arrays(shapes, numpy=True))
    return st.recursive(leaves, _nodes, max_leaves=max_leaves)


def _nodes(children: Strategy) -> Strategy:
    few = st.lists(children, max_size=3)
    # Keys of one dict are of one type: JAX sorts them.
    named = st.dictionaries(_NAMES, children, max_size=3)
    numbered = st.dictionaries(st.integers(0, 9), children, max_size=2)
    return st.one_of(
        few,
        few.map(tuple),
        named | numbered,
        st.none(),
        st.builds(NamedNode, children, children),
        named.map(collections.OrderedDict),
        st.builds(LeafwiseNode, children, children, _TAGS),
        st.builds(RegisteredNode, children, children, _TAGS),
    )
