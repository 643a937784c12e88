"""Trees in safetensors files, with their description in the file's metadata.

Each array is a tensor named by its key path, so that other programs can read it. Dtypes that
safetensors lacks (``int4``, complex numbers) are written as bytes, with one more dimension of
``U8``.
"""

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import jax.numpy as jnp
import numpy as np

from leafwise._objects.files import NewFile, write_files
from leafwise.errors import CheckpointError
from leafwise.interop._checkpoint import ROOT, from_json, pack, reading, stored, to_json, unpack
from leafwise.interop._extra import import_extra

# Not installed where leafwise is type-checked.
safetensors: Any = import_extra("safetensors", "safetensors")
safetensors_numpy: Any = import_extra("safetensors.numpy", "safetensors")

__all__ = ["load", "save"]

T = TypeVar("T")

_DESCRIPTION: Final = "leafwise"

# Those that even the oldest supported version can write, so that all versions read all files.
_NATIVE: Final = {
    *map(jnp.dtype, ("bool", "bfloat16", "float16", "float32", "float64")),
    *map(jnp.dtype, ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")),
}


def save(tree: Any, path: str | os.PathLike[str]) -> None:
    """Write a tree to a safetensors file: all of it, or nothing.

    Args:
        tree: A pytree of NumPy or JAX arrays of any shape and dtype that JAX has, PRNG keys and
            Python scalars. A leaf that is not an array (a function) is described like a static.
        path: The file. It is replaced only when everything has been written.

    Raises:
        CheckpointError: A leaf cannot be saved, or a static means nothing to another process (a
            lambda, a local function, an object that compares by identity); it names all of them.
        StaticMutatedError: A static of a leafwise class changed in place.

    Examples:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> save({"w": jnp.ones(3)}, folder / "params.safetensors")
    """
    description, arrays = pack(tree)
    tensors = {name or ROOT: _as_tensor(array) for name, array in arrays.items()}
    metadata = {_DESCRIPTION: json.dumps(to_json(description))}
    write = functools.partial(safetensors_numpy.save_file, tensors, metadata=metadata)
    write_files(NewFile(os.fspath(path), write))


def load(target: T, path: str | os.PathLike[str], *, renamed: Mapping[str, str] | None = None) -> T:
    """Return a tree like `target`, with the arrays of a file.

    Statics are never read back: they are compared, and the result has the target's own. The kinds
    of arrays also follow the target: where it has a NumPy array or a Python scalar, so does the
    result. Its shardings are honoured.

    Args:
        target: An instance, or the tree that `jax.eval_shape` returns. It is not changed.
        path: The file that `save` wrote.
        renamed: The names that changed, from old to new: paths of fields, with everything below
            them (``{".layers": ".blocks"}``), and classes or functions
            (``{"models:Net": "models:Model"}``).

    Returns:
        A tree of the target's class, structure and statics.

    Raises:
        CheckpointError: The saved tree has a different class, structure, static, shape or dtype (it
            names all places); the file is damaged or not written by `save`; or `renamed` does not
            fit it.
        FileNotFoundError: There is no file at `path`.

    Examples:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "params.safetensors"
        >>> save({"w": jnp.ones(3)}, path)
        >>> load({"w": jnp.zeros(3)}, path)
        {'w': Array([1., 1., 1.], dtype=float32)}
    """
    where = os.fspath(path)
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no file {where}")
    with reading(where):
        file = safetensors.safe_open(path, framework="numpy")
        metadata = file.metadata() or {}
    if _DESCRIPTION not in metadata:
        raise CheckpointError(
            f"{where}: not written by leafwise.interop.safetensors.save: it has no description of "
            f"a tree\n"
            f"  fix: read it with safetensors.numpy.load_file, and save the tree that you build"
        )
    with reading(where):
        saved = from_json(json.loads(metadata[_DESCRIPTION]), where)

    def read(wanted: Mapping[str, Any]) -> dict[str, Any]:
        arrays: dict[str, Any] = {}
        for place in wanted:
            shape, dtype = stored(saved[place]["array"])
            with reading(where):
                arrays[place] = _as_array(file.get_tensor(place or ROOT), shape, dtype)
        return arrays

    return unpack(target, saved, where, read, renamed)


def _as_tensor(array: Any) -> np.ndarray[Any, Any]:
    plain = np.ascontiguousarray(array).reshape(array.shape)
    if plain.dtype in _NATIVE:
        return plain
    return plain.reshape(-1).view(np.uint8).reshape(*plain.shape, plain.dtype.itemsize)


def _as_array(tensor: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    if dtype not in _NATIVE:
        return tensor.view(dtype).reshape(shape)
    if (tensor.shape, tensor.dtype) != (shape, dtype):
        raise ValueError(f"{tensor.dtype}{list(tensor.shape)}, not {dtype}{list(shape)}")
    return tensor
