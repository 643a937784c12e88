"""A value of each kind in `leafwise._objects.parts`, and others that are distinct from it.

Whoever folds over the table is tried on all of them: a new kind is one entry here.
"""

import array
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import operator
import types
import uuid
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import attrs
import jax
import jax.numpy as jnp
import numpy as np

import leafwise as lw


class Sample(NamedTuple):
    """A way to make a value of a kind, and ways to make others.

    Attributes:
        kind: The name of the kind.
        make: Returns a new value; two of them cannot be distinguished.
        others: Each returns one that differs from it, by what only looks equal where it can.
    """

    kind: str
    make: Callable[[], Any]
    others: tuple[Callable[[], Any], ...]


class Text(str):
    unit: Any


class Count(int):
    unit: Any


class Pair(NamedTuple):
    a: Any
    b: Any


class Row(tuple[Any, ...]):
    unit: Any


class Items(list[Any]):
    unit: Any


class Table(dict[str, Any]):
    unit: Any


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Plain:
    rate: Any
    name: Any


class Slotted:
    __slots__ = ("__hidden", "rate")

    def __init__(self, rate: Any, hidden: Any = 0) -> None:
        self.rate = rate
        self.__hidden = hidden


@dataclasses.dataclass(frozen=True)
class Config:
    rate: Any
    scale: dataclasses.InitVar[Any] = 0

    def __post_init__(self, scale: Any) -> None:
        object.__setattr__(self, "kept", scale)


class Wider(Config):
    """A plain subclass of a record, whose instances have an attribute more."""


@dataclasses.dataclass(frozen=True)
class TextRecord(str):  # a subclass with a dict is the case
    rate: Any

    def __new__(cls, rate: Any, text: str = "") -> Self:  # noqa: ARG004
        return super().__new__(cls, text)

    def __init__(self, rate: Any, text: str = "") -> None:  # noqa: ARG002
        object.__setattr__(self, "rate", rate)


@attrs.frozen(cache_hash=True)
class Setting:
    rate: Any


class Box(collections.UserDict[str, Any]):
    def __init__(self, items: dict[str, Any], unit: Any = "m") -> None:
        super().__init__(items)
        self.unit = unit

    def __hash__(self) -> int:
        return hash(self.unit)


def with_attributes(made: Any, /, **named: Any) -> Any:
    for name, item in named.items():
        object.__setattr__(made, name, item)
    return made


def function(
    held: Any = 2, default: Any = 3, named: Any = 4, **attributes: Any
) -> Callable[..., Any]:
    def inner(x: Any, y: Any = default, *, z: Any = named) -> Any:
        return x * held + y + z

    return with_attributes(inner, **attributes)


def other_function() -> Callable[..., Any]:
    def inner(x: Any, y: Any = 3, *, z: Any = 4) -> Any:
        return x * 2 - y - z

    return inner


def dispatching(**held: Any) -> Any:
    """Return a function of `functools.singledispatch` that has been called."""

    @functools.singledispatch
    def choose(x: Any) -> Any:
        return x

    for name, item in held.items():
        choose.register({"int": int, "float": float}[name], function(item))
    choose(1)
    return choose


def record(dtype: Any, item: Any) -> Any:
    """Return a scalar of NumPy with a field."""
    return np.array([(item,)], [("a", dtype)])[0]


def cell(value: Any) -> Any:
    return types.CellType(value)


def object_array(*items: Any) -> Any:
    made = np.empty(len(items), object)
    made[:] = items
    return made


ALIVE = [with_attributes(Plain(), rate=1), with_attributes(Plain(), rate=True)]
"""What weak references lead to."""

NAN = np.float64(np.nan).view(np.uint64)
UTC_TOO = dt.timezone(dt.timedelta(0), "UTC too")
WHEN = dt.datetime(2026, 11, 22, 1, 30, tzinfo=dt.UTC)
FIELDS = {"names": ["a"], "formats": [np.dtype("f4", metadata={"unit": "m"})]}
OTHER_FIELDS = {"names": ["a"], "formats": [np.dtype("f4", metadata={"unit": "s"})]}


def sample(kind: str, make: Callable[[], Any], *others: Callable[[], Any]) -> Sample:
    return Sample(kind, make, others)


SAMPLES = [
    sample("plain", lambda: 1, lambda: True, lambda: 1.0, lambda: 2, lambda: np.int64(1)),
    sample("plain", lambda: 0.0, lambda: -0.0, lambda: 0, lambda: np.float64(0.0)),
    sample(
        "plain",
        lambda: float("nan"),
        lambda: float((NAN ^ np.uint64(1)).view(np.float64)),
        lambda: -float("nan"),
    ),
    sample("plain", lambda: 0j, lambda: -0j, lambda: complex(0, -0.0), lambda: 0.0),
    sample("plain", lambda: "ab" * 3, lambda: b"ab" * 3, lambda: Text("ab" * 3)),
    sample("plain", lambda: True, lambda: False, lambda: np.True_),
    sample("plain", lambda: None, lambda: ..., lambda: NotImplemented),
    sample("plain", lambda: np.float32(1), lambda: np.float16(1), lambda: np.float32(2)),
    sample("plain", lambda: dt.date(2026, 1, 2), lambda: dt.datetime(2026, 1, 2)),  # noqa: DTZ001
    sample("plain", lambda: dt.timedelta(1), lambda: dt.timedelta(2)),
    sample("plain", lambda: dt.timezone(dt.timedelta(0), "x"), lambda: UTC_TOO),
    sample("plain", lambda: decimal.Decimal("1.0"), lambda: decimal.Decimal("1.00")),
    sample("plain", lambda: fractions.Fraction(1, 2), lambda: fractions.Fraction(1, 3)),
    sample("plain", lambda: uuid.UUID(int=1), lambda: uuid.UUID(int=2)),
    sample(
        "plain",
        lambda: with_attributes(Count(3), unit=1),
        lambda: with_attributes(Count(3), unit=True),
        lambda: Count(3),
        lambda: 3,
    ),
    sample(
        "plain",
        lambda: with_attributes(Text("m"), unit=1),
        lambda: with_attributes(Text("m"), unit=1.0),
        lambda: Text("m"),
    ),
    sample(
        "time",
        lambda: WHEN.replace(),
        lambda: WHEN.replace(fold=1),
        lambda: WHEN.replace(tzinfo=UTC_TOO),
        lambda: WHEN.replace(tzinfo=None),
        lambda: WHEN.timetz(),
    ),
    sample("buffer", lambda: bytearray(b"a"), lambda: bytearray(b"b"), lambda: b"a"),
    sample(
        "buffer",
        lambda: array.array("b", [1]),
        lambda: array.array("B", [1]),
        lambda: array.array("b", [2]),
        lambda: array.array("b"),
    ),
    sample(
        "buffer",
        lambda: memoryview(b"ab"),
        lambda: memoryview(b"ab").cast("b"),
        lambda: memoryview(b"ab").cast("B", (1, 2)),
        lambda: memoryview(b"ac"),
    ),
    sample("void", lambda: record("f4", 1), lambda: record("f4", 2), lambda: record("i4", 1)),
    sample("range", lambda: range(1), lambda: range(2)),
    sample("slice", lambda: slice(0, 1), lambda: slice(0, True), lambda: slice(0, 1, 1)),
    sample("tuple", lambda: (1, "a"), lambda: (True, "a"), lambda: [1, "a"], lambda: (1, "a", 1)),
    sample("tuple", lambda: (1, (2,)), lambda: (1, (2.0,)), lambda: ((1, 2),)),
    sample("tuple", lambda: Pair(1, 2), lambda: Pair(1, 2.0), lambda: (1, 2)),
    sample(
        "tuple",
        lambda: with_attributes(Row((1,)), unit=1),
        lambda: with_attributes(Row((1,)), unit=True),
        lambda: Row((1,)),
    ),
    sample("list", lambda: [1, 2], lambda: [1, 2.0], lambda: [2, 1], lambda: Items([1, 2])),
    sample("list", lambda: with_attributes(Items([1]), unit=1), lambda: Items([1])),
    sample(
        "deque",
        lambda: collections.deque([1], 3),
        lambda: collections.deque([1], 4),
        lambda: collections.deque([True], 3),
    ),
    sample("set", lambda: {1, 2}, lambda: {True, 2}, lambda: frozenset({1, 2}), lambda: {1, 3}),
    sample("frozenset", lambda: frozenset({0j}), lambda: frozenset({-0j}), lambda: frozenset({0})),
    sample(
        "dict",
        lambda: {"a": 1, "b": 2},
        lambda: {"b": 2, "a": 1},
        lambda: {"a": 1, "b": True},
        lambda: {"a": 1, "c": 2},
        lambda: collections.OrderedDict(a=1, b=2),
    ),
    sample("dict", lambda: {1: "a"}, lambda: {True: "a"}, lambda: {1.0: "a"}),
    sample(
        "dict",
        lambda: collections.OrderedDict(a=1, b=2),
        lambda: collections.OrderedDict(b=2, a=1),
    ),
    sample(
        "dict",
        lambda: collections.defaultdict(list, a=1),
        lambda: collections.defaultdict(tuple, a=1),
        lambda: {"a": 1},
    ),
    sample("dict", lambda: collections.Counter("ab"), lambda: collections.Counter("abb")),
    sample("dict", lambda: with_attributes(Table(a=1), unit=1), lambda: Table(a=1)),
    sample(
        "mapping",
        lambda: lw.FrozenMapping(a=1, b=2),
        lambda: lw.FrozenMapping(b=2, a=1),
        lambda: lw.FrozenMapping(a=1, b=2.0),
    ),
    sample(
        "mapping",
        lambda: types.MappingProxyType({"a": 1}),
        lambda: types.MappingProxyType({"a": True}),
    ),
    sample("mapping", lambda: Box({"a": 1}), lambda: Box({"a": True}), lambda: Box({"a": 1}, "s")),
    sample(
        "partial",
        lambda: functools.partial(max, 1, key=abs),
        lambda: functools.partial(max, True, key=abs),
        lambda: functools.partial(min, 1, key=abs),
        lambda: functools.partial(max, 1, default=abs),
        lambda: with_attributes(functools.partial(max, 1, key=abs), unit=1),
        lambda: jax.tree_util.Partial(max, 1, key=abs),
    ),
    sample(
        "method",
        lambda: types.MethodType(max, (1,)),
        lambda: types.MethodType(max, (True,)),
        lambda: types.MethodType(min, (1,)),
    ),
    sample(
        "function",
        function,
        lambda: function(held=True),
        lambda: function(held=2.0),
        lambda: function(default=3.0),
        lambda: function(named=4.0),
        lambda: function(unit=1),
        other_function,
    ),
    sample(
        "function",
        lambda: dispatching(int=2),
        lambda: dispatching(int=True),
        lambda: dispatching(float=2),
        dispatching,
    ),
    sample("builtin", lambda: (1, 2).index, lambda: (1, True).index, lambda: (1, 2).count),
    sample("builtin", lambda: len, lambda: max),
    sample("cell", lambda: cell(1), lambda: cell(True), types.CellType),
    sample("wrapper", lambda: staticmethod(max), lambda: staticmethod(min)),
    sample("wrapper", lambda: property(max), lambda: property(min), lambda: property(None, max)),
    sample("getter", lambda: operator.itemgetter(1), lambda: operator.itemgetter(True)),
    sample(
        "getter",
        lambda: operator.methodcaller("sum", axis=1),
        lambda: operator.methodcaller("sum", axis=True),
    ),
    sample("reference", lambda: weakref.ref(ALIVE[0]), lambda: weakref.ref(ALIVE[1])),
    sample(
        "dtype",
        lambda: np.dtype(FIELDS),
        lambda: np.dtype(OTHER_FIELDS),
        lambda: np.dtype(FIELDS, align=True),
        lambda: np.dtype("f4"),
    ),
    sample(
        "dtype",
        lambda: np.dtype("f4", metadata={"unit": 1}),
        lambda: np.dtype("f4", metadata={"unit": True}),
    ),
    sample(
        "array",
        lambda: np.zeros(2, "f4"),
        lambda: -np.zeros(2, "f4"),
        lambda: np.zeros(2, "i4"),
        lambda: np.zeros((2, 1), "f4"),
        lambda: lw.StaticArray(np.zeros(2, "f4")),
    ),
    sample("array", lambda: object_array(1, "a"), lambda: object_array(True, "a")),
    sample(
        "array",
        lambda: lw.StaticArray([0.0]),
        lambda: lw.StaticArray([-0.0]),
        lambda: lw.StaticArray([0.0], np.dtype("f4", metadata={"unit": 1})),
    ),
    sample("jax.Array", lambda: jnp.zeros(2), lambda: -jnp.zeros(2), lambda: jnp.zeros(2, int)),
    sample("jax.Array", lambda: jax.random.key(0), lambda: jax.random.key(1)),
    sample("identity", lambda: Color.RED, lambda: Color.BLUE, lambda: 1),
    sample("identity", lambda: Plain, lambda: Pair),
    sample("identity", lambda: operator, lambda: functools),
    sample(
        "record",
        lambda: Config(1),
        lambda: Config(True),
        lambda: Config(1, scale=1),
        lambda: Wider(1),
    ),
    sample(
        "record",
        lambda: with_attributes(Wider(1), unit=1),
        lambda: with_attributes(Wider(1), unit=True),
        lambda: Wider(1),
    ),
    sample("record", lambda: TextRecord(1, "a"), lambda: TextRecord(1, "b"), lambda: TextRecord(2)),
    sample("record", lambda: Setting(1), lambda: Setting(True)),
    sample(
        "object",
        lambda: with_attributes(Plain(), rate=1, name="a"),
        lambda: with_attributes(Plain(), rate=True, name="a"),
        lambda: with_attributes(Plain(), rate=1),
    ),
    sample("object", lambda: Slotted(1), lambda: Slotted(True), lambda: Slotted(1, hidden=1)),
]
IDS = [f"{number}-{each.kind}" for number, each in enumerate(SAMPLES)]
