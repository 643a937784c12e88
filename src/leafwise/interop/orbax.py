"""Trees in orbax checkpoints, with a description of everything but the arrays.

A checkpoint has two items, both for orbax's own handlers: `arrays`, a dict by key path, and
`leafwise`, the description of the tree as JSON.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numpy as np

from leafwise._jax.processes import MissingError, exchange, processes
from leafwise._programs.description import Record, of_kind
from leafwise.errors import CheckpointError, message_of
from leafwise.interop._checkpoint import ROOT, from_json, pack, reading, stored, to_json, unpack
from leafwise.interop._extra import import_extra

# Untyped, and not installed where leafwise is type-checked.
ocp: Any = import_extra("orbax.checkpoint", "orbax")
epath: Any = import_extra("etils.epath", "orbax")

__all__ = ["restore", "save", "save_args"]

T = TypeVar("T")

_DESCRIPTION: Final = "leafwise"
_ARRAYS: Final = "arrays"


def save_args(tree: Any) -> Any:
    """Return the orbax arguments that save a tree: ``manager.save(step, args=save_args(tree))``.

    The tree is checked here, so that errors are raised before anything is written.

    Args:
        tree: A pytree of NumPy or JAX arrays, PRNG keys and Python scalars. A leaf that is not an
            array (a function) is described like a static.

    Returns:
        An `ocp.args.Composite` of the items ``leafwise`` and ``arrays``.
        ``ocp.args.Composite(**save_args(tree), data=...)`` saves other items with them.

    Raises:
        CheckpointError: A leaf cannot be saved, or a static means nothing to another process (a
            lambda, a local function, an object that compares by identity); it names all of them.
        StaticMutatedError: A static of a leafwise class changed in place.

    Examples:
        >>> sorted(save_args({"w": np.ones(3)}).keys())
        ['arrays', 'leafwise']
    """
    description, leaves = pack(tree)
    items = {_DESCRIPTION: ocp.args.JsonSave(to_json(description))}
    # orbax accepts neither empty arrays nor an empty dict.
    arrays = {path or ROOT: array for path, array in leaves.items() if array.size}
    if arrays:
        items[_ARRAYS] = ocp.args.PyTreeSave(arrays)
    return ocp.args.Composite(**items)


def save(tree: Any, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a tree to an orbax checkpoint, and wait until it is complete.

    Args:
        tree: What to save; see `save_args`.
        path: The folder of the checkpoint.
        overwrite: Whether to replace an existing checkpoint, which orbax removes first.

    Raises:
        CheckpointError: The tree cannot be saved; see `save_args`.
        StaticMutatedError: A static of a leafwise class changed in place.
        ValueError: `path` exists already, and `overwrite` is False.

    Examples:
        >>> import pathlib, tempfile
        >>> save({"w": np.ones(3)}, pathlib.Path(tempfile.mkdtemp()) / "params")
    """
    args = save_args(tree)
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        checkpointer.save(_absolute(path), args=args, force=overwrite)


def restore(
    target: T, path: str | os.PathLike[str], *, renamed: Mapping[str, str] | None = None
) -> T:
    """Return a tree like `target`, with the arrays of a checkpoint.

    Statics are never read back: they are compared, and the result has the target's own. The kinds
    of arrays also follow the target: where it has a NumPy array or a Python scalar, so does the
    result. Its shardings are honoured.

    Args:
        target: An instance, or the tree that `jax.eval_shape` returns. It is not changed.
        path: The folder of the checkpoint; for a `CheckpointManager`, that of a step.
        renamed: The names that changed, from old to new: paths of fields, with everything below
            them (``{".layers": ".blocks"}``), and classes or functions
            (``{"models:Net": "models:Model"}``).

    Returns:
        A tree of the target's class, structure and statics.

    Raises:
        CheckpointError: The saved tree has a different class, structure, static, shape or dtype (it
            names all places); the checkpoint is damaged or not written by leafwise; or `renamed`
            does not fit it.
        FileNotFoundError: There is no checkpoint at `path`.

    Examples:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "params"
        >>> save({"w": np.ones(3)}, path)
        >>> restore({"w": np.zeros(3)}, path)
        {'w': array([1., 1., 1.])}
    """
    folder = _absolute(path)
    if not folder.exists():
        raise FileNotFoundError(f"there is no checkpoint at {folder}")
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:

        def read_item(name: str, how: Any) -> Any:
            with reading(folder):
                return checkpointer.restore(folder, args=ocp.args.Composite(**{name: how}))[name]

        if not (folder / _DESCRIPTION).exists():
            raise CheckpointError(
                f"{folder}: not a checkpoint of leafwise.interop.orbax\n"
                f"  fix: restore what orbax alone wrote with ocp.args.StandardRestore, and "
                f"save it again with leafwise; for a CheckpointManager's folder, give the step: "
                f"folder / '100'"
            )
        saved = from_json(read_item(_DESCRIPTION, ocp.args.JsonRestore()), str(folder))
        read = functools.partial(_read_arrays, read_item, saved)
        agree = functools.partial(_agree, folder)
        return unpack(target, saved, str(folder), read, renamed, agree=agree)


def _absolute(path: str | os.PathLike[str]) -> Path:
    return cast("Path", epath.Path(path).expanduser().absolute())


def _read_arrays(
    read_item: Callable[[str, Any], Any], saved: Record, shardings: Mapping[str, Any]
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    options: dict[str, Any] = {}
    leaves = of_kind(saved, "array")
    for path, entry in leaves.items():
        shape, dtype = stored(entry)
        if 0 in shape:
            values[path] = np.zeros(shape, dtype)
        elif shardings[path] is None or "dtype" not in entry:
            options[path or ROOT] = ocp.RestoreArgs(restore_type=np.ndarray)
        else:
            sharding = shardings[path]
            options[path or ROOT] = ocp.ArrayRestoreArgs(sharding=sharding, global_shape=shape)
    if options:
        how = ocp.args.PyTreeRestore(dict.fromkeys(options, 0), restore_args=options)
        arrays = read_item(_ARRAYS, how)
        values |= {path: arrays[path or ROOT] for path in leaves if path not in values}
    return values


def _agree(directory: Path, own: CheckpointError | None) -> None:
    """Raise in every process if the target of one does not fit, so that no process waits."""
    here = processes()
    if here is None or here.count == 1:
        return
    text = "" if own is None else message_of(own)
    with contextlib.suppress(MissingError):  # orbax then reports the missing one
        texts = exchange(here, f"restore {directory}", text, 300.0)
        refused = [f"in process {index}: {text}" for index, text in sorted(texts.items()) if text]
        if refused and own is None:
            raise CheckpointError("\n".join(refused))
