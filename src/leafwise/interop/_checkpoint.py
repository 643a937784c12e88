"""Checkpoints, independent of the library that writes the arrays.

`pack` makes a description and arrays from a tree, and `unpack` restores a target from them. Used by
`leafwise.interop.orbax` and `.safetensors`.
"""

import contextlib
import functools
import json
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Final, TypeAlias, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._objects.parts import is_key
from leafwise._objects.text import got, shorten
from leafwise._programs import description
from leafwise._programs.description import Described, Record, differences, is_below
from leafwise._statics.findings import is_tracer
from leafwise._statics.portable import Json, dump
from leafwise._trees.leaves import weakly_typed
from leafwise._trees.shardings import put
from leafwise.errors import CheckpointError

T = TypeVar("T")

ROOT: Final = "tree"
"""The name of a tree that is itself one array: its key path is empty."""

VERSION: Final = 2
"""The version of the format: raised when an older leafwise could misread what is written."""

_SCALARS: Final = {kind.__name__: kind for kind in (bool, int, float, complex)}
"""The Python scalars that JAX treats as arrays, by name."""

Read: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Takes the wanted sharding, or None, by saved path; returns the arrays by saved path."""


@contextlib.contextmanager
def reading(where: object) -> Generator[None, None, None]:
    """Re-raise any error in the block as `CheckpointError` with the file's path."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:  # a damaged file may raise anything in its library
        raise CheckpointError(
            f"{where}: cannot be read: {type(error).__name__}: {error}\n"
            f"  fix: restore another copy of it, or save the tree again"
        ) from error


def to_json(tree: Record) -> dict[str, Json]:
    return {"version": VERSION, "tree": tree}


def from_json(content: Json, where: str) -> Record:
    """Return the record that `to_json` wrote."""
    if not isinstance(content, dict) or content.get("version") != VERSION:
        raise CheckpointError(
            f"{where}: this version of leafwise cannot read its description of the tree\n"
            f"  got: {got(content)}\n  fix: install the leafwise that wrote it, or a newer one"
        )
    with reading(where):
        return cast("Record", content["tree"])


def describe_tree(tree: Any) -> Described:
    """Describe a tree, which may have abstract leaves."""
    described = description.describe_tree(tree, leaf_entry)
    if described.twice:
        raise CheckpointError(
            f"{described.root}{described.twice[0]}: two places of the tree have this path, so what "
            f"is saved from one could be restored into the other\n"
            f"  fix: make the reprs of the dict's keys, or the key paths of the class, distinct"
        )
    return described


def leaf_entry(leaf: Any) -> dict[str, Json] | str | None:
    """Return the entry of an array, or why it cannot be saved; None if it is not an array."""
    if type(leaf) in _SCALARS.values():
        return {"python": type(leaf).__name__}
    if is_tracer(leaf):
        return (
            "a traced value exists only while JAX traces: it can be neither saved nor restored\n"
            "  fix: save and restore outside the traced function"
        )
    if not isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct):
        return None
    if isinstance(leaf, jax.Array) and leaf.is_deleted():
        return "the array was deleted or donated\n  fix: save it before that, or save the result"
    shape, dtype = list(leaf.shape), str(leaf.dtype)
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        if dtype in _key_kinds():
            return {"key": dtype, "shape": shape}
        return (
            f"no other process knows this implementation of PRNG keys, {dtype}\n"
            f"  fix: save jax.random.key_data of it"
        )
    if isinstance(leaf, np.ndarray | np.generic):
        try:
            jax.typeof(leaf)
        except (TypeError, ValueError):
            return (
                f"JAX does not support arrays like this one, of dtype {dtype}\n"
                f"  fix: convert it to a plain array of numbers, or keep it in a static field"
            )
    return {"dtype": dtype, "shape": shape}


@functools.cache
def _key_kinds() -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the implementations of PRNG keys by dtype, each with the shape of a key's data."""
    kinds: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name in ("threefry2x32", "rbg", "unsafe_rbg"):
        key = jax.eval_shape(functools.partial(jax.random.key, 0, impl=name))
        kinds[str(key.dtype)] = name, jax.eval_shape(jax.random.key_data, key).shape
    return kinds


def stored(entry: Json) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype of the array written for a leaf; for PRNG keys, of their data."""
    if "python" in entry:
        return (), np.asarray(_SCALARS[entry["python"]]()).dtype
    if "key" in entry:
        _, inner = _key_kinds()[entry["key"]]
        return (*entry["shape"], *inner), np.dtype(np.uint32)
    return tuple(entry["shape"]), jnp.dtype(entry["dtype"])


def fits(saved: Json, target: Json) -> bool:
    """Return whether a saved array can be restored as `target`, or a scalar of the same kind."""
    if "python" in saved or "python" in target:
        return _scalar_kind(saved) == _scalar_kind(target) is not None
    return dump(saved) == dump(target)


def _scalar_kind(entry: Json) -> type[np.generic] | None:
    """Return the kind of numbers of a scalar; None for an array with dimensions and for a key."""
    if entry.get("shape") or "key" in entry:
        return None
    _, dtype = stored(entry)
    kinds = (np.bool_, np.integer, np.floating, np.complexfloating)
    return next(kind for kind in kinds if jnp.issubdtype(dtype, kind))


def pack(tree: Any) -> tuple[Record, dict[str, Any]]:
    """Return the record of a tree, and its NumPy or JAX arrays by path, with the data of keys."""
    described = describe_tree(tree)
    for path, leaf in described.arrays.items():
        if isinstance(leaf, jax.ShapeDtypeStruct):
            described.problems.append((path, "an abstract array has no data to save"))
        elif type(leaf) is int and not -(2**63) <= leaf < 2**63:
            described.problems.append((path, f"{shorten(leaf)} does not fit in 64 bits"))
    refuse_problems(described, described.opaque)
    return described.record, {path: _plain(leaf) for path, leaf in described.arrays.items()}


def refuse_problems(described: Described, opaque: Iterable[tuple[str, Any]] = ()) -> None:
    lines = [f"{described.root}{path}: {problem}" for path, problem in described.problems]
    lines += [
        f"{described.root}{path}: it has no description that another process could compare\n"
        f"  got: {got(value)}\n"
        "  fix: use a function or class that can be imported by its name, or an object with "
        "fields; or save only the part of the tree without it"
        for path, value in opaque
    ]
    if lines:
        raise CheckpointError("\n".join(lines))


def _plain(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array):
        return jax.random.key_data(leaf) if is_key(leaf) else leaf
    return np.asarray(leaf)


def unpack(
    target: T,
    saved: Record,
    where: str,
    read: Read,
    renamed: Mapping[str, str] | None,
    *,
    agree: Callable[[CheckpointError | None], None] = lambda _: None,
) -> T:
    """Return a target with arrays saved at `where`; `agree` asks if it fits in all processes."""
    described = describe_tree(target)
    refuse_problems(described)
    with reading(where):  # if the file is damaged, the record may be any JSON
        record, old_paths = _rename(saved, renamed or {}, where)
        mismatches = differences(record, described.record, described.root, fits)
    if mismatches:
        lines = "".join(f"\n  {difference}" for difference in mismatches)
        error = CheckpointError(
            f"{where}: what was saved does not fit the target{lines}\n"
            f"  fix: restore into a target that is made like the saved tree; for a field or class "
            f"that was renamed, pass renamed={{'.old_field': '.new_field', 'module:Old': "
            f"'module:New'}}",
            mismatches,
        )
        agree(error)
        raise error
    agree(None)
    values = read({old_paths[path]: sharding_of(leaf) for path, leaf in described.arrays.items()})
    leaves = [
        leaf
        if path is None
        else _restore(values[old_paths[path]], record[path]["array"], leaf, described.root + path)
        for path, leaf in zip(described.leaf_paths, described.leaves, strict=True)
    ]
    return cast("T", jax.tree.unflatten(jax.tree.structure(target), leaves))


def _rename(saved: Record, renamed: Mapping[str, str], where: str) -> tuple[Record, dict[str, str]]:
    """Return the record under its new names, and the old path of each new one."""
    text = dump(saved)
    if missing := [old for old in renamed if dump(old) not in text]:
        raise CheckpointError(
            f"{where}: renamed has {', '.join(map(repr, missing))}, which was not saved\n"
            f"  saved: {', '.join(map(repr, saved))}"
        )
    paths = {old: new for old, new in renamed.items() if old[:1] in {"", ".", "["}}
    names = {dump(old): dump(new) for old, new in renamed.items() if old not in paths}
    if names:  # of classes and functions, wherever they are
        text = re.sub("|".join(map(re.escape, names)), lambda name: names[name[0]], text)
    record: Record = {}
    old_paths: dict[str, str] = {}
    for path, entry in json.loads(text).items():
        above = [old for old in paths if path == old or is_below(path, old)]
        old = max(above, key=len, default="")
        new = paths.get(old, "") + path.removeprefix(old)
        if new in record:
            raise CheckpointError(
                f"{where}: renamed maps both {old_paths[new]!r} and {path!r} to {new!r}"
            )
        record[new] = entry
        old_paths[new] = path
    return record, old_paths


def sharding_of(leaf: Any) -> Any:
    """Return the sharding that a leaf of the target asks for; None if JAX may choose."""
    if isinstance(leaf, jax.Array):
        return leaf.sharding if leaf.committed else None
    return getattr(leaf, "sharding", None)


def _restore(value: Any, entry: Json, leaf: Any, path: str) -> Any:
    """Return a saved array as the kind of leaf that the target has."""
    if "key" in entry:
        impl, _ = _key_kinds()[entry["key"]]
        return _placed(jax.random.wrap_key_data(jnp.asarray(value), impl=impl), leaf)
    if type(leaf) in _SCALARS.values():
        return type(leaf)(np.asarray(value).item())
    restored: Any = value
    if value.dtype != leaf.dtype:
        with np.errstate(over="ignore"):
            restored = np.asarray(value).astype(leaf.dtype)
        if jnp.issubdtype(leaf.dtype, np.integer) and int(restored) != int(value):
            raise CheckpointError(f"{path}: {value} does not fit into the target's {leaf.dtype}")
    if isinstance(leaf, np.ndarray):
        return np.array(restored)
    if isinstance(leaf, np.generic):
        return np.asarray(restored)[()]
    if getattr(leaf, "weak_type", False) and getattr(restored, "is_fully_addressable", True):
        weak = weakly_typed(restored)
        restored = weak if weak.dtype == leaf.dtype else restored
    restored = _placed(restored, leaf)
    if restored.dtype != leaf.dtype:
        raise CheckpointError(
            f"{path}: JAX converts the saved {leaf.dtype} to {restored.dtype}\n"
            f"  fix: jax.config.update('jax_enable_x64', True), or a numpy array in the target"
        )
    return restored


def _placed(value: Any, leaf: Any) -> jax.Array:
    sharding = sharding_of(leaf)
    if isinstance(value, jax.Array) and sharding == value.sharding and value.committed:
        return value
    across = sharding is not None and not sharding.is_fully_addressable
    return cast("jax.Array", (put if across else jax.device_put)(value, sharding))
