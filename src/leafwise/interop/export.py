"""Exported programs, `jax.export`: functions over pytree classes, saved for another process.

Statics are rebuilt from the JSON that `leafwise._statics.portable` wrote, without unpickling. Names
are looked up only in modules that are already imported. Each rebuilt value must have the same JSON.
"""

import ast
import contextlib
import dataclasses
import enum
import functools
import json
import operator
import sys
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeAlias

import jax
import numpy as np
from jax import export

from leafwise._classes.registry import field_names
from leafwise._jax.compat import forget_exported_class
from leafwise._objects.attributes import instance_with
from leafwise._objects.classes import on_registered
from leafwise._objects.frozen import FrozenMapping
from leafwise._objects.source.code import find_by_name, is_redefinition
from leafwise._objects.text import shorten
from leafwise._statics.key import StaticKey, key_of, table_of
from leafwise._statics.portable import Json, PortableReader, class_name, dump, format_json
from leafwise.errors import PortableError

__all__ = ["register_serialization"]

Names: TypeAlias = tuple[Sequence[str], Sequence[str]]
"""The names of the static and the dynamic fields of a class."""


def register_serialization() -> None:
    """Enable `jax.export` to serialize functions over pytree classes, including future ones.

    ``exported.serialize()`` then writes, for each instance among the arguments and results, its
    class, the names of its fields, and its statics as JSON; nothing is pickled.
    ``jax.export.deserialize`` in another process, which calls this as well, rebuilds them with the
    classes and functions of the same names. No module is imported for that. Classes of one name,
    as a factory defines them, are counted in the order of their definition.

    Pytree classes are those of `leafwise.pytree`, and those registered with `leafwise.register`,
    except for those that `jax.export` already knows. Serializing needs the package ``flatbuffers``.

    Raises:
        PortableError: (by ``serialize``) a static means nothing to another process: a lambda, a
            local function, an array; (by ``deserialize``) a class has different fields here, or a
            static has a name that does not exist here.

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


_NAMED: Final[dict[str, list[weakref.ref[type]]]] = {}
"""The classes of each name, in the order of their definition; it keeps none alive."""


def _register(cls: type) -> None:
    if field_names(cls) is None:  # another library flattens it
        return
    name = f"leafwise:{class_name(cls)}"
    named = _NAMED.setdefault(name, [])
    older = named[-1]() if named else None
    if older is not None and is_redefinition(older, cls):  # loading uses the new one
        forget_exported_class(older)
        named.pop()
    name += f"#{len(named) + 1}" * bool(named)
    with contextlib.suppress(ValueError):  # already registered by hand
        export.register_pytree_node_serialization(
            cls,
            serialized_name=name,
            serialize_auxdata=functools.partial(_write, cls),
            deserialize_auxdata=functools.partial(_read, cls),
        )
        named.append(weakref.ref(cls))


def _write(cls: type, key: StaticKey) -> bytes:
    reader = PortableReader()
    statics: dict[str, Json] = {}
    for name, value in zip(key.owner.static_names, key.values, strict=True):
        path = f"{cls.__name__}.{name}"
        statics[name] = reader.read(value, path)
        rebuild_static(statics[name], path)  # errors show here, where they can be fixed
    names = field_names(cls) or ((), ())
    return dump({"dynamic": names[1], "statics": statics}).encode()


def _read(cls: type, text: bytes) -> StaticKey:
    written = json.loads(text)
    names = field_names(cls) or ((), ())
    before: dict[str, Json] = written["statics"]
    _check_fields("the exported function", cls, written["dynamic"], before, names)
    values = [rebuild_static(before[name], f"{cls.__name__}.{name}") for name in names[0]]
    return key_of(table_of(cls), tuple(values))


def rebuild_static(written: Json, path: str) -> Any:
    """Return the static value at `path` from its JSON; raise `PortableError` if that fails."""
    reader = PortableReader()
    try:
        value = _rebuilt(written, path)
        if dump(reader.read(value, path)) == dump(written) and not reader.opaque:
            return value
    except PortableError:
        raise
    except Exception as error:  # of a user's class that is rebuilt
        raise _not_portable(written, path) from error
    raise _not_portable(written, path)


def _not_portable(written: Json, path: str) -> PortableError:
    return PortableError(
        f"{path}: a value like this cannot be rebuilt in another process\n"
        f"  got: {shorten(format_json(written))}\n"
        f"  fix: use numbers, strings, containers, enums, frozen dataclasses, dtypes, or functions "
        f"and classes with a name at the top level of a module"
    )


def _check_fields(
    path: str, cls: type, dynamic: Sequence[str], statics: Collection[str], names: Names
) -> None:
    """Refuse an instance written with different fields than `names`, those of the class here."""
    if (set(statics), list(dynamic)) == (set(names[0]), list(names[1])):
        return
    raise PortableError(
        f"{path}: {cls.__name__} has different fields here than in the file\n"
        f"  in the file: {_format_fields(statics, dynamic)}\n"
        f"  here: {_format_fields(*names)}\n"
        f"  fix: write the file again"
    )


def _format_fields(static: Collection[str], dynamic: Collection[str]) -> str:
    return f"dynamic {', '.join(dynamic) or 'none'}; static {', '.join(sorted(static)) or 'none'}"


def _find_named(name: str, path: str) -> Any:
    """Return the object named ``module:qualname``, or the builtin named without a module."""
    module, colon, qualname = name.rpartition(":")
    if not colon and qualname in sys.modules and not hasattr(sys.modules["builtins"], qualname):
        return sys.modules[qualname]
    module = module or "builtins"
    if module not in sys.modules:
        raise PortableError(
            f"{path}: {name} is in a module that is not imported here, and loading a file "
            f"imports none\n  fix: import {module}"
        )
    value = find_by_name(module, qualname)
    if value is None:
        raise PortableError(
            f"{path}: there is no {qualname} in {module} here\n"
            f"  fix: define it under that name, or write the file again with the current names"
        )
    return value


def _rebuilt(written: Json, path: str) -> Any:
    match written:
        case None | bool() | int() | str():
            return written
        case {"class": "name", "parts": [name]}:
            return _find_named(name, path)
        case {"class": "name", "parts": [*names]}:
            flags = [_find_named(name, path) for name in names]
            if all(isinstance(flag, enum.Flag) for flag in flags):
                return functools.reduce(operator.or_, flags)
        case {"class": str(name), "parts": [*parts]} if name in _BUILTINS or ":" in name:
            items = [_rebuilt(part, f"{path}[{at}]") for at, part in enumerate(parts)]
            if name in _BUILTINS:
                return _BUILTINS[name](*items)
            cls = _find_named(name, path)
            if issubclass(cls, np.generic):
                return np.frombuffer(items[2], _dtype(items[1]))[0]
            if issubclass(cls, enum.Enum):
                return cls(*items)
        case {"class": str(name), "parts": dict(parts)} if ":" in name:
            found = {step: _rebuilt(part, path + step) for step, part in parts.items()}
            return _instance(_find_named(name, path), found, written, path)
        case _:
            pass
    raise _not_portable(written, path)


def _dtype(text: str, char: str = "") -> np.dtype[Any]:
    return jax.numpy.dtype(char or text.removeprefix("dtype(").removesuffix(")").strip("'"))


_BUILTINS: Final[dict[str, Callable[..., Any]]] = {
    "tuple": lambda *items: items,
    "list": lambda *items: [*items],
    "set": lambda *items: {*items},
    "frozenset": lambda *items: frozenset(items),
    "dict": lambda *pairs: dict(pairs),
    "int": functools.partial(int, base=16),
    "float": float,
    "complex": complex,
    "bytes": ast.literal_eval,
    "numpy:dtype": _dtype,
}
"""Functions that rebuild values of builtin classes from lists of parts, by class name."""


def _instance(cls: Any, parts: dict[str, Any], written: Json, path: str) -> Any:
    if cls is FrozenMapping:
        return cls(parts[""])
    if cls is functools.partial:
        return cls(parts[".func"], *parts[".args"], **parts[".keywords"])
    values = {step.removeprefix("."): value for step, value in parts.items()}
    if issubclass(cls, tuple):
        names: Any = getattr(cls, "_fields", ())
        return tuple.__new__(cls, values[""] if "" in values else [values[name] for name in names])
    if "" in values or cls.__new__ is not object.__new__:
        raise _not_portable(written, path)
    if hasattr(cls, "__dataclass_fields__"):
        fields = dataclasses.fields(cls)
        here = [field.name for field in fields if field.compare or field.name in values]
        if set(here) - set(values):  # any others are what its methods have set
            _check_fields(path, cls, (), list(values), (here, ()))
    return instance_with(cls, values)
