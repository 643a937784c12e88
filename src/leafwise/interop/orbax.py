"""Trees in orbax checkpoints, with what they are apart from the arrays.

A checkpoint has, within orbax's own commit protocol, the arrays as orbax writes them (a dict
by key path), `leafwise.json` with the description of the tree, and `leafwise-files.json`
with the checksums of all files, written last.
"""

import json
import math
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import numpy as np

from leafwise.errors import CheckpointError
from leafwise.interop._checkpoint.checkpoint import ROOT, Migrate, SavedTree, pack, unpack
from leafwise.interop._checkpoint.description import Description, stored_dtype
from leafwise.interop._extra import import_extra

# Without types, and not installed where ours are checked.
ocp: Any = import_extra("orbax.checkpoint", "orbax")
epath: Any = import_extra("etils.epath", "orbax")

if TYPE_CHECKING:

    class _OrbaxHandler: ...

    class _Arguments: ...

else:
    _OrbaxHandler, _Arguments = ocp.handlers.AsyncCheckpointHandler, ocp.args.CheckpointArgs

__all__ = ["Handler", "Restore", "Save", "SavedTree", "restore", "save"]

T = TypeVar("T")

_DESCRIPTION: Final = "leafwise.json"
_FILES: Final = "leafwise-files.json"

_CHUNK: Final = 1 << 22


class Handler(_OrbaxHandler):
    """What saves and restores trees: for `Checkpointer`, `AsyncCheckpointer` and the manager.

    ``ocp.AsyncCheckpointer(Handler())`` takes `Save` and `Restore` as its ``args=``. A
    `CheckpointManager` finds the handler by its arguments.

    Example:
        >>> checkpointer = ocp.AsyncCheckpointer(Handler())
        >>> checkpointer.close()
    """

    def __init__(self, *, checksums: bool = True) -> None:
        """Make a handler.

        Args:
            checksums: Whether to write checksums of all files, and to compare them before
                anything is restored: orbax itself restores some damaged arrays silently.
                Each process reads all files once for it.
        """
        self._arrays = ocp.handlers.PyTreeCheckpointHandler()
        self._checksums = checksums

    async def async_save(self, directory: Path, args: "Save") -> Any:
        """Start to write a tree, for `AsyncCheckpointer`: its arrays are copied by then.

        Args:
            directory: Where to write: orbax renames it when all is there.
            args: The tree.

        Returns:
            What is still to be waited for.
        """
        # orbax makes the folder meanwhile: the future waits for it.
        written = ocp.future.CommitFutureAwaitingContractedSignals(
            _write_when_awaited(directory, args.description), name="leafwise_description"
        )
        if not args.arrays:
            return [written]
        arrays = ocp.args.PyTreeSave(args.arrays)
        return [written, *(await self._arrays.async_save(directory, args=arrays) or [])]

    def save(self, directory: Path, args: "Save") -> None:
        """Write a tree, for `Checkpointer`.

        Args:
            directory: Where to write.
            args: The tree.
        """
        _write_description(directory, args.description)
        if args.arrays:
            self._arrays.save(directory, args=ocp.args.PyTreeSave(args.arrays))

    def finalize(self, directory: Path) -> None:
        """Write the checksums, when all else has been written.

        Args:
            directory: Where the checkpoint is being written.
        """
        if _names(self.metadata(directory)):
            self._arrays.finalize(directory)
        found = _checksums(directory, _files(directory)) if self._checksums else {}
        (directory / _FILES).write_text(json.dumps({"crc32": found}, indent=1))

    def restore(self, directory: Path, args: "Restore[T]") -> T:
        """Return a tree that was saved.

        Args:
            directory: The checkpoint.
            args: The target.

        Returns:
            A tree of the target's class, structure and statics.

        Raises:
            CheckpointMismatchError: What was saved does not fit the target.
            CheckpointError: The checkpoint is damaged, or not one of leafwise.
        """
        _check_files(directory, compare=self._checksums)
        saved = self.metadata(directory)

        def read(shardings: Mapping[str, Any]) -> dict[str, Any]:
            return self._read(directory, saved, shardings)

        return unpack(args.target, saved, str(directory), read, args.migrate)

    def metadata(self, directory: Path) -> Description:
        """Return the description of a checkpoint, without its arrays.

        Args:
            directory: The checkpoint.

        Returns:
            A record with the dicts ``classes``, ``statics`` and ``leaves``, by key path.

        Raises:
            CheckpointError: It is damaged, or not a checkpoint of leafwise.
        """
        path = directory / _DESCRIPTION
        if not path.exists():
            raise CheckpointError(_NOT_OURS.format(directory))
        return Description.from_json(path.read_bytes(), str(path))

    def close(self) -> None:
        """Release what orbax holds; a checkpointer calls it."""
        self._arrays.close()

    def _read(
        self, directory: Path, saved: Description, shardings: Mapping[str, Any]
    ) -> dict[str, Any]:
        names = _names(saved)
        options: dict[str, Any] = {}
        for path, name in names.items():
            entry, sharding = saved.leaves[path], shardings[path]
            if sharding is None or "dtype" not in entry:
                options[name] = ocp.RestoreArgs(restore_type=np.ndarray)
            else:
                shape = tuple(entry["shape"])
                options[name] = ocp.ArrayRestoreArgs(sharding=sharding, global_shape=shape)
        arguments = ocp.args.PyTreeRestore(dict.fromkeys(options, 0), restore_args=options)
        found: dict[str, Any] = {}
        if options:
            try:
                found = self._arrays.restore(directory, args=arguments)
            except Exception as error:
                msg = f"{directory}: orbax cannot read the arrays: {type(error).__name__}: {error}"
                raise CheckpointError(msg) from error
        empty = {
            path: np.zeros(entry["shape"], stored_dtype(entry))
            for path, entry in saved.leaves.items()
            if path not in names
        }
        return {path: found[name] for path, name in names.items()} | empty


_NOT_OURS: Final = (
    "{}: not a checkpoint of leafwise.interop.orbax: it has no " + _DESCRIPTION + "\n"
    "  fix: restore what orbax wrote by itself with ocp.args.StandardRestore, and save it again "
    "with leafwise; of a CheckpointManager's folder give the step and the item: 100/default"
)


@dataclass
class Save(_Arguments):
    """What to save: ``manager.save(step, args=Save(tree))``.

    The tree is read here, so that what cannot be saved is refused before anything is written.

    Attributes:
        tree: A pytree of arrays: of numpy or of JAX, PRNG keys, and Python scalars. A leaf
            that is not an array (a function) is described, as a static is.
        allow_opaque: Whether to accept statics that mean nothing to another process (a lambda,
            a local function, an object that compares by identity): then only their type
            and name are compared when the tree is restored.
        description: What the tree is: ``classes``, ``statics`` and ``leaves``, by key path.
        arrays: What orbax is to write, by key path.

    Raises:
        CheckpointError: A leaf cannot be saved, or a static means nothing to another
            process; it names all of them.
        StaticMutatedError: A static of a leafwise class changed in place.
    """

    tree: Any
    allow_opaque: bool = False
    description: Description = field(init=False, repr=False)
    arrays: dict[str, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.description, arrays = pack(self.tree, allow_opaque=self.allow_opaque)
        self.arrays = {name: arrays[path] for path, name in _names(self.description).items()}


@dataclass
class Restore(_Arguments, Generic[T]):
    """What to restore: ``manager.restore(step, args=Restore(target))``.

    Statics are never read back: they are compared, and the target's own come back. So are
    the kinds of arrays: where the target has a numpy array or a Python scalar, the result has
    one. Its shardings are honoured.

    Attributes:
        target: An instance, or the tree that `jax.eval_shape` returns. It is not changed.
        migrate: A function that changes what was saved, a `SavedTree`, in place, so that it
            fits the target.
    """

    target: T
    migrate: Migrate | None = None


# Not as decorators, which have no types.
ocp.args.register_with_handler(Handler, for_save=True)(Save)
ocp.args.register_with_handler(Handler, for_restore=True)(Restore)


def save(
    tree: Any,
    path: str | os.PathLike[str],
    *,
    allow_opaque: bool = False,
    overwrite: bool = False,
) -> None:
    """Write a tree to an orbax checkpoint, and wait until it is there.

    Args:
        tree: What to save; see `Save`.
        path: The folder of the checkpoint.
        allow_opaque: Whether to accept statics that mean nothing to another process.
        overwrite: Whether to replace a checkpoint that is there: orbax removes it first.

    Raises:
        CheckpointError: The tree cannot be saved; see `Save`.
        StaticMutatedError: A static of a leafwise class changed in place.
        ValueError: There is something at `path`.

    Example:
        >>> import pathlib, tempfile
        >>> save({"w": jnp.ones(3)}, pathlib.Path(tempfile.mkdtemp()) / "params")
    """
    with ocp.Checkpointer(Handler()) as checkpointer:
        checkpointer.save(_absolute(path), args=Save(tree, allow_opaque), force=overwrite)


def restore(target: T, path: str | os.PathLike[str], *, migrate: Migrate | None = None) -> T:
    """Return a tree like `target`, with the arrays of a checkpoint.

    Args:
        target: An instance, or the tree that `jax.eval_shape` returns; see `Restore`.
        path: The folder of the checkpoint.
        migrate: A function that changes what was saved so that it fits.

    Returns:
        A tree of the target's class, structure and statics.

    Raises:
        CheckpointMismatchError: What was saved (or what `migrate` made of it) has another
            class, structure, static, shape or dtype; it names all places.
        CheckpointError: The checkpoint is damaged, or not one of leafwise.
        FileNotFoundError: There is none.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "params"
        >>> save({"w": jnp.ones(3)}, path)
        >>> restore({"w": jnp.zeros(3)}, path)
        {'w': Array([1., 1., 1.], dtype=float32)}
    """
    folder = _absolute(path)
    if not folder.exists():
        msg = f"there is no checkpoint at {folder}"
        raise FileNotFoundError(msg)
    if not folder.is_dir():
        raise CheckpointError(_NOT_OURS.format(folder))
    if not ocp.utils.is_checkpoint_finalized(folder):
        msg = f"{folder}: half-written: orbax has not committed it"
        raise CheckpointError(msg)
    with ocp.Checkpointer(Handler()) as checkpointer:
        restored: T = checkpointer.restore(folder, args=Restore(target, migrate))
    return restored


def _absolute(path: str | os.PathLike[str]) -> Path:
    found: Path = epath.Path(path).expanduser().absolute()
    return found


def _write_description(directory: Path, description: Description) -> None:
    if ocp.multihost.is_primary_host(0):
        (directory / _DESCRIPTION).write_text(description.to_json())


async def _write_when_awaited(directory: Path, description: Description) -> None:
    _write_description(directory, description)


def _names(description: Description) -> dict[str, str]:
    """Return the paths of the arrays that orbax writes, and their names: it takes no empty ones."""
    return {
        path: path or ROOT
        for path, entry in description.leaves.items()
        if math.prod(entry.get("shape", ()))
    }


def _files(directory: Path, start: str = "") -> list[str]:
    """Return the names of all files, but for those that orbax writes at the very end."""
    found: list[str] = []
    for path in sorted(directory.iterdir()):
        name = start + path.name
        if path.is_dir():
            found += _files(path, f"{name}/")
        elif name not in {_FILES, "_CHECKPOINT_METADATA"}:
            found.append(name)
    return found


def _checksums(directory: Path, names: Iterable[str]) -> dict[str, int | None]:
    return {name: _checksum(directory / name) for name in names}


def _checksum(path: Path) -> int | None:
    """Return the checksum of a file; None if there is no such file."""
    if not path.exists():
        return None
    found = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found = zlib.crc32(chunk, found)
    return found


def _check_files(directory: Path, *, compare: bool) -> None:
    """Refuse a checkpoint that is not whole."""
    path = directory / _FILES
    if not path.exists():
        if not (directory / _DESCRIPTION).exists():
            raise CheckpointError(_NOT_OURS.format(directory))
        msg = f"{directory}: half-written: it has no {_FILES}, which is written last"
        raise CheckpointError(msg)
    try:
        written = dict(json.loads(path.read_bytes())["crc32"])
    except (ValueError, TypeError, LookupError) as error:
        msg = f"{path}: damaged: {error}"
        raise CheckpointError(msg) from error
    found = _checksums(directory, written) if compare else written
    wrong = [name for name in written if found[name] != written[name]]
    if wrong:
        msg = f"{directory}: damaged: not what was written: {', '.join(wrong)}"
        raise CheckpointError(msg)
