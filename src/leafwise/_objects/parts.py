"""What a value consists of: one table of kinds, shared by all folds over values.

A value has a plain *content*, and *parts*, which are values again. Two values are indistinguishable
exactly if they have the same type and equal contents, and their parts are indistinguishable one by
one (those of a set in any order). Each fold decides which objects it compares by identity or by
their own ``==`` instead, and what is too large to look into.

No user code runs, except that of mappings other than Python's own, and of properties that a class
uses as its fields.
"""

import array
import collections
import dataclasses
import datetime as dt
import decimal
import fractions
import functools
import operator
import struct
import types
import uuid
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from leafwise._objects.attributes import (
    DISPATCH,
    WEAK,
    attributes,
    is_frozen,
    is_installed,
    of_partial,
    record_fields,
    registry_of,
)
from leafwise._objects.classes import ClassMap, is_a
from leafwise._objects.frozen import FrozenMapping, StaticArray
from leafwise._objects.methods import BoundMethod
from leafwise._objects.source.code import computed_names, contents, facts_of, int_as_float
from leafwise._objects.stand_ins import MISSING, ById
from leafwise._objects.text import shorten

Content: TypeAlias = tuple[Any, ...]
Part: TypeAlias = tuple[str, Any]
"""The step to a part of a value, and the part."""


def _nothing(_value: Any) -> tuple[()]:
    return ()


@dataclasses.dataclass(eq=False)
class Kind:
    """What values of one kind consist of.

    If the order of the parts does not count, the content begins with the number of unordered parts,
    since attributes may follow them. With `attributes`, the content ends with names of attributes,
    and the parts with their values: it has the kind of the rest, and a function that returns both,
    which is slow, so that `read` calls it once.
    """

    name: str
    content: Callable[[Any], Content] = _nothing  # hashable, and equal exactly if all bits are
    values: Callable[[Any], Sequence[Any]] = _nothing  # the parts, in order
    steps: Callable[[Any], Sequence[str]] = _nothing  # `.func`, `[0]`, `['k']`; ` key 'k'` of a key
    is_ordered: bool = True
    attributes: "tuple[Kind, Callable[[Any], Sequence[tuple[str, Any]]]] | None" = None

    def read(self, value: Any) -> tuple[Content, list[Part]]:
        """Return the content of a value, and its parts, each with the step to it."""
        if self.attributes is None:
            parts = zip(self.steps(value), self.values(value), strict=True)
            return self.content(value), list(parts)
        rest, pairs = self.attributes
        content, inner = rest.read(value)
        own = pairs(value)
        names = [name for name, _ in own]
        return (*content, *names), [*inner, *[(f".{name}", item) for name, item in own]]

    def parts(self, value: Any) -> list[Part]:
        return self.read(value)[1]


def kind_of(value: Any) -> Kind:
    """Return the kind of a value, by its type, whatever its ``__class__`` says."""
    cls = type(value)
    return _KINDS.get(cls) or _FOUND.setdefault(cls, lambda: _find(cls))


_FOUND: Final[ClassMap[Kind]] = ClassMap()


def _itself(value: Any) -> Content:
    return (ById(value),)


def _members(base: Any, *names: str) -> Callable[[Any], Content]:
    """Return a function that reads attributes as the builtin `base` does, not a subclass."""
    members = [getattr(base, name) for name in names]
    return lambda value: tuple([member.__get__(value) for member in members])


_DAY: Final = ("year", "month", "day")
_TIME: Final = ("hour", "minute", "second", "microsecond", "fold")
_halves: Final = _members(complex, "real", "imag")


def _float(value: float) -> Content:
    return (struct.pack("d", value),)


def _number(value: np.generic) -> Content:
    return repr(value.dtype), value.tobytes()


def _buffer(value: Any) -> Content:
    with memoryview(value) as view:
        return view.format, view.shape, view.tobytes()


def _dtype_values(value: np.dtype[Any]) -> list[Any]:
    """Return the metadata and the dtypes inside, whose own metadata no repr shows."""
    # Empty counts as None: NumPy before 2.3.3 adds it when dtypes of dates are pickled or copied.
    metadata = FrozenMapping(value.metadata) if value.metadata else None
    fields: Any = value.fields
    inside = [fields[name][0] for name in value.names or ()]
    return [metadata, *inside, *(value.subdtype or ())[:1]]


def _dtype_steps(value: np.dtype[Any]) -> list[str]:
    inside = [f"[{name!r}]" for name in value.names or ()]
    return [".metadata", *inside, *[".subdtype"] * (value.subdtype is not None)]


def _array(value: np.ndarray[Any, Any]) -> Content:
    plain = np.ndarray.view(value, np.ndarray)
    data = () if plain.dtype.hasobject else (plain.tobytes(),)
    return repr(plain.dtype), plain.shape, *data


def _array_values(value: np.ndarray[Any, Any]) -> list[Any]:
    plain = np.ndarray.view(value, np.ndarray)
    items = plain.ravel().tolist() if plain.dtype.hasobject else []
    return [plain.dtype, *items]


def _array_steps(value: np.ndarray[Any, Any]) -> list[str]:
    places = np.ndindex(value.shape) if value.dtype.hasobject else ()
    return [".dtype", *(f"[{', '.join(map(str, place))}]" for place in places)]


def is_key(value: Any) -> bool:
    return is_a(value, jax.Array) and bool(jnp.issubdtype(value.dtype, jax.dtypes.prng_key))


def data_of(array: Any) -> np.ndarray[Any, Any]:
    """Return the elements of an array; of PRNG keys, their data."""
    return np.asarray(jax.random.key_data(array) if is_key(array) else array)


def _jax_array(value: Any) -> Content:
    weak = bool(getattr(value, "weak_type", False))  # which a PRNG key does not have
    where = value.sharding if value.committed else None
    return str(value.dtype), value.shape, weak, where, data_of(value).tobytes()


def _plain(content: Callable[[Any], Content]) -> Kind:
    return Kind("plain", content)


def _in_zone(base: Any, *names: str) -> Kind:
    """Return the kind of a time; its zone is a part, so that equal instants may be distinct."""
    zone = _members(base, "tzinfo")
    return Kind("time", _members(base, *names), zone, lambda _: (".tzinfo",))


def _sequence(base: Any) -> Kind:
    def content(value: Any) -> Content:
        limit = (value.maxlen,) if base is collections.deque else ()
        return base.__len__(value), *limit

    def steps(value: Any) -> list[str]:
        names, count = getattr(type(value), "_fields", ()), base.__len__(value)
        is_named = base is tuple and len(names) == count
        return [f".{name}" for name in names] if is_named else [f"[{n}]" for n in range(count)]

    return Kind(base.__name__, content, lambda value: list(base.__iter__(value)), steps)


def _set(base: Any) -> Kind:
    return Kind(
        base.__name__,
        lambda value: (base.__len__(value),),
        lambda value: list(base.__iter__(value)),
        lambda value: [f"{{{shorten(item, 30)}}}" for item in base.__iter__(value)],
        is_ordered=False,
    )


def _mapping(name: str, base: Any = None, *more: str) -> Kind:
    """Return a kind of mapping, whose order counts: traced code that loops over it sees it.

    Mappings are read with the methods of `base`, or without it with their own, which may not return
    views. The attributes named in `more` are further parts.
    """

    def keys_of(value: Any) -> list[Any]:
        return [*base.keys(value)] if base else [key for key, _ in value.items()]

    def values(value: Any) -> list[Any]:  # runs at each call of a function under lw.jit
        if not base:
            pairs = list(value.items())
            return [*[key for key, _ in pairs], *[item for _, item in pairs]]
        parts = [*base.keys(value), *base.values(value)]
        return [*parts, *(member.__get__(value) for member in members)] if more else parts

    def steps(value: Any) -> list[str]:
        texts = [shorten(key, 40) for key in keys_of(value)]
        ways = [f" key {text}" for text in texts] + [f"[{text}]" for text in texts]
        return [*ways, *(f".{attribute}" for attribute in more)]

    members = [getattr(base, attribute) for attribute in more]

    return Kind(name, lambda value: (len(keys_of(value)),), values, steps)


def _attribute_parts(name: str, *names: str) -> Kind:
    return Kind(
        name,
        values=lambda value: [getattr(value, attribute) for attribute in names],
        steps=lambda _: [f".{attribute}" for attribute in names],
    )


def _partial(value: Any) -> Content:
    _, args, keywords = of_partial(value)
    return len(args), *keywords


def _partial_values(value: Any) -> list[Any]:
    func, args, keywords = of_partial(value)
    return [func, *args, *keywords.values()]


def _partial_steps(value: Any) -> list[str]:
    _, args, keywords = of_partial(value)
    positional = [f".args[{number}]" for number in range(len(args))]
    return [".func", *positional, *(f".keywords[{name!r}]" for name in keywords)]


def _function(value: types.FunctionType) -> Content:
    code = facts_of(value.__code__).form
    defaults, named = value.__defaults__ or (), value.__kwdefaults__ or {}
    return code, value.__module__, value.__qualname__, len(defaults), tuple(named)


def _function_values(value: types.FunctionType) -> list[Any]:
    if (registry := registry_of(value)) is not None:
        return [registry]
    facts, held = facts_of(value.__code__), list(map(contents, value.__closure__ or ()))
    if facts.rebinds and is_installed(value):
        pairs = zip(value.__code__.co_freevars, held, strict=True)
        held = [int_as_float(item) if name in facts.rebinds else item for name, item in pairs]
    return [*held, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]


def _function_steps(value: types.FunctionType) -> list[str]:
    if registry_of(value) is not None:
        return [".registry"]
    return [
        *(f".__closure__[{name!r}]" for name in value.__code__.co_freevars),
        *(f".__defaults__[{place}]" for place in range(len(value.__defaults__ or ()))),
        *(f".__kwdefaults__[{name!r}]" for name in value.__kwdefaults__ or ()),
    ]


def _owner(value: Any) -> list[Any]:
    """Return the object that a method written in C belongs to, as in ``[].append``."""
    owner = value.__self__
    return [] if owner is None or issubclass(type(owner), types.ModuleType | type) else [owner]


_BUILTIN: Final = Kind(
    "builtin",
    lambda value: (value.__name__,) if _owner(value) else _itself(value),
    _owner,
    lambda value: [".__self__"] * len(_owner(value)),
)


def _own(value: Any) -> list[tuple[str, Any]]:
    is_dispatcher = type(value) is types.FunctionType and registry_of(value) is not None
    unseen = _UNSEEN | DISPATCH if is_dispatcher else _UNSEEN
    return [pair for pair in attributes(value) if pair[0] not in unseen]


def _extra(value: Any) -> list[tuple[str, Any]]:
    """Return the extra attributes of a pydantic model with ``extra="allow"``."""
    return sorted((value.__pydantic_extra__ or {}).items())


_UNSEEN: Final = frozenset({"_attrs_cached_hash", "__leafwise_key__"})
"""What attrs and leafwise cache in an instance; it follows from the rest."""


def _with_attributes(
    base: Kind,
    fields: tuple[str, ...] = (),
    *,
    more: Callable[[Any], list[tuple[str, Any]]] | None = _own,
    but: Collection[str] = (),
) -> Kind:
    """Return a kind that adds attributes to `base`: `fields` in this order, and `more` by name."""
    # The fields may be properties. The names in `but` never count.
    read = {*fields, *but}

    def pairs(value: Any) -> list[tuple[str, Any]]:
        items = [(name, getattr(value, name, MISSING)) for name in fields]
        return [*items, *(pair for pair in (more(value) if more else ()) if pair[0] not in read)]

    return Kind(
        "record" if fields else base.name,
        lambda value: (*base.content(value), *(name for name, _ in pairs(value))),
        lambda value: [*base.values(value), *(item for _, item in pairs(value))],
        lambda value: [*base.steps(value), *(f".{name}" for name, _ in pairs(value))],
        base.is_ordered,
        (base, pairs),
    )


_BASES: Final[Mapping[type, Kind]] = {
    np.void: Kind("void", _number),  # its items can be assigned
    np.generic: _plain(_number),  # before the builtins that some scalars derive from
    # By the builtins' own methods: a subclass may have others.
    bytearray: Kind("buffer", lambda value: (bytes(memoryview(value)),)),
    array.array: Kind("buffer", _buffer),
    memoryview: Kind("buffer", _buffer),
    int: _plain(lambda value: (int.__int__(value),)),
    str: _plain(lambda value: (str.__str__(value),)),
    bytes: _plain(lambda value: (bytes.__getitem__(value, slice(None)),)),
    float: _plain(lambda value: _float(float.__float__(value))),
    complex: _plain(lambda value: tuple(map(_float, _halves(value)))),
    dt.datetime: _in_zone(dt.datetime, *_DAY, *_TIME),
    dt.date: _plain(_members(dt.date, *_DAY)),
    dt.time: _in_zone(dt.time, *_TIME),
    dt.timedelta: _plain(_members(dt.timedelta, "days", "seconds", "microseconds")),
    decimal.Decimal: _plain(lambda value: (decimal.Decimal.as_tuple(value),)),  # 1.0 is not 1.00
    fractions.Fraction: _plain(_members(fractions.Fraction, "numerator", "denominator")),
    uuid.UUID: _plain(lambda value: (value.int, value.is_safe.name)),
    **{base: _sequence(base) for base in (tuple, list, collections.deque)},
    **{base: _set(base) for base in (set, frozenset)},
    # Not with the methods of dict, which do not see the order of an OrderedDict.
    collections.OrderedDict: _mapping("dict", collections.OrderedDict),
    collections.defaultdict: _mapping("dict", collections.defaultdict, "default_factory"),
    dict: _mapping("dict", dict),
    functools.partial: Kind("partial", _partial, _partial_values, _partial_steps),
    np.dtype: Kind(
        "dtype", lambda value: (repr(value), value.isalignedstruct), _dtype_values, _dtype_steps
    ),
    np.ndarray: Kind("array", _array, _array_values, _array_steps),
    weakref.ReferenceType: Kind(
        "reference", values=lambda value: [weakref.ref.__call__(value)], steps=lambda _: ["()"]
    ),
}
"""The classes whose subclasses are read like them, with the attributes that they add."""

_KINDS: Final[Mapping[type, Kind]] = {
    **_BASES,
    functools.partial: _with_attributes(_BASES[functools.partial]),
    **dict.fromkeys(
        (bool, type(None), type(...), type(NotImplemented)), _plain(lambda value: (value,))
    ),
    **dict.fromkeys((np.iinfo, jnp.iinfo), _plain(lambda value: (value.kind, value.bits))),
    dt.timezone: _plain(lambda value: (value.utcoffset(None), value.tzname(None))),
    range: _attribute_parts("range", "start", "stop", "step"),
    slice: _attribute_parts("slice", "start", "stop", "step"),
    **dict.fromkeys((types.MappingProxyType, FrozenMapping), _mapping("mapping")),
    StaticArray: _BASES[np.ndarray],
    types.FunctionType: _with_attributes(
        Kind("function", _function, _function_values, _function_steps)
    ),
    **dict.fromkeys(
        (types.MethodType, BoundMethod), _attribute_parts("method", "__func__", "__self__")
    ),
    **dict.fromkeys((types.BuiltinFunctionType, types.MethodWrapperType), _BUILTIN),
    types.CellType: Kind(
        "cell", values=lambda value: [contents(value)], steps=lambda _: [".cell_contents"]
    ),
    **dict.fromkeys((staticmethod, classmethod), _attribute_parts("wrapper", "__func__")),
    property: _attribute_parts("wrapper", "fget", "fset", "fdel"),
    **dict.fromkeys(
        (operator.itemgetter, operator.attrgetter, operator.methodcaller),
        Kind("getter", values=lambda value: value.__reduce__(), steps=lambda _: ("", "")),
    ),
}
"""The kinds of exact types."""

_ALONE: Final = Kind("object")
_OBJECT: Final = _with_attributes(_ALONE)
_BY_IDENTITY: Final = Kind("identity", _itself)


def _find(cls: Any) -> Kind:
    if issubclass(cls, type | types.ModuleType | Enum | Tracer):
        return _BY_IDENTITY
    if issubclass(cls, jax.Array):
        return Kind("jax.Array", _jax_array)
    base = next((kind for parent, kind in _BASES.items() if issubclass(cls, parent)), None)
    fields = record_fields(cls)
    if fields is not None:
        # A flax module stores the state of its last call next to its fields.
        more = _own if is_frozen(cls) else _extra if hasattr(cls, "__pydantic_fields__") else None
        return _with_attributes(base or _ALONE, fields, more=more, but=computed_names(cls))
    if base is not None:
        return _with_attributes(base)
    if cls.__eq__ is not object.__eq__ and issubclass(cls, Mapping) and not issubclass(cls, WEAK):
        return _with_attributes(_mapping("mapping"))
    return _OBJECT
