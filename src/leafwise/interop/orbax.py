"""Trees in orbax checkpoints, with what they are apart from the arrays.

A checkpoint has, within orbax's own commit protocol, the arrays as orbax writes them (a dict
by key path), `leafwise.json` with the description of the tree, and `leafwise-files.json`
with the checksums of all files, written last.
"""

import contextlib
import json
import math
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._compare.description import Description
from leafwise._jax.processes import MissingError, exchange, processes
from leafwise._objects.text import shorten
from leafwise.errors import CheckpointError, CheckpointMismatchError, message_of
from leafwise.interop._checkpoint.checkpoint import ROOT, Migrate, SavedTree, pack, unpack
from leafwise.interop._checkpoint.files import (
    damaged,
    leads_outside,
    open_file,
    read_file,
    read_json,
    reading,
)
from leafwise.interop._checkpoint.stored import from_json, stored_entry, to_json
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

    Examples:
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
        content = {"crc32": found, "of this list": _crc_of(found)}
        (directory / _FILES).write_text(json.dumps(content, indent=1))

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

        told = args.migrate is not None  # which is compared after reading

        def read(shardings: Mapping[str, Any]) -> dict[str, Any]:
            nonlocal told
            if not told:
                told = True
                _agree(directory, None)
            return self._read(directory, saved, shardings)

        try:
            return unpack(args.target, saved, str(directory), read, args.migrate)
        except CheckpointMismatchError as error:
            if not told:
                _agree(directory, error)
            raise

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
        try:
            return from_json(read_file(path), str(path))
        except FileNotFoundError:
            raise CheckpointError(_NOT_OURS.format(directory)) from None

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
                what = f"orbax cannot read the arrays: {type(error).__name__}: {error}"
                raise damaged(str(directory), what) from error
        empty = {path: stored_entry(saved.leaves[path]) for path in saved.leaves.keys() - names}
        return {path: found[name] for path, name in names.items()} | {
            path: np.zeros(entry["shape"], jnp.dtype(entry["dtype"]))
            for path, entry in empty.items()
        }


_NOT_OURS: Final = (
    "{}: not a checkpoint of leafwise.interop.orbax: it has no " + _DESCRIPTION + "\n"
    "  fix: restore what orbax wrote by itself with ocp.args.StandardRestore, and save it again "
    "with leafwise; of a CheckpointManager's folder give the step and the item: 100/default"
)
_EARLIER: Final = "restore an earlier checkpoint"


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
        if jax.process_count() > 1:  # orbax refuses them, too, when it has begun to write
            local = [
                f"{type(self.tree).__name__}{path}"
                for path, leaf in arrays.items()
                if isinstance(leaf, jax.Array) and leaf.is_fully_addressable
            ]
            if local:
                raise CheckpointError(
                    f"{', '.join(local)}: on devices of this process alone, where each of "
                    f"{jax.process_count()} has its own\n  fix: save lw.shard(tree, mesh), with a "
                    f"mesh of all devices; or a numpy array, which process 0 writes"
                )
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

    Examples:
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

    Examples:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "params"
        >>> save({"w": jnp.ones(3)}, path)
        >>> restore({"w": jnp.zeros(3)}, path)
        {'w': Array([1., 1., 1.], dtype=float32)}
    """
    folder = _absolute(path)
    with reading(folder):
        if not folder.exists():
            raise FileNotFoundError(f"there is no checkpoint at {folder}")
        if not folder.is_dir():
            raise CheckpointError(_NOT_OURS.format(folder))
        if not ocp.utils.is_checkpoint_finalized(folder):
            raise CheckpointError(
                f"{folder}: half-written: orbax has not committed it\n  fix: {_EARLIER}"
            )
    with ocp.Checkpointer(Handler()) as checkpointer:
        restored: T = checkpointer.restore(folder, args=Restore(target, migrate))
    return restored


def _absolute(path: str | os.PathLike[str]) -> Path:
    found: Path = epath.Path(path).expanduser().absolute()
    return found


def _write_description(directory: Path, description: Description) -> None:
    if ocp.multihost.is_primary_host(0):
        (directory / _DESCRIPTION).write_text(to_json(description))


async def _write_when_awaited(directory: Path, description: Description) -> None:
    _write_description(directory, description)


def _agree(directory: Path, own: Exception | None) -> None:
    """Let no process wait for one whose target does not fit: each tells the others.

    Raises:
        CheckpointMismatchError: That of another process.
    """
    here = processes()
    if here is None or here.count == 1:
        return
    text = "" if own is None else message_of(own)
    with contextlib.suppress(MissingError):  # orbax then says who is not there
        found = exchange(here, f"restore {directory}", text, _TIMEOUT)
        refused = [f"in process {index}: {each}" for index, each in sorted(found.items()) if each]
        if refused and own is None:
            raise CheckpointMismatchError("\n".join(refused))


_TIMEOUT: Final = 300.0


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


def _checksums(directory: Path, names: Iterable[str]) -> dict[str, int]:
    """Return the checksums of files.

    Raises:
        CheckpointError: One is not there, not a file, or not in the folder.
    """
    found: dict[str, int] = {}
    home = os.path.realpath(directory)  # epath's own does not follow links
    for name in names:
        path = directory / name
        if not Path(os.path.realpath(path)).is_relative_to(home):
            raise damaged(str(path), "a link that leads out of the checkpoint")
        try:
            with open_file(path) as file, reading(path):
                crc = 0
                while chunk := file.read(_CHUNK):
                    crc = zlib.crc32(chunk, crc)
        except FileNotFoundError as error:
            raise damaged(str(path), "it was written, and is not there") from error
        found[name] = crc
    return found


def _crc_of(checksums: Mapping[str, int]) -> int:
    """Return the checksum of the list of checksums."""
    return zlib.crc32(json.dumps(checksums, sort_keys=True).encode())


def _check_files(directory: Path, *, compare: bool) -> None:
    """Refuse a checkpoint that is not whole."""
    path = directory / _FILES
    try:
        content = read_json(read_file(path), str(path))
    except FileNotFoundError:
        if not (directory / _DESCRIPTION).exists():
            raise CheckpointError(_NOT_OURS.format(directory)) from None
        what = f"half-written: it has no {_FILES}, which is written last"
        raise CheckpointError(f"{directory}: {what}\n  fix: {_EARLIER}") from None
    written = content.get("crc32") if isinstance(content, dict) else None
    if not isinstance(written, dict) or not set(map(type, written.values())) <= {int}:
        raise damaged(str(path), f"it should have crc32, a dict of ints, and is {shorten(content)}")
    if outside := [name for name in written if leads_outside(name)]:
        raise damaged(str(path), f"no name of a file in it: {', '.join(map(repr, outside))}")
    if content.get("of this list") != _crc_of(written):
        raise damaged(str(path), "its list of checksums is not what was written")
    found = _checksums(directory, written) if compare else written
    if wrong := [name for name in written if found[name] != written[name]]:
        raise damaged(str(directory), f"not what was written: {', '.join(wrong)}")
