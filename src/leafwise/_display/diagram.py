"""`show`: a tree of any library as a diagram of text."""

import dataclasses
import math
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

import jax
import numpy as np

from leafwise._display.words import clean, count, size
from leafwise._objects.classes import is_a
from leafwise._objects.describe import DescribeOptions, describe
from leafwise._objects.text import shorten
from leafwise._trees.leaves import LEAF_TYPES, Leaf, LeafKind, LeafRecorder, format_sharding
from leafwise._trees.nodes import Node, is_hash_node_type, open_node

_MOST_ROWS: Final = 400
_MOST_LEVELS: Final = 20


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Diagram:
    """A tree as a diagram: what `leafwise.show` returns.

    ``print`` it, or give it to ``rich.print`` for colours. It holds texts and numbers only,
    nothing of the tree itself.

    Attributes:
        nbytes: The bytes of all arrays of the tree, of each array once.
        leaves: How many leaves the tree has.
    """

    nbytes: int
    leaves: int
    _rows: tuple["_Row", ...]

    def __str__(self) -> str:
        """Return the text in the terminal's width, in characters that standard output has."""
        lines = _lines_of(self._rows, shutil.get_terminal_size().columns)
        text = "\n".join("".join(span.text for span in line) for line in lines)
        return _encodable(text, getattr(sys.stdout, "encoding", None) or "utf-8")

    __repr__ = __str__  # so that a prompt shows it

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        """Yield lines in colour, which rich asks for."""
        from rich.text import Text  # noqa: PLC0415  # rich asks, so rich is there

        for line in _lines_of(self._rows, options.max_width):
            spans = [(_encodable(span.text, options.encoding), _STYLES[span.role]) for span in line]
            yield Text.assemble(*spans, no_wrap=True, overflow="ignore")


def show(tree: Any, /, *, depth: int | None = None, children: int = 24) -> Diagram:
    """Draw any pytree: its classes, its leaves and statics, and the bytes of each branch.

    Takes nodes of any library, abstract values and tracers. Neither the data of arrays is
    read, nor are they moved. An array that stands in several places is counted once, at
    the first of them, so that the bytes of a branch are the sum of those below it. A number
    of Python counts as the array that JAX makes of it.

    Args:
        tree: The pytree.
        depth: How many levels to show below the root. By default as many as make no more
            than 400 rows, and at most 20.
        children: How many children of one node to show: the first ones and the last ones.

    Returns:
        The diagram.

    Examples:
        >>> @pytree
        ... class Linear:
        ...     w: jax.Array
        ...     act: str = static_field(default="relu")
        >>> show({"first": Linear(jnp.zeros((2, 3)))})
        dict of 1  1 leaf         24 B
        └─ ['first']: Linear      24 B
           ├─ w: float32[2,3]     24 B
           └─ act = 'relu'      static
    """
    root = _Measurement().measure(tree, "", "")
    if depth is None:
        depth = 1
        while depth < _MOST_LEVELS and _count_rows(root, depth + 1, children) <= _MOST_ROWS:
            depth += 1
    rows = tuple(_rows_of(root, ("", ""), depth, children))
    return Diagram(root.nbytes, root.leaves, rows)


# What is below each node, and how large it is.


@dataclasses.dataclass(slots=True, eq=False)
class _Branch:
    """A part of a tree: a node, a leaf or a static; or a note in the place of several of these.

    It keeps its value alive, so that no other gets the same id while a tree is measured.
    """

    kind: Literal["node", "leaf", "static", "note"]
    value: Any
    step: str = ""
    leaf: Leaf | None = None
    notes: list[str] = dataclasses.field(default_factory=list)
    nbytes: int = 0
    leaves: int = 0
    children: list["_Branch"] = dataclasses.field(default_factory=list)
    statics: list["_Branch"] = dataclasses.field(default_factory=list)


class _Measurement:
    """Counts bytes and leaves: an array in several places has its bytes at the first of them."""

    def __init__(self) -> None:
        self._record = LeafRecorder()
        self._paths: dict[int, str] = {}  # of arrays, by their id

    def measure(self, value: Any, step: str, path: str) -> _Branch:
        """Measure a part of a tree, without reading the data of arrays."""
        opened = None if type(value) in LEAF_TYPES else open_node(value)
        if opened is None:
            return self._measure_leaf(value, step, path)
        node, values = opened
        branch = _Branch("node", value, step, statics=_statics_of(node, value))
        for name, item in zip(node.steps, values, strict=True):
            if not (node.is_keyed and is_hash_node_type(type(item))):
                child = self.measure(item, name, path + name)
                branch.children.append(child)
                branch.nbytes += child.nbytes
                branch.leaves += child.leaves
        return branch

    def _measure_leaf(self, value: Any, step: str, path: str) -> _Branch:
        leaf = self._record(value)
        branch = _Branch("leaf", value, step, leaf, leaves=1)
        if is_a(value, jax.Array | np.ndarray):
            first = self._paths.setdefault(id(value), path)
            if first != path:
                branch.notes.append(f"the same as {first.removeprefix('.')}")
                return branch
        branch.nbytes = _nbytes_of(value, leaf)
        return branch


def _nbytes_of(value: Any, leaf: Leaf) -> int:
    """Return the bytes of a leaf; 0 if its data is gone, or its shape symbolic."""
    if is_a(value, np.ndarray | np.generic):
        return int(value.nbytes)
    if leaf.aval is None or leaf.kind is LeafKind.INVALID:
        return 0
    try:
        return int(math.prod(leaf.aval.shape) * leaf.aval.dtype.itemsize)
    except Exception:  # noqa: BLE001  # a symbolic dimension, an abstract value of another kind
        return 0


def _statics_of(node: Node, value: Any) -> list[_Branch]:
    """Return the statics of a node, but those whose fields have ``repr=False``."""
    pairs = [*zip(node.names, node.values, strict=True), *node.data.items()]
    if dataclasses.is_dataclass(value):
        hidden = {f".{field.name}" for field in dataclasses.fields(value) if not field.repr}
        pairs = [(step, item) for step, item in pairs if step not in hidden]
    elif not (pairs or node.is_keyed or node.aux is None or is_a(value, Mapping | tuple)):
        pairs = [("(aux_data)", node.aux)]
    return [_Branch("static", item, step) for step, item in pairs]


# Rows, from the top down.


class _Span(NamedTuple):
    """A text, and its role, which decides on its colour."""

    role: str
    text: str


class _Row(NamedTuple):
    """One row: the guides that lead to it from the node above, its text, and its size."""

    guides: str
    spans: tuple[_Span, ...]
    size: str


_STYLES: Final = {
    "": "",
    "name": "bold",
    "node": "cyan",
    "leaf": "green",
    "static": "magenta",
    "note": "dim",
    "guide": "dim",
}


def _shown_below(branch: _Branch, most: int) -> list[_Branch]:
    """Return the children and statics of a node, with a note in the place of those left out."""
    children = branch.children
    if len(children) > most + 1:
        start, stop = most - most // 2, len(children) - most // 2
        hidden = children[start:stop]
        leaves = sum(child.leaves for child in hidden)
        text = f"... {len(hidden):,} more, {count(leaves, 'leaf', 'leaves')}"
        nbytes = sum(child.nbytes for child in hidden)
        note = _Branch("note", text, nbytes=nbytes, leaves=leaves)
        children = [*children[:start], note, *children[stop:]]
    return children + branch.statics


def _count_rows(branch: _Branch, depth: int, most: int) -> int:
    below = _shown_below(branch, most) if depth else []
    return 1 + sum(_count_rows(child, depth - 1, most) for child in below)


def _rows_of(branch: _Branch, guides: tuple[str, str], depth: int, most: int) -> Iterator[_Row]:
    """Yield the row of a branch and those below it; `guides` are for that row, and for these."""
    below = _shown_below(branch, most)
    text, notes = _format_branch(branch)
    if below and not (depth and guides[0]):
        leaves = count(branch.leaves, "leaf", "leaves")
        notes.append(leaves if depth else f"{leaves} not shown")
    spans = [_Span(branch.kind, text)]
    if branch.step:
        sign = " = " if branch.kind == "static" else ": "
        spans = [_Span("name", branch.step.removeprefix(".")), _Span("", sign), *spans]
    if notes:
        spans += [_Span("", "  "), _Span("note", ", ".join(notes))]
    cleaned = tuple(_Span(span.role, clean(span.text)) for span in spans)
    yield _Row(guides[0], cleaned, _format_size(branch))
    for place, child in enumerate(below if depth else [], 1):
        own, line = ("└─ ", "   ") if place == len(below) else ("├─ ", "│  ")
        yield from _rows_of(child, (guides[1] + own, guides[1] + line), depth - 1, most)


# The texts of a row.


def _format_size(branch: _Branch) -> str:
    if branch.kind == "static":
        return "static"
    return size(branch.nbytes) if branch.leaves else ""


def _format_branch(branch: _Branch) -> tuple[str, list[str]]:
    """Return what a branch is, and notes on what is unusual about it."""
    value = branch.value
    if branch.leaf is not None:
        return _format_type(value, branch.leaf), [*_leaf_notes(value, branch.leaf), *branch.notes]
    if branch.kind == "static":
        return _format_value(value), []
    if branch.kind == "note":
        return value, []
    name = "None" if value is None else _class_name(value)
    plain = isinstance(value, list | tuple | dict) and not hasattr(value, "_fields")
    return f"{name} of {len(branch.children):,}" if plain else name, []


def _class_name(value: Any) -> str:
    """Return the name of a class, without the function that defines it."""
    return type(value).__qualname__.rpartition("<locals>.")[2]


def _format_value(value: Any) -> str:
    return describe(value, DescribeOptions(short=True))


def _format_type(value: Any, leaf: Leaf) -> str:
    """Return ``float32[3,4]``; of a NumPy array its own dtype, not the one JAX converts it to."""
    if is_a(value, np.ndarray | np.generic):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    return _format_value(value) if leaf.aval is None else str(leaf.aval.str_short())


def _leaf_notes(value: Any, leaf: Leaf) -> Iterator[str]:
    if leaf.kind is LeafKind.PYTHON_SCALAR:
        yield f"Python {_class_name(value)} {_format_value(value)}"
    elif leaf.kind is LeafKind.INVALID:
        yield f"{_class_name(value)}, which JAX refuses" if leaf.aval is None else "deleted"
    elif leaf.kind is not LeafKind.JAX_ARRAY:
        yield _KIND_NOTES.get(leaf.kind, str(leaf.kind))
    if leaf.weak_type:
        yield "weak type"
    sharding = value.sharding if is_a(value, jax.ShapeDtypeStruct) else leaf.sharding
    if sharding is not None:
        yield from _placement_notes(sharding)


_KIND_NOTES: Final = {
    LeafKind.NUMPY_ARRAY: "numpy",
    LeafKind.OTHER: "numpy",
    LeafKind.TRACER: "traced",
    LeafKind.SHAPE_DTYPE_STRUCT: "abstract",
}


def _placement_notes(sharding: Any) -> Iterator[str]:
    """Yield where an array lies, unless it lies on the first device."""
    try:
        if sharding.device_set != {jax.local_devices()[0]}:
            yield format_sharding(sharding)
    except Exception:  # noqa: BLE001  # an abstract mesh has no devices
        yield shorten(sharding)


# Lines of text.

_LEAST_ROOM: Final = 24
"""Columns that a row has at any depth, even if the line gets longer than the width."""


def _lines_of(rows: Iterable[_Row], width: int) -> Iterator[list[_Span]]:
    """Yield a line for each row; they fit into `width` columns where possible."""
    rows = list(rows)
    widest = max(len(row.size) for row in rows)
    lines: list[list[_Span]] = []
    for row in rows:
        room = max(width - len(row.guides) - widest - 2, _LEAST_ROOM)
        lines.append([_Span("guide", row.guides), *_fitted(row.spans, room)])
    lengths = [sum(len(span.text) for span in line) for line in lines]
    right = max(lengths) + 2 + widest
    for row, line, length in zip(rows, lines, lengths, strict=True):
        yield [*line, _Span("", row.size.rjust(right - length))] if row.size else line


def _fitted(spans: Iterable[_Span], room: int) -> Iterator[_Span]:
    """Yield spans that take no more than `room` columns."""
    if sum(len(span.text) for span in spans) <= room:
        yield from spans
        return
    room -= len("...")
    for role, text in spans:
        yield _Span(role, text[:room])
        room = max(room - len(text), 0)
    yield _Span("", "...")


def _encodable(text: str, encoding: str) -> str:
    """Return a text in characters that an encoding has."""
    try:
        "├─└│".encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(str.maketrans("├─└│", "|-`|"))
    return text.encode(encoding, "backslashreplace").decode(encoding)
