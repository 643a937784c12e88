"""A tree without the data of its arrays, as JSON that another process can compare.

Everything is keyed by path, as ``jax.tree_util.keystr`` formats it: the class of each node, each
static, and each leaf, as a checkpoint or a digest needs it. A leaf that is not an array (the
activation function in an `equinox.nn.MLP`) is described like a static.
"""

import collections
import dataclasses
import operator
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from leafwise._objects.attributes import is_itself
from leafwise._objects.source.code import is_installed_module
from leafwise._objects.stand_ins import Verbatim
from leafwise._objects.text import got, shorten_both
from leafwise._statics.key import StaticKey, verify
from leafwise._statics.portable import (
    Json,
    PortableReader,
    by_step,
    class_name,
    dump,
    format_json,
)
from leafwise._trees.nodes import Node, TreeWalk
from leafwise.errors import Difference

LeafEntry: TypeAlias = Callable[[Any], dict[str, Json] | str | None]
"""Returns the entry for an array, a string on what is wrong with it, or None for a non-array."""

Fits: TypeAlias = Callable[[Json, Json], bool]

Record: TypeAlias = dict[str, Json]
"""A tree without its data: an entry for each path, in the order of a walk over the tree.

``{"class": "module:qualname"}`` for a node, or the bare name of a builtin container;
``{"static": ...}``; for an array ``{"array": {"dtype": ..., "shape": ...}}``, with ``key`` instead
of ``dtype`` for PRNG keys; and ``{"array": {"python": "float"}}`` for Python scalars.
"""


def of_kind(record: Record, kind: str) -> dict[str, Json]:
    """Return the entries of one kind, ``class``, ``static`` or ``array``, by path."""
    return {path: entry[kind] for path, entry in record.items() if kind in entry}


def describe_tree(
    tree: Any, leaf_entry: LeafEntry, reader: PortableReader | None = None, start: str = ""
) -> "Described":
    """Describe a tree, with paths that begin with `start`; leaves may be `ShapeDtypeStruct`."""
    walk = TreeWalk(lambda leaf: leaf, frozenset())
    described = Described(walk.leaves, type(tree).__name__, leaf_entry, reader)
    described.add(walk.node_or_leaf(tree), start)
    return described


class Described:
    """A tree's record and leaves, and the parts that cannot be saved, by path."""

    def __init__(
        self, leaves: list[Any], root: str, leaf_entry: LeafEntry, reader: PortableReader | None
    ) -> None:
        self._leaf_entry = leaf_entry
        self._reader = PortableReader() if reader is None else reader
        self.root = root
        self.record: Record = {}
        self.leaf_paths: list[str | None] = []
        self.leaves = leaves
        self.opaque = self._reader.opaque
        self.problems: list[tuple[str, str]] = []
        self.twice: list[str] = []

    @property
    def arrays(self) -> dict[str, Any]:
        pairs = zip(self.leaf_paths, self.leaves, strict=True)
        return {path: leaf for path, leaf in pairs if path is not None}

    def add(self, node: Node | int, path: str) -> None:
        """Add the node or leaf at `path`, and all below; no recursion, as trees can be deep."""
        todo = [(node, path)]
        while todo:
            node, path = todo.pop()
            if isinstance(node, int):
                self._leaf(self.leaves[node], path)
                continue
            self._node(node, path)
            todo += [
                (child, path + step)
                for index, (step, child) in enumerate(zip(node.steps, node.children, strict=True))
                if not node.is_hash_node(index)
            ][::-1]

    def _node(self, node: Node, path: str) -> None:
        """Add a node, without its children."""
        if isinstance(node.aux, StaticKey):
            verify(node.aux)
        self._put(path, "class", self._class(node, path))
        for name, value in zip(node.names, node.values, strict=True):
            self.add_static(value, path + name, by_content=node.compared_by(name) == "content")
        if _has_own_data(node):
            self.add_static(node.aux, f"{path}.<static>")

    def _put(self, path: str, kind: str, entry: Json) -> None:
        """Add an entry, marked ``again`` if its path is taken."""
        while path in self.record:
            self.twice.append(path)
            path = f"{path} again"
        self.record[path] = {kind: entry}

    def _class(self, node: Node, path: str) -> Json:
        """Return the class, with the keys of a dict unless they are strings in JAX's order."""
        name = class_name(node.cls)
        keys = node.aux if node.cls in _DICTS else None
        if isinstance(keys, tuple) and len(keys) == 2 and isinstance(keys[1], tuple):  # noqa: PLR2004
            keys = keys[1]  # after the factory of a defaultdict
        if not isinstance(keys, tuple) or (node.cls is dict and set(map(type, keys)) <= {str}):
            return name
        return {"class": name, "parts": {"keys": self._reader.read(keys, path)}}

    def add_static(self, value: Any, path: str, *, by_content: bool = False) -> None:
        self._put(path, "static", self._reader.read(value, path, by_content=by_content))

    def _leaf(self, leaf: Any, path: str) -> None:
        entry = self._leaf_entry(leaf)
        self.leaf_paths.append(None if entry is None else path)
        if entry is None:
            self.add_static(leaf, path)
        elif isinstance(entry, str):
            self.problems.append((path, f"{entry}\n  got: {got(leaf)}"))
        else:
            self._put(path, "array", entry)


_DICTS: Final = (dict, collections.OrderedDict, collections.defaultdict)


def _has_own_data(node: Node) -> bool:
    """Return whether a node has aux_data of its own that has to be compared."""
    if node.aux is None or isinstance(node.aux, StaticKey) or node.cls in _DICTS:
        return False
    if dataclasses.is_dataclass(node.cls):  # its fields are enough, if children have their names
        return not node.names_children or _knows_more(node)
    return not node.names and node.cls is not tuple and node.aux is not node.cls  # a namedtuple's


def _knows_more(node: Node) -> bool:
    """Return whether aux_data has more than the names and values of a dataclass's fields."""
    if is_installed_module(node.cls.__module__):  # an equinox wrapper lists names and docstrings
        return False
    known = collections.Counter(id(atom) for atom in _atoms(list(node.values)))
    names: set[Any] = {field.name for field in dataclasses.fields(node.cls)}
    for atom in _atoms(node.aux):
        if known[id(atom)]:
            known[id(atom)] -= 1
        elif atom is None or atom is node.cls or (isinstance(atom, str) and atom in names):
            continue
        elif not (is_itself(atom) and is_installed_module(type(atom).__module__)):
            return True  # left out: a library's sentinel for a field that was never set
    return False


def _atoms(value: Any) -> Iterator[Any]:
    """Yield the items in plain containers, at any depth."""
    if type(value) in {tuple, list}:
        for item in value:
            yield from _atoms(item)
    elif type(value) is dict:
        yield from _atoms([*value, *value.values()])
    else:
        yield value


def differences(
    saved: Record, target: Record, root: str = "", fits: Fits = operator.eq
) -> tuple[Difference, ...]:
    """Return all differences; below a node that only one of them has, none are listed."""
    paths = dict.fromkeys((*target, *saved))
    cut = [
        path
        for path in paths
        if ("class" in saved.get(path, ())) != ("class" in target.get(path, ()))
    ]
    return tuple(
        Difference(root + at, *shorten_both(Verbatim(before), Verbatim(after), _WIDTH))
        for path in paths
        if not any(is_below(path, above) for above in cut)
        for at, before, after in _compare(path, saved.get(path), target.get(path), fits)
    )


def _compare(
    path: str, saved: dict[str, Json] | None, target: dict[str, Json] | None, fits: Fits
) -> Iterator[tuple[str, str, str]]:
    """Yield the paths at which two entries differ, and both values as text."""
    to_text: Callable[[Any], str] = _format_entry
    parts: list[tuple[str, Any, Any]] = [(path, saved, target)]
    if saved is not None and target is not None and saved.keys() == target.keys():
        if "static" in saved:
            to_text, parts = format_json, _inside(path, saved["static"], target["static"])
        elif dump(saved) == dump(target) or (
            "array" in saved and fits(saved["array"], target["array"])
        ):
            return
    for at, before, after in parts:
        texts = to_text(before), to_text(after)
        yield at, *(texts if texts[0] != texts[1] else (dump(before), dump(after)))


def _inside(path: str, saved: Json, target: Json) -> list[tuple[str, Json, Json]]:
    """Return the paths at which two statics differ, as deep as both have the same parts."""
    if dump(saved) == dump(target):
        return []
    parts, others = by_step(saved), by_step(target)
    changes: list[tuple[str, Json, Json]] = []
    if parts and parts.keys() == others.keys() and saved["class"] == target["class"]:
        for step in others:
            changes += _inside(path + step, parts[step], others[step])
    return changes or [(path, saved, target)]  # the whole, if only the order differs


def is_below(path: str, above: str) -> bool:
    return path.startswith(above) and path[len(above) :][:1] in {".", "["}


def _format_entry(item: dict[str, Json] | None) -> str:
    match item:
        case {"static": entry}:
            return f"the static {format_json(entry)}"
        case {"array": entry}:
            return format_array(entry)
        case {"class": entry}:
            return entry if isinstance(entry, str) else format_json(entry)
        case _:
            return "nothing"


def format_array(entry: Json) -> str:
    """Return ``float32[3,4]`` with its other entries, or the type of a Python scalar."""
    if "python" in entry:
        return f"a Python {entry['python']}"
    shape = ",".join(map(str, entry["shape"]))
    rest = {key: value for key, value in entry.items() if key not in {"key", "dtype", "shape"}}
    words = ", ".join(key if value is True else f"{key} {value}" for key, value in rest.items())
    return f"{entry.get('key', entry.get('dtype'))}[{shape}]{f' ({words})' if words else ''}"


_WIDTH: Final = 100
