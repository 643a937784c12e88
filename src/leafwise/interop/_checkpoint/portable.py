"""Static values as JSON that means the same in another process.

Two values have equal JSON exactly if they would share a jit cache key: numbers, texts and
containers by type and content, records by their fields, classes, functions and members of
enums by the name that leads to them. What has no such name (a lambda, a local function, an
object that compares by identity) is *opaque*: its JSON names its type, and it is noted.
"""

import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import hashlib
import json
import pathlib
import re
import types
import uuid
import zoneinfo
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeAlias

import jax
import numpy as np

from leafwise._classes.spec import REDEFINED
from leafwise._objects.attributes import (
    attributes,
    builtin_base,
    compares_by_identity,
    record_fields,
)
from leafwise._objects.code import find_by_name
from leafwise._objects.describe import describe
from leafwise._objects.frozen import FrozenMapping, StaticArray
from leafwise._objects.methods import BoundMethod
from leafwise._objects.text import got, shorten
from leafwise._statics.key import KEY

Json: TypeAlias = Any
"""What `json.dumps` writes: None, bool, int, str, and lists and dicts of these."""

_HOMES: Final = ("jax.numpy", "jax.nn", "jax.nn.initializers", "jax.lax", "jax.random", "jax")
"""Where JAX's functions are public: their own names lead into its internals, which move."""

_LONGEST_INT: Final = 64
"""Bits of the longest integers that all readers of JSON keep exactly."""


def dump(value: Json) -> str:
    """Return JSON as text, the same one for equal JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def class_name(kind: type) -> str:
    """Return ``module:qualname`` of a class, by which another process knows it."""
    return f"{kind.__module__}:{kind.__qualname__.removesuffix(f' ({REDEFINED})')}"


def name_of(value: Any) -> str | None:
    """Return the ``module:qualname`` that leads to a function or class, or None."""
    module: Any = getattr(value, "__module__", None)
    name: Any = getattr(value, "__qualname__", getattr(value, "__name__", None))
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    homes = (*_HOMES, module) if module.partition(".")[0] == "jax" else (module,)
    return next((f"{home}:{name}" for home in homes if find_by_name(home, name) is value), None)


class PortableReader:
    """Reads static values.

    Attributes:
        opaque: The paths of opaque values, each with the value and its type as text.
    """

    def __init__(self) -> None:
        self.opaque: list[tuple[str, str]] = []
        self._containing: set[int] = set()

    def read(self, value: Any, path: str) -> Json:
        """Return the JSON of `value`, which stands at `path`."""
        kind: type = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if value.bit_length() < _LONGEST_INT else {"int": hex(value)}
        if id(value) in self._containing:
            return self.opaque_value(value, path)
        self._containing.add(id(value))
        try:
            reader = _READERS.get(kind)
            return reader(self, value, path) if reader else self._read_other(value, path)
        finally:
            self._containing.discard(id(value))

    def _read_other(self, value: Any, path: str) -> Json:
        for kinds, reader in _BASES:
            if isinstance(value, kinds):
                return reader(self, value, path)
        kind: type = type(value)
        if (names := record_fields(kind)) is not None:
            return self.fields(value, path, names)
        if (base := builtin_base(kind)) is not None:
            return self._subclass(value, path, base)
        if (name := name_of(value)) is not None:
            return {"name": name}
        if isinstance(value, Mapping):
            return {"class": class_name(kind), "items": self.pairs(value, path)}
        if compares_by_identity(kind):
            return self.opaque_value(value, path)
        if dataclasses.is_dataclass(kind):  # its `field(compare=...)` says what counts
            compared = [field.name for field in dataclasses.fields(kind) if field.compare]
            return self.fields(value, path, compared)
        return self._reduced(value, path)

    def items(self, values: Iterable[Any], path: str) -> list[Json]:
        """Return the JSON of the items of a sequence."""
        return [self.read(item, f"{path}[{index}]") for index, item in enumerate(values)]

    def pairs(self, value: Mapping[Any, Any], path: str) -> list[Json]:
        """Return keys and values in their order, which traced code sees."""
        return [
            [self.read(key, f"{path} key {shorten(key, 40)}"), self.read(item, f"{path}[{key!r}]")]
            for key, item in value.items()
        ]

    def members(self, value: AbstractSet[Any], path: str) -> list[Json]:
        """Return the members of a set in an order that does not depend on hashes."""
        members = [self.read(item, f"{path}{{{shorten(item, 30)}}}") for item in value]
        return sorted(members, key=dump)

    def fields(self, value: Any, path: str, names: Iterable[str]) -> Json:
        """Return a record's class and the fields that have a value."""
        filled = [name for name in names if name != KEY and hasattr(value, name)]
        content = {name: self.read(getattr(value, name), f"{path}.{name}") for name in filled}
        return {"class": class_name(type(value)), "fields": content}

    def state(self, value: Any, path: str) -> dict[str, Json]:
        """Return the own attributes of an instance of a subclass, if it has any."""
        own = {name: self.read(item, f"{path}.{name}") for name, item in attributes(value)}
        return {"attributes": own} if own else {}

    def method(self, value: Any, path: str) -> Json:
        """Return a bound method's receiver and name."""
        name = value.__name__
        if getattr(value.__self__, name, None) != value:
            return self.opaque_value(value, path)
        return {"method": name, "of": self.read(value.__self__, f"{path}.__self__")}

    def named(self, value: Any, path: str) -> Json:
        """Return the name that leads to a function, class or module."""
        name = value.__name__ if isinstance(value, types.ModuleType) else name_of(value)
        kind = "type" if isinstance(value, type) else "name"
        return self.opaque_value(value, path) if name is None else {kind: name}

    def _subclass(self, value: Any, path: str, base: type) -> Json:
        names = getattr(type(value), "_fields", None)
        if base is tuple and names is not None:
            content = zip(names, tuple.__iter__(value), strict=False)
            fields = {name: self.read(item, f"{path}.{name}") for name, item in content}
            made = {"class": class_name(type(value)), "fields": fields}
        elif base in _DATES or base is decimal.Decimal:
            made = _READERS[base](self, value, path) | {"class": class_name(type(value))}
        else:
            plain = _PLAIN.get(base, base)(value)
            made = {"class": class_name(type(value)), "value": self.read(plain, path)}
        return made | self.state(value, path)

    def _reduced(self, value: Any, path: str) -> Json:
        """Return what an object with its own ``==`` is pickled as: so its class describes it."""
        try:
            parts = value.__reduce_ex__(4)
        except Exception:  # noqa: BLE001  # whatever a class that cannot be pickled raises
            return self.opaque_value(value, path)
        if isinstance(parts, str):
            return {"name": f"{type(value).__module__}:{parts}"}
        function, arguments, *rest = parts
        state, *items = (*rest, None, None, None)[:3]
        if isinstance(state, dict):  # by name: the order in which they were set does not count
            state = {name: state[name] for name in sorted(state, key=str)}
        parts = (function, tuple(arguments), state, *(each and tuple(each) for each in items))
        return {"class": class_name(type(value)), "pickled": self.items(parts, path)}

    def opaque_value(self, value: Any, path: str) -> Json:
        """Note that a value has no description; return its type."""
        self.opaque.append((path, got(value)))
        kind = class_name(type(value))
        name: Any = getattr(value, "__qualname__", None)
        named = isinstance(name, str) and isinstance(getattr(value, "__module__", None), str)
        return {"opaque": kind} | ({"name": f"{value.__module__}:{name}"} if named else {})


_PLAIN: Final[dict[type, Callable[[Any], Any]]] = {
    # The builtins' own methods: a subclass may have overridden the conversion.
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    tuple: lambda value: tuple[Any, ...](tuple.__iter__(value)),
    frozenset: lambda value: frozenset[Any](frozenset.__iter__(value)),
}
_DATES: Final = (dt.datetime, dt.date, dt.time)


def _text(name: str) -> Callable[[PortableReader, Any, str], Json]:
    return lambda _reader, value, _path: {name: str(value)}


def _date(reader: PortableReader, value: Any, path: str) -> Json:
    kind: Any = next(base for base in _DATES if issubclass(type(value), base))
    zone = getattr(value, "tzinfo", None)
    naive: Any = value if zone is None else value.replace(tzinfo=None)
    made: dict[str, Json] = {"class": class_name(kind), "value": kind.isoformat(naive)}
    if getattr(value, "fold", 0):
        made["fold"] = 1
    if zone is not None:
        made["tzinfo"] = reader.read(zone, f"{path}.tzinfo")
    return made


def _timezone(_reader: PortableReader, value: dt.timezone, _path: str) -> Json:
    return {"timezone": [str(value.utcoffset(None)), value.tzname(None)]}


def _partial(reader: PortableReader, value: functools.partial[Any], path: str) -> Json:
    named = value.keywords.items()
    made = {
        "partial": reader.read(value.func, f"{path}.func"),
        "args": [reader.read(item, f"{path}.args[{i}]") for i, item in enumerate(value.args)],
        "keywords": [
            [name, reader.read(item, f"{path}.keywords[{name!r}]")] for name, item in named
        ],
    }
    if type(value) is not functools.partial:
        made["class"] = class_name(type(value))
    return made | reader.state(value, path)


def _enum(reader: PortableReader, value: enum.Enum, path: str) -> Json:
    name: Any = value.name
    kind = class_name(type(value))
    if name is None:  # a combination of flags that has no name
        return {"enum": kind, "value": reader.read(value.value, f"{path}.value")}
    return {"enum": f"{kind}.{name}"}


def _generic(reader: PortableReader, value: np.generic, path: str) -> Json:
    made: dict[str, Json] = {"class": class_name(type(value)), "value": str(value)}
    if value.dtype.char not in "gG":  # long doubles have padding behind
        made |= {"dtype": repr(value.dtype), "bytes": value.tobytes().hex()}
    return made | reader.state(value, path)


def _array(reader: PortableReader, value: Any, path: str) -> Json:
    try:
        plain = np.asarray(value).view(np.ndarray)
    except Exception:  # noqa: BLE001  # a PRNG key, a tracer, an array that was deleted
        return reader.opaque_value(value, path)
    if plain.dtype.hasobject:
        return reader.opaque_value(value, path)
    digest = hashlib.sha256(plain.tobytes()).hexdigest()
    shape = list(plain.shape)
    kind = class_name(jax.Array if isinstance(value, jax.Array) else type(value))
    return {"class": kind, "dtype": repr(plain.dtype), "shape": shape, "sha256": digest}


def _dtype(reader: PortableReader, value: np.dtype[Any], path: str) -> Json:
    made: dict[str, Json] = {"dtype": repr(value)}
    if value.isalignedstruct:
        made["aligned"] = True
    if value.metadata is not None:
        made["metadata"] = reader.pairs(value.metadata, f"{path}.metadata")
    return made


def _partition_spec(reader: PortableReader, value: jax.sharding.PartitionSpec, path: str) -> Json:
    # By its own names: what JAX pickles of it differs from version to version.
    made: dict[str, Json] = {"PartitionSpec": reader.items(tuple(value), path)}
    for name in ("unreduced", "reduced"):
        if axes := getattr(value, name, None):
            made[name] = reader.members(axes, f"{path}.{name}")
    return made


def _abstract(reader: PortableReader, value: jax.ShapeDtypeStruct, path: str) -> Json:
    # By its own names: what JAX pickles of it differs from version to version.
    made: dict[str, Json] = {
        "ShapeDtypeStruct": list(value.shape),
        "dtype": str(value.dtype),
        "weak": bool(value.weak_type),
    }
    if value.sharding is not None:
        made["sharding"] = reader.read(value.sharding, f"{path}.sharding")
    return made


def _timedelta(_reader: PortableReader, value: dt.timedelta, _path: str) -> Json:
    return {"timedelta": [value.days, value.seconds, value.microseconds]}


def _float(_reader: PortableReader, value: float, _path: str) -> Json:
    return {"float": describe(value)}


def _complex(_reader: PortableReader, value: complex, _path: str) -> Json:
    return {"complex": [describe(value.real), describe(value.imag)]}


def _slice(reader: PortableReader, value: slice, path: str) -> Json:
    return {"slice": reader.items((value.start, value.stop, value.step), path)}


_READERS: Final[dict[type, Callable[[PortableReader, Any, str], Json]]] = {
    float: _float,
    complex: _complex,
    bytes: lambda _reader, value, _path: {"bytes": repr(value)},
    type(...): lambda _reader, _value, _path: {"name": "builtins:Ellipsis"},
    type(NotImplemented): lambda _reader, _value, _path: {"name": "builtins:NotImplemented"},
    tuple: PortableReader.items,
    list: lambda reader, value, path: {"list": reader.items(value, path)},
    dict: lambda reader, value, path: {"dict": reader.pairs(value, path)},
    set: lambda reader, value, path: {"set": reader.members(value, path)},
    frozenset: lambda reader, value, path: {"frozenset": reader.members(value, path)},
    FrozenMapping: lambda reader, value, path: {"FrozenMapping": reader.pairs(value, path)},
    range: lambda _reader, value, _path: {"range": [value.start, value.stop, value.step]},
    slice: _slice,
    types.MethodType: PortableReader.method,
    BoundMethod: PortableReader.method,
    dt.datetime: _date,
    dt.date: _date,
    dt.time: _date,
    dt.timedelta: _timedelta,
    dt.timezone: _timezone,
    decimal.Decimal: _text("Decimal"),
    fractions.Fraction: _text("Fraction"),
    uuid.UUID: _text("UUID"),
}

# For types with subclasses, in the order in which they are tried.
_BASES: Final[tuple[tuple[Any, Callable[[PortableReader, Any, str], Json]], ...]] = (
    ((type, types.FunctionType, types.ModuleType), PortableReader.named),
    (enum.Enum, _enum),
    (np.generic, _generic),
    (np.dtype, _dtype),
    ((StaticArray, np.ndarray, jax.Array), _array),
    (functools.partial, _partial),
    (
        (pathlib.PurePath, zoneinfo.ZoneInfo),
        lambda _, value, __: {"class": class_name(type(value)), "value": str(value)},
    ),
    (
        re.Pattern,
        lambda reader, value, path: {"re": [reader.read(value.pattern, path), value.flags]},
    ),
    (jax.sharding.PartitionSpec, _partition_spec),
    (jax.ShapeDtypeStruct, _abstract),
)


def parts_of(value: Json) -> list[tuple[str, str, Json]]:
    """Return the parts of the JSON of a container or record, in order; none of other values.

    Each has a text that says which part it is, and the way to it.
    """
    if isinstance(value, list):
        items: list[Any] = value
        return [("", f"[{index}]", item) for index, item in enumerate(items)]
    if isinstance(value, dict) and value.keys() == {"FrozenMapping"}:
        return [(dump(key), f"[{format_json(key)}]", item) for key, item in value["FrozenMapping"]]
    if isinstance(value, dict) and value.keys() == {"class", "fields"}:
        fields = [(key, f".{key}", item) for key, item in sorted(value["fields"].items())]
        return [(f"class {value['class']}", "", None), *fields]
    return []


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
    if len(content) == 1:
        ((kind, only),) = content.items()
        if kind in {"FrozenMapping", "dict"}:
            inside = ", ".join(f"{format_json(key)}: {format_json(item)}" for key, item in only)
            return f"{kind}({{{inside}}})"
        if kind in {"float", "int", "bytes", "name", "type", "enum", "dtype"}:
            return str(only)
        return f"{kind}{format_json(only) if isinstance(only, list) else f'({format_json(only)})'}"
    name = content.pop("class", "")
    content |= content.pop("fields", {})
    return f"{name}({', '.join(f'{key}={format_json(item)}' for key, item in content.items())})"
