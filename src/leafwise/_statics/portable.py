"""Static values as JSON that means the same in another process.

Two values have equal JSON exactly if they would share a jit cache key, but for names: classes,
functions and members of enums are known by the name that leads to them, whatever it leads to.
The JSON of a value is its class, and the content and parts that `leafwise._objects.parts` finds.
What has no name (a lambda, a local function, an object that compares by identity) is *opaque*:
its JSON names its type, and it is noted. An object with its own ``==`` is what it is pickled as.
"""

import collections
import copyreg
import dataclasses
import decimal
import enum
import hashlib
import json
import pathlib
import re
import types
import typing
import zoneinfo
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._objects.attributes import compares_by_identity, has_generated_eq, record_fields
from leafwise._objects.classes import REDEFINED, is_tree_node
from leafwise._objects.code import find_by_name, names_of
from leafwise._objects.describe import describe
from leafwise._objects.methods import BoundMethod
from leafwise._objects.parts import Part, kind_of
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import got
from leafwise._statics.form import consists_of_parts
from leafwise._statics.key import KEY

Json: TypeAlias = Any
"""What `json.dumps` writes: None, bool, int, str, and lists and dicts of these."""

_OF_JAX: Final = (
    *("jax.numpy", "jax.nn", "jax.nn.initializers", "jax.lax", "jax.random"),
    *("jax.tree_util", "jax.sharding", "jax"),
)
_HOMES: Final = {"jax": _OF_JAX, "jaxlib": _OF_JAX} | {
    name: (name,) for name in ("leafwise", "numpy", "pathlib")
}
"""Where packages are public whose functions and classes have names that move between versions."""

_LONGEST_INT: Final = 64
"""Bits of the longest integers that all readers of JSON keep exactly."""


def dump(value: Json) -> str:
    """Return JSON as text, the same one for equal JSON."""
    return _ENCODER.encode(value)


# `json.dumps` is what scripts put another library in the place of.
_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def class_name(cls: type) -> str:
    """Return ``module:qualname`` of a class, by which another process knows it."""
    name = name_of(cls) or f"{cls.__module__}:{cls.__qualname__.removesuffix(f' ({REDEFINED})')}"
    return name.removeprefix("builtins:")


def name_of(value: Any) -> str | None:
    """Return the ``module:qualname`` that leads to a function or class, or None."""
    if value is type(None):  # which no name in `builtins` leads to
        return "builtins:NoneType"
    module, name = names_of(value)
    homes = (*_HOMES.get(module.partition(".")[0], ()), module)
    return next((f"{home}:{name}" for home in homes if find_by_name(home, name) is value), None)


class PortableReader:
    """Reads static values; the `opaque` ones are listed with their paths, as text."""

    def __init__(self) -> None:
        self.opaque: list[tuple[str, str]] = []
        self._containing: set[int] = set()

    def read(self, value: Any, path: str) -> Json:
        """Return the JSON of `value`, which stands at `path`; opaque if it is nested too deeply."""
        try:
            return self._read(value, path)
        except RecursionError:
            return self._opaque(value, path)

    def read_by_content(self, value: Any, path: str) -> Json:
        """Return the JSON of a static that a key compares by content: functions are opaque."""
        return self.read(value, path)

    def class_name(self, cls: type) -> str:
        """Return the name of a class that is met."""
        return class_name(cls)

    def _class_of(self, value: Any) -> str:
        """Return the class of a value, by what it is called whatever version there is of it."""
        if isinstance(value, jax.Array):
            return "jax:Array"
        return "numpy:dtype" if isinstance(value, np.dtype) else self.class_name(type(value))

    def _read(self, value: Any, path: str) -> Json:
        cls: type = type(value)
        if value is None or cls in (bool, str):
            return value
        if cls is int:
            return value if value.bit_length() < _LONGEST_INT else {"int": hex(value)}
        if cls in _TEXTS:
            return _TEXTS[cls](value)
        if id(value) in self._containing:
            return self._opaque(value, path)
        self._containing.add(id(value))
        try:
            return self._read_other(value, path)
        finally:
            self._containing.discard(id(value))

    def _read_other(self, value: Any, path: str) -> Json:
        cls: type = type(value)
        for bases, method in _WAYS:
            if issubclass(cls, bases):
                return getattr(self, method)(value, path)
        if typing.get_origin(value) in _UNIONS:  # equal in any order, and in both spellings
            members = [(f"[{member}]", member) for member in typing.get_args(value)]
            return {"class": "typing:Union", "members": self._members(members, path)}
        if cls is tuple:
            return self._read_all(kind_of(value).parts(value), path)
        if consists_of_parts(cls) or issubclass(cls, _CONTAINERS):
            return self._parts(value, path)
        if (name := name_of(value)) is not None:
            return {"name": name}
        if compares_by_identity(cls):
            return self._opaque(value, path)
        return self._pickled(value, path)

    def _read_all(self, parts: Sequence[Part], path: str) -> list[Json]:
        return [self._read(value, path + step) for step, value in parts]

    def _parts(self, value: Any, path: str) -> Json:
        """Return the JSON of what consists of parts: its class, and what there is of the rest."""
        kind = kind_of(value)
        found, parts = kind.read(value)
        content = list(found)
        made: dict[str, Json] = {"class": self._class_of(value)}
        count = content.pop(0) if kind.name in _COUNTED or not kind.is_ordered else 0
        if kind.name in {"dict", "mapping"}:
            keys, items = (self._read_all(parts[n : n + count], path) for n in (0, count))
            made["pairs"] = [list(pair) for pair in zip(keys, items, strict=True)]
            parts = parts[2 * count :]
        elif not kind.is_ordered:  # in an order that does not depend on hashes
            made["members"] = self._members(parts[:count], path)
            parts = parts[count:]
        elif count and parts[0][0] == "[0]":
            made["items"] = self._read_all(parts[:count], path)
            parts = parts[count:]
        # The names of attributes stand in the steps to them.
        for step, _ in reversed(parts):
            if not content or type(content[-1]) is not str or step != f".{content[-1]}":
                break
            content.pop()
        for base, plain, places in _READABLE:
            if issubclass(type(value), base):
                content[:places] = plain(value)
                break
        if content:
            made["content"] = self._read(tuple(content), path)
        parts = [(step, part) for step, part in parts if not _keeps_hash(value, step[1:], part)]
        if parts:
            made["parts"] = self._steps(parts, path)
        return made

    def _members(self, parts: Sequence[Part], path: str) -> list[Json]:
        return sorted(self._read_all(parts, path), key=dump)

    def _steps(self, parts: Sequence[Part], path: str) -> Json:
        """Return parts by the steps to them, as a dict where that says all."""
        # A key of leafwise follows from what stands beside it.
        parts = [pair for pair in parts if pair[1] is not MISSING and pair[0] != f".{KEY}"]
        steps = [step for step, _ in parts]
        found = list(zip(steps, self._read_all(parts, path), strict=True))
        return dict(found) if len(set(steps)) == len(steps) else [list(pair) for pair in found]

    def method(self, value: Any, path: str) -> Json:
        """Return a bound method's receiver and name."""
        name = getattr(value, "__name__", "")
        if getattr(value.__self__, name, None) != value:
            return self._opaque(value, path)
        return {"method": name, "of": self._read(value.__self__, f"{path}.__self__")}

    def named(self, value: Any, path: str) -> Json:
        """Return the name that leads to a function, class or module."""
        name = value.__name__ if isinstance(value, types.ModuleType) else name_of(value)
        kind = "type" if isinstance(value, type) else "name"
        return self._opaque(value, path) if name is None else {kind: name}

    def member(self, value: enum.Enum, path: str) -> Json:
        """Return the name of a member of an enum."""
        kind, name = self.class_name(type(value)), cast("str | None", value._name_)
        if name is None:  # a combination of flags that has no name
            return {"enum": kind, "value": self._read(value._value_, f"{path}.value")}
        return {"enum": f"{kind}.{name}"}

    def dtype(self, value: np.dtype[Any], path: str) -> Json:
        """Return the repr of a dtype, which says all of one that has no parts."""
        if (value.metadata, value.names, value.subdtype) != (None, None, None):
            return self._parts(value, path)
        # Two types of integers may have one size, and so one repr.
        is_usual = value.kind not in "iu" or np.dtype(value.name).char == value.char
        return {"dtype": repr(value)} | ({} if is_usual else {"char": value.char})

    def known(self, value: Any, path: str) -> Json:
        """Return the JSON of what says by its own names what it is."""
        read = next(read for base, read in _KNOWN.items() if issubclass(type(value), base))
        try:
            content = read(value)
        except Exception:  # noqa: BLE001  # an array that was deleted, a zone read from a file
            return self._opaque(value, path)
        return {"class": self._class_of(value), "content": self._read(content, path)}

    def _pickled(self, value: Any, path: str) -> Json:
        """Return what an object with its own ``==`` is pickled as: so its class describes it."""
        cls: type = type(value)
        is_tree = is_tree_node(cls)  # a module of equinox, whose fields are all
        if dataclasses.is_dataclass(cls) and (is_tree or has_generated_eq(cls)):
            compared = [field.name for field in dataclasses.fields(cls) if field.compare]
            parts = [(f".{name}", getattr(value, name, MISSING)) for name in compared]
            return {"class": self._class_of(value), "parts": self._steps(parts, path)}
        try:
            reduce = copyreg.dispatch_table.get(cls)
            reduced: Any = reduce(value) if reduce else value.__reduce_ex__(4)
        except Exception:  # noqa: BLE001  # whatever a class that cannot be pickled raises
            return self._opaque(value, path)
        if isinstance(reduced, str):  # a name, to which `name_of` found no way
            return self._opaque(value, path)
        function, arguments, *rest = reduced
        state, *items = (*rest, None, None, None)[:3]
        if isinstance(state, dict):  # by name: the order in which they were set does not count
            names = sorted(state, key=str)
            state = {
                name: state[name] for name in names if not _keeps_hash(value, name, state[name])
            }
        recipe = (function, tuple(arguments), state, *(part and tuple(part) for part in items))
        return {"class": self.class_name(cls), "pickled": self._read(recipe, path)}

    def _opaque(self, value: Any, path: str) -> Json:
        """Note that a value has no description; return its type."""
        self.opaque.append((path, got(value)))
        module, name = names_of(value)
        named = {"name": f"{module}:{name}"} if name else {}
        return {"opaque": class_name(type(value))} | named


def _keeps_hash(value: Any, name: object, item: object) -> bool:
    """Return whether an attribute is the hash of its object, which is another in each process."""
    if type(item) is not int or type(name) is not str or record_fields(type(value)) is not None:
        return False
    try:
        return re.fullmatch(r"_\w*hash|_h", name) is not None and item == hash(value)
    except Exception:  # noqa: BLE001  # a hash of the user's
        return False


_TEXTS: Final[dict[type, Callable[[Any], Json]]] = {
    float: lambda value: {"float": describe(value)},
    complex: lambda value: {"complex": [describe(value.real), describe(value.imag)]},
    bytes: lambda value: {"bytes": repr(value)},
    type(...): lambda _: {"name": "builtins:Ellipsis"},
    type(NotImplemented): lambda _: {"name": "builtins:NotImplemented"},
}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _array(value: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """Return what is short of an array; its dtype is a part of it, and so are objects."""
    plain = value.view(np.ndarray)
    return (plain.shape, *(() if plain.dtype.hasobject else (_digest(plain.tobytes()),)))


def _jax_array(value: jax.Array) -> tuple[Any, ...]:
    is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    data = np.asarray(jax.random.key_data(value) if is_key else value)
    return str(value.dtype), value.shape, jax.typeof(value).weak_type, _digest(data.tobytes())


def _partition_spec(value: jax.sharding.PartitionSpec) -> tuple[Any, ...]:
    pairs = [(name, getattr(value, name, None)) for name in ("unreduced", "reduced")]
    return (tuple(value), *[(name, frozenset(axes)) for name, axes in pairs if axes])


def _zone(value: zoneinfo.ZoneInfo) -> tuple[Any, ...]:
    if cast("str | None", value.key) is None:
        raise TypeError("it was read from a file")
    return (value.key,)


# By their own names where what is inside, or is pickled, differs from version to version.
_KNOWN: Final[dict[type, Callable[[Any], tuple[Any, ...]]]] = {
    jax.Array: _jax_array,
    pathlib.PurePath: lambda value: (str(value),),
    zoneinfo.ZoneInfo: _zone,
    re.Pattern: lambda value: (value.pattern, value.flags),
    jax.sharding.PartitionSpec: _partition_spec,
    jax.ShapeDtypeStruct: lambda value: (
        *(value.shape, str(value.dtype), bool(value.weak_type), value.sharding),
    ),
}

_WAYS: Final[tuple[tuple[Any, str], ...]] = (
    ((type, types.FunctionType, types.ModuleType), "named"),
    (enum.Enum, "member"),
    ((types.MethodType, BoundMethod), "method"),
    (np.dtype, "dtype"),
    (tuple(_KNOWN), "known"),
)
"""The methods of a `PortableReader` that read values of some classes."""

_UNIONS: Final = (typing.Union, types.UnionType)
_CONTAINERS: Final = (
    *(list, dict, set, bytearray, collections.deque, types.MappingProxyType, np.ndarray),
)
_COUNTED: Final = {"tuple", "list", "deque", "dict", "mapping"}
"""The kinds, next to those without order, whose content begins with the number of their items."""

# What says the same as so many items of the content, and is readable.
_READABLE: Final[tuple[tuple[type, Callable[[Any], tuple[Any, ...]], int], ...]] = (
    (np.ndarray, _array, 3),
    (np.generic, lambda value: (str(value),), 0),
    (float, lambda value: (float.__float__(value),), 1),
    (complex, lambda value: (complex.__complex__(value),), 2),
    (decimal.Decimal, lambda value: (decimal.Decimal.__str__(value),), 1),
)


def parts_of(value: Json) -> list[tuple[str, str, Json]]:
    """Return the parts of the JSON of a container or record, in order; none of other values.

    Each has a text that says which part it is, and the way to it.
    """
    if isinstance(value, list):
        items: list[Any] = value
        return [("", f"[{index}]", item) for index, item in enumerate(items)]
    if not isinstance(value, dict) or "class" not in value:
        return []
    rest: dict[str, Any] = dict(value)
    parts = [("", f"[{n}]", item) for n, item in enumerate(rest.pop("items", []))]
    parts += [(dump(key), f"[{format_json(key)}]", item) for key, item in rest.pop("pairs", [])]
    if isinstance(rest.get("parts"), dict):
        parts += [(step, step, part) for step, part in rest.pop("parts").items()]
    return [(dump(rest), "", None), *parts]


def format_both(one: Json, other: Json) -> tuple[str, str]:
    """Return two values as `format_json` does, or as JSON where that looks the same."""
    texts = format_json(one), format_json(other)
    return texts if texts[0] != texts[1] else (dump(one), dump(other))


def format_json(value: Json) -> str:
    """Return JSON of a static as it would be written in Python, or nearly so."""
    if isinstance(value, list):
        items: list[Any] = value
        inside = ", ".join(map(format_json, items))
        return f"({inside},)" if len(items) == 1 else f"({inside})"
    if not isinstance(value, dict):
        return repr(value)
    content: dict[str, Any] = dict(value)
    if "opaque" in content:
        return f"opaque {content.get('name', content['opaque'])}"
    if "class" not in content:
        kind, only = next(iter(content.items()), ("", ""))
        return str(only) if len(content) == 1 else f"{kind}{dump(content)}"
    return _format_parts(content.pop("class"), content)


def _format_parts(name: Any, content: dict[str, Any]) -> str:
    given = [format_json(item) for item in content.pop("content", [])]
    given += [format_json(item) for item in content.pop("items", [])]
    if "pairs" in content:
        pairs = [f"{format_json(key)}: {format_json(item)}" for key, item in content.pop("pairs")]
        given.append(f"{{{', '.join(pairs)}}}")
    if "members" in content:
        given.append(f"{{{', '.join(map(format_json, content.pop('members')))}}}")
    if isinstance(content.get("parts"), dict):
        parts = content.pop("parts").items()
        given += [f"{step.removeprefix('.')}={format_json(part)}" for step, part in parts]
    given += [f"{kind}={format_json(item)}" for kind, item in content.items()]
    return f"{name}({', '.join(given)})"
