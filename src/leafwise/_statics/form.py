"""Reading static values: their canonical form, and what forbids them.

The *form* of a value is a flat tuple of types (by ``id``) and plain values, in
pre-order, with the arity of each container. Two values have equal forms exactly if they
are of the same type and the same value all the way down; what "the same value" means for
each kind is what its reader below pushes. Whoever keeps a form must keep the value alive
too, because of the ``id``s.
"""

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
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import jax
import numpy as np

from leafwise._objects.attributes import (
    attributes,
    builtin_base,
    compares_by_identity,
    record_fields,
)
from leafwise._objects.frozen import FrozenMapping, StaticArray
from leafwise._objects.methods import BoundMethod
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import shorten
from leafwise._statics import findings
from leafwise.errors import (
    Finding,
    InconsistentHashError,
    StaticFieldError,
    StaticMutatedError,
    static_field_error,
)

if TYPE_CHECKING:
    from leafwise._statics.guards import Guards


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
            finding = findings.eq_raises(self._path, self._value, error)
            raise static_field_error([InconsistentHashError], [finding]) from error


class Digest:
    """What an object that could change was read as, while some key is alive."""

    __slots__ = ("__weakref__", "digest", "value")

    def __init__(self, value: Any, digest: int) -> None:
        """Keep the object alive, so that its ``id`` stays its own."""
        self.value = value
        self.digest = digest


_RECORDS: Final[weakref.WeakValueDictionary[int, Digest]] = weakref.WeakValueDictionary()

CanonicalOf: TypeAlias = Callable[["Canonicaliser", Any, str], None]

CANONICAL: Final[dict[type, CanonicalOf]] = {}
"""What reads a value of each type, and under `object` all others: `_statics` fills it."""


def canonicalise(reading: "Canonicaliser", value: Any, path: str) -> None:
    """Add the form of `value`, which stands at `path`, to the reading."""
    readers = reading.readers
    reader = readers.get(type(value)) or readers[object]
    reader(reading, value, path)


class Canonicaliser:
    """All statics of one instance, read.

    Attributes:
        form: The canonical form (valid once `raise_findings` did not raise).
        fixed: Whether nothing in it can change, so that identity is proof enough, and
            equal values cannot be told apart, so that one may stand for all.
        reaches: Whether code or attributes can be reached through it.
        readers: What reads a value of each type.
        records: What watches the objects that could change; to be kept with the key.
        guards: For each field by content: what it is made of, and what its code finds.
    """

    __slots__ = ("_above", "_found", "_out", "fixed", "guards", "reaches", "readers", "records")

    def __init__(self, readers: Mapping[type, CanonicalOf] = CANONICAL) -> None:
        """Start empty."""
        self.readers = readers
        self._out: list[Any] = []
        self._found: list[tuple[type[StaticFieldError], Finding]] = []
        self._above: set[int] = set()
        self.fixed = True
        self.reaches = False
        self.records: list[Digest] = []
        self.guards: list[tuple[Guards, Guards]] = []

    @property
    def form(self) -> tuple[Any, ...]:
        """The canonical form."""
        return tuple(self._out)

    @property
    def accepts(self) -> bool:
        """Whether nothing has been found that forbids a key."""
        return not self._found

    @property
    def findings(self) -> "tuple[tuple[type[StaticFieldError], Finding], ...]":
        """What was found that cannot be static."""
        return tuple(self._found)

    def find(self, found: tuple[type[StaticFieldError], Finding]) -> None:
        """Note that a value cannot be static."""
        self._found.append(found)

    def raise_findings(self) -> None:
        """Raise one error for everything that was found, if anything was."""
        if self._found:
            kinds, found = zip(*self._found, strict=True)
            raise static_field_error(kinds, found)

    def take_over(self, other: "Canonicaliser") -> None:
        """Add the form and the findings of another reading."""
        self.push(*other.form)
        for found in other.findings:
            self.find(found)

    def apart(self, read_parts: Callable[[], None]) -> tuple[Any, ...]:
        """Return the form of some parts, which are not added to this one."""
        outer, self._out = self._out, []
        try:
            read_parts()
            return tuple(self._out)
        finally:
            self._out = outer

    def push(self, *tokens: Any) -> None:
        """Add tokens to the form."""
        self._out.extend(tokens)

    def inside(self, value: Any, path: str, read_parts: Callable[[], None]) -> None:
        """Read the parts of a container that could contain itself."""
        if id(value) in self._above:
            self.find(findings.cyclic(path, value))
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
            record = _RECORDS[id(value)] = Digest(value, digest)
        elif record.digest != digest:
            raise StaticMutatedError(findings.mutated(path, value))
        self.records.append(record)


_PLAIN_CONTENT: Final[dict[type, Callable[[Any], Any]]] = {
    # The builtins' own methods: a subclass may have overridden the conversion.
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    frozenset: lambda value: frozenset[Any](frozenset.__iter__(value)),
}


def plain_form(start: int, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the form of plain values at once, as `canonicalise` would make it.

    Args:
        start: The first token.
        values: The static values of an instance.

    Returns:
        The form, or None unless all values are plain: numbers, text, None, and tuples of
        these, which nothing can forbid and nothing can change.
    """
    form: list[Any] = [start]
    for value in values:
        kind = type(value)
        mark = _FLAT.get(kind)
        if mark is not None:
            form += (mark, value)
        elif kind is float:
            form += _float_tokens(value)
        elif kind is tuple and (tokens := _flat_tokens(value)) is not None:
            form += tokens
        else:
            return None
    return tuple(form)


def _read_plain(reading: Canonicaliser, value: Any, _path: str) -> None:
    reading.push(id(type(value)), value)


def _float_tokens(value: float) -> tuple[Any, ...]:
    usual = value != 0.0 and value == value  # noqa: PLR0124  # not NaN
    return id(float), value if usual else struct.pack("d", value)


def _read_float(reading: Canonicaliser, value: float, _path: str) -> None:
    reading.push(*_float_tokens(value))


def _read_complex(reading: Canonicaliser, value: complex, _path: str) -> None:
    reading.push(id(complex), struct.pack("dd", value.real, value.imag))


_FLAT: Final = {kind: id(kind) for kind in (int, str, bytes, bool, type(None))}


def _flat_tokens(value: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the tokens of the usual long tuples, without a loop in Python."""
    kinds = list(map(type, value))
    if not _FLAT.keys() >= set(kinds):
        return None
    return id(tuple), ~len(value), *map(id, kinds), *value


def _read_tuple(reading: Canonicaliser, value: tuple[Any, ...], path: str) -> None:
    flat = _flat_tokens(value)
    if flat is not None:
        reading.push(*flat)
        return
    reading.push(id(tuple), len(value))
    reading.inside(value, path, lambda: _read_items(reading, value, path))


def _read_items(reading: Canonicaliser, value: tuple[Any, ...], path: str) -> None:
    names = getattr(type(value), "_fields", None)
    for index, item in enumerate(tuple.__iter__(value)):
        canonicalise(reading, item, f"{path}.{names[index]}" if names else f"{path}[{index}]")


def _read_frozenset(reading: Canonicaliser, value: frozenset[Any], path: str) -> None:
    # Sets have no order: count the forms of the members. A multiset, since two NaNs of
    # the same bits can both be members.
    forms: Counter[tuple[Any, ...]] = Counter()
    for item in value:
        where = f"{path}{{{shorten(item, 30)}}}"
        forms[reading.apart(functools.partial(canonicalise, reading, item, where))] += 1
    reading.push(id(type(value)), frozenset(forms.items()))


def _read_mapping(reading: Canonicaliser, value: Mapping[Any, Any], path: str) -> None:
    reading.inside(value, path, lambda: _read_pairs(reading, value, path))


def _read_pairs(reading: Canonicaliser, value: Mapping[Any, Any], path: str) -> None:
    # In order: traced code that loops over it sees the order.
    reading.push(id(type(value)), len(value))
    for key, item in value.items():
        canonicalise(reading, key, f"{path} key {shorten(key, 40)}")
        canonicalise(reading, item, f"{path}[{shorten(key, 40)}]")


def _read_range(reading: Canonicaliser, value: range, _path: str) -> None:
    reading.push(id(range), value.start, value.stop, value.step)


def _read_slice(reading: Canonicaliser, value: slice, path: str) -> None:
    reading.push(id(slice))
    for name in ("start", "stop", "step"):
        canonicalise(reading, getattr(value, name), f"{path}.{name}")


def _read_partial(reading: Canonicaliser, value: functools.partial[Any], path: str) -> None:
    def read_parts() -> None:
        reading.push(id(type(value)), len(value.args), len(value.keywords))
        canonicalise(reading, value.func, f"{path}.func")
        for index, item in enumerate(value.args):
            canonicalise(reading, item, f"{path}.args[{index}]")
        for name, item in value.keywords.items():
            reading.push(name)
            canonicalise(reading, item, f"{path}.keywords[{name!r}]")
        _read_state(reading, value, path)

    reading.watched(value, path, read_parts)


def _read_method(reading: Canonicaliser, value: types.MethodType | BoundMethod, path: str) -> None:
    reading.push(id(type(value)))
    reading.reaches = True
    # A method is made afresh at each access, so only what it is made of counts.

    def read_parts() -> None:
        canonicalise(reading, value.__func__, f"{path}.__func__")
        canonicalise(reading, value.__self__, f"{path}.__self__")

    reading.inside(value, path, read_parts)


def _read_function(reading: Canonicaliser, value: types.FunctionType, _path: str) -> None:
    reading.reaches = True
    reading.push(id(types.FunctionType), id(value))


def _read_identity(reading: Canonicaliser, value: Any, _path: str) -> None:
    reading.push(id(type(value)), id(value))


def _read_date(reading: Canonicaliser, value: Any, path: str) -> None:
    # Equal instants in two zones, and the two folds of one, are told apart.
    zone = getattr(value, "tzinfo", None)
    naive = value.replace(tzinfo=None) if zone is not None else value
    reading.push(id(type(value)), naive, getattr(value, "fold", 0))
    canonicalise(reading, zone, f"{path}.tzinfo")


def _read_timezone(reading: Canonicaliser, value: datetime.timezone, _path: str) -> None:
    reading.push(id(datetime.timezone), value.utcoffset(None), value.tzname(None))


def _read_decimal(reading: Canonicaliser, value: decimal.Decimal, _path: str) -> None:
    reading.push(id(decimal.Decimal), value.as_tuple())  # 1.0 is not 1.00


def _read_generic(reading: Canonicaliser, value: np.generic, path: str) -> None:
    if isinstance(value, np.void):  # writable through its items
        reading.find(findings.unhashable(path, value))
        return
    parts = (value.real, value.imag) if value.dtype.kind == "c" else (value,)
    content = tuple(np.asarray(part).tobytes()[: _significant(part)] for part in parts)
    reading.push(id(type(value)), repr(value.dtype), content)
    if attributes(value):  # a subclass with state of its own
        reading.watched(value, path, lambda: _read_state(reading, value, path))


def _significant(value: Any) -> int | None:
    """Return how many bytes count: extended floats of x86 have padding behind."""
    extended = type(value) is np.longdouble and np.finfo(np.longdouble).nmant == _X87_MANTISSA
    return 10 if extended else None


_X87_MANTISSA: Final = 63


def _read_uuid(reading: Canonicaliser, value: uuid.UUID, _path: str) -> None:
    reading.push(id(uuid.UUID), value.int, value.is_safe.name)


def _read_static_array(reading: Canonicaliser, value: StaticArray, path: str) -> None:
    if value.is_sealed:
        reading.push(id(StaticArray), value)
    else:  # made by numpy in its likeness
        reading.find(findings.array(path, value))


def _read_dtype(reading: Canonicaliser, value: np.dtype[Any], path: str) -> None:
    reading.push(id(type(value)), repr(value), value.isalignedstruct)
    metadata = value.metadata
    canonicalise(reading, None if metadata is None else FrozenMapping(metadata), f"{path}.metadata")


def _read_other(reading: Canonicaliser, value: Any, path: str) -> None:
    """Read a value of a type that is in no table: refuse it or find its reader."""
    kind = type(value)
    problem = findings.refused(path, value)
    if problem is not None:
        reading.find(problem)
    elif isinstance(value, type | enum.Enum):
        _read_identity(reading, value, path)
    elif isinstance(value, np.generic):
        _read_generic(reading, value, path)
    elif isinstance(value, np.dtype):
        _read_dtype(reading, value, path)
    elif isinstance(value, functools.partial):
        _read_partial(reading, value, path)
    elif (names := record_fields(kind)) is not None:
        _read_record(reading, value, path, names)
    elif (base := builtin_base(kind)) is not None:
        _read_subclass(reading, value, path, base)
    elif isinstance(value, Mapping):
        mapping = value
        if (problem := findings.bad_hash(path, value)) is not None:
            reading.find(problem)
        else:
            reading.watched(value, path, lambda: _read_pairs(reading, mapping, path))
    else:
        _read_opaque(reading, value, path)


def _read_record(reading: Canonicaliser, value: Any, path: str, names: tuple[str, ...]) -> None:
    """Read a dataclass by its fields: a frozen one by all of them, compared or not."""

    def read_parts() -> None:
        reading.push(id(type(value)))
        for name in names:
            item = getattr(value, name, MISSING)
            if item is MISSING:
                reading.push(MISSING)
            else:
                canonicalise(reading, item, f"{path}.{name}")

    reading.watched(value, path, read_parts)
    params = getattr(value, "__dataclass_params__", None)
    if params is not None and not params.frozen and reading.accepts:
        problem = findings.bad_hash(path, value)  # it may know more than its fields
        if problem is not None:
            reading.find(problem)


def _read_subclass(reading: Canonicaliser, value: Any, path: str, base: type) -> None:
    """Read a subclass of a builtin by its content and its own attributes."""

    def read_parts() -> None:
        reading.push(id(type(value)))
        if base is tuple:
            reading.push(tuple.__len__(value))
            _read_items(reading, value, path)
        else:
            content = _PLAIN_CONTENT.get(base, lambda same: same)
            CANONICAL[base](reading, content(value), path)
        _read_state(reading, value, path)

    reading.watched(value, path, read_parts)


def _read_state(reading: Canonicaliser, value: Any, path: str) -> None:
    for name, item in attributes(value):
        reading.push(name)
        canonicalise(reading, item, f"{path}.{name}")
    reading.push(None)


def _read_opaque(reading: Canonicaliser, value: Any, path: str) -> None:
    kind: Any = type(value)
    if compares_by_identity(kind) and kind.__hash__ is object.__hash__:
        reading.reaches = True
        _read_identity(reading, value, path)
        return
    problem = findings.bad_hash(path, value)
    if problem is not None:
        reading.find(problem)
        return
    if compares_by_identity(kind):
        token: Any = (id(value), hash(value))  # identity, but its hash is watched
    else:
        token = Opaque(value, hash(value), path)
    reading.watched(value, path, lambda: reading.push(id(kind), token))
    if isinstance(value, datetime.datetime | datetime.time):  # pandas.Timestamp, say
        canonicalise(reading, value.tzinfo, f"{path}.tzinfo")


_BY_TYPE: Final[dict[type, CanonicalOf]] = {
    **dict.fromkeys(
        (int, str, bytes, bool, type(None), type(...), type(NotImplemented)), _read_plain
    ),
    **dict.fromkeys((datetime.timedelta, fractions.Fraction), _read_plain),
    StaticArray: _read_static_array,
    uuid.UUID: _read_uuid,
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
    BoundMethod: _read_method,
    types.FunctionType: _read_function,
    types.ModuleType: _read_identity,
    type: _read_identity,
    datetime.datetime: _read_date,
    datetime.date: _read_date,
    datetime.time: _read_date,
    datetime.timezone: _read_timezone,
    decimal.Decimal: _read_decimal,
    object: _read_other,
}
CANONICAL.update(_BY_TYPE)
