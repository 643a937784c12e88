"""How a key compares static values, and which values it rejects.

The *form* of a value is the flat tuple of its tokens under this policy: types (by ``id``) and plain
values, with the arity of each container. Two values have equal forms exactly if they have the same
type and value, recursively; the readers below define what "the same value" means for each kind. A
form is valid only while the value is alive, because of the ``id``s.
"""

import collections
import dataclasses
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
from collections.abc import Mapping, Sequence
from typing import Any, Final

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
from leafwise._objects.interrupts import or_default
from leafwise._objects.methods import BoundMethod
from leafwise._objects.parts import Part, kind_of
from leafwise._objects.text import shorten
from leafwise._statics import findings
from leafwise._statics.fold import Fold, Policy, Reader
from leafwise.errors import StaticFinding, StaticMutatedError


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class Opaque:
    """An object in a form, after its type, that compares by its own ``==``."""

    _value: Any
    _hash: int

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Opaque):
            return NotImplemented
        if self._value is other._value:
            return True
        return self._hash == other._hash and bool(self._value == other._value)


class OpaqueTreedef(Opaque):
    """A treedef whose aux_data is compared by form, if JAX's ``==`` finds it equal."""

    __slots__ = ("_aux_form",)
    __hash__ = Opaque.__hash__

    def __eq__(self, other: object) -> bool:
        if not (isinstance(other, OpaqueTreedef) and super().__eq__(other)):
            return False
        return self._value is other._value or self.aux_form() == other.aux_form()

    def aux_form(self) -> tuple[Any, ...]:
        """Return the form of the aux_data of each node, or None if it could not be static."""
        if not hasattr(self, "_aux_form"):
            every: list[Any] = []
            pending = [self._value]
            while pending:
                node = pending.pop()
                every.append((node.node_data() or (None, None))[1])
                pending.extend(node.children())
            self._aux_form = tuple(_form_or_none(aux) for aux in every if aux is not None)
        return self._aux_form


@or_default(None)  # the value's own code
def _form_or_none(value: Any) -> tuple[Any, ...] | None:
    """Return the form of a value; None if it cannot be static, so that its ``==`` decides."""
    fold = Fold(AS_KEY).add(freeze(value), "")  # the aux_data of a dict is a list of its keys
    return None if fold.findings else fold.form


@dataclasses.dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Digest:
    """The hash of the form of an object that can change, shared by all live keys."""

    value: Any  # kept alive, so that no other object gets its id
    digest: int


_RECORDS: Final[weakref.WeakValueDictionary[int, Digest]] = weakref.WeakValueDictionary()


def _watch(fold: Fold, value: Any, path: str) -> bool:
    """Return whether to read an object that can change; its digest must match that of live keys."""
    if not fold.enter(value, path):
        return False
    fold.fixed, fold.reaches = False, True
    fold.at_end(functools.partial(_compare_digest, fold, value, path, len(fold.tokens)))
    return True


def _compare_digest(fold: Fold, value: Any, path: str, start: int) -> None:
    if fold.findings:
        return
    digest = hash(tuple(fold.tokens[start:]))
    record = _RECORDS.get(id(value))
    if record is None or record.value is not value:
        record = _RECORDS[id(value)] = Digest(value, digest)
    elif record.digest != digest:
        raise StaticMutatedError(findings.mutated(path, value))
    fold.records.append(record)


def plain_form(start: int, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the form of numbers, strings, None and tuples of these, or None; fast."""
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


def _read_plain(fold: Fold, value: Any, path: str) -> tuple[()]:
    fold.push(path, id(type(value)), value)
    return ()


def _float_tokens(value: float) -> tuple[Any, ...]:
    return _FLOAT, value if _is_usual(value) else struct.pack("d", value)


def _is_usual(value: float) -> bool:
    """Return whether a float is neither NaN nor zero: then it equals only the same bits."""
    return value != 0.0 and value == value  # noqa: PLR0124


def _read_float(fold: Fold, value: float, path: str) -> tuple[()]:
    fold.push(path, *_float_tokens(value))
    return ()


_FLAT: Final = {kind: id(kind) for kind in (int, str, bytes, bool, type(None))}
_FLOAT: Final = id(float)
_TUPLE: Final = id(tuple)
_FLAT_OR_FLOAT: Final[dict[type, int]] = {**_FLAT, float: _FLOAT}


def _flat_tokens(value: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the tokens of a tuple of plain values; None for any other tuple."""
    kinds = list(map(_FLAT_OR_FLOAT.get, map(type, value)))
    if None in kinds:
        return None
    if _FLOAT in kinds and not all(map(_is_usual, [x for x in value if type(x) is float])):
        return None
    return _TUPLE, ~len(value), *kinds, *value


def _read_tuple(fold: Fold, value: tuple[Any, ...], path: str) -> Sequence[Part]:
    flat = _flat_tokens(value)
    if flat is None:
        return _read_parts(fold, value, path)
    fold.push(path, *flat)
    return ()


def read_parts(fold: Fold, value: Any, path: str) -> Sequence[Part]:
    kind = kind_of(value)
    content, parts = kind.read(value)
    fold.push(path, id(type(value)), content)
    if not kind.is_ordered:
        fold.in_any_order(content[0])
    return parts


def _read_parts(fold: Fold, value: Any, path: str) -> Sequence[Part]:
    """Read a value that cannot change, though something inside it may."""
    return read_parts(fold, value, path) if fold.enter(value, path) else ()


def _read_watched(fold: Fold, value: Any, path: str) -> Sequence[Part]:
    """Read a value that consists of attributes, which ``object.__setattr__`` can change."""
    return read_parts(fold, value, path) if fold.policy.watch(fold, value, path) else ()


def _read_method(fold: Fold, value: types.MethodType | BoundMethod, path: str) -> Sequence[Part]:
    fold.reaches = True
    return _read_parts(fold, value, path)  # each access makes a new one: its parts count


def _read_function(fold: Fold, value: types.FunctionType, path: str) -> tuple[()]:
    fold.reaches = True
    return _read_identity(fold, value, path)


def _read_identity(fold: Fold, value: Any, path: str) -> tuple[()]:
    fold.push(path, id(type(value)), id(value))
    return ()


def _read_static_array(fold: Fold, value: StaticArray, path: str) -> Sequence[Part]:
    if not value.is_sealed:  # a copy made by numpy, which can be written to
        return _refuse(fold, findings.array(path, value))
    fold.push(path, id(StaticArray), value)
    has_more = value.dtype.names or value.dtype.metadata
    return [(".dtype", value.dtype)] if has_more else ()


def _refuse(fold: Fold, problem: StaticFinding) -> tuple[()]:
    fold.findings.append(problem)
    return ()


def _read_other(fold: Fold, value: Any, path: str) -> Sequence[Part]:
    """Read a value whose type is not in the table: reject it, or choose its reader."""
    cls = type(value)
    if problem := findings.refused(path, value):
        return _refuse(fold, problem)
    if issubclass(cls, type | enum.Enum):
        return _read_identity(fold, value, path)
    if issubclass(cls, np.dtype) or (issubclass(cls, np.generic) and not attributes(value)):
        return _read_parts(fold, value, path)
    if not consists_of_parts(cls):
        return _read_opaque(fold, value, path)
    if record_fields(cls) is not None and not is_frozen(cls):
        fold.at_end(functools.partial(_check_hash, fold, value, path))
    return _read_watched(fold, value, path)


def _check_hash(fold: Fold, value: Any, path: str) -> None:
    """Reject an unfrozen record with a bad hash, which may depend on more than its fields."""
    if not fold.findings and (problem := findings.bad_hash(path, value)):
        _refuse(fold, problem)


def consists_of_parts(cls: type) -> bool:
    """Return whether values of a class are compared by their parts, not by their own ``==``."""
    if READERS.get(cls) in (_read_plain, _read_float, _read_tuple, _read_parts, _read_watched):
        return True
    known: Any = np.dtype, np.generic, functools.partial, StaticArray
    return (
        (issubclass(cls, known) and not issubclass(cls, BoundMethod))
        or builtin_base(cls) is not None
        or record_fields(cls) is not None
    )


def _read_opaque(fold: Fold, value: Any, path: str) -> Sequence[Part]:
    cls: Any = type(value)
    if is_itself(value):
        fold.reaches = True
        return _read_identity(fold, value, path)
    if problem := findings.bad_hash(path, value):
        return _refuse(fold, problem)
    if compares_by_identity(cls):
        token: Any = (id(value), hash(value))  # identity, but its hash is watched
    else:
        kind = OpaqueTreedef if cls is jax.tree_util.PyTreeDef else Opaque
        token = kind(value, hash(value))
    if not fold.policy.watch(fold, value, path):
        return ()
    parts = _compared_parts(value)
    fold.push(path, id(cls), token, len(parts))
    return parts


def _compared_parts(value: Any) -> list[Part]:
    """Return the parts that a value's ``==`` compares, which it may do loosely (``1 == True``)."""
    cls = type(value)
    if issubclass(cls, Mapping):
        pairs = [(shorten(key, 40), key, item) for key, item in value.items()]
        return [part for s, k, v in pairs for part in ((f" key {s}", k), (f"[{s}]", v))]
    if issubclass(cls, list | collections.deque):
        return [(f"[{place}]", item) for place, item in enumerate(value)]
    if cls is memoryview:
        return [(".format", value.format), (".shape", value.shape)]
    if issubclass(cls, datetime.datetime | datetime.time):  # pandas.Timestamp, say
        return [(".tzinfo", value.tzinfo)]
    arguments: list[Part] = []
    # Of a parametrised type, which may be values: ``Annotated[int, 1]``.
    for name in ("__args__", "__metadata__") if is_alias(value) else ():
        items: Any = getattr(value, name, ())
        arguments += [(f".{name}[{place}]", item) for place, item in enumerate(items)]
    # The arguments of a union have an order.
    return [
        (step, item)
        for step, item in arguments
        if consists_of_parts(type(item)) or is_alias(item) or isinstance(item, type)
    ]


READERS: Final[Mapping[type, Reader]] = {
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
"""The reader for each type; that for `object` reads all other types."""


def _refuse_cycle(fold: Fold, value: Any, path: str, _number: int) -> None:
    _refuse(fold, findings.cyclic(path, value))


AS_KEY: Final = Policy(READERS, _watch, _refuse_cycle)
