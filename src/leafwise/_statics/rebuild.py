"""Static values from the JSON that `leafwise._statics.portable` wrote, without unpickling.

Names lead to what modules have that are imported already. What comes out is read again, and has
the same JSON.
"""

import ast
import dataclasses
import enum
import functools
import operator
import sys
from collections.abc import Collection, Sequence
from typing import Any, Final, TypeAlias

import jax
import numpy as np

from leafwise._objects.code import find_by_name
from leafwise._objects.frozen import FrozenMapping
from leafwise._objects.text import shorten
from leafwise._statics.portable import Json, PortableReader, dump, format_json
from leafwise.errors import PortableError


def rebuild(json: Json, path: str) -> Any:
    """Return the static value that was written as `json`, and stands at `path`.

    Raises:
        PortableError: It has a name that leads nowhere here, or cannot be rebuilt from JSON.
    """
    reader = PortableReader()
    try:
        value = _value(json, path)
        same = dump(reader.read(value, path)) == dump(json) and not reader.opaque
    except PortableError:
        raise
    except Exception as error:
        raise PortableError(_message(json, path)) from error
    if not same:
        raise PortableError(_message(json, path))
    return value


def _message(json: Json, path: str) -> str:
    return (
        f"{path}: a value like this cannot be rebuilt in another process\n"
        f"  got: {shorten(format_json(json))}\n"
        f"  fix: numbers, texts, containers, enums, frozen dataclasses, dtypes, or functions and "
        f"classes with a name at the top level of a module"
    )


Names: TypeAlias = tuple[Sequence[str], Sequence[str]]
"""The static and the dynamic fields of a class."""


def check_fields(
    path: str, cls: type, dynamic: Sequence[str], statics: Collection[str], names: Names
) -> None:
    """Refuse an instance that was written for other fields than the class has here.

    Args:
        path: What stands at the beginning of the message.
        cls: The class.
        dynamic: The dynamic fields in the file.
        statics: The static fields in the file.
        names: The fields here.

    Raises:
        PortableError: They differ; it lists both.
    """
    if (set(statics), list(dynamic)) == (set(names[0]), list(names[1])):
        return
    raise PortableError(
        f"{path}: {cls.__name__} has other fields here than in the file\n"
        f"  in the file: {_listed(statics, dynamic)}\n"
        f"  here: {_listed(*names)}\n"
        f"  fix: write the file again"
    )


def _listed(static: Collection[str], dynamic: Collection[str]) -> str:
    return f"dynamic {', '.join(dynamic) or 'none'}; static {', '.join(sorted(static)) or 'none'}"


def find_named(name: str, path: str) -> Any:
    """Return what ``module:qualname`` leads to, or the builtin of a name without a module.

    Raises:
        PortableError: The module is not imported, or has no such name.
    """
    module, colon, qualname = name.rpartition(":")
    if not colon and qualname in sys.modules and not hasattr(sys.modules["builtins"], qualname):
        return sys.modules[qualname]
    module = module or "builtins"
    if module not in sys.modules:
        raise PortableError(
            f"{path}: {name} is of a module that is not imported here, and none is imported for "
            f"a file\n  fix: import {module}"
        )
    found = find_by_name(module, qualname)
    if found is None:
        raise PortableError(
            f"{path}: there is no {qualname} in {module} here\n"
            f"  fix: define it under that name, or write the file again with the names of today"
        )
    return found


def _value(json: Json, path: str) -> Any:  # noqa: C901, PLR0912  # one chain of cases
    match json:
        case None | bool() | int() | str():
            return json
        case list():
            return tuple([_value(each, f"{path}[{at}]") for at, each in enumerate(json)])
        case {"class": str(name)}:
            return _instance(_class(name, path), json, path)
        case {"bytes": str(text)}:
            return ast.literal_eval(text)
        case {"int": str(text)}:
            return int(text, 16)
        case {"float": str(text)}:
            return float(text)
        case {"complex": [str(real), str(imaginary)]}:
            return complex(float(real), float(imaginary))
        case {"enum": str(name), "value": value}:
            return _class(name, path, enum.Enum)(_value(value, path))
        case {"enum": str(name)}:
            home, _, members = name.rpartition(".")
            kind, chosen = _class(home, path, enum.Enum), members.split("|")
            gone = [name for name in chosen if name not in kind.__members__]
            if gone:
                raise PortableError(
                    f"{path}: {kind.__name__}.{gone[0]} is in the file, and not here\n"
                    f"  fix: write the file again, or keep the name"
                )
            return functools.reduce(operator.or_, [kind[each] for each in chosen])
        case {"dtype": str(text)}:
            return np.dtype(json["char"]) if "char" in json else _dtype(text)
        case {"name": str(name)} | {"type": str(name)} if "opaque" not in json:
            return find_named(name, path)
        case _:
            raise PortableError(_message(json, path))


def _class(name: str, path: str, base: type = object) -> Any:
    """Return the class of a name: no other class of a file is called than those it asks for."""
    found = find_named(name, path)
    if not isinstance(found, type) or not issubclass(found, base):
        raise PortableError(
            f"{path}: {name} is not a class of the kind that it was, but {shorten(found)}"
        )
    return found


def _dtype(text: str) -> np.dtype[Any]:
    return jax.numpy.dtype(text.removeprefix("dtype(").removesuffix(")").strip("'"))


def _instance(cls: Any, json: dict[str, Json], path: str) -> Any:
    content = _value(json.get("content", []), path)
    items = _value(json.get("items", json.get("members", [])), path)
    pairs = [(_value(key, path), _value(item, path)) for key, item in json.get("pairs", [])]
    parts = {
        step.removeprefix("."): _value(part, path + step)
        for step, part in json.get("parts", {}).items()
    }
    if cls in _CONTAINERS:
        return cls(items or pairs)
    if issubclass(cls, np.generic):
        return np.frombuffer(content[2], _dtype(content[1]))[0]
    if cls is functools.partial:
        count, *names = content
        args = [parts[f"args[{at}]"] for at in range(count)]
        return cls(parts["func"], *args, **{name: parts[f"keywords[{name!r}]"] for name in names})
    if issubclass(cls, tuple):
        names = getattr(cls, "_fields", None)
        return tuple.__new__(cls, items if names is None else [parts[name] for name in names])
    if "pickled" in json or content or items or pairs or cls.__new__ is not object.__new__:
        raise PortableError(_message(json, path))
    if hasattr(cls, "__dataclass_fields__"):
        fields = dataclasses.fields(cls)
        here = [field.name for field in fields if field.compare or field.name in parts]
        if set(here) - set(parts):  # more than these is what its methods have set
            check_fields(path, cls, (), list(parts), (here, ()))
    made = object.__new__(cls)
    for name, value in parts.items():
        object.__setattr__(made, name, value)
    return made


_CONTAINERS: Final = (list, dict, set, frozenset, FrozenMapping)
