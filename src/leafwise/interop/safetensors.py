"""Trees in safetensors files, with what they are in the file's metadata.

Each array is a tensor of its key path, so that other programs can read it. What
safetensors has no name for (``int4``, complex numbers) is written as bytes, one more
dimension of ``U8``.
"""

import contextlib
import json
import math
import os
import secrets
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import jax.numpy as jnp
import numpy as np

from leafwise._compare.description import Description
from leafwise.errors import CheckpointError
from leafwise.interop._checkpoint.checkpoint import ROOT, Migrate, SavedTree, pack, unpack
from leafwise.interop._checkpoint.files import damaged, open_file, read_json, reading
from leafwise.interop._checkpoint.stored import from_json, stored_entry, to_json
from leafwise.interop._extra import import_extra

# Not installed where our types are checked.
safetensors: Any = import_extra("safetensors.numpy", "safetensors")

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

    Examples:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> save({"w": jnp.ones(3)}, folder / "params.safetensors")
    """
    description, arrays = pack(tree, allow_opaque=allow_opaque)
    tensors = {name or ROOT: _as_tensor(array) for name, array in arrays.items()}
    checksums = {name: zlib.crc32(_bytes(tensor)) for name, tensor in tensors.items()}
    text = to_json(description)
    checksums[_DESCRIPTION] = _crc_of(text)
    metadata = {_DESCRIPTION: text, _CHECKSUMS: json.dumps(checksums)}
    _replace(Path(path), safetensors.save(tensors, metadata))


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

    Examples:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "params.safetensors"
        >>> save({"w": jnp.ones(3)}, path)
        >>> load({"w": jnp.zeros(3)}, path)
        {'w': Array([1., 1., 1.], dtype=float32)}
    """
    where = os.fspath(path)
    with open_file(Path(path)) as file:
        start, header = _read_header(file, where)
        saved, checksums = _read_metadata(header.pop("__metadata__", None), where)
        names = {place or ROOT for place in saved.leaves}
        if wrong := sorted((names ^ header.keys()) | (names ^ checksums.keys())):
            raise damaged(where, f"not what was written: {', '.join(map(repr, wrong))}")

        def read(wanted: Mapping[str, Any]) -> dict[str, Any]:
            found: dict[str, Any] = {}
            for place in wanted:
                name = place or ROOT
                with reading(where):
                    array = _read_array(file, start, header[name], saved.leaves[place])
                if array is None or zlib.crc32(_bytes(array)) != checksums[name]:
                    raise damaged(where, f"not what was written: {name}")
                found[place] = array
            return found

        return unpack(target, saved, where, read, migrate)


def _as_tensor(array: Any) -> np.ndarray[Any, Any]:
    plain = np.ascontiguousarray(array).reshape(array.shape)
    if plain.dtype in _NATIVE:
        return plain
    return np.frombuffer(plain.tobytes(), np.uint8).reshape(*plain.shape, plain.dtype.itemsize)


def _bytes(tensor: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return tensor.reshape(-1).view(np.uint8)  # bfloat16 and others have no buffer protocol


def _read_header(file: BinaryIO, where: str) -> tuple[int, dict[str, Any]]:
    """Return where the data begins, and what the header says; refuse a file of another length."""
    with reading(where):
        length = os.fstat(file.fileno()).st_size
        start = 8 + int.from_bytes(file.read(8), "little")
        if start > length:
            raise damaged(where, f"its header should end at byte {start}, and it has {length}")
        header = read_json(file.read(start - 8), where)
    if not isinstance(header, dict):
        raise damaged(where, "its header is not a dict")
    wanted = start + max((_offsets(tensor)[1] for tensor in header.values()), default=0)
    if length != wanted:
        raise damaged(where, f"it should have {wanted} bytes, and has {length}")
    return start, header


def _offsets(tensor: Any) -> tuple[int, int]:
    """Return where the data of a tensor begins and ends; (0, 0) if its header does not say so."""
    found = tensor.get("data_offsets") if isinstance(tensor, dict) else None
    if not isinstance(found, list) or list(map(type, found)) != [int, int]:
        return 0, 0
    begin, end = found
    return (begin, end) if 0 <= begin <= end else (0, 0)


def _read_metadata(metadata: Any, where: str) -> tuple[Description, dict[str, Any]]:
    """Return what a tree was, and the checksums of its tensors by name."""
    if not isinstance(metadata, dict) or _DESCRIPTION not in metadata:
        raise CheckpointError(
            f"{where}: not written by leafwise.interop.safetensors.save: it has no description of "
            f"a tree\n"
            f"  fix: read it with safetensors.numpy.load_file, and save the tree that you build"
        )
    text, sums = (str(metadata.get(name)) for name in (_DESCRIPTION, _CHECKSUMS))
    saved = from_json(text, where)
    checksums = read_json(sums, where)
    if not isinstance(checksums, dict) or checksums.pop(_DESCRIPTION, None) != _crc_of(text):
        raise damaged(where, "the description in it is not what was written")
    return saved, checksums


def _crc_of(text: str) -> int:
    return zlib.crc32(text.encode(errors="surrogatepass"))


def _read_array(file: BinaryIO, start: int, tensor: Any, entry: Mapping[str, Any]) -> Any:
    """Return an array; None if the tensor of its name is not what its entry describes."""
    stored = stored_entry(entry)
    dtype, shape = jnp.dtype(stored["dtype"]), stored["shape"]
    kind, tail = (_NATIVE[dtype], []) if dtype in _NATIVE else ("U8", [dtype.itemsize])
    begin, end = _offsets(tensor)
    wanted = {"dtype": kind, "shape": [*shape, *tail], "data_offsets": [begin, end]}
    if tensor != wanted or end - begin != math.prod(shape) * dtype.itemsize:
        return None
    file.seek(start + begin)
    content = file.read(end - begin)  # the file is known to be that long
    return np.frombuffer(content, dtype).reshape(shape) if len(content) == end - begin else None


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
