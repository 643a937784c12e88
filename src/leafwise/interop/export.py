"""Exported programs, `jax.export`: functions over pytree classes, saved for another process."""

import contextlib
import functools
import json
import weakref
from typing import Final

from jax import export

from leafwise._classes.registry import field_names
from leafwise._jax.compat import forget_exported_class
from leafwise._objects.classes import on_registered
from leafwise._statics.key import StaticKey, key_of, table_of
from leafwise._statics.portable import Json, PortableReader, class_name, dump
from leafwise._statics.rebuild import check_fields, rebuild

__all__ = ["register_serialization"]


def register_serialization() -> None:
    """Let `jax.export` serialize functions over pytree classes, those to come included.

    ``exported.serialize()`` then writes of each instance among the arguments and results its
    class, the names of its fields, and its statics as JSON; nothing is pickled.
    ``jax.export.deserialize`` in another process, which calls this as well, rebuilds them for the
    classes and functions of the same names. No module is imported for that.

    Pytree classes are those of `leafwise.pytree`, and those that were registered with
    `leafwise.register`, but for those that `jax.export` knows already. Serializing needs the
    package ``flatbuffers``.

    Raises:
        PortableError: (by ``serialize``) a static means nothing to another process: a lambda, a
            local function, an array; (by ``deserialize``) a class has other fields here, or a
            static has a name that leads nowhere here.

    Examples:
        >>> import leafwise as lw
        >>> from jax import export
        >>> register_serialization()
        >>> @lw.pytree
        ... class Scale:
        ...     factor: jax.Array
        ...     power: int = lw.static_field(default=1)
        >>> fun = jax.jit(lambda scale, x: scale.factor * x**scale.power)
        >>> scale, x = Scale(jnp.float32(2)), jnp.float32(3)
        >>> blob = export.export(fun)(scale, x).serialize()
        >>> export.deserialize(blob).call(scale, x)
        Array(6., dtype=float32)
    """
    on_registered(_register)


_NAMED: Final[dict[str, weakref.ref[type]]] = {}


def _register(cls: type) -> None:
    if field_names(cls) is None:  # another library flattens it
        return
    name = f"leafwise:{class_name(cls)}"
    older = _NAMED[name]() if name in _NAMED else None
    if older is not None:  # defined again, as in a notebook: what is loaded is of this one
        forget_exported_class(older, name)
    with contextlib.suppress(ValueError):  # it has a name, given by hand
        export.register_pytree_node_serialization(
            cls,
            serialized_name=name,
            serialize_auxdata=functools.partial(_write, cls),
            deserialize_auxdata=functools.partial(_read, cls),
        )
        _NAMED[name] = weakref.ref(cls)


def _write(cls: type, key: StaticKey) -> bytes:
    reader = PortableReader()
    statics: dict[str, Json] = {}
    for name, value in zip(key.owner.static_names, key.values, strict=True):
        path = f"{cls.__name__}.{name}"
        statics[name] = reader.read(value, path)
        rebuild(statics[name], path)  # here, where it can be changed, and not where it is loaded
    names = field_names(cls) or ((), ())
    return dump({"dynamic": names[1], "statics": statics}).encode()


def _read(cls: type, text: bytes) -> StaticKey:
    written = json.loads(text)
    names = field_names(cls) or ((), ())
    before: dict[str, Json] = written["statics"]
    check_fields("the exported function", cls, written["dynamic"], before, names)
    values = [rebuild(before[name], f"{cls.__name__}.{name}") for name in names[0]]
    return key_of(table_of(cls), tuple(values))
