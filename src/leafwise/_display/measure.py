"""A tree with the bytes, the leaves and the shared arrays of each of its branches."""

import math
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from leafwise._trees.leaves import LEAF_TYPES, Leaf, LeafKind, LeafRecorder
from leafwise._trees.nodes import Node, is_hash_node_type, open_node

_DEEPEST: Final = 10_000
"""Where a class that makes new children whenever it is flattened is given up."""

Trail: TypeAlias = "tuple[Trail, Node, int] | None"
"""How a place is reached: that of the node above, the node, and which child it is."""


class Totals(NamedTuple):
    """What a branch amounts to.

    Attributes:
        nbytes: The bytes of its arrays, of each array once.
        unknown: How many leaves have a size that is not known.
        leaves: How many leaves it has.
    """

    nbytes: int = 0
    unknown: int = 0
    leaves: int = 0


def total(parts: Iterable["Branch"]) -> Totals:
    """Return what several branches amount to together."""
    nbytes = unknown = leaves = 0
    for part in parts:
        nbytes += part.totals.nbytes
        unknown += part.totals.unknown
        leaves += part.totals.leaves
    return Totals(nbytes, unknown, leaves)


class Branch:
    """One node or leaf, while a tree is drawn: it keeps the values below alive.

    Attributes:
        value: The node or leaf itself.
        trail: How it is reached.
        node: The node; None for a leaf.
        leaf: What JAX sees of it; None for a node.
        children: What is below a node, by the number of the child.
        totals: What it amounts to.
        seen: Where its array, or the container that it leads back to, was met before.
        problem: Why there is no looking into it; empty if there is none.
    """

    __slots__ = ("children", "leaf", "node", "problem", "seen", "totals", "trail", "value")

    def __init__(self, value: Any, trail: Trail) -> None:
        """Start with nothing known."""
        self.value = value
        self.trail = trail
        self.node: Node | None = None
        self.leaf: Leaf | None = None
        self.children: list[tuple[int, Branch]] = []
        self.totals = Totals()
        self.seen: tuple[Trail] | None = None
        self.problem = ""


def path_of(trail: Trail) -> str:
    """Return ``.layers[0].w``."""
    steps: list[str] = []
    while trail is not None:
        trail, node, place = trail
        steps.append(node.steps[place])
    return "".join(reversed(steps))


def measure(tree: Any) -> Branch:
    """Look at each node and leaf of a tree, without recursion and without its data."""
    return _Measuring().run(tree)


class _Measuring:
    def __init__(self) -> None:
        self.look = LeafRecorder()
        self.arrays: dict[int, Trail] = {}
        self.above: dict[int, Trail] = {}  # the nodes on the way down, by identity

    def run(self, tree: Any) -> Branch:
        root = Branch(tree, None)
        todo = [(root, False)]
        while todo:
            part, leaving = todo.pop()
            if leaving:
                del self.above[id(part.value)]
                part.totals = total(child for _, child in part.children)
                continue
            self.open(part)
            if part.children:
                self.above[id(part.value)] = part.trail
                todo.append((part, True))
                todo += [(child, False) for _, child in reversed(part.children)]
        return root

    def open(self, part: Branch) -> None:
        """Find out what a part is."""
        value = part.value
        if id(value) in self.above:
            part.seen = (self.above[id(value)],)
            part.problem = "leads back to itself"
            return
        if len(self.above) >= _DEEPEST:
            part.problem = f"{_DEEPEST:,} levels deep: not looked into"
            return
        try:
            opened = None if type(value) in LEAF_TYPES else open_node(value)
            if opened is None:
                self.measure_leaf(part, self.look(value))
                return
        except Exception as error:  # noqa: BLE001  # a picture must come out
            part.problem = f"cannot be flattened: {type(error).__name__}: {_first_line(error)}"
            return
        node, values = opened
        part.node = node
        part.children = [
            (place, Branch(child, (part.trail, node, place)))
            for place, child in enumerate(values)
            if not (node.is_keyed and is_hash_node_type(type(child)))
        ]

    def measure_leaf(self, part: Branch, leaf: Leaf) -> None:
        """Find out what a leaf amounts to, and whether it was met before."""
        value = part.value
        part.leaf = leaf
        if leaf.kind in _SHARED:
            if id(value) in self.arrays:
                part.seen = (self.arrays[id(value)],)
                part.totals = Totals(leaves=1)
                return
            self.arrays[id(value)] = part.trail
        nbytes = _nbytes(value, leaf)
        part.totals = Totals(nbytes or 0, int(nbytes is None), 1)


_SHARED: Final = frozenset(
    {
        *(LeafKind.JAX_ARRAY, LeafKind.NUMPY_ARRAY, LeafKind.PRNG_KEY),
        *(LeafKind.TRACER, LeafKind.REF, LeafKind.OTHER),
    }
)
"""What two places can hold one and the same of; a scalar or a struct stands for itself."""


def _first_line(error: Exception) -> str:
    try:
        return str(error).strip().partition("\n")[0]
    except Exception:  # noqa: BLE001  # the user's own code
        return "?"


def is_deleted(leaf: Leaf) -> bool:
    """Return whether a leaf is an array whose data was deleted or donated."""
    return leaf.kind is LeafKind.INVALID and leaf.aval is not None


def _nbytes(value: Any, leaf: Leaf) -> int | None:
    """Return the bytes of a leaf; None if they depend on what is not known."""
    if is_deleted(leaf):
        return 0
    try:
        if isinstance(value, np.ndarray | np.generic):
            return int(value.nbytes)
        if leaf.aval is None:
            return 0
        return int(math.prod(leaf.aval.shape) * leaf.aval.dtype.itemsize)
    except Exception:  # noqa: BLE001  # a symbolic dimension, an abstract value of another kind
        return None


def array_type(value: Any, leaf: Leaf) -> str:
    """Return ``float32[3,4]``; of an array of NumPy what it holds, not what JAX makes of it."""
    if isinstance(value, np.ndarray | np.generic):
        shape = ",".join(map(str, value.shape))
        return f"{value.dtype}[{shape}]"
    short: Any = getattr(leaf.aval, "str_short", None)
    return "" if leaf.aval is None else str(leaf.aval if short is None else short())
