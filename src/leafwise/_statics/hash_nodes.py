"""Leafless children that carry bits of the statics into the hash of a treedef.

JAX hashes a treedef by the kinds and types of its nodes, without aux_data, so it searches programs
that differ only in statics one by one. The type of a node does enter the hash. An instance of a
class with ``many_statics=True`` therefore has one more child: a node without leaves, whose type is
chosen by a digest of the statics.

The digest is the same in every process, so that a pickled treedef equals a new one. Equal statics
must have equal digests; unequal ones may share one.

Imported for the first such class, since creating the types takes some milliseconds.
"""

import enum
import types
import zlib
from collections.abc import Iterator
from typing import Any, Final, cast

import jax
from jax import export

from leafwise._objects.parts import kind_of
from leafwise._statics.form import consists_of_parts

COUNT: Final = 256
"""The number of types: with 1,000 statics, about 4 share each type."""


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
    return cast("HashNode", made())


_POOL: Final = tuple(map(_make, range(COUNT)))


def hash_node_of(values: tuple[Any, ...]) -> HashNode:
    digest = 0
    for part in _parts(values):
        digest = zlib.crc32(part, digest)
    return _POOL[digest % COUNT]


def _parts(value: Any) -> Iterator[bytes]:
    """Yield what distinguishes a value, without ids and hashes, which differ between processes."""
    # For an object with its own `==`, that is only its type, since what it compares is unknown;
    # also for a set, since the order of its members differs between processes.
    cls, kind = type(value), kind_of(value)
    yield cls.__qualname__.encode()
    if issubclass(cls, enum.Enum):
        yield str(value.name).encode()
    elif issubclass(cls, types.FunctionType | type):
        yield value.__qualname__.encode()
    elif kind.is_ordered and consists_of_parts(cls):
        for token in kind.content(value):
            text = f"{token:x}" if type(token) is int else repr(token)  # an int of any length
            yield text.encode("utf-8", "backslashreplace")
        for part in kind.values(value):
            yield from _parts(part)
