"""The canonical form of static values, and the search for what forbids them.

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
    """An object in a form that compares by its own ``==``.

    Its type stands before it in the form, so two that are compared are of one type.
    """

    __slots__ = ("_hash", "_path", "_value")

    def __init__(self, value: Any, hashed: int, path: str) -> None:
        self._value = value
        self._hash = hashed
        self._path = path

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
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
    """The hash of the form of an object that could change, while some key is alive."""

    __slots__ = ("__weakref__", "digest", "value")

    def __init__(self, value: Any, digest: int) -> None:
        self.value = value  # alive, so that no other object takes its id
        self.digest = digest


_RECORDS: Final[weakref.WeakValueDictionary[int, Digest]] = weakref.WeakValueDictionary()

CanonicalOf: TypeAlias = Callable[["Canonicaliser", Any, str], None]


def canonicalise(canon: "Canonicaliser", value: Any, path: str) -> None:
    """Add the form of `value`, which stands at `path`."""
    readers = canon.readers
    reader = readers.get(type(value)) or readers[object]
    reader(canon, value, path)


class Canonicaliser:
    """Builds the canonical form of the statics of one instance.

    Attributes:
        form: The canonical form (valid once `raise_findings` did not raise).
        fixed: Whether nothing in it can change, so that identity is proof enough, and
            equal values are indistinguishable, so that one may stand for all.
        reaches: Whether code or attributes can be reached through it.
        readers: What reads a value of each type.
        records: The digests of the objects that could change; to be kept with the key.
        guards: For each field by content: what it is made of, and what its code finds.
    """

    __slots__ = ("_above", "_found", "_out", "fixed", "guards", "reaches", "readers", "records")

    def __init__(self, readers: Mapping[type, CanonicalOf] | None = None) -> None:
        self.readers = CANONICAL if readers is None else readers
        self._out: list[Any] = []
        self._found: list[tuple[type[StaticFieldError], Finding]] = []
        self._above: set[int] = set()
        self.fixed = True
        self.reaches = False
        self.records: list[Digest] = []
        self.guards: list[tuple[Guards, Guards]] = []

    @property
    def form(self) -> tuple[Any, ...]:
        return tuple(self._out)

    @property
    def accepts(self) -> bool:
        """Whether nothing has been found that forbids a key."""
        return not self._found

    @property
    def findings(self) -> "tuple[tuple[type[StaticFieldError], Finding], ...]":
        return tuple(self._found)

    def add_finding(self, found: tuple[type[StaticFieldError], Finding]) -> None:
        self._found.append(found)

    def raise_findings(self) -> None:
        """Raise one error for all findings, if there are any."""
        if self._found:
            kinds, found = zip(*self._found, strict=True)
            raise static_field_error(kinds, found)

    def take_over(self, other: "Canonicaliser") -> None:
        self.push(*other.form)
        for found in other.findings:
            self.add_finding(found)

    def separate_form(self, read_parts: Callable[[], None]) -> tuple[Any, ...]:
        """Return the form of some parts, which are not added to this one."""
        outer, self._out = self._out, []
        try:
            read_parts()
            return tuple(self._out)
        finally:
            self._out = outer

    def push(self, *tokens: Any) -> None:
        self._out.extend(tokens)

    def inside(self, value: Any, path: str, read_parts: Callable[[], None]) -> None:
        """Read the parts of a container that could contain itself."""
        if id(value) in self._above:
            self.add_finding(findings.cyclic(path, value))
            return
        self._above.add(id(value))
        try:
            read_parts()
        finally:
            self._above.discard(id(value))

    def watched(self, value: Any, path: str, read_parts: Callable[[], None]) -> None:
        """Read an object that could change, and check that it has not.

        Raises:
            StaticMutatedError: Its form differs from the one in a key that is still alive.
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
    """Return the form of plain values, as `canonicalise` would make it, but faster.

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


def _read_plain(canon: Canonicaliser, value: Any, _path: str) -> None:
    canon.push(id(type(value)), value)


def _float_tokens(value: float) -> tuple[Any, ...]:
    usual = value != 0.0 and value == value  # noqa: PLR0124  # not NaN
    return id(float), value if usual else struct.pack("d", value)


def _read_float(canon: Canonicaliser, value: float, _path: str) -> None:
    canon.push(*_float_tokens(value))


def _read_complex(canon: Canonicaliser, value: complex, _path: str) -> None:
    canon.push(id(complex), struct.pack("dd", value.real, value.imag))


_FLAT: Final = {kind: id(kind) for kind in (int, str, bytes, bool, type(None))}


def _flat_tokens(value: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the tokens of a tuple of plain values, without a loop in Python."""
    kinds = list(map(type, value))
    if not _FLAT.keys() >= set(kinds):
        return None
    return id(tuple), ~len(value), *map(id, kinds), *value


def _read_tuple(canon: Canonicaliser, value: tuple[Any, ...], path: str) -> None:
    flat = _flat_tokens(value)
    if flat is not None:
        canon.push(*flat)
        return
    canon.push(id(tuple), len(value))
    canon.inside(value, path, lambda: _read_items(canon, value, path))


def _read_items(canon: Canonicaliser, value: tuple[Any, ...], path: str) -> None:
    names = getattr(type(value), "_fields", None)
    for index, item in enumerate(tuple.__iter__(value)):
        canonicalise(canon, item, f"{path}.{names[index]}" if names else f"{path}[{index}]")


def _read_frozenset(canon: Canonicaliser, value: frozenset[Any], path: str) -> None:
    # Sets have no order: count the forms of the members. A multiset, since two NaNs of
    # the same bits can both be members.
    forms: Counter[tuple[Any, ...]] = Counter()
    for item in value:
        where = f"{path}{{{shorten(item, 30)}}}"
        forms[canon.separate_form(functools.partial(canonicalise, canon, item, where))] += 1
    canon.push(id(type(value)), frozenset(forms.items()))


def _read_mapping(canon: Canonicaliser, value: Mapping[Any, Any], path: str) -> None:
    canon.inside(value, path, lambda: _read_pairs(canon, value, path))


def _read_pairs(canon: Canonicaliser, value: Mapping[Any, Any], path: str) -> None:
    # In order: traced code that loops over it sees the order.
    canon.push(id(type(value)), len(value))
    for key, item in value.items():
        canonicalise(canon, key, f"{path} key {shorten(key, 40)}")
        canonicalise(canon, item, f"{path}[{shorten(key, 40)}]")


def _read_range(canon: Canonicaliser, value: range, _path: str) -> None:
    canon.push(id(range), value.start, value.stop, value.step)


def _read_slice(canon: Canonicaliser, value: slice, path: str) -> None:
    canon.push(id(slice))
    for name in ("start", "stop", "step"):
        canonicalise(canon, getattr(value, name), f"{path}.{name}")


def _read_partial(canon: Canonicaliser, value: functools.partial[Any], path: str) -> None:
    def read_parts() -> None:
        canon.push(id(type(value)), len(value.args), len(value.keywords))
        canonicalise(canon, value.func, f"{path}.func")
        for index, item in enumerate(value.args):
            canonicalise(canon, item, f"{path}.args[{index}]")
        for name, item in value.keywords.items():
            canon.push(name)
            canonicalise(canon, item, f"{path}.keywords[{name!r}]")
        _read_state(canon, value, path)

    canon.watched(value, path, read_parts)


def _read_method(canon: Canonicaliser, value: types.MethodType | BoundMethod, path: str) -> None:
    canon.push(id(type(value)))
    canon.reaches = True
    # Each access makes a new method, so only what it is made of counts.

    def read_parts() -> None:
        canonicalise(canon, value.__func__, f"{path}.__func__")
        canonicalise(canon, value.__self__, f"{path}.__self__")

    canon.inside(value, path, read_parts)


def _read_function(canon: Canonicaliser, value: types.FunctionType, _path: str) -> None:
    canon.reaches = True
    canon.push(id(types.FunctionType), id(value))


def _read_identity(canon: Canonicaliser, value: Any, _path: str) -> None:
    canon.push(id(type(value)), id(value))


def _read_date(canon: Canonicaliser, value: Any, path: str) -> None:
    # Equal instants in two zones, and the two folds of one, are distinct.
    zone = getattr(value, "tzinfo", None)
    naive = value.replace(tzinfo=None) if zone is not None else value
    canon.push(id(type(value)), naive, getattr(value, "fold", 0))
    canonicalise(canon, zone, f"{path}.tzinfo")


def _read_timezone(canon: Canonicaliser, value: datetime.timezone, _path: str) -> None:
    canon.push(id(datetime.timezone), value.utcoffset(None), value.tzname(None))


def _read_decimal(canon: Canonicaliser, value: decimal.Decimal, _path: str) -> None:
    canon.push(id(decimal.Decimal), value.as_tuple())  # 1.0 is not 1.00


def _read_generic(canon: Canonicaliser, value: np.generic, path: str) -> None:
    if isinstance(value, np.void):  # writable through its items
        canon.add_finding(findings.unhashable(path, value))
        return
    parts = (value.real, value.imag) if value.dtype.kind == "c" else (value,)
    content = tuple(np.asarray(part).tobytes()[: _significant(part)] for part in parts)
    canon.push(id(type(value)), repr(value.dtype), content)
    if attributes(value):  # a subclass with state of its own
        canon.watched(value, path, lambda: _read_state(canon, value, path))


def _significant(value: Any) -> int | None:
    """Return how many bytes count: extended floats of x86 end with padding."""
    extended = type(value) is np.longdouble and np.finfo(np.longdouble).nmant == _X87_MANTISSA
    return 10 if extended else None


_X87_MANTISSA: Final = 63


def _read_uuid(canon: Canonicaliser, value: uuid.UUID, _path: str) -> None:
    canon.push(id(uuid.UUID), value.int, value.is_safe.name)


def _read_static_array(canon: Canonicaliser, value: StaticArray, path: str) -> None:
    if value.is_sealed:
        canon.push(id(StaticArray), value)
    else:  # a copy that numpy made: it can be written to
        canon.add_finding(findings.array(path, value))


def _read_dtype(canon: Canonicaliser, value: np.dtype[Any], path: str) -> None:
    canon.push(id(type(value)), repr(value), value.isalignedstruct)
    metadata = value.metadata
    canonicalise(canon, None if metadata is None else FrozenMapping(metadata), f"{path}.metadata")


def _read_other(canon: Canonicaliser, value: Any, path: str) -> None:
    """Read a value of a type that is not in the table: refuse it or find its reader."""
    kind = type(value)
    problem = findings.refused(path, value)
    if problem is not None:
        canon.add_finding(problem)
    elif isinstance(value, type | enum.Enum):
        _read_identity(canon, value, path)
    elif isinstance(value, np.generic):
        _read_generic(canon, value, path)
    elif isinstance(value, np.dtype):
        _read_dtype(canon, value, path)
    elif isinstance(value, functools.partial):
        _read_partial(canon, value, path)
    elif (names := record_fields(kind)) is not None:
        _read_record(canon, value, path, names)
    elif (base := builtin_base(kind)) is not None:
        _read_subclass(canon, value, path, base)
    elif isinstance(value, Mapping):
        mapping = value  # narrowed, for the lambda
        if (problem := findings.bad_hash(path, value)) is not None:
            canon.add_finding(problem)
        else:
            canon.watched(value, path, lambda: _read_pairs(canon, mapping, path))
    else:
        _read_opaque(canon, value, path)


def _read_record(canon: Canonicaliser, value: Any, path: str, names: tuple[str, ...]) -> None:
    """Read a dataclass by its fields: a frozen one by all of them, compared or not."""

    def read_parts() -> None:
        canon.push(id(type(value)))
        for name in names:
            item = getattr(value, name, MISSING)
            if item is MISSING:
                canon.push(MISSING)
            else:
                canonicalise(canon, item, f"{path}.{name}")

    canon.watched(value, path, read_parts)
    params = getattr(value, "__dataclass_params__", None)
    if params is not None and not params.frozen and canon.accepts:
        problem = findings.bad_hash(path, value)  # it may know more than its fields
        if problem is not None:
            canon.add_finding(problem)


def _read_subclass(canon: Canonicaliser, value: Any, path: str, base: type) -> None:
    """Read a subclass of a builtin by its content and its own attributes."""

    def read_parts() -> None:
        canon.push(id(type(value)))
        if base is tuple:
            canon.push(tuple.__len__(value))
            _read_items(canon, value, path)
        else:
            content = _PLAIN_CONTENT.get(base, lambda same: same)
            CANONICAL[base](canon, content(value), path)
        _read_state(canon, value, path)

    canon.watched(value, path, read_parts)


def _read_state(canon: Canonicaliser, value: Any, path: str) -> None:
    for name, item in attributes(value):
        canon.push(name)
        canonicalise(canon, item, f"{path}.{name}")
    canon.push(None)


def _read_opaque(canon: Canonicaliser, value: Any, path: str) -> None:
    kind: Any = type(value)
    if compares_by_identity(kind) and kind.__hash__ is object.__hash__:
        canon.reaches = True
        _read_identity(canon, value, path)
        return
    problem = findings.bad_hash(path, value)
    if problem is not None:
        canon.add_finding(problem)
        return
    if compares_by_identity(kind):
        token: Any = (id(value), hash(value))  # identity, but its hash is watched
    else:
        token = Opaque(value, hash(value), path)
    canon.watched(value, path, lambda: canon.push(id(kind), token))
    if isinstance(value, datetime.datetime | datetime.time):  # pandas.Timestamp, say
        canonicalise(canon, value.tzinfo, f"{path}.tzinfo")


CANONICAL: Final[Mapping[type, CanonicalOf]] = {
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
"""What reads a value of each type into a form, and under `object` all others."""
