"""What a tree is, apart from the data of its arrays, as JSON that another process can compare.

All is by path, as ``jax.tree_util.keystr`` writes it: the class of each node, each static,
the shape and dtype of each leaf. A leaf that is not an array (the activation function in an
`equinox.nn.MLP`) is described as a static is: there is nothing of it to save.
"""

import collections
import dataclasses
import functools
import json
import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._objects.attributes import is_itself
from leafwise._objects.code import is_installed_module
from leafwise._objects.text import got, shorten
from leafwise._statics.findings import is_tracer
from leafwise._statics.key import StaticKey, verify
from leafwise._trees.nodes import Node, TreeWalk
from leafwise.errors import CheckpointError, CheckpointMismatchError, Difference
from leafwise.interop._checkpoint.files import damaged, read_json
from leafwise.interop._checkpoint.portable import (
    Json,
    PortableReader,
    class_name,
    dump,
    format_both,
    format_json,
    parts_of,
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
        fields = dataclasses.fields(self)
        parts = [f'"{part.name}": {_lines(getattr(self, part.name))}' for part in fields]
        return "{\n" + ",\n".join((head, *parts)) + "\n}\n"

    @staticmethod
    def from_json(text: str | bytes, where: str) -> "Description":
        """Return what `to_json` wrote.

        Raises:
            CheckpointError: It is something else, or of a newer version.
        """
        content = read_json(text, where)
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise damaged(where, "the description in it is not one of a leafwise tree")
        version = content.get("version")
        if type(version) is int and version > VERSION:
            msg = (
                f"{where}: written by a newer leafwise: its format is {shorten(version)}, and this "
                f"one reads up to {VERSION}\n  fix: install a newer leafwise"
            )
            raise CheckpointError(msg)
        if type(version) is not int or version != VERSION:
            raise damaged(where, f"the version of its description is {shorten(version)}")
        parts: dict[str, dict[str, Json]] = {}
        for name in _CHECKS:
            part = content.get(name)
            if not isinstance(part, dict):
                raise damaged(where, f"{name} should be a dict by path, and is {shorten(part)}")
            parts[name] = part
            wrong = next((path for path, each in part.items() if not _CHECKS[name](each)), None)
            if wrong is not None:
                what = f"{wrong!r} in {name} should be {_SHOULD_BE[name]}"
                raise damaged(where, f"{what}, and is {shorten(part[wrong])}")
        paths = collections.Counter(path for part in parts.values() for path in part)
        if twice := [path for path, count in paths.items() if count > 1]:
            raise damaged(where, f"two things at one path: {', '.join(map(repr, twice))}")
        return Description(**parts)


def _lines(part: dict[str, Json]) -> str:
    """Return JSON with one path a line: for people to read and to compare."""
    lines = [f"\n  {json.dumps(path)}: {json.dumps(entry)}" for path, entry in part.items()]
    return "{" + ",".join(lines) + ("\n}" if lines else "}")


def _is_class(entry: Any) -> bool:
    """Return whether this can be the entry of a node."""
    if isinstance(entry, dict):
        return entry.keys() == {"class", "keys"} and isinstance(entry["class"], str)
    return isinstance(entry, str)


def _is_leaf(entry: Any) -> bool:
    """Return whether this is what `leaf_entry` returns for an array."""
    if not isinstance(entry, dict):
        return False
    names: set[str] = set(entry)
    kind = next(iter(names - {"shape"}), "")
    if len(names - {"shape"}) != 1 or not isinstance(entry[kind], str):
        return False
    if kind == "python":
        return names == {"python"} and entry["python"] in SCALARS
    shape = entry.get("shape")
    if not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS:
        return False
    if not all(type(size) is int and size >= 0 for size in shape):
        return False
    if kind == "key":
        size = 4 * math.prod(key_kinds().get(entry["key"], ("", (0,)))[1])
    else:
        size = _size_of(entry["dtype"]) if kind == "dtype" else 0
    # Of a size that memory can have: to ask for more is an error, or is not one but too small.
    return size > 0 and size * math.prod(max(each, 1) for each in shape) < _MOST_BYTES


_MOST_DIMENSIONS: Final = 64
_MOST_BYTES: Final = 2**63

_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    "classes": _is_class,
    "statics": lambda _: True,
    "leaves": _is_leaf,
}
_SHOULD_BE: Final = {"classes": "the name of a class", "leaves": "an array that this JAX has"}


def _size_of(name: str) -> int:
    """Return the bytes of an element of a dtype by its name; 0 if JAX has none of it."""
    try:
        dtype = jnp.dtype(name) if name.isidentifier() else None
    except TypeError:
        return 0
    return dtype.itemsize if dtype is not None and _is_number(dtype) and str(dtype) == name else 0


def _is_number(dtype: Any) -> bool:
    """Return whether JAX has arrays of a dtype, other than PRNG keys."""
    number = dtype == np.bool_ or (jnp.issubdtype(dtype, np.number) and dtype.kind != "m")
    return bool(number and dtype.isnative and dtype.char not in "gG")


@functools.cache
def key_kinds() -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the implementations of PRNG keys by dtype, each with the shape of a key's data."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name in ("threefry2x32", "rbg", "unsafe_rbg"):
        key = jax.eval_shape(functools.partial(jax.random.key, 0, impl=name))
        found[str(key.dtype)] = name, jax.eval_shape(jax.random.key_data, key).shape
    return found


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
        if isinstance(node, int):
            self._leaf(self.described.leaves[node], path)
            return
        if isinstance(node.aux, StaticKey):
            verify(node.aux)
        self._claim(path)
        self.described.description.classes[path] = self._class(node, path)
        for name, value in zip(node.names, node.values, strict=True):
            self._static(value, path + name)
        if _has_own_data(node):
            self._static(node.aux, f"{path}.<static>")
        for index, (step, child) in enumerate(zip(node.steps, node.children, strict=True)):
            if not node.is_hash_node(index):
                self.add(child, path + step)

    def _claim(self, path: str) -> None:
        if path in self._paths:
            msg = (
                f"{self.described.root}{path}: two places of the tree have this path, so what "
                f"is saved of one could be restored into the other\n"
                f"  fix: let the reprs of the dict's keys, or the key paths of the class, differ"
            )
            raise CheckpointError(msg)
        self._paths.add(path)

    def _class(self, node: Node, path: str) -> Json:
        """Return the class; with the keys of a dict, unless they are texts in JAX's order."""
        name = class_name(node.cls)
        keys = node.aux if node.cls in _DICTS else None
        if isinstance(keys, tuple) and len(keys) == 2 and isinstance(keys[1], tuple):  # noqa: PLR2004
            keys = keys[1]  # behind the factory of a defaultdict
        if not isinstance(keys, tuple) or (node.cls is dict and set(map(type, keys)) <= {str}):
            return name
        return {"class": name, "keys": self._reader.read(keys, path)}

    def _static(self, value: Any, path: str) -> None:
        self._claim(path)
        self.described.description.statics[path] = self._reader.read(value, path)

    def _leaf(self, leaf: Any, path: str) -> None:
        described = self.described
        entry = leaf_entry(leaf)
        is_array = entry is not None
        described.leaf_paths.append(path if is_array else None)
        if isinstance(entry, str):
            described.problems.append((path, f"{entry}\n  got: {got(leaf)}"))
        elif entry is not None:
            self._claim(path)
            described.description.leaves[path] = entry
        else:
            self._static(leaf, path)


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
        if str(dtype) in key_kinds():
            return {"key": str(dtype), "shape": shape}
        return (
            f"no other process knows this implementation of PRNG keys, {dtype}\n"
            f"  fix: save jax.random.key_data of it"
        )
    if not _is_number(dtype) or np.ma.isMaskedArray(leaf):
        return (
            f"JAX has no arrays like this one, of dtype {dtype}\n"
            f"  fix: convert it to a plain array of numbers, or keep it in a static field"
        )
    return {"dtype": str(dtype), "shape": shape}


def stored_entry(entry: Json) -> dict[str, Json]:
    """Return the entry of the array that is written for a leaf: of the data of PRNG keys."""
    if "python" in entry:
        return {"dtype": str(np.asarray(SCALARS[entry["python"]]()).dtype), "shape": []}
    if "key" in entry:
        _, inner = key_kinds()[entry["key"]]
        return {"dtype": "uint32", "shape": [*entry["shape"], *inner]}
    return dict(entry)


# ------------------------------------------------------------------------ comparing


def check_equal(saved: Description, target: Description, root: str, where: str, fix: str) -> None:
    """Refuse to restore one tree into another.

    Raises:
        CheckpointMismatchError: They differ; it names all places.
    """
    try:
        found = differences(saved, target, root)
    except RecursionError as error:
        raise damaged(where, "its statics are nested deeper than Python recurses") from error
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
                yield where, *format_both(mine, its)
            return
        same = fits(one["array"], other["array"]) if "array" in one else dump(one) == dump(other)
        if same:
            return
    texts = _format_entry(one), _format_entry(other)
    yield path, *(texts if texts[0] != texts[1] else (dump(one), dump(other)))


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
    """Yield where two statics differ, as deep as both consist of the same parts in one order."""
    if dump(one) == dump(other):
        return
    mine, its = parts_of(one), parts_of(other)
    if not mine or not its or [each for each, _, _ in mine] != [each for each, _, _ in its]:
        yield path, one, other
        return
    for (_, step, part), (_, _, same) in zip(mine, its, strict=True):
        yield from _inside(path + step, part, same)


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
    pairs = enumerate(zip(one, other, strict=False))
    same = next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
    if max(len(one), len(other)) > _WIDTH and same > _WIDTH // 2:
        one, other = (f"...{text[same - 20 :]}" for text in (one, other))
    return _cut(one), _cut(other)


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "..."
