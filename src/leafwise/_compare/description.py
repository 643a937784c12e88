"""What a tree is, apart from the data of its arrays, as JSON that another process can compare.

All is by path, as ``jax.tree_util.keystr`` writes it: the class of each node, each static, and
each leaf, as a checkpoint or a digest wants it. A leaf that is not an array (the activation
function in an `equinox.nn.MLP`) is described as a static is.
"""

import collections
import dataclasses
import operator
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from leafwise._compare.signature import Signature, value_of
from leafwise._objects.attributes import is_itself
from leafwise._objects.code import is_installed_module
from leafwise._objects.text import got
from leafwise._statics.key import StaticKey, content_names, verify
from leafwise._statics.portable import (
    Json,
    PortableReader,
    dump,
    format_both,
    format_json,
    parts_of,
)
from leafwise._trees.leaves import LeafKind
from leafwise._trees.nodes import Node, TreeWalk
from leafwise.errors import Difference

LeafEntry: TypeAlias = Callable[[Any], dict[str, Json] | str | None]
"""Returns what describes an array; as text, what is wrong with it; None if it is not one."""

Fits: TypeAlias = Callable[[Json, Json], bool]

Record: TypeAlias = dict[str, Json]
"""A tree without its data: what there is at each path, as a walk over the tree meets it.

``{"class": "module:qualname"}`` of a node, or the bare name of a builtin container;
``{"static": ...}``; and of an array ``{"array": {"dtype": ..., "shape": ...}}``, with ``key`` for
``dtype`` of PRNG keys, and ``{"array": {"python": "float"}}`` of Python scalars.
"""


def of_kind(record: Record, kind: str) -> dict[str, Json]:
    """Return the entries of one kind, by path: of ``class``, ``static`` or ``array``."""
    return {path: entry[kind] for path, entry in record.items() if kind in entry}


def describe_tree(
    tree: Any, leaf_entry: LeafEntry, reader: PortableReader | None = None, start: str = ""
) -> "Described":
    """Describe a tree, which stands at a path; its leaves may be `jax.ShapeDtypeStruct`."""
    walk = TreeWalk(lambda leaf: leaf, frozenset())
    described = Described(walk.leaves, type(tree).__name__, leaf_entry, reader)
    described.add(walk.node_or_leaf(tree), start)
    return described


def describe_signature(
    signature: Signature, leaf_entry: LeafEntry, reader: PortableReader
) -> Record:
    """Describe the arguments of a call that was recorded, each under the name of its parameter."""
    found = signature.leaf_records
    leaves = [each.value if each.kind is LeafKind.STATIC else each for each in found]
    described = Described(leaves, "", leaf_entry, reader)
    root = signature.root
    for name, value in zip(root.names, root.values, strict=True):
        by_content = isinstance(value, StaticKey) and bool(content_names(value.owner))
        described.add_static(value_of(value), signature.show(name), by_content)
    for step, child in zip(root.steps, root.children, strict=True):
        described.add(child, signature.show(step))
    return described.record


class Described:
    """A tree, its record, its leaves, and what of it cannot be saved, by path."""

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
        """The leaves that are arrays, by path."""
        pairs = zip(self.leaf_paths, self.leaves, strict=True)
        return {path: leaf for path, leaf in pairs if path is not None}

    def add(self, node: Node | int, path: str) -> None:
        """Add a node or a leaf, which stands at `path`."""
        if isinstance(node, int):
            self._leaf(self.leaves[node], path)
            return
        if isinstance(node.aux, StaticKey):
            verify(node.aux)
        self._put(path, "class", self._class(node, path))
        for name, value in zip(node.names, node.values, strict=True):
            self.add_static(value, path + name, node.compared_by(name) == "content")
        if _has_own_data(node):
            self.add_static(node.aux, f"{path}.<static>")
        for index, (step, child) in enumerate(zip(node.steps, node.children, strict=True)):
            if not node.is_hash_node(index):
                self.add(child, path + step)

    def _put(self, path: str, kind: str, entry: Json) -> None:
        """Add an entry, with a mark if two places have its path."""
        while path in self.record:
            self.twice.append(path)
            path = f"{path} again"
        self.record[path] = {kind: entry}

    def _class(self, node: Node, path: str) -> Json:
        """Return the class; with the keys of a dict, unless they are texts in JAX's order."""
        name = self._reader.class_name(node.cls)
        keys = node.aux if node.cls in _DICTS else None
        if isinstance(keys, tuple) and len(keys) == 2 and isinstance(keys[1], tuple):  # noqa: PLR2004
            keys = keys[1]  # behind the factory of a defaultdict
        if not isinstance(keys, tuple) or (node.cls is dict and set(map(type, keys)) <= {str}):
            return name
        return {"class": name, "keys": self._reader.read(keys, path)}

    def add_static(self, value: Any, path: str, by_content: bool = False) -> None:  # noqa: FBT001, FBT002  # one switch
        """Add a static, which stands at `path`."""
        read = self._reader.read_by_content if by_content else self._reader.read
        self._put(path, "static", read(value, path))

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
    """Return whether a node of an unknown class has aux_data that makes a difference."""
    if node.aux is None or isinstance(node.aux, StaticKey) or node.cls in _DICTS:
        return False
    if dataclasses.is_dataclass(node.cls):  # whose fields say all, if children have their names
        return any(step.startswith("[<flat index") for step in node.steps) or _knows_more(node)
    return not node.names and node.cls is not tuple and node.aux is not node.cls  # a namedtuple's


def _knows_more(node: Node) -> bool:
    """Return whether aux_data has more in it than the names and values of a dataclass's fields."""
    if is_installed_module(
        node.cls.__module__
    ):  # a wrapper of equinox's lists names and docstrings
        return False
    known = collections.Counter(id(atom) for atom in _atoms(list(node.values)))
    names: set[Any] = {field.name for field in dataclasses.fields(node.cls)}
    for atom in _atoms(node.aux):
        if known[id(atom)]:
            known[id(atom)] -= 1
        elif atom is None or atom is node.cls or (isinstance(atom, str) and atom in names):
            continue
        elif not (is_itself(atom) and is_installed_module(type(atom).__module__)):
            return True  # what is left out is a mark of a library's, for a field that was never set
    return False


def _atoms(value: Any) -> Iterator[Any]:
    """Yield what stands in plain containers."""
    if type(value) in {tuple, list}:
        for item in value:
            yield from _atoms(item)
    elif type(value) is dict:
        yield from _atoms([*value, *value.values()])
    else:
        yield value


# ------------------------------------------------------------------------ comparing


def differences(
    saved: Record, target: Record, root: str = "", fits: Fits = operator.eq
) -> tuple[Difference, ...]:
    """Return all differences; where one alone has a node, what is below is left out."""
    paths = dict.fromkeys((*target, *saved))
    cut = [
        path
        for path in paths
        if ("class" in saved.get(path, ())) != ("class" in target.get(path, ()))
    ]
    return tuple(
        Difference(root + where, *_shorten_both(one, other))
        for path in paths
        if not any(is_below(path, above) for above in cut)
        for where, one, other in _compare(path, saved.get(path), target.get(path), fits)
    )


def _compare(
    path: str, one: dict[str, Json] | None, other: dict[str, Json] | None, fits: Fits
) -> Iterator[tuple[str, str, str]]:
    """Yield the paths at which two entries differ, and both as text."""
    if one is not None and other is not None and one.keys() == other.keys():
        if "static" in one:
            for where, mine, its in _inside(path, one["static"], other["static"]):
                yield where, *format_both(mine, its)
            return
        same = fits(one["array"], other["array"]) if "array" in one else dump(one) == dump(other)
        if same:
            return
    texts = _format_entry(one), _format_entry(other)
    yield path, *(texts if texts[0] != texts[1] else (dump(one), dump(other)))


def _inside(path: str, one: Json, other: Json) -> Iterator[tuple[str, Json, Json]]:
    """Yield where two statics differ, as deep as both consist of the same parts in one order."""
    if dump(one) == dump(other):
        return
    mine, its = parts_of(one), parts_of(other)
    if not mine or not its or [each for each, _, _ in mine] != [each for each, _, _ in its]:
        yield path, one, other
        return
    for (_, step, part), (_, _, same) in zip(mine, its, strict=True):
        yield from _inside(path + step, part, same)


def in_one_order(value: Json) -> Json:
    """Return JSON in which the members of sets have one order."""
    if isinstance(value, dict):
        made = {key: in_one_order(each) for key, each in value.items()}
        return made | ({"members": sorted(made["members"], key=dump)} if "members" in made else {})
    return [in_one_order(each) for each in value] if isinstance(value, list) else value


def is_below(path: str, above: str) -> bool:
    """Return whether a path leads through another one."""
    return path.startswith(above) and path[len(above) :][:1] in {".", "["}


def is_at_or_below(path: str, above: str) -> bool:
    """Return whether a path is another one, or leads through it."""
    return path == above or is_below(path, above)


# ------------------------------------------------------------------------ formatting


def _format_entry(item: dict[str, Json] | None) -> str:
    if item is None:
        return "nothing"
    ((kind, entry),) = item.items()
    if kind == "static":
        return f"the static {format_json(entry)}"
    if kind == "array":
        return format_array(entry)
    if isinstance(entry, str):
        return entry
    return f"{entry['class']} with keys {format_json(entry['keys'])}"


def format_array(entry: Json) -> str:
    """Return ``float32[3,4]`` with what else there is of it, or the kind of a Python scalar."""
    if "python" in entry:
        return f"a Python {entry['python']}"
    shape = ",".join(map(str, entry["shape"]))
    rest = {key: value for key, value in entry.items() if key not in {"key", "dtype", "shape"}}
    words = ", ".join(key if value is True else f"{key} {value}" for key, value in rest.items())
    return f"{entry.get('key', entry.get('dtype'))}[{shape}]{f' ({words})' if words else ''}"


_WIDTH: Final = 100


def _shorten_both(one: str, other: str) -> tuple[str, str]:
    """Return two texts, cut where they still differ."""
    pairs = enumerate(zip(one, other, strict=False))
    same = next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
    if max(len(one), len(other)) > _WIDTH and same > _WIDTH // 2:
        one, other = (f"...{text[same - 20 :]}" for text in (one, other))
    return _cut(one), _cut(other)


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "..."
