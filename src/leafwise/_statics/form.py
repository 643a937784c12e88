"""The canonical form of static values, and the search for what forbids them.

The *form* of a value is a flat tuple of types (by ``id``) and plain values, in
pre-order, with the arity of each container. Two values have equal forms exactly if they
are of the same type and the same value all the way down; what "the same value" means for
each kind is what its reader below pushes. Whoever keeps a form must keep the value alive
too, because of the ``id``s.
"""

import collections
import datetime
import decimal
import enum
import fractions
import functools
import operator
import struct
import types
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import jax
import numpy as np

from leafwise._objects.attributes import (
    attributes,
    builtin_base,
    compares_by_identity,
    is_frozen,
    is_itself,
    record_fields,
)
from leafwise._objects.classes import is_alias
from leafwise._objects.frozen import FrozenMapping, StaticArray, freeze
from leafwise._objects.methods import BoundMethod
from leafwise._objects.parts import kind_of
from leafwise._objects.text import shorten
from leafwise._statics import findings
from leafwise.errors import StaticFieldError, StaticFinding, StaticMutatedError

if TYPE_CHECKING:
    from leafwise._statics.content import Guards


class Opaque:
    """An object in a form that compares by its own ``==``.

    Its type stands before it in the form, so two that are compared are of one type.
    """

    __slots__ = ("_hash", "_value")

    def __init__(self, value: Any, hashed: int) -> None:
        self._value = value
        self._hash = hashed

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Opaque):
            return NotImplemented
        if self._value is other._value:
            return True
        if self._hash != other._hash:
            return False
        return bool(self._value == other._value)


class OpaqueTreedef(Opaque):
    """A treedef, which compares the aux_data of its nodes by ``==``; here they are by their form.

    They are read only where two treedefs are equal: construction meets the same one mostly.
    """

    __slots__ = ("_aux_form",)
    __hash__ = Opaque.__hash__

    def __eq__(self, other: object) -> bool:
        if not (isinstance(other, OpaqueTreedef) and super().__eq__(other)):
            return False
        return self._value is other._value or self.aux_form() == other.aux_form()

    def aux_form(self) -> tuple[Any, ...]:
        """Return the forms of the aux_data of all nodes, but of what no static could be."""
        if not hasattr(self, "_aux_form"):
            self._aux_form = tuple(map(_form_or_none, _aux_data_of(self._value)))
        return self._aux_form


def _aux_data_of(treedef: Any) -> list[Any]:
    found: list[Any] = []
    pending = [treedef]
    while pending:
        node = pending.pop()
        found.append((node.node_data() or (None, None))[1])
        pending.extend(node.children())
    return [each for each in found if each is not None]


def _form_or_none(value: Any) -> tuple[Any, ...] | None:
    """Return the form of a value; None if it has none, so that its ``==`` has the last word."""
    canon = Canonicaliser()
    try:
        canonicalise(canon, freeze(value), "")  # the keys of a dict come in a list
    except Exception:  # noqa: BLE001  # the value's own code
        return None
    return None if canon.findings else canon.form


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
        findings: What forbids a key, in the order of the fields.
        form: The canonical form (valid once `raise_findings` did not raise).
        fixed: Whether nothing in it can change, so that identity is proof enough, and
            equal values are indistinguishable, so that one may stand for all.
        reaches: Whether code or attributes can be reached through it.
        readers: What reads a value of each type.
        records: The digests of the objects that could change; to be kept with the key.
        guards: For each field by content: what it is made of, and what its code finds.
    """

    __slots__ = ("_above", "_out", "findings", "fixed", "guards", "reaches", "readers", "records")

    def __init__(self, readers: Mapping[type, CanonicalOf] | None = None) -> None:
        self.readers = CANONICAL if readers is None else readers
        self._out: list[Any] = []
        self.findings: list[StaticFinding] = []
        self._above: set[int] = set()
        self.fixed = True
        self.reaches = False
        self.records: list[Digest] = []
        self.guards: list[tuple[Guards, Guards]] = []

    @property
    def form(self) -> tuple[Any, ...]:
        return tuple(self._out)

    def raise_findings(self, declaration: Callable[[str, str], str] | None = None) -> None:
        """Raise one error for all findings, which show the `declaration` of fields, if any."""
        if self.findings:
            raise StaticFieldError(
                *(findings.with_declaration(finding, declaration) for finding in self.findings)
            )

    def take_over(self, other: "Canonicaliser") -> None:
        self.push(*other.form)
        self.findings += other.findings

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
            self.findings.append(findings.cyclic(path, value))
            return
        self._above.add(id(value))
        try:
            read_parts()
        finally:
            self._above.discard(id(value))

    def watched(self, value: Any, path: str, read_parts: Callable[[], None]) -> None:
        """Read an object that could change, and refuse one that differs from that of a live key."""
        self.fixed = False
        self.reaches = True
        start, problems = len(self._out), len(self.findings)
        self.inside(value, path, read_parts)
        if len(self.findings) > problems:
            return
        digest = hash(tuple(self._out[start:]))
        record = _RECORDS.get(id(value))
        if record is None or record.value is not value:
            record = _RECORDS[id(value)] = Digest(value, digest)
        elif record.digest != digest:
            raise StaticMutatedError(findings.mutated(path, value))
        self.records.append(record)


def plain_form(start: int, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the form of plain values, as `canonicalise` would make it, but faster.

    None unless all are plain: numbers, text, None, and tuples of these, which nothing can forbid
    and nothing can change.
    """
    form: list[Any] = [start]
    for value in values:
        tokens = _plain_tokens(value, _DEEPEST)
        if tokens is None:
            return None
        form += tokens
    return tuple(form)


_DEEPEST: Final = 20


def _plain_tokens(value: Any, depth: int) -> Sequence[Any] | None:
    kind = type(value)
    mark = _FLAT.get(kind)
    if mark is not None:
        return mark, value
    if kind is float:
        return _float_tokens(value)
    if kind is not tuple:
        return None
    flat = _flat_tokens(value)
    if flat is not None or not depth:
        return flat
    nested: list[Any] = [_TUPLE, (len(value),)]
    for item in value:
        tokens = _plain_tokens(item, depth - 1)
        if tokens is None:
            return None
        nested += tokens
    return nested


def _read_plain(canon: Canonicaliser, value: Any, _path: str) -> None:
    canon.push(id(type(value)), value)


def _float_tokens(value: float) -> tuple[Any, ...]:
    return _FLOAT, value if _is_usual(value) else struct.pack("d", value)


def _is_usual(value: float) -> bool:
    """Return whether a float is neither NaN nor a zero: it then equals its own bits alone."""
    return value != 0.0 and value == value  # noqa: PLR0124


def _read_float(canon: Canonicaliser, value: float, _path: str) -> None:
    canon.push(*_float_tokens(value))


_FLAT: Final = {kind: id(kind) for kind in (int, str, bytes, bool, type(None))}
_FLOAT: Final = id(float)
_TUPLE: Final = id(tuple)
_FLAT_OR_FLOAT: Final[dict[type, int]] = {**_FLAT, float: _FLOAT}


def _flat_tokens(value: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the tokens of a tuple of plain values; None if it is not one."""
    kinds = list(map(_FLAT_OR_FLOAT.get, map(type, value)))
    if None in kinds:
        return None
    if _FLOAT in kinds and not all(map(_is_usual, [x for x in value if type(x) is float])):
        return None
    return _TUPLE, ~len(value), *kinds, *value


def _read_tuple(canon: Canonicaliser, value: tuple[Any, ...], path: str) -> None:
    flat = _flat_tokens(value)
    if flat is None:
        _read_parts(canon, value, path)
    else:
        canon.push(*flat)


def read_parts(canon: Canonicaliser, value: Any, path: str) -> None:
    """Add the form of a value by what it consists of."""
    kind = kind_of(value)
    content, parts = kind.read(value)
    members = 0 if kind.is_ordered else content[0]
    canon.push(id(type(value)), content)
    if members:  # a multiset, since two NaNs of the same bits can both be members of a set
        forms = Counter(
            canon.separate_form(functools.partial(canonicalise, canon, part, path + step))
            for step, part in parts[:members]
        )
        canon.push(frozenset(forms.items()))
    for step, part in parts[members:]:
        canonicalise(canon, part, path + step)


def _read_parts(canon: Canonicaliser, value: Any, path: str) -> None:
    """Read what cannot change, unless something inside it can."""
    canon.inside(value, path, functools.partial(read_parts, canon, value, path))


def _read_watched(canon: Canonicaliser, value: Any, path: str) -> None:
    """Read what consists of attributes, which ``object.__setattr__`` can change."""
    canon.watched(value, path, functools.partial(read_parts, canon, value, path))


def _read_method(canon: Canonicaliser, value: types.MethodType | BoundMethod, path: str) -> None:
    canon.reaches = True
    _read_parts(canon, value, path)  # each access makes a new one: what it is made of counts


def _read_function(canon: Canonicaliser, value: types.FunctionType, path: str) -> None:
    canon.reaches = True
    _read_identity(canon, value, path)


def _read_identity(canon: Canonicaliser, value: Any, _path: str) -> None:
    canon.push(id(type(value)), id(value))


def _read_static_array(canon: Canonicaliser, value: StaticArray, path: str) -> None:
    if not value.is_sealed:  # a copy that numpy made: it can be written to
        canon.findings.append(findings.array(path, value))
        return
    canon.push(id(StaticArray), value)
    if value.dtype.names or value.dtype.metadata:
        canonicalise(canon, value.dtype, f"{path}.dtype")


def _read_other(canon: Canonicaliser, value: Any, path: str) -> None:
    """Read a value of a type that is not in the table: refuse it or find its reader."""
    cls = type(value)
    problem = findings.refused(path, value)
    if problem is None and issubclass(cls, np.void):  # writable through its items
        problem = findings.unhashable(path, value)
    if problem is not None:
        canon.findings.append(problem)
    elif issubclass(cls, type | enum.Enum):
        _read_identity(canon, value, path)
    elif issubclass(cls, np.dtype) or (issubclass(cls, np.generic) and not attributes(value)):
        _read_parts(canon, value, path)
    elif consists_of_parts(cls):
        _read_watched(canon, value, path)
        if record_fields(cls) is not None and not is_frozen(cls) and not canon.findings:
            problem = findings.bad_hash(path, value)  # it may know more than its fields
            if problem is not None:
                canon.findings.append(problem)
    else:
        _read_opaque(canon, value, path)


def consists_of_parts(cls: type) -> bool:
    """Return whether values of a class are compared by their parts, not by their own ``==``."""
    if CANONICAL.get(cls) in (_read_plain, _read_float, _read_tuple, _read_parts, _read_watched):
        return True
    known: Any = np.dtype, np.generic, functools.partial, StaticArray
    return (
        (issubclass(cls, known) and not issubclass(cls, BoundMethod))
        or builtin_base(cls) is not None
        or record_fields(cls) is not None
    )


def _read_opaque(canon: Canonicaliser, value: Any, path: str) -> None:
    cls: Any = type(value)
    if is_itself(value):
        canon.reaches = True
        _read_identity(canon, value, path)
        return
    problem = findings.bad_hash(path, value)
    if problem is not None:
        canon.findings.append(problem)
        return
    if compares_by_identity(cls):
        token: Any = (id(value), hash(value))  # identity, but its hash is watched
    else:
        kind = OpaqueTreedef if cls is jax.tree_util.PyTreeDef else Opaque
        token = kind(value, hash(value))

    def read_own() -> None:
        canon.push(id(cls), token)
        _read_compared(canon, value, path)

    canon.watched(value, path, read_own)


def _read_compared(canon: Canonicaliser, value: Any, path: str) -> None:
    """Read what an ``==`` compares inside, which it need not do by type and bits."""
    cls = type(value)
    if issubclass(cls, Mapping):
        for key, item in value.items():
            canonicalise(canon, key, f"{path} key {shorten(key, 40)}")
            canonicalise(canon, item, f"{path}[{shorten(key, 40)}]")
        canon.push(None)
    elif issubclass(cls, list | collections.deque):
        for place, item in enumerate(value):
            canonicalise(canon, item, f"{path}[{place}]")
        canon.push(None)
    elif cls is memoryview:
        canon.push(value.format, value.shape)
    elif issubclass(cls, datetime.datetime | datetime.time):  # pandas.Timestamp, say
        canonicalise(canon, value.tzinfo, f"{path}.tzinfo")
    elif is_alias(value):
        _read_alias(canon, value, path)


def _read_alias(canon: Canonicaliser, value: Any, path: str) -> None:
    """Read the arguments of a type, which may be values: those of ``Annotated[int, 1]``."""
    for name in ("__args__", "__metadata__"):
        items: Any = getattr(value, name, ())
        for place, item in enumerate(items):
            if consists_of_parts(type(item)) or is_alias(item):
                canonicalise(canon, item, f"{path}.{name}[{place}]")
            elif issubclass(type(item), type):  # the arguments of a union have an order
                _read_identity(canon, item, path)


CANONICAL: Final[Mapping[type, CanonicalOf]] = {
    **dict.fromkeys(
        (int, str, bytes, bool, type(None), type(...), type(NotImplemented)), _read_plain
    ),
    datetime.timedelta: _read_plain,
    float: _read_float,
    tuple: _read_tuple,
    StaticArray: _read_static_array,
    **dict.fromkeys(
        (
            *(complex, decimal.Decimal, fractions.Fraction, uuid.UUID, frozenset, FrozenMapping),
            *(range, slice),
            *(datetime.datetime, datetime.date, datetime.time, datetime.timezone),
            *(operator.itemgetter, operator.attrgetter, operator.methodcaller),
            *(np.iinfo, jax.numpy.iinfo),
        ),
        _read_parts,
    ),
    **dict.fromkeys((functools.partial, jax.tree_util.Partial), _read_watched),
    **dict.fromkeys((types.MethodType, BoundMethod), _read_method),
    types.FunctionType: _read_function,
    **dict.fromkeys((types.ModuleType, type), _read_identity),
    object: _read_other,
}
"""What reads a value of each type into a form, and under `object` all others."""
