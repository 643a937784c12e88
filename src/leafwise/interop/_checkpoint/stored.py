"""The description of a tree as it stands in a checkpoint, and the arrays in it."""

import collections
import dataclasses
import functools
import json
import math
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._compare import description
from leafwise._compare.description import Described, Description, differences
from leafwise._objects.text import shorten
from leafwise._statics.findings import is_tracer
from leafwise._statics.portable import Json, dump
from leafwise.errors import CheckpointError, CheckpointMismatchError
from leafwise.interop._checkpoint.files import damaged, read_json

VERSION: Final = 1
"""The version of the format: raised when an older leafwise could misread what is written."""

_FORMAT: Final = "leafwise tree"
SCALARS: Final = {kind.__name__: kind for kind in (bool, int, float, complex)}
"""The Python scalars that JAX takes for arrays, by name."""


def to_json(tree: Description) -> str:
    """Return the text that stands in a checkpoint."""
    head = f'"format": {json.dumps(_FORMAT)},\n"version": {VERSION}'
    fields = dataclasses.fields(tree)
    parts = [f'"{part.name}": {_lines(getattr(tree, part.name))}' for part in fields]
    return "{\n" + ",\n".join((head, *parts)) + "\n}\n"


def from_json(text: str | bytes, where: str) -> Description:
    """Return what `to_json` wrote.

    Raises:
        CheckpointError: It is something else, or of a newer version.
    """
    content = read_json(text, where)
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise damaged(where, "the description in it is not one of a leafwise tree")
    version = content.get("version")
    if type(version) is int and version > VERSION:
        raise CheckpointError(
            f"{where}: written by a newer leafwise: its format is {shorten(version)}, and this "
            f"one reads up to {VERSION}\n  fix: install a newer leafwise"
        )
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


def describe_tree(tree: Any, start: str = "") -> Described:
    """Describe a tree that is saved or restored.

    Args:
        tree: Any pytree; its leaves may be `jax.ShapeDtypeStruct`.
        start: The path that it stands at.

    Raises:
        StaticMutatedError: A static of a leafwise class changed in place.
        CheckpointError: Two places of the tree have one path.
    """
    found = description.describe_tree(tree, leaf_entry, start=start)
    if found.twice:
        raise CheckpointError(
            f"{found.root}{found.twice[0]}: two places of the tree have this path, so what "
            f"is saved of one could be restored into the other\n"
            f"  fix: let the reprs of the dict's keys, or the key paths of the class, differ"
        )
    return found


def check_equal(saved: Description, target: Description, root: str, where: str, fix: str) -> None:
    """Refuse to restore one tree into another.

    Raises:
        CheckpointMismatchError: They differ; it names all places.
    """
    try:
        found = differences(saved, target, root, fits)
    except RecursionError as error:
        raise damaged(where, "its statics are nested deeper than Python recurses") from error
    if found:
        lines = "".join(f"\n  {each}" for each in found)
        raise CheckpointMismatchError(
            f"{where}: what was saved does not fit the target{lines}\n  fix: {fix}", found
        )


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
