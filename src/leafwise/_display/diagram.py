"""`show`: a pytree of any library as a text diagram."""

import dataclasses
import html
import itertools
import math
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

import jax
import numpy as np

from leafwise._findings.words import clean, count, size
from leafwise._objects.classes import is_a
from leafwise._objects.describe import DescribeOptions, describe
from leafwise._objects.interrupts import or_default
from leafwise._objects.text import local_name, shorten
from leafwise._objects.wrong_arguments import named
from leafwise._trees.leaves import Leaf, LeafKind, LeafRecorder, format_sharding
from leafwise._trees.nodes import Node, TreeWalk, walk

_MOST_ROWS: Final = 400
_MOST_LEVELS: Final = 20
_INDENTED: Final = 'style="padding-left:1.2em"'


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Diagram:
    """A tree as a diagram, as `leafwise.show` returns it.

    ``print`` it, or pass it to ``rich.print`` for colours. It holds only strings and numbers,
    nothing of the tree itself.

    Attributes:
        nbytes: The total bytes of all arrays in the tree; each array counts once.
        leaves: The number of leaves in the tree.
    """

    nbytes: int
    leaves: int
    _rows: tuple["_Row", ...]

    def __str__(self) -> str:
        """Return the text in the terminal's width, in characters that stdout can encode."""
        lines = _lines_of(self._rows, shutil.get_terminal_size().columns)
        text = "\n".join("".join(span.text for span in line) for line in lines)
        return _encodable(text, getattr(sys.stdout, "encoding", None) or "utf-8")

    __repr__ = __str__  # so that a prompt shows it

    def _repr_html_(self) -> str:
        """Return nested ``<details>`` for notebooks; branches below the second level are folded."""
        levels = [len(row.guides) // 3 for row in self._rows]  # a guide has three characters
        parts = ['<div style="font-family:monospace;max-width:60em">']
        for row, level, below in zip(self._rows, levels, [*levels[1:], 0], strict=True):
            texts = [(span.style, html.escape(span.text)) for span in row.spans]
            line = "".join(f"<b>{text}</b>" if style == "bold" else text for style, text in texts)
            line += f' <span style="float:right">{row.size}</span>'
            fold = f"<details {_INDENTED}{' open' * (level in {0, 1})}><summary>{line}</summary>"
            ends = "</details>" * (level - below)
            parts.append(fold if below > level else f"<div {_INDENTED}>{line}</div>{ends}")
        return "".join([*parts, "</div>"])

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        """Yield the lines in colour, for rich."""
        from rich.text import Text  # noqa: PLC0415  # only rich calls this

        for line in _lines_of(self._rows, options.max_width):
            spans = [(_encodable(span.text, options.encoding), span.style) for span in line]
            yield Text.assemble(*spans, no_wrap=True, overflow="ignore")


@named
def show(tree: Any, /, *, depth: int | None = None, children: int = 24) -> Diagram:
    """Draw any pytree: its classes, its leaves and statics, and the bytes of each branch.

    It takes nodes of any library, abstract values and tracers. It neither reads the data of
    arrays nor moves them. An array in several places counts once, at the first of them, so the
    bytes of a branch are the sum of those below it. A Python number counts as the array that
    JAX converts it to.

    Args:
        tree: The pytree.
        depth: How many levels to show below the root; by default as many as fit into
            400 rows, and at most 20.
        children: How many children of one node to show, from the start and the end.

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
    drawing = _Drawing(tree, children)
    root = drawing.part("", drawing.root)
    if depth is None:
        depth = 1
        while depth < _MOST_LEVELS and drawing.count_rows(root, depth + 1) <= _MOST_ROWS:
            depth += 1
    rows = tuple(drawing.rows(root, ("", ""), depth))
    return Diagram(drawing.nbytes(root), len(root.leaves), rows)


class _Part(NamedTuple):
    """The content of a row: a node, a leaf, a static, or a note for children left out."""

    kind: Literal["node", "leaf", "static", "note"]
    step: str
    value: Any
    leaves: range = range(0)  # the indices of the leaves in it


class _Drawing:
    """A tree with its leaves and their bytes; an array in several places counts at the first."""

    def __init__(self, tree: Any, most: int) -> None:
        to_leaf = LeafRecorder()
        walk = TreeWalk(lambda value: (value, to_leaf(value)))
        self.root = walk.node_or_leaf(tree)
        self._leaves: list[tuple[Any, Leaf]] = walk.leaves  # kept alive, so that ids stay unique
        self._most = most
        self._places: dict[int, int] = {}  # the index of the first leaf of each array, by id
        sizes = [
            _nbytes_of(value, leaf) if self._first_place(place) == place else 0
            for place, (value, leaf) in enumerate(self._leaves)
        ]
        self._sums = [0, *itertools.accumulate(sizes)]

    def _first_place(self, place: int) -> int:
        value = self._leaves[place][0]
        is_array = is_a(value, jax.Array | np.ndarray)
        return self._places.setdefault(id(value), place) if is_array else place

    def nbytes(self, part: _Part) -> int:
        """Return the bytes of the arrays in a part, without those in earlier parts."""
        return self._sums[part.leaves.stop] - self._sums[part.leaves.start]

    def part(self, step: str, child: Node | int) -> _Part:
        if isinstance(child, int):
            return _Part("leaf", step, child, range(child, child + 1))
        return _Part("node", step, child, range(child.start, child.stop))

    def _below(self, part: _Part) -> list[_Part]:
        """Return the children and statics of a node, with a note for those left out."""
        if part.kind != "node":
            return []
        node: Node = part.value
        pairs = enumerate(zip(node.steps, node.children, strict=True))
        children = [self.part(*pair) for place, pair in pairs if not node.is_hash_node(place)]
        if len(children) > self._most + 1:
            start, stop = self._most - self._most // 2, len(children) - self._most // 2
            leaves = range(children[start].leaves.start, children[stop - 1].leaves.stop)
            text = f"... {stop - start:,} more, {count(len(leaves), 'leaf', 'leaves')}"
            children[start:stop] = [_Part("note", "", text, leaves)]
        return children + _statics_of(node)

    def count_rows(self, part: _Part, depth: int) -> int:
        below = self._below(part) if depth else []
        return 1 + sum(self.count_rows(child, depth - 1) for child in below)

    def rows(self, part: _Part, guides: tuple[str, str], depth: int) -> Iterator["_Row"]:
        """Yield the row of a part, after the first of `guides`, and the rows below it."""
        below = self._below(part)
        text, notes = self._text_and_notes(part)
        if below and not (depth and guides[0]):
            leaves = count(len(part.leaves), "leaf", "leaves")
            notes.append(leaves if depth else f"{leaves} not shown")
        styles = {"node": "cyan", "leaf": "green", "static": "magenta", "note": "dim"}
        spans = [_Span(styles[part.kind], text)]
        if part.step:
            sign = " = " if part.kind == "static" else ": "
            spans = [_Span("bold", part.step.removeprefix(".")), _Span("", sign), *spans]
        if notes:
            spans += [_Span("", "  "), _Span("dim", ", ".join(notes))]
        nbytes = size(self.nbytes(part)) if part.leaves else ""
        cleaned = tuple(_Span(span.style, clean(span.text)) for span in spans)
        yield _Row(guides[0], cleaned, "static" if part.kind == "static" else nbytes)
        for place, child in enumerate(below if depth else [], 1):
            own, line = ("└─ ", "   ") if place == len(below) else ("├─ ", "│  ")
            yield from self.rows(child, (guides[1] + own, guides[1] + line), depth - 1)

    def _text_and_notes(self, part: _Part) -> tuple[str, list[str]]:
        if part.kind == "static":
            return describe(part.value, _SHORT), []
        if part.kind == "note":
            return part.value, []
        if part.kind == "leaf":
            value, leaf = self._leaves[part.value]
            notes = list(_leaf_notes(value, leaf))
            if (first := self._first_place(part.value)) != part.value:
                steps = next(path for path, found in walk(self.root) if found == first)
                notes.append(f"the same as {''.join(steps).removeprefix('.')}")
            return _format_type(value, leaf), notes
        cls: type = part.value.cls
        name = "None" if cls is type(None) else local_name(cls)
        is_plain = issubclass(cls, list | tuple | dict) and not hasattr(cls, "_fields")
        return f"{name} of {len(part.value.children):,}" if is_plain else name, []


@or_default(0)  # a symbolic dimension, an abstract value of another kind
def _nbytes_of(value: Any, leaf: Leaf) -> int:
    """Return the bytes of a leaf; 0 if it is deleted, or if its shape is symbolic."""
    if is_a(value, np.ndarray | np.generic):
        return int(value.nbytes)
    if leaf.aval is None or leaf.kind is LeafKind.INVALID:
        return 0
    return int(math.prod(leaf.aval.shape) * leaf.aval.dtype.itemsize)


def _statics_of(node: Node) -> list[_Part]:
    """Return the statics of a node, except fields with ``repr=False``."""
    cls: Any = node.cls
    pairs = [*zip(node.names, node.values, strict=True), *node.data.items()]
    if dataclasses.is_dataclass(cls):
        hidden = {f".{field.name}" for field in dataclasses.fields(cls) if not field.repr}
        pairs = [(step, item) for step, item in pairs if step not in hidden]
    elif not (pairs or node.is_keyed or node.aux is None or issubclass(cls, Mapping | tuple)):
        pairs = [("(aux_data)", node.aux)]
    return [_Part("static", *pair) for pair in pairs]


class _Span(NamedTuple):
    style: str
    text: str


class _Row(NamedTuple):
    """One row: the guides that link it to the node above, its text, and its size."""

    guides: str
    spans: tuple[_Span, ...]
    size: str


_SHORT: Final = DescribeOptions(short=True)


def _format_type(value: Any, leaf: Leaf) -> str:
    """Return ``float32[3,4]``; for NumPy, the array's own dtype, not the one JAX converts to."""
    if is_a(value, np.ndarray | np.generic):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    return describe(value, _SHORT) if leaf.aval is None else str(leaf.aval.str_short())


def _leaf_notes(value: Any, leaf: Leaf) -> Iterator[str]:
    if leaf.kind is LeafKind.PYTHON_SCALAR:
        yield f"Python {local_name(type(value))} {describe(value, _SHORT)}"
    elif leaf.kind is LeafKind.INVALID:
        yield f"{local_name(type(value))}, which JAX refuses" if leaf.aval is None else "deleted"
    elif leaf.kind is not LeafKind.JAX_ARRAY:
        yield _KIND_NOTES.get(leaf.kind, str(leaf.kind))
    if leaf.weak_type:
        yield "weak type"
    sharding = value.sharding if is_a(value, jax.ShapeDtypeStruct) else leaf.sharding
    try:
        if sharding is not None and sharding.device_set != {jax.local_devices()[0]}:
            yield format_sharding(sharding)
    except (ValueError, NotImplementedError):  # an abstract mesh has no devices
        yield shorten(sharding)


_KIND_NOTES: Final = {
    LeafKind.NUMPY_ARRAY: "numpy",
    LeafKind.OTHER: "numpy",
    LeafKind.TRACER: "traced",
    LeafKind.SHAPE_DTYPE_STRUCT: "abstract",
}

_LEAST_ROOM: Final = 24
"""The columns that a row has at any depth, even if the line exceeds the width."""


def _lines_of(rows: Iterable[_Row], width: int) -> Iterator[list[_Span]]:
    """Yield a line for each row; they fit into `width` columns where possible."""
    rows = list(rows)
    widest = max(len(row.size) for row in rows)
    lines: list[list[_Span]] = []
    for row in rows:
        room = max(width - len(row.guides) - widest - 2, _LEAST_ROOM)
        lines.append([_Span("dim", row.guides), *_fitted(row.spans, room)])
    lengths = [sum(len(span.text) for span in line) for line in lines]
    right = max(lengths) + 2 + widest
    for row, line, length in zip(rows, lines, lengths, strict=True):
        yield [*line, _Span("", row.size.rjust(right - length))] if row.size else line


def _fitted(spans: Iterable[_Span], room: int) -> Iterator[_Span]:
    if sum(len(span.text) for span in spans) <= room:
        yield from spans
        return
    room -= len("...")
    for style, text in spans:
        yield _Span(style, text[:room])
        room = max(room - len(text), 0)
    yield _Span("", "...")


def _encodable(text: str, encoding: str) -> str:
    try:
        "├─└│".encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(str.maketrans("├─└│", "|-`|"))
    return text.encode(encoding, "backslashreplace").decode(encoding)
