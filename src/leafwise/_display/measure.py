"""The bytes, the leaves and the shared arrays of each branch of a tree."""

import math
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from leafwise._objects.classes import is_a
from leafwise._trees.leaves import LEAF_TYPES, Leaf, LeafKind, LeafRecorder
from leafwise._trees.nodes import Node, is_hash_node_type, open_node

Trail: TypeAlias = "tuple[Trail, Node, int] | None"
"""The way to a branch: that of the node above, the node, and which child it is."""


class Totals(NamedTuple):
    """The bytes of a branch, each array once; its leaves, and how many have an unknown size."""

    nbytes: int = 0
    unknown: int = 0
    leaves: int = 0


def sum_totals(branches: Iterable["Branch"]) -> Totals:
    nbytes = unknown = leaves = 0
    for branch in branches:
        nbytes += branch.totals.nbytes
        unknown += branch.totals.unknown
        leaves += branch.totals.leaves
    return Totals(nbytes, unknown, leaves)


class Branch:
    """One node or leaf, while a tree is drawn: it keeps the values below alive.

    Attributes:
        value: The node or leaf itself.
        trail: The way to it.
        node: The node; None for a leaf.
        leaf: The record of the leaf; None for a node.
        children: The branches below a node, with the index of each child.
        totals: Its bytes and leaves.
        first: The way to the first branch with this array, or to the container that this one
            leads back to, in a tuple of one; None if this is the first.
        problem: Why it was not flattened; empty if it was.
    """

    __slots__ = ("children", "first", "leaf", "node", "problem", "totals", "trail", "value")

    def __init__(self, value: Any, trail: Trail) -> None:
        self.value = value
        self.trail = trail
        self.node: Node | None = None
        self.leaf: Leaf | None = None
        self.children: list[tuple[int, Branch]] = []
        self.totals = Totals()
        self.first: tuple[Trail] | None = None
        self.problem = ""


def path_of(trail: Trail) -> str:
    """Return ``.layers[0].w``."""
    steps: list[str] = []
    while trail is not None:
        trail, node, place = trail
        steps.append(node.steps[place])
    return "".join(reversed(steps))


def measure(tree: Any) -> Branch:
    """Measure each node and leaf of a tree, without recursion and without reading data."""
    return _Measurement().run(tree)


class _Measurement:
    def __init__(self) -> None:
        self.record = LeafRecorder()
        self.arrays: dict[int, Trail] = {}  # by id
        self.above: dict[int, Trail] = {}  # the nodes on the way down, by id

    def run(self, tree: Any) -> Branch:
        root = Branch(tree, None)
        todo = [(root, False)]
        while todo:
            branch, leaving = todo.pop()
            if leaving:
                del self.above[id(branch.value)]
                branch.totals = sum_totals(child for _, child in branch.children)
                continue
            self.open(branch)
            if branch.children:
                self.above[id(branch.value)] = branch.trail
                todo.append((branch, True))
                todo += [(child, False) for _, child in reversed(branch.children)]
        return root

    def open(self, branch: Branch) -> None:
        """Flatten a branch by one level, or measure its leaf."""
        value = branch.value
        if id(value) in self.above:
            branch.first = (self.above[id(value)],)
            branch.problem = "leads back to itself"
            return
        try:
            opened = None if type(value) in LEAF_TYPES else open_node(value)
            if opened is None:
                self.measure_leaf(branch, self.record(value))
                return
        except Exception as error:  # noqa: BLE001  # a picture must come out
            line = str(error).strip().partition("\n")[0]
            branch.problem = f"cannot be flattened: {type(error).__name__}: {line}"
            return
        node, values = opened
        branch.node = node
        branch.children = [
            (place, Branch(child, (branch.trail, node, place)))
            for place, child in enumerate(values)
            if not (node.is_keyed and is_hash_node_type(type(child)))
        ]

    def measure_leaf(self, branch: Branch, leaf: Leaf) -> None:
        """Count a leaf; an array that several leaves share only at the first."""
        value = branch.value
        branch.leaf = leaf
        if leaf.kind in _SHARED:
            if id(value) in self.arrays:
                branch.first = (self.arrays[id(value)],)
                branch.totals = Totals(leaves=1)
                return
            self.arrays[id(value)] = branch.trail
        nbytes = _nbytes(value, leaf)
        branch.totals = Totals(nbytes or 0, int(nbytes is None), 1)


_SHARED: Final = frozenset(
    {
        *(LeafKind.JAX_ARRAY, LeafKind.NUMPY_ARRAY, LeafKind.PRNG_KEY),
        *(LeafKind.TRACER, LeafKind.REF, LeafKind.OTHER),
    }
)
"""What two branches can share. Scalars and structs count at each."""


def is_deleted(leaf: Leaf) -> bool:
    """Return whether a leaf is an array whose data was deleted or donated."""
    return leaf.kind is LeafKind.INVALID and leaf.aval is not None


def _nbytes(value: Any, leaf: Leaf) -> int | None:
    """Return the bytes of a leaf; None if they are unknown."""
    if is_deleted(leaf):
        return 0
    try:
        if is_a(value, np.ndarray | np.generic):
            return int(value.nbytes)
        if leaf.aval is None:
            return 0
        return int(math.prod(leaf.aval.shape) * leaf.aval.dtype.itemsize)
    except Exception:  # noqa: BLE001  # a symbolic dimension, an abstract value of another kind
        return None


def array_type(value: Any, leaf: Leaf) -> str:
    """Return ``float32[3,4]``; of a NumPy array its own dtype, not the one JAX converts it to."""
    if is_a(value, np.ndarray | np.generic):
        shape = ",".join(map(str, value.shape))
        return f"{value.dtype}[{shape}]"
    short: Any = getattr(leaf.aval, "str_short", None)
    return "" if leaf.aval is None else str(leaf.aval if short is None else short())
