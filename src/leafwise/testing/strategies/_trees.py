"""Trees of every kind of node."""

import collections
import dataclasses
import functools
from typing import Any, Final, NamedTuple, cast

import jax
from hypothesis import strategies as st

from leafwise._classes.fields import static_field
from leafwise._classes.pytree import pytree
from leafwise.testing.strategies._arrays import Strategy, arrays


class NamedNode(NamedTuple):
    """A node that is a namedtuple."""

    left: Any
    right: Any


@pytree
class LeafwiseNode:
    """A node of leafwise.

    Attributes:
        left: A child.
        right: Another.
        tag: A static value.
    """

    left: Any
    right: Any
    tag: str = static_field(default="a")


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["left", "right"], meta_fields=["tag"]
)
@dataclasses.dataclass
class RegisteredNode:
    """A node registered with JAX itself.

    Attributes:
        left: A child.
        right: Another.
        tag: A static value.
    """

    left: Any
    right: Any
    tag: str = "a"


_TAGS: Final = st.sampled_from(["a", "b"])
_NAMES: Final = st.sampled_from(["a", "b", "c"])


def pytrees(leaves: Strategy | None = None, *, max_leaves: int = 8) -> Strategy:
    """Return a strategy for trees.

    The nodes are lists, tuples, dicts, `collections.OrderedDict`, namedtuples
    (`NamedNode`), None, nodes of leafwise (`LeafwiseNode`) and nodes registered with JAX
    (`RegisteredNode`), the last two with a static ``tag``.

    Args:
        leaves: A strategy for leaves; None for jax arrays, numpy arrays, ints, floats and
            bools.
        max_leaves: About how many leaves a tree may have.

    Returns:
        A strategy for trees; a tree without leaves is the simplest.

    Raises:
        TypeError: `leaves` is not a strategy.

    Examples:
        >>> import jax
        >>> from hypothesis import given
        >>> from leafwise.testing import strategies as lst
        >>> @given(lst.pytrees())
        ... def test(tree):
        ...     leaves, structure = jax.tree.flatten(tree)
        ...     jax.tree.unflatten(structure, leaves)
        >>> test()
    """
    if leaves is None:
        shapes = st.lists(st.integers(1, 3), max_size=2).map(tuple)
        halves = st.integers(-8, 8).map(lambda number: number / 2)
        scalars = st.integers(-10, 10) | halves | st.booleans()
        leaves = st.one_of(arrays(shapes), scalars, arrays(shapes, numpy=True))
    elif not isinstance(cast("Any", leaves), st.SearchStrategy):
        raise TypeError(f"pytrees(leaves=...) takes a strategy, got {leaves!r}: write st.just(...)")
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
