"""The rows of a picture: which nodes, leaves and statics are shown, and their texts."""

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

import jax

from leafwise._display.measure import (
    Branch,
    Totals,
    array_type,
    is_deleted,
    measure,
    path_of,
    total,
)
from leafwise._display.words import count, cut
from leafwise._objects.describe import DescribeOptions, describe
from leafwise._objects.text import shorten
from leafwise._trees.leaves import LeafKind, say_sharding
from leafwise._trees.nodes import Node
from leafwise._trees.roles import names_of

_MOST_ROWS: Final = 400
_MOST_LEVELS: Final = 20
_LONGEST: Final = 400


class Kind(StrEnum):
    """What a row shows."""

    NODE = "node"
    LEAF = "leaf"
    STATIC = "static"
    PROBLEM = "problem"
    ELIDED = "elided"


class Row(NamedTuple):
    """One row: texts only, nothing of the tree itself.

    Attributes:
        depth: How many nodes it is below the root.
        last: Whether it is the last of its node.
        kind: What it shows.
        step: The step from the node above: ``.w``, ``[0]``, ``['k']``; empty for the root.
        text: A class, a dtype and shape, or a static value.
        notes: What else there is to say.
        totals: What it amounts to; None for a static.
        opened: Whether what is below has rows of its own.
    """

    depth: int
    last: bool
    kind: Kind
    step: str
    text: str
    notes: tuple[str, ...] = ()
    totals: Totals | None = None
    opened: bool = False


class _Static(NamedTuple):
    """A static of a node; a value that was not meant to be printed is not."""

    value: Any
    printed: bool


_Entry = tuple[str, Branch | _Static]


def rows_of(tree: Any, depth: int | None, most: int) -> Iterator[Row]:
    """Yield the rows of a tree, from the top down.

    Args:
        tree: Any pytree.
        depth: How many levels below the root; None for as many as make a picture.
        most: How many children of one node.
    """
    root = measure(tree)
    deepest = _fitting_depth(root, most) if depth is None else depth
    todo: list[tuple[Row, Branch | None]]
    todo = [(_row(root, "", 0, last=True, opened=_has_entries(root)), root)]
    while todo:
        row, part = todo.pop()
        if part is not None and row.opened:
            if row.depth < deepest:
                todo += _below(part, row.depth, most)
            else:
                row = _folded(row, part)
        yield _clean(row)


def _folded(row: Row, part: Branch) -> Row:
    """Say what is below a node whose rows are not shown."""
    leaves = count(part.totals.leaves, "leaf", "leaves") if row.depth else ""
    notes = (*row.notes, f"{leaves} not shown".strip())
    return row._replace(opened=False, notes=notes)


def _clean(row: Row) -> Row:
    """Let nothing through that a terminal or a browser would obey."""
    notes = tuple(cut(note, _LONGEST) for note in row.notes)
    return row._replace(step=cut(row.step, _LONGEST), text=cut(row.text, _LONGEST), notes=notes)


def _fitting_depth(root: Branch, most: int) -> int:
    """Return how many levels make no more rows than a picture should have."""
    level, rows, depth = [root], 1, 0
    while level and depth < _MOST_LEVELS:
        below = [child for part in level for _, child in _ends(part.children, most)]
        statics = sum(len(part.node.names) for part in level if part.node is not None)
        rows += len(below) + statics
        if depth and rows > _MOST_ROWS:
            break
        level, depth = below, depth + 1
    return depth


def _ends(items: Sequence[Any], most: int) -> Sequence[Any]:
    hidden = _hidden(len(items), most)
    return [*items[: hidden.start], *items[hidden.stop :]]


def _hidden(number: int, most: int) -> slice:
    """Return which of so many are left out: those in the middle, if they are several."""
    if number <= most + 1:
        return slice(number, number)
    return slice(most - most // 2, number - most // 2)


def _below(part: Branch, depth: int, most: int) -> list[tuple[Row, Branch | None]]:
    """Return the rows below a node, the last one first."""
    entries = _entries(part)
    hidden = _hidden(len(entries), most)
    made: list[tuple[Row, Branch | None]] = []
    for place, (step, found) in enumerate(entries):
        last = place == len(entries) - 1
        if place == hidden.start and hidden.stop > hidden.start:
            made.append((_elided(entries[hidden], depth + 1), None))
        if hidden.start <= place < hidden.stop:
            continue
        if isinstance(found, Branch):
            row = _row(found, step, depth + 1, last=last, opened=_has_entries(found))
            made.append((row, found))
        else:
            made.append((_static_row(found, step, depth + 1, last=last), None))
    return made[::-1]


def _elided(entries: Sequence[_Entry], depth: int) -> Row:
    parts = [found for _, found in entries if isinstance(found, Branch)]
    totals = total(parts)
    words = f"{len(entries):,} more"
    notes = [count(totals.leaves, "leaf", "leaves")] if totals.leaves != len(parts) else []
    return Row(depth, False, Kind.ELIDED, "", words, tuple(notes), totals)  # noqa: FBT003


def _row(part: Branch, step: str, depth: int, *, last: bool, opened: bool) -> Row:
    """Return the row of a node or leaf."""
    kind, text, notes = _words(part)
    if kind is Kind.NODE and not depth:
        notes = [count(part.totals.leaves, "leaf", "leaves"), *notes]
    opened = opened and kind is Kind.NODE
    return Row(depth, last, kind, step, text, tuple(notes), part.totals, opened)


def _words(part: Branch) -> tuple[Kind, str, list[str]]:
    if part.leaf is not None:
        text, notes = _leaf_words(part)
        if part.seen is not None:
            notes.append(f"the same as {_named(path_of(part.seen[0]))}")
        return Kind.LEAF, text, notes
    name = class_name(type(part.value))
    if part.node is None:
        where = f": {_named(path_of(part.seen[0]))}" if part.seen is not None else ""
        return Kind.PROBLEM, name, [part.problem + where]
    return Kind.NODE, _node_text(part, name), []


def _named(path: str) -> str:
    return path.removeprefix(".") or "the whole"


def class_name(cls: type) -> str:
    """Return the name of a class, without the function that it was made in."""
    return cls.__qualname__.rpartition("<locals>.")[2]


def _node_text(part: Branch, name: str) -> str:
    if part.value is None:
        return "None"
    plain = isinstance(part.value, list | tuple | dict) and not hasattr(part.value, "_fields")
    return f"{name} of {len(part.children):,}" if plain else name


def _leaf_words(part: Branch) -> tuple[str, list[str]]:
    """Return the type of a leaf, and what is out of the ordinary about it."""
    leaf, value = part.leaf, part.value
    assert leaf is not None  # noqa: S101  # for the type checkers
    text = array_type(value, leaf)
    if leaf.kind is LeafKind.INVALID:
        kind = class_name(type(value))
        if is_deleted(leaf):
            return text, ["deleted"]
        if text:
            return text, ["which JAX refuses"]
        return _value(value), [kind, "which JAX refuses" if _is_number(value) else "no array"]
    notes: list[str] = []
    if leaf.kind is LeafKind.PYTHON_SCALAR:
        notes.append(f"Python {class_name(type(value))} {_value(value)}")
    elif leaf.kind is LeafKind.NUMPY_SCALAR:
        notes.append(f"numpy scalar {value!s}")
    elif leaf.kind is LeafKind.OTHER:
        notes.append(class_name(type(value)))
    elif leaf.kind is not LeafKind.JAX_ARRAY:
        notes.append(_KIND_WORDS.get(leaf.kind, str(leaf.kind)))
    if leaf.weak_type:
        notes.append("weak type")
    placed = leaf.sharding if leaf.sharding is not None else _wanted_sharding(value)
    if placed is not None:
        notes += _placed(placed)
    return text, notes


_KIND_WORDS: Final = {
    LeafKind.NUMPY_ARRAY: "numpy",
    LeafKind.TRACER: "traced",
    LeafKind.SHAPE_DTYPE_STRUCT: "abstract",
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex)


def _wanted_sharding(value: Any) -> Any:
    return value.sharding if isinstance(value, jax.ShapeDtypeStruct) else None


def _placed(sharding: Any) -> list[str]:
    """Say where an array lies, unless it lies where JAX puts one by default."""
    try:
        devices = set(sharding.device_set)
        memory, usual = sharding.memory_kind, next(iter(devices)).default_memory().kind
        words = [] if devices == {_default_device()} else [say_sharding(sharding)]
        return words + ([f"in {memory}"] if memory not in (None, usual) else [])
    except Exception:  # noqa: BLE001  # an abstract mesh has no devices
        return [shorten(sharding)]


def _default_device() -> Any:
    configured: Any = jax.config.jax_default_device
    if configured is None or isinstance(configured, str):
        return jax.local_devices(backend=configured)[0]
    return configured


def _static_row(static: _Static, step: str, depth: int, *, last: bool) -> Row:
    text, notes = (_value(static.value), ()) if static.printed else ("...", ("repr=False",))
    return Row(depth, last, Kind.STATIC, step, text, notes)


def _value(value: Any) -> str:
    try:
        return describe(value, DescribeOptions(short=True))
    except Exception:  # noqa: BLE001  # too deep, or the user's own code
        return shorten(value)


def _has_entries(part: Branch) -> bool:
    return bool(part.children or (part.node is not None and _statics(part.node, part.value)))


def _entries(part: Branch) -> list[_Entry]:
    """Return children and statics of a node, fields in the order of their declaration."""
    node, value = part.node, part.value
    if node is None:
        return []
    found: list[_Entry] = [(node.steps[place], child) for place, child in part.children]
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
"""Whose aux_data are the keys, which the steps show."""


def _statics(node: Node, value: Any) -> Sequence[tuple[str, Any]]:
    """Return the steps to the statics of a node, and the values."""
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
