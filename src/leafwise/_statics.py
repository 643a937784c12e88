"""Reading static values: their canonical form, and what forbids them.

The *form* of a value is a flat tuple of types (by ``id``) and plain values, in
pre-order, with the arity of each container. Two values have equal forms exactly if they
are of the same type and the same value all the way down, as the class documents below
say. Whoever keeps a form must keep the value alive too, because of the ``id``s.
"""

import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import struct
import types
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import jax
import numpy as np

from leafwise import _findings
from leafwise._freeze import FrozenMapping, StaticArray
from leafwise._text import shorten
from leafwise.errors import (
    Finding,
    InconsistentHashError,
    StaticFieldError,
    StaticMutatedError,
    static_field_error,
)

_ABSENT: Final = "<not set>"


class Opaque:
    """An object in a form that compares by its own ``==`` (types are equal already)."""

    __slots__ = ("_hash", "_path", "_value")

    def __init__(self, value: Any, hashed: int, path: str) -> None:
        """Keep the object alive, and the hash it had."""
        self._value = value
        self._hash = hashed
        self._path = path

    def __hash__(self) -> int:
        """Return the hash that the object had when it was read."""
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Ask the objects, identity first."""
        if not isinstance(other, Opaque):
            return NotImplemented
        if self._value is other._value:
            return True
        if self._hash != other._hash:
            return False
        try:
            return bool(self._value == other._value)
        except Exception as error:
            finding = _findings.eq_raises(self._path, self._value, error)
            raise static_field_error([InconsistentHashError], [finding]) from error


class Record:
    """What an object that could change was read as, while some key is alive."""

    __slots__ = ("__weakref__", "digest", "value")

    def __init__(self, value: Any, digest: int) -> None:
        """Keep the object alive, so that its ``id`` stays its own."""
        self.value = value
        self.digest = digest


_RECORDS: Final[weakref.WeakValueDictionary[int, Record]] = weakref.WeakValueDictionary()


class Reading:
    """All statics of one instance, read.

    Attributes:
        form: The canonical form (valid once `raise_findings` did not raise).
        fixed: Whether nothing in it can change, so that identity is proof enough, and
            equal values cannot be told apart, so that one may stand for all.
        reaches: Whether code or attributes can be reached through it.
        records: What watches the objects that could change; to be kept with the key.
    """

    __slots__ = ("_above", "_found", "_out", "fixed", "reaches", "records")

    def __init__(self) -> None:
        """Start empty."""
        self._out: list[Any] = []
        self._found: list[tuple[type[StaticFieldError], Finding]] = []
        self._above: set[int] = set()
        self.fixed = True
        self.reaches = False
        self.records: list[Record] = []

    @property
    def form(self) -> tuple[Any, ...]:
        """The canonical form."""
        return tuple(self._out)

    def find(self, found: tuple[type[StaticFieldError], Finding]) -> None:
        """Note that a value cannot be static."""
        self._found.append(found)

    def raise_findings(self) -> None:
        """Raise one error for everything that was found, if anything was."""
        if self._found:
            kinds, findings = zip(*self._found, strict=True)
            raise static_field_error(kinds, findings)

    def read(self, value: Any, path: str) -> None:
        """Add the form of `value`, which stands at `path`."""
        reader = _READERS.get(type(value))
        if reader is not None:
            reader(self, value, path)
        else:
            _read_other(self, value, path)

    def push(self, *tokens: Any) -> None:
        """Add tokens to the form."""
        self._out.extend(tokens)

    def inside(self, value: Any, path: str, read_parts: Callable[[], None]) -> None:
        """Read the parts of a container that could contain itself."""
        if id(value) in self._above:
            self.find(_findings.cyclic(path, value))
            return
        self._above.add(id(value))
        try:
            read_parts()
        finally:
            self._above.discard(id(value))

    def watched(self, value: Any, path: str, read_parts: Callable[[], None]) -> None:
        """Read an object of a class of its own, and see that it has not changed.

        Raises:
            StaticMutatedError: It was read before as something else, by a key that
                is still alive.
        """
        self.fixed = False
        self.reaches = True
        start, problems = len(self._out), len(self._found)
        self.inside(value, path, read_parts)
        if len(self._found) > problems:
            return
        digest = hash(tuple(self._out[start:]))
        record = _RECORDS.get(id(value))
        if record is None or record.value is not value:
            record = _RECORDS[id(value)] = Record(value, digest)
        elif record.digest != digest:
            raise StaticMutatedError(_findings.mutated(path, value))
        self.records.append(record)


def _read_plain(reading: Reading, value: Any, _path: str) -> None:
    reading.push(id(type(value)), value)


def _read_float(reading: Reading, value: float, _path: str) -> None:
    usual = value != 0.0 and value == value  # noqa: PLR0124  # not NaN
    reading.push(id(float), value if usual else struct.pack("d", value))


def _read_complex(reading: Reading, value: complex, _path: str) -> None:
    reading.push(id(complex), struct.pack("dd", value.real, value.imag))


_FLAT: Final = frozenset({int, str, bytes, bool, type(None)})


def _read_tuple(reading: Reading, value: tuple[Any, ...], path: str) -> None:
    kinds = list(map(type, value))
    if _FLAT.issuperset(kinds):  # the usual long ones, without a loop in Python
        reading.push(id(tuple), ~len(value), *map(id, kinds), *value)
        return
    reading.push(id(tuple), len(value))
    reading.inside(value, path, lambda: _read_items(reading, value, path))


def _read_items(reading: Reading, value: tuple[Any, ...], path: str) -> None:
    names = getattr(type(value), "_fields", None)
    for index, item in enumerate(value):
        reading.read(item, f"{path}.{names[index]}" if names else f"{path}[{index}]")


def _read_frozenset(reading: Reading, value: frozenset[Any], path: str) -> None:
    # Sets have no order: count the forms of the members. A multiset, since two NaNs of
    # the same bits can both be members.
    forms: Counter[tuple[Any, ...]] = Counter()
    outer = reading._out
    for item in value:
        reading._out = []
        try:
            reading.read(item, f"{path}{{{shorten(item, 30)}}}")
            forms[tuple(reading._out)] += 1
        finally:
            reading._out = outer
    reading.push(id(type(value)), frozenset(forms.items()))


def _read_mapping(reading: Reading, value: Mapping[Any, Any], path: str) -> None:
    reading.inside(value, path, lambda: _read_pairs(reading, value, path))


def _read_pairs(reading: Reading, value: Mapping[Any, Any], path: str) -> None:
    # In order: traced code that loops over it sees the order.
    reading.push(id(type(value)), len(value))
    for key, item in value.items():
        reading.read(key, f"{path} key {shorten(key, 40)}")
        reading.read(item, f"{path}[{shorten(key, 40)}]")


def _read_range(reading: Reading, value: range, _path: str) -> None:
    reading.push(id(range), value.start, value.stop, value.step)


def _read_slice(reading: Reading, value: slice, path: str) -> None:
    reading.push(id(slice))
    for name in ("start", "stop", "step"):
        reading.read(getattr(value, name), f"{path}.{name}")


def _read_partial(reading: Reading, value: functools.partial[Any], path: str) -> None:
    def read_parts() -> None:
        reading.push(id(type(value)), len(value.args), len(value.keywords))
        reading.read(value.func, f"{path}.func")
        for index, item in enumerate(value.args):
            reading.read(item, f"{path}.args[{index}]")
        for name, item in value.keywords.items():
            reading.push(name)
            reading.read(item, f"{path}.keywords[{name!r}]")
        _read_state(reading, value, path)

    reading.watched(value, path, read_parts)


def _read_method(reading: Reading, value: types.MethodType, path: str) -> None:
    reading.push(id(types.MethodType))
    reading.reaches = True
    # A method is made afresh at each access, so only what it is made of counts.

    def read_parts() -> None:
        reading.read(value.__func__, f"{path}.__func__")
        reading.read(value.__self__, f"{path}.__self__")

    reading.inside(value, path, read_parts)


def _read_function(reading: Reading, value: types.FunctionType, _path: str) -> None:
    reading.reaches = True
    reading.push(id(types.FunctionType), id(value))


def _read_identity(reading: Reading, value: Any, _path: str) -> None:
    reading.push(id(type(value)), id(value))


def _read_date(reading: Reading, value: Any, path: str) -> None:
    # Equal instants in two zones, and the two folds of one, are told apart.
    zone = getattr(value, "tzinfo", None)
    naive = value.replace(tzinfo=None) if zone is not None else value
    reading.push(id(type(value)), naive, getattr(value, "fold", 0))
    reading.read(zone, f"{path}.tzinfo")


def _read_timezone(reading: Reading, value: datetime.timezone, _path: str) -> None:
    reading.push(id(datetime.timezone), value.utcoffset(None), value.tzname(None))


def _read_decimal(reading: Reading, value: decimal.Decimal, _path: str) -> None:
    reading.push(id(decimal.Decimal), value.as_tuple())  # 1.0 is not 1.00


def _read_generic(reading: Reading, value: np.generic, path: str) -> None:
    if isinstance(value, np.void):  # writable through its items
        reading.find(_findings.unhashable(path, value))
        return
    # Extended floats have padding bytes, which tobytes() shows.
    padded = isinstance(value, np.longdouble | np.clongdouble)
    content = repr(value) if padded else value.tobytes()
    reading.push(id(type(value)), repr(value.dtype), content)


def _read_dtype(reading: Reading, value: np.dtype[Any], path: str) -> None:
    reading.push(id(type(value)), repr(value), value.isalignedstruct)
    metadata = value.metadata
    reading.read(None if metadata is None else FrozenMapping(metadata), f"{path}.metadata")


_READERS: Final[dict[type, Callable[[Reading, Any, str], None]]] = {
    **dict.fromkeys(
        (int, str, bytes, bool, type(None), type(...), type(NotImplemented)), _read_plain
    ),
    **dict.fromkeys((datetime.timedelta, uuid.UUID, fractions.Fraction, StaticArray), _read_plain),
    float: _read_float,
    complex: _read_complex,
    tuple: _read_tuple,
    frozenset: _read_frozenset,
    FrozenMapping: _read_mapping,
    range: _read_range,
    slice: _read_slice,
    functools.partial: _read_partial,
    jax.tree_util.Partial: _read_partial,
    types.MethodType: _read_method,
    types.FunctionType: _read_function,
    types.ModuleType: _read_identity,
    type: _read_identity,
    datetime.datetime: _read_date,
    datetime.date: _read_date,
    datetime.time: _read_date,
    datetime.timezone: _read_timezone,
    decimal.Decimal: _read_decimal,
}


def _read_other(reading: Reading, value: Any, path: str) -> None:
    """Read a value of a type that is in no table: refuse it or find its reader."""
    kind = type(value)
    problem = _findings.refused(path, value)
    if problem is not None:
        reading.find(problem)
    elif isinstance(value, type | enum.Enum):
        _read_identity(reading, value, path)
    elif isinstance(value, np.generic):
        _read_generic(reading, value, path)
    elif isinstance(value, np.dtype):
        _read_dtype(reading, value, path)
    elif isinstance(value, functools.partial):
        _read_partial(reading, cast("functools.partial[Any]", value), path)
    elif (names := record_fields(kind)) is not None:
        _read_record(reading, value, path, names)
    elif (base := _builtin_base(kind)) is not None:
        _read_subclass(reading, value, path, base)
    elif isinstance(value, Mapping):
        mapping = cast("Mapping[Any, Any]", value)
        if (problem := _findings.bad_hash(path, value)) is not None:
            reading.find(problem)
        else:
            reading.watched(value, path, lambda: _read_pairs(reading, mapping, path))
    else:
        _read_opaque(reading, value, path)


def _read_record(reading: Reading, value: Any, path: str, names: tuple[str, ...]) -> None:
    """Read a frozen dataclass by all its fields, compared or not."""

    def read_parts() -> None:
        reading.push(id(type(value)))
        for name in names:
            reading.read(getattr(value, name, _ABSENT), f"{path}.{name}")

    reading.watched(value, path, read_parts)


def _read_subclass(reading: Reading, value: Any, path: str, base: type) -> None:
    """Read a subclass of a builtin by its content and its own attributes."""

    def read_parts() -> None:
        reading.push(id(type(value)))
        if base is tuple:
            reading.push(len(value))
            _read_items(reading, value, path)
        elif base is frozenset:
            reading.read(frozenset(value), path)
        else:
            reading.read(base.__new__(base, value), path)
        _read_state(reading, value, path)

    reading.watched(value, path, read_parts)


def _read_state(reading: Reading, value: Any, path: str) -> None:
    for name, item in attributes(value):
        reading.push(name)
        reading.read(item, f"{path}.{name}")
    reading.push(None)


def _read_opaque(reading: Reading, value: Any, path: str) -> None:
    kind = type(value)
    if kind.__eq__ is object.__eq__ and kind.__hash__ is object.__hash__:
        reading.reaches = True
        _read_identity(reading, value, path)
        return
    problem = _findings.bad_hash(path, value)
    if problem is not None:
        reading.find(problem)
        return
    if kind.__eq__ is object.__eq__:
        token: Any = (id(value), hash(value))  # identity, but its hash is watched
    else:
        token = Opaque(value, hash(value), path)
    reading.watched(value, path, lambda: reading.push(id(kind), token))


def attributes(value: Any) -> list[tuple[str, Any]]:
    """Return the names and values that an object holds itself, in ``__dict__`` or slots."""
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{kind.__name__.lstrip('_')}{name}"  # noqa: PLW2901  # mangled
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found.setdefault(name, getattr(value, name))
    return sorted(found.items(), key=lambda pair: str(pair[0]))


_BASES: Final = (str, bytes, int, float, complex, tuple, frozenset)


def _builtin_base(kind: type) -> type | None:
    """Return the builtin whose ``==`` a subclass has kept, if it has."""
    for base in _BASES:
        if issubclass(kind, base) and kind.__eq__ is base.__eq__:
            return base
    return None


_RECORD_FIELDS: Final[weakref.WeakKeyDictionary[type, tuple[str, ...] | None]] = (
    weakref.WeakKeyDictionary()
)


def record_fields(kind: type) -> tuple[str, ...] | None:
    """Return the fields of a frozen dataclass (or attrs class) that are all there is to it.

    That is one whose ``==`` was generated, or one that is a pytree, whose fields JAX
    sees anyway. Others speak for themselves through their own ``==``.
    """
    try:
        return _RECORD_FIELDS[kind]
    except KeyError:
        names = _RECORD_FIELDS[kind] = _find_record_fields(kind)
        return names


def _find_record_fields(kind: type) -> tuple[str, ...] | None:
    if dataclasses.is_dataclass(kind):
        params = cast("Any", kind).__dataclass_params__
        generated = _code_name(kind.__eq__) == _GENERATED_EQ
        if params.frozen and (generated or jax.tree_util.is_tree_node(kind)):
            return tuple(field.name for field in dataclasses.fields(kind))
        return None
    attributes_of = getattr(kind, "__attrs_attrs__", None)
    code = getattr(kind.__eq__, "__code__", None)
    if attributes_of is None or not getattr(code, "co_filename", "").startswith("<attrs gen"):
        return None
    frozen = getattr(kind.__setattr__, "__name__", "") == "_frozen_setattrs"
    return tuple(attribute.name for attribute in attributes_of) if frozen else None


def _code_name(function: Any) -> str | None:
    return getattr(getattr(function, "__code__", None), "co_qualname", None)


@dataclasses.dataclass(frozen=True)
class _Probe:
    x: int


_GENERATED_EQ: Final = _code_name(_Probe.__eq__)
"""How this Python names the code of an ``__eq__`` that dataclasses made."""

