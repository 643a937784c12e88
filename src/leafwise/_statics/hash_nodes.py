"""Leafless children that carry bits of the statics into the hash of a treedef.

JAX hashes a treedef by the kinds and types of its nodes and leaves the aux_data out, so
it searches programs that differ only in statics one by one. The type of a node does
reach the hash. An instance of a class with ``many_statics=True`` therefore has one more
child: a node without leaves, whose type is picked by a digest of the statics.

The digest is the same in every process, so that a pickled treedef equals a new one.
Statics that are equal must have equal digests; unequal ones may share one.

Imported by the first such class, since the types take some milliseconds to make.
"""

import enum
import functools
import types
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import jax
import numpy as np
from jax import export

from leafwise._objects.attributes import builtin_base, record_fields
from leafwise._objects.frozen import FrozenMapping, StaticArray

COUNT: Final = 256
"""How many types there are: of 1,000 statics, about 4 then share each type."""


class HashNode:
    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _make(number: int) -> HashNode:
    name = f"HashNode{number}"
    body = {"__slots__": (), "__module__": __name__, "__qualname__": name}
    made: Any = type(name, (HashNode,), body)
    globals()[name] = made  # where pickle finds it
    jax.tree_util.register_dataclass(made, data_fields=[], meta_fields=[])
    export.register_pytree_node_serialization(
        made,
        serialized_name=f"leafwise.{name}",
        serialize_auxdata=lambda _: b"",
        deserialize_auxdata=lambda _: (),
    )
    instance: HashNode = made()
    return instance


_POOL: Final = tuple(map(_make, range(COUNT)))


def hash_node_of(values: tuple[Any, ...]) -> HashNode:
    digest = 0
    for part in _parts(values):
        digest = zlib.crc32(part, digest)
    return _POOL[digest % COUNT]


_PLAIN: Final = frozenset({int, float, complex, bool, str, bytes, type(None)})


def _parts(value: Any) -> Iterator[bytes]:
    """Yield what distinguishes a value, without ids and hashes: other processes have others.

    Of an object with its own ``==`` that is only the type: what it compares is unknown.
    """
    kind: Any = type(value)
    yield kind.__qualname__.encode()
    if kind in _PLAIN or isinstance(value, np.generic):
        yield repr(value).encode("utf-8", "backslashreplace")
    elif kind is StaticArray:
        yield value.tobytes()
    elif isinstance(value, enum.Enum):
        yield value.name.encode()
    elif isinstance(value, types.FunctionType | type):
        yield value.__qualname__.encode()
    else:
        for part in _inside(value, kind):
            yield from _parts(part)


def _inside(value: Any, kind: type) -> Iterable[Any]:
    """Return the parts of a container, or of another object that is read by parts."""
    if builtin_base(kind) is tuple:  # named ones, too
        return tuple.__iter__(value)
    if kind is FrozenMapping:
        return value.items()  # type: ignore[no-any-return]
    if isinstance(value, functools.partial):
        return value.func, value.args, *value.keywords.items()
    return [getattr(value, name, None) for name in record_fields(kind) or ()]
