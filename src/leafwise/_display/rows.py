"""The rows of a diagram: which nodes, leaves and statics are shown, and their texts."""

import collections
import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

import jax
import numpy as np

from leafwise._display.words import count, cut
from leafwise._objects.classes import is_a
from leafwise._objects.describe import DescribeOptions, describe
from leafwise._objects.text import shorten
from leafwise._trees.leaves import LEAF_TYPES, Leaf, LeafKind, LeafRecorder, format_sharding
from leafwise._trees.nodes import Node, is_hash_node_type, open_node
from leafwise._trees.roles import names_of

_MOST_ROWS: Final = 400
_MOST_LEVELS: Final = 20
_LONGEST: Final = 400


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


@dataclasses.dataclass(slots=True, eq=False)
class Branch:
    """One node or leaf, while a tree is drawn: it keeps the values below alive.

    Attributes:
        first: The way to the first branch with this array, or to the container that this one
            leads back to, in a tuple of one; None if this is the first.
        problem: Why it was not flattened; empty if it was.
    """

    value: Any
    trail: Trail
    node: Node | None = None
    leaf: Leaf | None = None
    children: "list[tuple[int, Branch]]" = dataclasses.field(default_factory=list)
    totals: Totals = dataclasses.field(default_factory=Totals)
    first: tuple[Trail] | None = None
    problem: str = ""


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


class Kind(StrEnum):
    """What a row shows."""

    NODE = "node"
    LEAF = "leaf"
    STATIC = "static"
    PROBLEM = "problem"
    ELIDED = "elided"


class Row(NamedTuple):
    """One row: texts only, nothing of the tree itself; a static has no totals."""

    depth: int
    last: bool
    kind: Kind
    step: str
    text: str
    notes: tuple[str, ...] = ()
    totals: Totals | None = None
    opened: bool = False


class _Static(NamedTuple):
    """A static of a node; not printed if its field has ``repr=False``."""

    value: Any
    printed: bool


_Entry = tuple[str, Branch | _Static]


def rows_of(tree: Any, depth: int | None, most: int) -> Iterator[Row]:
    """Yield the rows of a tree, from the top down; by default as deep as fits into a diagram."""
    root = measure(tree)
    deepest = _fitting_depth(root, most) if depth is None else depth
    todo: list[tuple[Row, Branch | None]]
    todo = [(_branch_row(root, "", 0, last=True, opened=bool(_entries_of(root))), root)]
    while todo:
        row, branch = todo.pop()
        if branch is not None and row.opened:
            if row.depth < deepest:
                todo += _below(branch, row.depth, most)
            else:  # its children have no rows
                leaves = count(branch.totals.leaves, "leaf", "leaves") if row.depth else ""
                row = row._replace(opened=False, notes=(*row.notes, f"{leaves} not shown".strip()))
        # Without the characters that a terminal or a browser would obey.
        notes = tuple(cut(note, _LONGEST) for note in row.notes)
        yield row._replace(step=cut(row.step, _LONGEST), text=cut(row.text, _LONGEST), notes=notes)


def _fitting_depth(root: Branch, most: int) -> int:
    """Return how many levels make no more rows than a diagram should have."""
    level, rows, depth = [root], 1, 0
    while level and depth < _MOST_LEVELS:
        below: list[Branch] = []
        for branch in level:
            hidden = _hidden(len(branch.children), most)
            shown = branch.children[: hidden.start] + branch.children[hidden.stop :]
            below += [child for _, child in shown]
        statics = sum(len(branch.node.names) for branch in level if branch.node is not None)
        rows += len(below) + statics
        if depth and rows > _MOST_ROWS:
            break
        level, depth = below, depth + 1
    return depth


def _hidden(number: int, most: int) -> slice:
    """Return which of so many are left out: those in the middle, if they are two or more."""
    if number <= most + 1:
        return slice(number, number)
    return slice(most - most // 2, number - most // 2)


def _below(branch: Branch, depth: int, most: int) -> list[tuple[Row, Branch | None]]:
    """Return the rows below a node, the last one first."""
    entries = _entries_of(branch)
    hidden = _hidden(len(entries), most)
    rows: list[tuple[Row, Branch | None]] = []
    for place, (step, found) in enumerate(entries):
        last = place == len(entries) - 1
        if place == hidden.start and hidden.stop > hidden.start:
            rows.append((_elided(entries[hidden], depth + 1), None))
        if hidden.start <= place < hidden.stop:
            continue
        if isinstance(found, Branch):
            row = _branch_row(found, step, depth + 1, last=last, opened=bool(_entries_of(found)))
            rows.append((row, found))
        else:
            text = _format_value(found.value) if found.printed else "..."
            notes = () if found.printed else ("repr=False",)
            rows.append((Row(depth + 1, last, Kind.STATIC, step, text, notes), None))
    return rows[::-1]


def _elided(entries: Sequence[_Entry], depth: int) -> Row:
    branches = [found for _, found in entries if isinstance(found, Branch)]
    totals = sum_totals(branches)
    text = f"{len(entries):,} more"
    notes = [count(totals.leaves, "leaf", "leaves")] if totals.leaves != len(branches) else []
    return Row(depth, False, Kind.ELIDED, "", text, tuple(notes), totals)  # noqa: FBT003


def _branch_row(branch: Branch, step: str, depth: int, *, last: bool, opened: bool) -> Row:
    kind, text, notes = _format_branch(branch)
    if kind is Kind.NODE and not depth:
        notes = [count(branch.totals.leaves, "leaf", "leaves"), *notes]
    opened = opened and kind is Kind.NODE
    return Row(depth, last, kind, step, text, tuple(notes), branch.totals, opened)


def _format_branch(branch: Branch) -> tuple[Kind, str, list[str]]:
    if branch.leaf is not None:
        text, notes = _format_leaf(branch)
        if branch.first is not None:
            notes.append(f"the same as {_show_path(path_of(branch.first[0]))}")
        return Kind.LEAF, text, notes
    name = _class_name(type(branch.value))
    if branch.node is None:
        where = f": {_show_path(path_of(branch.first[0]))}" if branch.first is not None else ""
        return Kind.PROBLEM, name, [branch.problem + where]
    if branch.value is None:
        return Kind.NODE, "None", []
    plain = isinstance(branch.value, list | tuple | dict) and not hasattr(branch.value, "_fields")
    return Kind.NODE, f"{name} of {len(branch.children):,}" if plain else name, []


def _show_path(path: str) -> str:
    return path.removeprefix(".") or "the whole"


def _class_name(cls: type) -> str:
    """Return the name of a class, without the function that defines it."""
    return cls.__qualname__.rpartition("<locals>.")[2]


def _format_leaf(branch: Branch) -> tuple[str, list[str]]:
    """Return the type of a leaf, and notes on what is unusual about it."""
    leaf, value = branch.leaf, branch.value
    assert leaf is not None  # noqa: S101  # for the type checkers
    text = array_type(value, leaf)
    if leaf.kind is LeafKind.INVALID:
        kind = _class_name(type(value))
        if is_deleted(leaf):
            return text, ["deleted"]
        if text:
            return text, ["which JAX refuses"]
        is_number = is_a(value, int | float | complex)
        return _format_value(value), [kind, "which JAX refuses" if is_number else "not an array"]
    notes: list[str] = []
    if leaf.kind is LeafKind.PYTHON_SCALAR:
        notes.append(f"Python {_class_name(type(value))} {_format_value(value)}")
    elif leaf.kind is LeafKind.NUMPY_SCALAR:
        notes.append(f"numpy scalar {value!s}")
    elif leaf.kind is LeafKind.OTHER:
        notes.append(_class_name(type(value)))
    elif leaf.kind is not LeafKind.JAX_ARRAY:
        notes.append(_KIND_NOTES.get(leaf.kind, str(leaf.kind)))
    if leaf.weak_type:
        notes.append("weak type")
    return text, notes + _format_placement(value, leaf)


_KIND_NOTES: Final = {
    LeafKind.NUMPY_ARRAY: "numpy",
    LeafKind.TRACER: "traced",
    LeafKind.SHAPE_DTYPE_STRUCT: "abstract",
}


def _format_placement(value: Any, leaf: Leaf) -> list[str]:
    """Return notes on where an array lies, unless it lies where JAX puts one by default."""
    sharding: Any = leaf.sharding
    if sharding is None and is_a(value, jax.ShapeDtypeStruct):
        sharding = value.sharding
    if sharding is None:
        return []
    try:
        devices = set(sharding.device_set)
        default: Any = jax.config.jax_default_device
        if default is None or isinstance(default, str):
            default = jax.local_devices(backend=default)[0]
        return [] if devices == {default} else [format_sharding(sharding)]
    except Exception:  # noqa: BLE001  # an abstract mesh has no devices
        return [shorten(sharding)]


def _format_value(value: Any) -> str:
    return describe(value, DescribeOptions(short=True))


def _entries_of(branch: Branch) -> list[_Entry]:
    """Return children and statics of a node, fields in the order of their declaration."""
    node, value = branch.node, branch.value
    if node is None:
        return []
    found: list[_Entry] = [(node.steps[place], child) for place, child in branch.children]
    statics = _statics(node, value)
    if not statics:
        return found
    declared = {}
    if dataclasses.is_dataclass(value):
        declared = {f".{field.name}": field for field in dataclasses.fields(value)}
    for step, static in statics:
        field = declared.get(step)
        found.append((step, _Static(static, field is None or field.repr)))
    order = {step: place for place, step in enumerate(declared)}
    return sorted(found, key=lambda entry: order.get(entry[0], len(order)))


_ORDERED: Final = (dict, collections.OrderedDict)
"""Containers whose aux_data is their keys, which the steps show already."""


def _statics(node: Node, value: Any) -> Sequence[tuple[str, Any]]:
    """Return the statics of a node, with the steps to them."""
    if node.names or node.is_keyed or node.aux is None or node.cls in _ORDERED:
        return list(zip(node.names, node.values, strict=True))
    if isinstance(value, tuple) or (isinstance(node.aux, tuple) and not node.aux):
        return []
    try:
        names = [name for name in names_of(value).static if hasattr(value, name)]
        if names or dataclasses.is_dataclass(value):
            return [(f".{name}", getattr(value, name)) for name in names]
        keys = isinstance(node.aux, tuple) and tuple(f"[{key!r}]" for key in node.aux)
    except Exception:  # noqa: BLE001  # the user's own code
        keys = False
    return [] if keys == node.steps else [("(aux_data)", node.aux)]
