"""Trees in safetensors files, with what they are in the file's metadata.

Each array is a tensor of its key path, so that other programs can read it. What
safetensors has no name for (``int4``, complex numbers) is written as bytes, one more
dimension of ``U8``.
"""

import contextlib
import json
import os
import secrets
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import jax.numpy as jnp
import numpy as np

from leafwise.errors import CheckpointError
from leafwise.interop._checkpoint.checkpoint import ROOT, Migrate, SavedTree, pack, unpack
from leafwise.interop._checkpoint.description import Description, stored_dtype
from leafwise.interop._extra import import_extra

# Not installed where our types are checked.
safetensors: Any = import_extra("safetensors", "safetensors")
tensors_of_numpy: Any = import_extra("safetensors.numpy", "safetensors")

__all__ = ["SavedTree", "load", "save"]

T = TypeVar("T")

_DESCRIPTION: Final = "leafwise"
_CHECKSUMS: Final = "leafwise.crc32"

# Those that the oldest supported version can write, too, so that every version reads every file.
_NATIVE: Final = {
    **{
        np.dtype(f"{kind}{size}"): f"{kind[0].upper()}{size}"
        for kind in ("int", "uint")
        for size in (8, 16, 32, 64)
    },
    **{np.dtype(f"float{size}"): f"F{size}" for size in (16, 32, 64)},
    np.dtype(bool): "BOOL",
    jnp.dtype("bfloat16"): "BF16",
}


def save(tree: Any, path: str | os.PathLike[str], *, allow_opaque: bool = False) -> None:
    """Write a tree to a safetensors file: all of it, or nothing.

    Args:
        tree: A pytree of arrays: of numpy or of JAX, of any shape and dtype that JAX has,
            PRNG keys, and Python scalars. A leaf that is not an array (a function) is described,
            as a static is.
        path: The file. It is replaced only when all has been written.
        allow_opaque: Whether to accept statics that mean nothing to another process (a lambda,
            a local function, an object that compares by identity): then only their type
            and name are compared when the file is loaded.

    Raises:
        CheckpointError: A leaf cannot be saved, or a static means nothing to another
            process; it names all of them.
        StaticMutatedError: A static of a leafwise class changed in place.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> save({"w": jnp.ones(3)}, folder / "params.safetensors")
    """
    description, arrays = pack(tree, allow_opaque=allow_opaque)
    tensors = {name or ROOT: _as_tensor(array) for name, array in arrays.items()}
    checksums = {name: zlib.crc32(_bytes(tensor)) for name, tensor in tensors.items()}
    metadata = {_DESCRIPTION: description.to_json(), _CHECKSUMS: json.dumps(checksums)}
    _replace(Path(path), tensors_of_numpy.save(tensors, metadata))


def load(target: T, path: str | os.PathLike[str], *, migrate: Migrate | None = None) -> T:
    """Return a tree like `target`, with the arrays of a file.

    Statics are never read back: they are compared, and the target's own come back. So are
    the kinds of arrays: where the target has a numpy array or a Python scalar, the result
    has one, and a sharding of the target's is honoured.

    Args:
        target: An instance, or the tree that `jax.eval_shape` returns. It is not changed.
        path: The file that `save` wrote.
        migrate: A function that changes what was saved, a `SavedTree`, in place, so that it
            fits the target.

    Returns:
        A tree of the target's class, structure and statics.

    Raises:
        CheckpointMismatchError: What was saved (or what `migrate` made of it) has another
            class, structure, static, shape or dtype; it names all places.
        CheckpointError: The file is damaged, or `save` did not write it.
        FileNotFoundError: There is none.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "params.safetensors"
        >>> save({"w": jnp.ones(3)}, path)
        >>> load({"w": jnp.zeros(3)}, path)
        {'w': Array([1., 1., 1.], dtype=float32)}
    """
    where = os.fspath(path)
    content = Path(path).read_bytes()
    tensors, metadata = _parse(content, where)
    if _DESCRIPTION not in metadata:
        msg = (
            f"{where}: not written by leafwise.interop.safetensors.save: it has tensors, and "
            f"no description of a tree\n"
            f"  fix: read it with safetensors.numpy.load_file, and save the tree that you build"
        )
        raise CheckpointError(msg)
    saved = Description.from_json(metadata[_DESCRIPTION], where)
    _check(tensors, metadata, where)

    def read(wanted: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: _as_array(tensors[name or ROOT], saved.leaves[name], f"{where}: {name}")
            for name in wanted
            if (name or ROOT) in tensors
        }

    return unpack(target, saved, where, read, migrate)


def _as_tensor(array: Any) -> np.ndarray[Any, Any]:
    plain = np.ascontiguousarray(array).reshape(array.shape)
    if plain.dtype in _NATIVE:
        return plain
    return np.frombuffer(plain.tobytes(), np.uint8).reshape(*plain.shape, plain.dtype.itemsize)


def _bytes(tensor: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return tensor.reshape(-1).view(np.uint8)  # bfloat16 and others have no buffer protocol


def _as_array(tensor: Mapping[str, Any], entry: Mapping[str, Any], where: str) -> Any:
    dtype = stored_dtype(entry)
    shape: list[int] = tensor["shape"]
    kind, tail = (_NATIVE[dtype], []) if dtype in _NATIVE else ("U8", [dtype.itemsize])
    if tensor["dtype"] != kind or (tail and shape[-1:] != tail):
        msg = f"{where}: damaged: {tensor['dtype']}{shape} cannot be {dtype}"
        raise CheckpointError(msg)
    return np.frombuffer(bytes(tensor["data"]), dtype).reshape(shape[:-1] if tail else shape)


def _parse(content: bytes, where: str) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return tensors by name, and the metadata, which safetensors itself reads from a path only."""
    try:
        tensors = dict(safetensors.deserialize(content))
        size = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + size]).get("__metadata__", {})
    except (safetensors.SafetensorError, ValueError, OverflowError) as error:
        msg = f"{where}: damaged, or not a safetensors file: {error}"
        raise CheckpointError(msg) from error
    return tensors, metadata


def _check(tensors: dict[str, dict[str, Any]], metadata: dict[str, str], where: str) -> None:
    """Compare the data with the checksums that were written."""
    try:
        checksums = json.loads(metadata[_CHECKSUMS])
        found = {name: zlib.crc32(tensor["data"]) for name, tensor in tensors.items()}
    except (ValueError, LookupError) as error:
        msg = f"{where}: damaged: its checksums cannot be read"
        raise CheckpointError(msg) from error
    names = {**found, **checksums} if isinstance(checksums, dict) else {**found}
    wrong = [name for name in names if found.get(name) != checksums.get(name)]
    if wrong:
        msg = f"{where}: damaged: not what was written: {', '.join(wrong)}"
        raise CheckpointError(msg)


def _replace(path: Path, content: bytes) -> None:
    """Write a file completely, or not at all."""
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with new.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            new.unlink()
