"""Saving and restoring trees, whatever the arrays are written with."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._compare.description import Described, Description, format_array, is_at_or_below
from leafwise._objects.text import got, shorten
from leafwise._statics.portable import Json, PortableReader, class_name
from leafwise._trees.leaves import weakly_typed
from leafwise._trees.spread import put
from leafwise.errors import CheckpointError
from leafwise.interop._checkpoint.files import damaged
from leafwise.interop._checkpoint.stored import (
    SCALARS,
    check_equal,
    describe_tree,
    key_kinds,
    leaf_entry,
    stored_entry,
)

T = TypeVar("T")

ROOT: Final = "tree"
"""The name of a tree that is itself one array: its key path is empty."""

Read: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Takes a sharding, or None for numpy arrays, by path; returns the arrays that were written."""


@dataclasses.dataclass
class SavedTree:
    """What was saved, for a function ``migrate=`` to change until it fits the target.

    All three are dicts by path, to be changed in place. A path is what
    ``jax.tree_util.keystr`` returns: ``.layers[0].w``; that of the tree itself is ``""``.

    Attributes:
        classes: The class of each node, as ``module:qualname``; a class is taken, too.
        statics: The description of each static. Any static value is taken, too.
        leaves: The arrays, as numpy arrays, PRNG keys and Python scalars.
    """

    classes: dict[str, Any]
    statics: dict[str, Any]
    leaves: dict[str, Any]

    @property
    def _parts(self) -> tuple[dict[str, Any], ...]:
        return self.classes, self.statics, self.leaves

    def rename(self, old: str, new: str) -> None:
        """Move all that is at and below a path to another path.

        Args:
            old: The path in what was saved.
            new: The path in the target.

        Raises:
            KeyError: Nothing is at `old`, or something is at `new`.
        """
        self._at(old)
        if any(new in part for part in self._parts):
            raise KeyError(f"rename({old!r}, {new!r}): there is something at {new!r} already")
        for part in self._parts:
            moved = {
                new + path[len(old) :] if is_at_or_below(path, old) else path: value
                for path, value in part.items()
            }
            part.clear()
            part.update(moved)

    def drop(self, path: str) -> None:
        """Remove all that is at and below a path.

        Args:
            path: The path in what was saved.

        Raises:
            KeyError: Nothing is there.
        """
        for part, found in self._at(path):
            del part[found]

    def put(self, path: str, tree: Any) -> None:
        """Put a leaf, or a whole tree, at a path, and remove what was there.

        Args:
            path: The path in the target.
            tree: An array, or any pytree of arrays.
        """
        described = describe_tree(tree, path)
        _refuse_problems(described)
        for part in self._parts:
            for found in [each for each in part if is_at_or_below(each, path)]:
                del part[found]
        self.classes |= described.description.classes
        self.statics |= described.description.statics
        self.leaves |= described.arrays

    def _at(self, path: str) -> list[tuple[dict[str, Any], str]]:
        found = [
            (part, each) for part in self._parts for each in part if is_at_or_below(each, path)
        ]
        if not found:
            raise KeyError(
                f"nothing was saved at {path!r}: there is {', '.join(map(repr, self.leaves))}"
            )
        return found

    def describe(self) -> Description:
        """Return the description of the tree as it is now.

        Raises:
            CheckpointError: A leaf is not an array.
        """
        statics = {  # a list or a dict is a description already
            path: value if isinstance(value, list | dict) else PortableReader().read(value, path)
            for path, value in self.statics.items()
        }
        classes = {
            path: class_name(each) if isinstance(each, type) else each
            for path, each in self.classes.items()
        }
        leaves: dict[str, Json] = {}
        for path, leaf in self.leaves.items():
            entry = leaf_entry(leaf)
            if not isinstance(entry, dict) or isinstance(leaf, jax.ShapeDtypeStruct):
                problem = entry if isinstance(entry, str) else "it is not an array"
                raise CheckpointError(f"migrate: {path}: {problem}\n  got: {got(leaf)}")
            leaves[path] = entry
        return Description(classes, statics, leaves)


Migrate: TypeAlias = Callable[[SavedTree], object]


# ------------------------------------------------------------------------ saving


def pack(tree: Any, *, allow_opaque: bool = False) -> tuple[Description, dict[str, Any]]:
    """Return the description of a tree, and its arrays by path: of numpy or of JAX, no keys.

    Args:
        tree: Any pytree of arrays.
        allow_opaque: Whether to accept statics that mean nothing to another process.

    Raises:
        CheckpointError: A leaf cannot be saved, or a static means nothing to another process;
            it names all of them.
        StaticMutatedError: A static of a leafwise class changed in place.
    """
    described = describe_tree(tree)
    for path, leaf in described.arrays.items():
        if isinstance(leaf, jax.ShapeDtypeStruct):
            described.problems.append((path, "an abstract array has no data to save"))
        elif type(leaf) is int and not -(2**63) <= leaf < 2**63:
            described.problems.append((path, f"{shorten(leaf)} does not fit into 64 bits"))
    if not allow_opaque:
        described.problems.extend(
            (path, explain_opaque(what, "save with allow_opaque=True"))
            for path, what in described.opaque
        )
    _refuse_problems(described)
    return described.description, {path: _plain(leaf) for path, leaf in described.arrays.items()}


def _refuse_problems(described: Described) -> None:
    if described.problems:
        lines = [f"{described.root}{path}: {problem}" for path, problem in described.problems]
        raise CheckpointError("\n".join(lines))


def explain_opaque(what: str, switch: str) -> str:
    """Return why a static cannot be compared, and the switch that lets it be saved all the same."""
    return (
        "it has no description that another process could compare\n"
        f"  got: {what}\n"
        "  fix: use a function or class that its module's name leads to, or an object with "
        f"fields, or {switch}, so that only its type and name are compared"
    )


def _plain(leaf: Any) -> Any:
    """Return the array that is written for a leaf."""
    if isinstance(leaf, jax.Array):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return jax.random.key_data(leaf) if is_key else leaf
    return np.asarray(leaf)


# ------------------------------------------------------------------------ restoring


def unpack(target: T, saved: Description, where: str, read: Read, migrate: Migrate | None) -> T:
    """Return a tree like the target, with the arrays that were saved.

    Args:
        target: An instance, or the tree that `jax.eval_shape` returns.
        saved: The description in the checkpoint.
        where: The checkpoint, for messages.
        read: Reads the arrays.
        migrate: Changes what was saved so that it fits.

    Raises:
        CheckpointMismatchError: What was saved, or what `migrate` made of it, does not fit.
        CheckpointError: The target has leaves that cannot be restored, or `migrate` is wrong.
    """
    described = describe_tree(target)
    _refuse_problems(described)
    wanted, root = described.description, described.root
    if migrate is None:
        check_equal(saved, wanted, root, where, _FIX)
        shardings = {path: sharding_of(leaf) for path, leaf in described.arrays.items()}
        values = _checked(read(shardings), saved, where)
    else:
        tree = _saved_tree(saved, _checked(read(dict.fromkeys(saved.leaves)), saved, where))
        result = migrate(tree)
        if result is not None and result is not tree:
            raise CheckpointError(
                f"migrate: it has to change the tree in place, but returned {result!r}"
            )
        saved = tree.describe()
        check_equal(saved, wanted, root, f"{where}, after migrate", _MIGRATE_FIX)
        values = {path: _plain(leaf) for path, leaf in tree.leaves.items()}
    leaves = [
        leaf if path is None else _restore(values[path], saved.leaves[path], leaf, root + path)
        for path, leaf in zip(described.leaf_paths, described.leaves, strict=True)
    ]
    restored: T = jax.tree.unflatten(jax.tree.structure(target), leaves)
    return restored


_FIX: Final = (
    "restore into a target that is made like the saved tree, or pass migrate=, a function "
    "that changes what was saved"
)
_MIGRATE_FIX: Final = "let migrate settle these, too: with rename, drop, put, and statics"


def sharding_of(leaf: Any) -> Any:
    """Return where a leaf of the target wants to be; None if JAX may choose."""
    if isinstance(leaf, jax.Array):
        return leaf.sharding if leaf.committed else None
    return getattr(leaf, "sharding", None)


def _checked(values: Mapping[str, Any], saved: Description, where: str) -> Mapping[str, Any]:
    """Return the arrays that were read; refuse those that differ from the description.

    Raises:
        CheckpointError: Some are missing, or are of another shape or dtype.
    """
    for path, entry in saved.leaves.items():
        value, stored = values.get(path), stored_entry(entry)
        found = None if value is None else leaf_entry(value)
        if found != stored:
            has = format_array(found) if isinstance(found, dict) else "no array"
            what = f"{path or 'it'} should be {format_array(stored)}, and is {has}"
            raise damaged(where, what)
    return values


def _saved_tree(saved: Description, values: Mapping[str, Any]) -> SavedTree:
    leaves: dict[str, Any] = {}
    for path, entry in saved.leaves.items():
        value = values[path]
        if "python" in entry:
            value = SCALARS[entry["python"]](np.asarray(value).item())
        elif "key" in entry:
            value = _wrap_keys(value, entry)
        leaves[path] = value
    return SavedTree(dict(saved.classes), dict(saved.statics), leaves)


def _wrap_keys(data: Any, entry: Json) -> Any:
    """Return PRNG keys of their key data."""
    name, _ = key_kinds()[entry["key"]]
    return jax.random.wrap_key_data(jnp.asarray(data), impl=name)


def _restore(value: Any, entry: Json, leaf: Any, path: str) -> Any:
    """Return what was saved, as the kind of leaf that the target has."""
    if "key" in entry:
        return _placed(_wrap_keys(value, entry), leaf)
    if type(leaf) in SCALARS.values():
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
    placed: jax.Array = (put if across else jax.device_put)(value, sharding)
    return placed
