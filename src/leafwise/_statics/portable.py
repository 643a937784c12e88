"""Static values as JSON that has the same meaning in another process.

Two values have equal JSON exactly if they would share a jit cache key, except for names: classes,
functions and enum members are identified by name, whatever the name refers to.

None, booleans, strings, and integers that JSON preserves represent themselves. Everything else is
``{"class": name, "parts": parts}``, with the content and the parts that `leafwise._objects.parts`
finds: by step if all steps are distinct, or else in a list, content first. A subclass of a builtin
container, or another mapping, has its items as the part ``""``.

A value without a name (a lambda, a local function, an object compared by identity) is *opaque*: its
JSON names its type, and it is listed. An object with its own ``==`` is read as it is pickled.
"""

import collections
import copyreg
import dataclasses
import decimal
import enum
import json
import pathlib
import re
import types
import typing
import zoneinfo
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, cast

import jax
import numpy as np

from leafwise._objects.attributes import (
    compares_by_identity,
    has_generated_eq,
    of_partial,
    record_fields,
)
from leafwise._objects.classes import REDEFINED, is_tree_node
from leafwise._objects.describe import describe
from leafwise._objects.interrupts import or_default
from leafwise._objects.methods import BoundMethod
from leafwise._objects.parts import Content, Kind, Part, data_of, kind_of
from leafwise._objects.source.code import find_by_name, names_of
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import sha256_of
from leafwise._statics.account import SIZED
from leafwise._statics.form import consists_of_parts

Json: TypeAlias = Any
"""What `json.dumps` writes: None, bool, int, str, and ``{"class": ..., "parts": ...}``."""

_OF_JAX: Final = (
    *("jax.numpy", "jax.nn", "jax.nn.initializers", "jax.lax", "jax.random"),
    *("jax.tree_util", "jax.sharding", "jax"),
)
_HOMES: Final = {"jax": _OF_JAX, "jaxlib": _OF_JAX} | {
    name: (name,) for name in ("leafwise", "numpy", "pathlib")
}
"""The public modules of packages whose functions and classes move between versions."""

_LONGEST_INT: Final = 64
"""The bits of the longest integers that all JSON readers preserve."""


def dump(value: Json) -> str:
    """Return JSON as text; equal JSON gives equal text."""
    return _ENCODER.encode(value)


# Not `json.dumps`, which scripts replace with that of another library.
_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def class_name(cls: type) -> str:
    # Their subclasses have other names in other versions.
    cls = next((base for base in (jax.Array, np.dtype) if issubclass(cls, base)), cls)
    name = name_of(cls) or f"{cls.__module__}:{cls.__qualname__.removesuffix(f' ({REDEFINED})')}"
    return name.removeprefix("builtins:")


def name_of(value: Any) -> str | None:
    """Return the ``module:qualname`` that refers to a function or class, or None."""
    if value is type(None) or value is ... or value is NotImplemented:  # which have no usable name
        return f"builtins:{getattr(value, '__name__', value)}"
    module, name = names_of(value)
    homes = (*_HOMES.get(module.partition(".")[0], ()), module)
    return next((f"{home}:{name}" for home in homes if find_by_name(home, name) is value), None)


class PortableReader:
    """Converts static values to JSON; the `opaque` ones are listed with their paths.

    The members of a set are in iteration order if `in_order`, and otherwise sorted by their JSON,
    which does not depend on hashes.
    """

    def __init__(self, *, in_order: bool = False) -> None:
        self.opaque: list[tuple[str, Any]] = []
        self._in_order = in_order
        self._containing: set[int] = set()

    def read(self, value: Any, path: str, *, by_content: bool = False) -> Json:  # noqa: ARG002
        """Return the JSON of `value`, opaque if too deep; a subclass adds what is `by_content`."""
        try:
            return self._read(value, path)
        except RecursionError:
            return self._opaque(value, path)

    def _read(self, value: Any, path: str) -> Json:
        cls: type = type(value)
        if value is None or cls in (bool, str):
            return value
        if cls is int:
            is_short = value.bit_length() < _LONGEST_INT
            return value if is_short else {"class": "int", "parts": [hex(value)]}
        if id(value) in self._containing:
            return self._opaque(value, path)
        self._containing.add(id(value))
        try:
            return self._read_other(value, path)
        finally:
            self._containing.discard(id(value))

    def _read_other(self, value: Any, path: str) -> Json:
        cls: type = type(value)
        if issubclass(cls, _NAMED):
            return self.named(value, path)
        if issubclass(cls, enum.Enum):
            return self.member(value, path)
        if issubclass(cls, types.MethodType | BoundMethod):
            return self.method(value, path)
        # Unions are equal in any order and either spelling.
        if typing.get_origin(value) in (typing.Union, types.UnionType):
            members = [(f"[{member}]", member) for member in typing.get_args(value)]
            texts = sorted(self._read_all(members, path), key=dump)
            return {"class": "typing:Union", "parts": texts}
        if consists_of_parts(cls) or issubclass(cls, _OF_PARTS):
            return self._parts(value, path)
        if (name := name_of(value)) is not None:
            return {"class": "name", "parts": [name]}
        if compares_by_identity(cls):
            return self._opaque(value, path)
        return self._pickled(value, path)

    def _read_all(self, parts: Sequence[Part], path: str) -> list[Json]:
        return [self._read(value, path + step) for step, value in parts]

    def _by_step(self, name: str, parts: Sequence[Part], path: str) -> Json:
        parts = [part for part in parts if part[1] is not MISSING]
        texts, steps = self._read_all(parts, path), [step for step, _ in parts]
        is_distinct = len(set(steps)) == len(steps) and steps != [""]
        by_step = dict(zip(steps, texts, strict=True))
        return {"class": name, "parts": by_step if is_distinct else texts}

    def _parts(self, value: Any, path: str) -> Json:
        """Return the JSON of a value by its parts: those of its kind, and its attributes."""
        name, kind = class_name(type(value)), kind_of(value)
        base, attributes = kind.attributes or (kind, lambda _: ())
        try:
            content, parts = _content_and_parts(base, value)
        except (RuntimeError, TypeError):  # a deleted array, a time zone read from a file
            return self._opaque(value, path)
        says_all = base.name == "object" and content
        own = [
            (f".{attribute}", item)
            for attribute, item in (() if says_all else attributes(value))
            if not _keeps_hash(value, attribute, item)
        ]
        if base.name in SIZED and content:
            return self._container(name, base, content, [*parts, *own], path)
        if len(content) > 1:  # then it is a list, with the names of attributes
            content = (*content, *(step for step, _ in own))
        return self._by_step(name, [*(("", item) for item in content), *parts, *own], path)

    def _container(
        self, name: str, kind: Kind, content: Content, parts: list[Part], path: str
    ) -> Json:
        """Return the JSON of a builtin container, or of one that has the items of a builtin."""
        count, *limit = content
        builtin = {"deque": "list", "mapping": "dict"}.get(kind.name, kind.name)
        end = 2 * count if builtin == "dict" else count
        texts = self._read_all(parts[:end], path)
        if builtin == "dict":
            pairs = zip(texts[:count], texts[count:], strict=True)
            texts = [{"class": "tuple", "parts": list(pair)} for pair in pairs]
        elif not (kind.is_ordered or self._in_order):
            texts.sort(key=dump)
        items = {"class": builtin, "parts": texts}
        if name == builtin:
            return items
        rest = self._by_step(name, [*((".maxlen", most) for most in limit), *parts[end:]], path)
        return {"class": name, "parts": {"": items, **rest["parts"]}}

    def method(self, value: Any, path: str) -> Json:
        name = getattr(value, "__name__", "")
        if getattr(value.__self__, name, None) != value:
            return self._opaque(value, path)
        return self._by_step("method", [(".__self__", value.__self__), (".__name__", name)], path)

    def named(self, value: Any, path: str) -> Json:
        name = value.__name__ if isinstance(value, types.ModuleType) else name_of(value)
        return self._opaque(value, path) if name is None else {"class": "name", "parts": [name]}

    def member(self, value: enum.Enum, path: str) -> Json:
        """Return the name of an enum member, or the names of the flags combined in it."""
        cls, names = class_name(type(value)), cast("str | None", value._name_)
        if names is None:  # a combination of flags that has no name
            return {"class": cls, "parts": [self._read(value._value_, f"{path}.value")]}
        return {"class": "name", "parts": [f"{cls}.{name}" for name in names.split("|")]}

    def _pickled(self, value: Any, path: str) -> Json:
        """Return the JSON of an object with its own ``==`` from what its class pickles."""
        cls: type = type(value)
        name = class_name(cls)
        is_tree = is_tree_node(cls)  # such as an equinox module, which consists of its fields
        if dataclasses.is_dataclass(cls) and (is_tree or has_generated_eq(cls)):
            compared = [field.name for field in dataclasses.fields(cls) if field.compare]
            parts = [(f".{field}", getattr(value, field, MISSING)) for field in compared]
            return self._by_step(name, parts, path)
        reduce: Any = copyreg.dispatch_table.get(cls, lambda value: value.__reduce_ex__(4))
        reduced = or_default("")(reduce)(value)  # it may raise anything if it cannot be pickled
        if isinstance(reduced, str):  # or a name that `name_of` could not resolve
            return self._opaque(value, path)
        function, arguments, *rest = reduced
        state, *items = (*rest, None, None, None)[:3]
        if isinstance(state, dict):  # sorted: the order of assignment does not count
            names = sorted(state, key=str)
            state = {key: state[key] for key in names if not _keeps_hash(value, key, state[key])}
        recipe = (function, tuple(arguments), state, *(part and tuple(part) for part in items))
        return {"class": name, "parts": self._read(recipe, path)["parts"]}

    def _opaque(self, value: Any, path: str) -> Json:
        self.opaque.append((path, value))
        module, name = names_of(value)
        names = [f"{module}:{name}"] if name else []
        return {"class": "opaque", "parts": [class_name(type(value)), *names]}


@or_default(default=False)  # a user's `__hash__`
def _keeps_hash(value: Any, name: object, item: object) -> bool:
    """Return whether an attribute is the hash of its object, which differs between processes."""
    if type(item) is not int or type(name) is not str or record_fields(type(value)) is not None:
        return False
    return re.fullmatch(r"_\w*hash|_h", name) is not None and item == hash(value)


def _array(value: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    plain = value.view(np.ndarray)
    has_objects = plain.dtype.hasobject
    data = tuple(plain.ravel().tolist()) if has_objects else sha256_of(plain.tobytes())
    return plain.dtype, plain.shape, data


def _jax_array(value: jax.Array) -> tuple[Any, ...]:
    digest = sha256_of(data_of(value).tobytes())
    return str(value.dtype), value.shape, jax.typeof(value).weak_type, digest


def _partition_spec(value: jax.sharding.PartitionSpec) -> tuple[Any, ...]:
    pairs = [(name, getattr(value, name, None)) for name in ("unreduced", "reduced")]
    return (tuple(value), *[(name, frozenset(axes)) for name, axes in pairs if axes])


def _zone(value: zoneinfo.ZoneInfo) -> tuple[Any, ...]:
    if cast("str | None", value.key) is None:
        raise TypeError("it was read from a file")
    return (value.key,)


def _dtype(value: np.dtype[Any]) -> tuple[str, ...] | None:
    """Return the repr of a dtype without parts; None for others."""
    if (value.metadata, value.names, value.subdtype) != (None, None, None):
        return None
    # Two integer types may have the same size, and so the same repr.
    is_usual = value.kind not in "iu" or np.dtype(value.name).char == value.char
    return (repr(value),) if is_usual else (repr(value), value.char)


_READABLE: Final[dict[type, Callable[[Any], tuple[Any, ...] | None]]] = {
    # Read through public names if the internals, or the pickled form, differ between versions.
    jax.Array: _jax_array,
    pathlib.PurePath: lambda value: (str(value),),
    zoneinfo.ZoneInfo: _zone,
    re.Pattern: lambda value: (value.pattern, value.flags),
    jax.sharding.PartitionSpec: _partition_spec,
    jax.ShapeDtypeStruct: lambda value: (
        *(value.shape, str(value.dtype), bool(value.weak_type), value.sharding),
    ),
    np.dtype: _dtype,
    np.ndarray: _array,
    np.generic: lambda value: (str(value), repr(value.dtype), value.tobytes()),
    bytes: lambda value: (bytes.__repr__(value),),
    float: lambda value: (describe(float.__float__(value)),),
    complex: lambda value: (value.real, value.imag),
    decimal.Decimal: lambda value: (decimal.Decimal.__str__(value),),
}
"""Readable contents that say as much as the content and parts of a kind."""


def _content_and_parts(kind: Kind, value: Any) -> tuple[Content, list[Part]]:
    """Return the content and parts of a value, in readable form where that is equivalent."""
    if kind.name == "partial":
        return (), list(zip((".func", ".args", ".keywords"), of_partial(value), strict=True))
    for base, read in _READABLE.items():
        if issubclass(type(value), base) and (content := read(value)) is not None:
            return content, []
    content, parts = kind.read(value)
    is_named = kind.name == "tuple" and parts and parts[0][0] != "[0]"
    return () if is_named else content, parts


_NAMED: Final = (type, types.FunctionType, types.ModuleType, type(...), type(NotImplemented))

_OF_PARTS: Final = (
    *(list, dict, set, bytearray, collections.deque, types.MappingProxyType, *_READABLE),
)
"""Classes that their parts describe completely, besides those that keys compare by parts."""


def by_step(value: Json) -> dict[str, Json]:
    """Return the parts of JSON by the steps to them; empty if it cannot be divided."""
    match value:
        case {"class": _, "parts": dict(parts)}:
            return parts
        case {"class": "dict", "parts": [*pairs]}:
            items = [pair["parts"] for pair in pairs]
            return {f"[{format_json(key)}]": item for key, item in items}
        case {"class": "tuple" | "list", "parts": [*parts]}:
            return {f"[{place}]": part for place, part in enumerate(parts)}
        case _:
            return {}


def in_one_order(value: Json) -> Json:
    """Return JSON with the members of sets sorted."""
    if isinstance(value, list):
        return [in_one_order(part) for part in value]
    if not isinstance(value, dict):
        return value
    ordered = {key: in_one_order(part) for key, part in value.items()}
    is_set = ordered.get("class") in ("set", "frozenset")
    return ordered | ({"parts": sorted(ordered["parts"], key=dump)} if is_set else {})


def format_json(value: Json) -> str:
    """Return the JSON of a static roughly as it would be written in Python."""
    match value:
        case {"class": "float" | "int" | "bytes" | "numpy:dtype", "parts": [text]}:
            return str(text)
        case {"class": "name", "parts": [*names]}:
            return "|".join(names)
        case {"class": "opaque", "parts": [*_, name]}:
            return f"opaque {name}"
        case {"class": "dict", "parts": [*pairs]}:
            texts = [": ".join(map(format_json, pair["parts"])) for pair in pairs]
            return f"{{{', '.join(texts)}}}"
        case {"class": name, "parts": dict(parts)}:
            texts = [format_json(parts[""])] if "" in parts else []
            named = [
                f"{step.removeprefix('.')}={format_json(parts[step])}" for step in parts if step
            ]
            return f"{name}({', '.join(texts + named)})"
        case {"class": name, "parts": [*parts]}:
            start, end = _BRACKETS.get(name, (f"{name}(", ")"))
            comma = "," if name == "tuple" and len(parts) == 1 else ""
            return f"{start}{', '.join(map(format_json, parts))}{comma}{end}"
        case _:
            return repr(value)


_BRACKETS: Final = {
    "tuple": ("(", ")"),
    "list": ("[", "]"),
    "set": ("{", "}"),
    "frozenset": ("frozenset({", "})"),
}
