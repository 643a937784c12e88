"""What a tree is, apart from the data of its arrays, as JSON that another process can compare.

All is by path, as ``jax.tree_util.keystr`` writes it: the class of each node, each static,
the shape and dtype of each leaf. A leaf that is not an array (the activation function in an
`equinox.nn.MLP`) is described as a static is: there is nothing of it to save.
"""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._objects.text import got
from leafwise._statics.findings import is_tracer
from leafwise._statics.key import StaticKey, verify
from leafwise._trees.nodes import Node, TreeWalk
from leafwise.errors import CheckpointError, CheckpointMismatchError, Difference
from leafwise.interop._checkpoint.portable import (
    Json,
    PortableReader,
    class_name,
    dump,
    format_json,
)

VERSION: Final = 1
"""The version of the format: raised when an older leafwise could misread what is written."""

_FORMAT: Final = "leafwise tree"
SCALARS: Final = {kind.__name__: kind for kind in (bool, int, float, complex)}
"""The Python scalars that JAX takes for arrays, by name."""


@dataclasses.dataclass(frozen=True)
class Description:
    """A tree without its data.

    Attributes:
        classes: The class of each node, by path: ``module:qualname``, or the bare name of a
            builtin container.
        statics: Each static, by path, as JSON.
        leaves: What each array is, by path, in JAX's order: ``{"dtype": ..., "shape": ...}``,
            ``{"key": ..., "shape": ...}`` of PRNG keys, ``{"python": "float"}``.
    """

    classes: dict[str, Json]
    statics: dict[str, Json]
    leaves: dict[str, Json]

    def to_json(self) -> str:
        """Return the text that stands in a checkpoint."""
        head = f'"format": {json.dumps(_FORMAT)},\n"version": {VERSION}'
        parts = [f'"{part.name}": {_lines(getattr(self, part.name))}' for part in _parts()]
        return "{\n" + ",\n".join((head, *parts)) + "\n}\n"

    @staticmethod
    def from_json(text: str | bytes, where: str) -> "Description":
        """Return what `to_json` wrote.

        Raises:
            CheckpointError: It is something else, or of a newer version.
        """
        try:
            content = json.loads(text)
            version = content["version"] if content["format"] == _FORMAT else None
            parts = [content[part.name] for part in _parts()]
        except (ValueError, TypeError, LookupError) as error:
            msg = f"{where}: the description in it is damaged ({type(error).__name__}: {error})"
            raise CheckpointError(msg) from error
        if type(version) is int and version > VERSION:
            msg = (
                f"{where}: written by a newer leafwise: its format is {version}, and this one "
                f"reads up to {VERSION}\n  fix: install a newer leafwise"
            )
            raise CheckpointError(msg)
        dicts = all(isinstance(part, dict) for part in parts)
        if type(version) is not int or not dicts or not all(map(_is_entry, parts[2].values())):
            msg = f"{where}: the description in it is damaged"
            raise CheckpointError(msg)
        return Description(*parts)


def _parts() -> "tuple[dataclasses.Field[Any], ...]":
    return dataclasses.fields(Description)


def _lines(part: dict[str, Json]) -> str:
    """Return JSON with one path a line: for people to read and to compare."""
    lines = [f"\n  {json.dumps(path)}: {json.dumps(entry)}" for path, entry in part.items()]
    return "{" + ",".join(lines) + ("\n}" if lines else "}")


def _is_entry(entry: Any) -> bool:
    """Return whether this is what `leaf_entry` returns for an array."""
    if not isinstance(entry, dict):
        return False
    if entry.keys() == {"python"}:
        return entry["python"] in SCALARS
    sizes = entry.get("shape")
    if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
        return False
    try:
        return entry.keys() == {"key", "shape"} or bool(jnp.dtype(entry["dtype"]).name)
    except (TypeError, LookupError):
        return False


@dataclasses.dataclass(frozen=True)
class Described:
    """A tree and its description.

    Attributes:
        root: What its paths begin with in messages: the name of its class.
        description: What it is.
        leaf_paths: The path of each leaf in JAX's order; None for one that is not an array.
        leaves: All leaves in JAX's order.
        opaque: Statics that mean nothing to another process: paths, and what they are.
        problems: Leaves that can be neither saved nor restored: paths, and why.
    """

    root: str
    description: Description
    leaf_paths: list[str | None]
    leaves: list[Any]
    opaque: list[tuple[str, str]]
    problems: list[tuple[str, str]]

    @property
    def arrays(self) -> dict[str, Any]:
        """The leaves that are arrays, by path."""
        pairs = zip(self.leaf_paths, self.leaves, strict=True)
        return {path: leaf for path, leaf in pairs if path is not None}


def describe_tree(tree: Any, start: str = "") -> Described:
    """Describe a tree.

    Args:
        tree: Any pytree; its leaves may be `jax.ShapeDtypeStruct`.
        start: The path that it stands at.

    Raises:
        StaticMutatedError: A static of a leafwise class changed in place.
        CheckpointError: Two places of the tree have one path.
    """
    walk = TreeWalk(lambda leaf: leaf, frozenset())
    describer = _TreeDescriber(walk.leaves, type(tree).__name__)
    describer.add(walk.node_or_leaf(tree), start)
    return describer.described


class _TreeDescriber:
    def __init__(self, leaves: list[Any], root: str) -> None:
        self._reader = PortableReader()
        description = Description({}, {}, {})
        opaque = self._reader.opaque
        self.described = Described(root, description, [], leaves, opaque, [])
        self._paths: set[str] = set()

    def add(self, node: Node | int, path: str) -> None:
        """Add a node or a leaf, which stands at `path`."""
        if path in self._paths:
            msg = (
                f"{self.described.root}{path}: two places of the tree have this path, so what "
                f"is saved of one could be restored into the other\n"
                f"  fix: let the reprs of the dict's keys, or the key paths of the class, differ"
            )
            raise CheckpointError(msg)
        self._paths.add(path)
        if isinstance(node, int):
            self._leaf(self.described.leaves[node], path)
            return
        if isinstance(node.aux, StaticKey):
            verify(node.aux)
        self.described.description.classes[path] = self._class(node, path)
        for name, value in zip(node.names, node.values, strict=True):
            self._static(value, path + name)
        if not node.names and _has_own_data(node):
            self._static(node.aux, f"{path}.<static>")
        for index, (step, child) in enumerate(zip(node.steps, node.children, strict=True)):
            if not node.is_hash_node(index):
                self.add(child, path + step)

    def _class(self, node: Node, path: str) -> Json:
        """Return the class; with the keys of a dict, unless they are texts in JAX's order."""
        name = class_name(node.cls)
        if node.cls in _CONTAINERS:
            name = node.cls.__name__
        keys = node.aux if issubclass(node.cls, dict) else None
        if isinstance(keys, tuple) and len(keys) == 2 and isinstance(keys[1], tuple):  # noqa: PLR2004
            keys = keys[1]  # behind the factory of a defaultdict
        if not isinstance(keys, tuple) or (node.cls is dict and set(map(type, keys)) <= {str}):
            return name
        return {"class": name, "keys": self._reader.read(keys, path)}

    def _static(self, value: Any, path: str) -> None:
        self.described.description.statics[path] = self._reader.read(value, path)

    def _leaf(self, leaf: Any, path: str) -> None:
        described = self.described
        entry = leaf_entry(leaf)
        is_array = entry is not None
        described.leaf_paths.append(path if is_array else None)
        if isinstance(entry, str):
            described.problems.append((path, f"{entry}\n  got: {got(leaf)}"))
        elif entry is not None:
            described.description.leaves[path] = entry
        else:
            self._static(leaf, path)


_CONTAINERS: Final = (list, tuple, dict, type(None))


def _has_own_data(node: Node) -> bool:
    """Return whether a node of an unknown class has aux_data that makes a difference."""
    if node.aux is None or isinstance(node.aux, StaticKey) or issubclass(node.cls, dict):
        return False
    if dataclasses.is_dataclass(node.cls):  # whose fields say all, if children have their names
        return any(step.startswith("[<flat index") for step in node.steps)
    return node.cls is not tuple and node.aux is not node.cls  # that of a namedtuple


def leaf_entry(leaf: Any) -> dict[str, Json] | str | None:
    """Return the entry of an array; why it cannot be saved; None if it is not an array."""
    kind = type(leaf)
    if kind in SCALARS.values():
        return {"python": kind.__name__}
    if is_tracer(leaf):
        return (
            "a traced value exists only while JAX traces: it can be neither saved nor restored\n"
            "  fix: save and restore outside the traced function"
        )
    if not isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct):
        return None
    if isinstance(leaf, jax.Array) and leaf.is_deleted():
        return "the array was deleted or donated\n  fix: save it before, or save what came back"
    shape, dtype = [int(size) for size in leaf.shape], leaf.dtype
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return {"key": str(dtype), "shape": shape}
    number = dtype == np.bool_ or (jnp.issubdtype(dtype, np.number) and dtype.kind != "m")
    if not number or not dtype.isnative or dtype.char in "gG" or np.ma.isMaskedArray(leaf):
        return (
            f"JAX has no arrays like this one, of dtype {dtype}\n"
            f"  fix: convert it to a plain array of numbers, or keep it in a static field"
        )
    return {"dtype": str(dtype), "shape": shape}


def stored_dtype(entry: Json) -> Any:
    """Return the dtype of the array that is written for a leaf."""
    if "python" in entry:
        return np.asarray(SCALARS[entry["python"]]()).dtype
    return jnp.dtype(entry.get("dtype", "uint32"))  # the key data of PRNG keys


# ------------------------------------------------------------------------ comparing


def check_equal(saved: Description, target: Description, root: str, where: str, fix: str) -> None:
    """Refuse to restore one tree into another.

    Raises:
        CheckpointMismatchError: They differ; it names all places.
    """
    found = differences(saved, target, root)
    if found:
        lines = "".join(f"\n  {each}" for each in found)
        msg = f"{where}: what was saved does not fit the target{lines}\n  fix: {fix}"
        raise CheckpointMismatchError(msg, found)


def differences(saved: Description, target: Description, root: str) -> tuple[Difference, ...]:
    """Return all differences.

    Where one has a node and the other has not, what is below is left out.
    """
    before, after = _by_path(saved), _by_path(target)
    paths = dict.fromkeys((*after, *before))
    cut = {
        path
        for path in paths
        if ("class" in before.get(path, ())) != ("class" in after.get(path, ()))
    }
    found: list[Difference] = []
    for path in paths:
        if any(is_below(path, above) for above in cut):
            continue
        for where, one, other in _compare(path, before.get(path), after.get(path)):
            found.append(Difference(root + where, *_shorten_both(one, other)))
    return tuple(found)


def _by_path(description: Description) -> dict[str, dict[str, Json]]:
    """Return all nodes, statics and arrays of a tree by path, each as its kind and entry."""
    classes = {path: {"class": each} for path, each in description.classes.items()}
    statics = {path: {"static": each} for path, each in description.statics.items()}
    leaves = {path: {"array": each} for path, each in description.leaves.items()}
    return classes | statics | leaves


def _compare(
    path: str, one: dict[str, Json] | None, other: dict[str, Json] | None
) -> Iterator[tuple[str, str, str]]:
    """Yield the paths at which two entries differ, and both as text."""
    if one is not None and other is not None and one.keys() == other.keys():
        if "static" in one:
            for where, mine, its in _inside(path, one["static"], other["static"]):
                yield where, format_json(mine), format_json(its)
            return
        same = fits(one["array"], other["array"]) if "array" in one else dump(one) == dump(other)
        if same:
            return
    yield path, _format_entry(one), _format_entry(other)


def fits(saved: Json, target: Json) -> bool:
    """Return whether a saved array can be restored where `target` stands.

    A Python scalar and an array without dimensions fit if they are of one kind: the target
    says what comes back.
    """
    if "python" in saved or "python" in target:
        return _scalar_kind(saved) == _scalar_kind(target) is not None
    return dump(saved) == dump(target)


_KINDS: Final = {np.bool_: "bool", np.integer: "int", np.floating: "float"}


def _scalar_kind(entry: Json) -> str | None:
    if "python" in entry:
        return str(entry["python"])
    if entry["shape"] or "key" in entry:
        return None
    dtype = jnp.dtype(entry["dtype"])
    return next((kind for each, kind in _KINDS.items() if jnp.issubdtype(dtype, each)), "complex")


def _inside(path: str, one: Json, other: Json) -> Iterator[tuple[str, Json, Json]]:
    """Yield where two statics differ, as deep as both have the same parts."""
    if dump(one) == dump(other):
        return
    mine, its = _inner(one), _inner(other)
    if mine is None or its is None or mine.keys() != its.keys():
        yield path, one, other
        return
    for step, part in mine.items():
        yield from _inside(path + step, part, its[step])


def _inner(value: Json) -> dict[str, Json] | None:
    """Return the parts of a tuple, a mapping or a record, whose class is a part, too."""
    if isinstance(value, list):
        items: list[Any] = value
        return {f"[{index}]": item for index, item in enumerate(items)}
    if isinstance(value, dict) and value.keys() == {"FrozenMapping"}:
        return {f"[{format_json(key)}]": item for key, item in value["FrozenMapping"]}
    if isinstance(value, dict) and value.keys() == {"class", "fields"}:
        return {value["class"]: None} | {f".{key}": item for key, item in value["fields"].items()}
    return None


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
    """Return ``float32[3,4]``, or the kind of a Python scalar."""
    if "python" in entry:
        return f"a Python {entry['python']}"
    shape = ",".join(map(str, entry["shape"]))
    return f"{entry.get('key', entry.get('dtype'))}[{shape}]"


_WIDTH: Final = 100


def _shorten_both(one: str, other: str) -> tuple[str, str]:
    """Return two texts, cut where they still differ."""
    same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    if max(len(one), len(other)) > _WIDTH and same > _WIDTH // 2:
        one, other = (f"...{text[same - 20 :]}" for text in (one, other))
    return _cut(one), _cut(other)


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "..."
