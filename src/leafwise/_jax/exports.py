"""The names by which `jax.export` knows classes."""

import contextlib
from collections.abc import Callable
from typing import Any

from jax import export

from leafwise._jax.compat import is_known


def name_class(
    cls: type, name: str, write: Callable[[Any], bytes], read: Callable[[bytes], Any]
) -> bool:
    """Give a class a name in exported programs; return False if it has one, given by hand."""
    try:
        export.register_pytree_node_serialization(
            cls, serialized_name=name, serialize_auxdata=write, deserialize_auxdata=read
        )
    except ValueError:
        return False
    return True


def forget_class(cls: type, name: str) -> None:
    """Free the name of a class that was defined again; without private JAX it keeps it."""
    with contextlib.suppress(ImportError, AttributeError, KeyError):
        if is_known():
            from jax._src.export import _export  # noqa: PLC0415  # after the check of the version

            del _export.deserialization_registry[name]
            del _export.serialization_registry[cls]
