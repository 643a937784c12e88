"""Static values of every accepted kind.

A value is drawn as a recipe: nested tuples of a kind and its parts. `build` makes a value
from one, afresh at each call, so that copies share no object that could be compared by
identity.
"""

import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import math
import struct
import sys
import types
import uuid
from collections import namedtuple
from typing import Any, TypeAlias

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from hypothesis import strategies as st

import leafwise as lw

Recipe: TypeAlias = tuple[Any, ...]


@lw.pytree
class Params:
    """The class whose treedefs are compared."""

    x: Any
    s: Any = lw.static_field()


@lw.pytree(many_statics=True)
class Many(Params):
    """The same class, whose treedefs have a node by the statics' digest."""


@lw.pytree
class Leafless:
    """An instance without leaves is a static value like any other."""

    s: Any = lw.static_field()
    child: Any = None


@dataclasses.dataclass(frozen=True)
class Config:
    a: Any
    note: Any = dataclasses.field(default=None, compare=False)

    def method(self) -> None:
        """Have a method to bind."""


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    a: Any
    note: Any = None


@dataclasses.dataclass(frozen=True)
class Kept:
    """A record that keeps more than its fields."""

    a: Any
    given: dataclasses.InitVar[Any] = None

    def __post_init__(self, given: Any) -> None:
        object.__setattr__(self, "given", given)


class Wider(Config):
    """A plain subclass of a record, with an attribute of its own."""

    def __init__(self, a: Any, more: Any) -> None:
        super().__init__(a)
        object.__setattr__(self, "more", more)


Point = namedtuple("Point", ["a", "b"])  # noqa: PYI024
Size = namedtuple("Size", ["a", "b"])  # noqa: PYI024


class Own:
    """An object that compares by its own ``==``, and more loosely than by all it holds."""

    def __init__(self, value: Any, comment: Any = None) -> None:
        self.value = value
        self.comment = comment

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"Own({self.value!r})"

    def method(self) -> None:
        """Have a method to bind."""


class Identity:
    """An object that compares by identity."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return _identity, (self.name,)

    def method(self) -> None:
        """Have a method to bind."""


def _identity(name: str) -> Identity:
    return IDENTITIES[name]


class Text(str):
    state: Any = None


class Whole(int):
    state: Any = None


class Real(float):
    __slots__ = ("state",)


class Pair(tuple):
    pass


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Flag(enum.IntFlag):
    A = 1
    B = 2


def function_a() -> None: ...


def function_b() -> None: ...


IDENTITIES = {name: Identity(name) for name in "ab"}
NAMED: dict[str, Any] = {
    "none": None,
    "ellipsis": ...,
    "true": True,
    "false": False,
    "int": int,
    "bool": bool,
    "np.float32": np.float32,
    "jnp.float32": jnp.float32,
    "bfloat16": jnp.bfloat16,
    "Config": Config,
    "math": math,
    "types": types,
    "function_a": function_a,
    "function_b": function_b,
    "sin": math.sin,
    "np.sin": np.sin,
    "jnp.sin": jnp.sin,
    "red": Color.RED,
    "low": Level.LOW,
    "flag": Flag.A,
    "flags": Flag.A | Flag.B,
    "utc": datetime.UTC,
    **IDENTITIES,
}
NUMBERS: dict[str, Any] = {
    "int": int,
    "bool": bool,
    "float": float,
    "complex": complex,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "bf16": ml_dtypes.bfloat16,
    "i8": np.int8,
    "i64": np.int64,
    "u8": lambda number: np.uint8(abs(int(number))),
    "np.bool": np.bool_,
    "str": str,
    "np.str": lambda number: np.str_(number),
    "bytes": lambda number: str(number).encode(),
    # Not whole: `Decimal(1) == np.int64(1)` raises, and sets compare their members.
    "decimal": lambda number: decimal.Decimal(f"{number}.5"),
    "decimal2": lambda number: decimal.Decimal(f"{number}.50"),
    "fraction": fractions.Fraction,
    "timedelta": lambda number: datetime.timedelta(seconds=number),
    "td64": lambda number: np.timedelta64(number, "s"),
    "td64ms": lambda number: np.timedelta64(number, "ms"),
    "instant0": lambda number: _instant(number, 0),
    "instant1": lambda number: _instant(number, 1),
    "zone": lambda number: datetime.timezone(datetime.timedelta(hours=number)),
    "uuid": lambda number: uuid.UUID(int=abs(number)),
    "range": lambda number: range(0, number, 2),
    "array": lambda number: lw.StaticArray([number]),
    "array32": lambda number: lw.StaticArray(np.float32(number)),
    "dtype": lambda number: np.dtype(("<f4", ">f4", "<i4", "u1", "M8[s]")[number]),
    "own": lambda number: Own(abs(number), number),
    "own-method": lambda number: Own(abs(number), number).method,
}
TRICKY: dict[str, Any] = {
    "-0.0": lambda: -0.0,
    "0.0": lambda: 0.0,
    "nan": lambda: float("nan"),
    "-nan": lambda: -float("nan"),
    "nan1": lambda: struct.unpack("d", struct.pack("Q", 0x7FF8000000000001))[0],
    "np-nan": lambda: np.float32("nan"),
    "np-0.0": lambda: np.float32(-0.0),
    "complex-0.0": lambda: complex(0.0, -0.0),
    "nat": lambda: np.datetime64("NaT", "s"),
    "range4": lambda: range(0, 4, 2),
    "range3": lambda: range(0, 3, 2),
    "fold": lambda: datetime.datetime(2026, 1, 1, fold=1),  # noqa: DTZ001
    "no-fold": lambda: datetime.datetime(2026, 1, 1),  # noqa: DTZ001
    "date": lambda: datetime.date(2026, 1, 1),
    "array-nan": lambda: lw.StaticArray([float("nan"), -0.0]),
    "array-0": lambda: lw.StaticArray(np.zeros((0, 2))),
    "array-20": lambda: lw.StaticArray(np.zeros((2, 0))),
}


def _instant(number: int, hours: int) -> datetime.datetime:
    zone = datetime.timezone(datetime.timedelta(hours=hours))
    return datetime.datetime(2026, 1, 1, 12, number % 60, tzinfo=datetime.UTC).astimezone(zone)


def _with_state(value: Any, state: Any) -> Any:
    value.state = state
    return value


BUILDERS: dict[str, Any] = {
    "tuple": lambda *parts: tuple(parts),
    "pair": lambda *parts: Pair(parts),
    "frozenset": lambda *parts: frozenset(parts),
    "mapping": lambda *parts: lw.FrozenMapping(dict(zip(parts[::2], parts[1::2], strict=False))),
    "point": lambda a, b: Point(a, b),
    "size": lambda a, b: Size(a, b),
    "config": lambda a, b: Config(a, b),
    "slotted": lambda a, b: Slotted(a, b),
    "leafless": lambda a: Leafless(a),
    "partial": lambda a, b: functools.partial(function_a, a, k=b),
    "partial-config": lambda a: functools.partial(Config, note=a),
    "attribute-partial": lambda a, b: _with_state(functools.partial(function_a, a), b),
    "kept": lambda a, b: Kept(a, b),
    "wider": lambda a, b: Wider(a, b),
    "dtype-of-field": lambda a: np.dtype([("f", np.dtype("f4", metadata={"unit": a}))]),
    "slice": lambda a, b: slice(a, b),
    "method": lambda a: Config(a).method,
    "text": lambda a: _with_state(Text("t"), a),
    "whole": lambda a: _with_state(Whole(1), a),
    "real": lambda a: _with_state(Real(1.0), a),
}
ARITY = {"tuple": 3, "pair": 2, "frozenset": 3, "mapping": 4} | dict.fromkeys(
    (
        *("point", "size", "config", "slotted", "partial", "slice", "attribute-partial", "kept"),
        "wider",
    ),
    2,
)
FREE = ("tuple", "pair", "frozenset", "mapping")
"""The containers that take any number of parts."""


def build(recipe: Recipe) -> Any:
    """Make a value; every call makes a new one, where that means anything."""
    kind, *parts = recipe
    if kind == "named":
        return NAMED[parts[0]]
    if kind == "number":
        return NUMBERS[parts[0]](parts[1])
    if kind == "tricky":
        return TRICKY[parts[0]]()
    if kind == "identity-method":
        return IDENTITIES[parts[0]].method
    return BUILDERS[kind](*[build(part) for part in parts])


def spots(recipe: Recipe) -> list[tuple[int, ...]]:
    """Return the paths of all recipes inside a recipe, itself first."""
    found: list[tuple[int, ...]] = [()]
    for index, part in enumerate(recipe):
        if isinstance(part, tuple):
            found += [(index, *rest) for rest in spots(part)]
    return found


def at(recipe: Recipe, spot: tuple[int, ...]) -> Recipe:
    """Return the recipe at a path."""
    return at(recipe[spot[0]], spot[1:]) if spot else recipe


def put(recipe: Recipe, spot: tuple[int, ...], new: Recipe) -> Recipe:
    """Return a recipe with another one at a path."""
    if not spot:
        return new
    index = spot[0]
    return (*recipe[:index], put(recipe[index], spot[1:], new), *recipe[index + 1 :])


def all_leaves() -> list[Recipe]:
    """Return the recipe of every leaf but the largest numbers."""
    named = [("named", name) for name in NAMED]
    tricky = [("tricky", name) for name in TRICKY]
    counted = [("number", kind, number) for kind in NUMBERS for number in SMALL]
    return [*named, *tricky, *counted, ("identity-method", "a"), ("identity-method", "b")]


SMALL = (0, 1, 2, -1, -2)
numbers = st.tuples(st.just("number"), st.sampled_from(sorted(NUMBERS)), st.sampled_from(SMALL))
leaves: st.SearchStrategy[Recipe] = st.one_of(
    numbers,
    st.tuples(st.just("number"), st.sampled_from(["int", "float", "str"]), st.integers()),
    st.tuples(st.just("named"), st.sampled_from(sorted(NAMED))),
    st.tuples(st.just("tricky"), st.sampled_from(sorted(TRICKY))),
    st.tuples(st.just("identity-method"), st.sampled_from("ab")),
)


def _grow(parts: st.SearchStrategy[Recipe], *, hashable: bool) -> st.SearchStrategy[Recipe]:
    kinds: list[st.SearchStrategy[Recipe]] = []
    for kind in BUILDERS:
        if hashable and kind == "slice":  # no hash before Python 3.12
            continue
        if kind in FREE:
            many = st.lists(parts, max_size=ARITY[kind])
            kinds.append(many.map(lambda items, kind=kind: (kind, *items)))
        else:
            kinds.append(st.tuples(st.just(kind), *[parts] * ARITY.get(kind, 1)))
    return st.one_of(kinds)


hashables = st.recursive(leaves, functools.partial(_grow, hashable=True), max_leaves=8)
recipes = st.one_of(
    hashables,
    st.builds(lambda a, b, c: ("tuple", c, ("slice", a, b)), hashables, hashables, hashables),
)
values = recipes.map(build)


@st.composite
def edits(draw: st.DrawFn) -> tuple[Recipe, Recipe]:
    """Draw a recipe, and the recipe with one place changed."""
    recipe = draw(recipes)
    spot = draw(st.sampled_from(spots(recipe)))
    old = at(recipe, spot)
    kind, *parts = old
    changes: list[st.SearchStrategy[Recipe]] = [leaves, st.just(("tuple", old))]
    if kind == "number":
        others = st.tuples(st.just("number"), st.sampled_from(sorted(NUMBERS)), st.just(parts[1]))
        changes += [others, others] if parts[1] in SMALL else []
    if kind in BUILDERS and kind != "slice":
        twins = [
            k for k in BUILDERS if k != "slice" and (k in FREE or ARITY.get(k, 1) == len(parts))
        ]
        changes.append(st.sampled_from(twins).map(lambda twin: (twin, *parts)))
        changes.append(st.just((kind, *reversed(parts))))
    if kind in FREE and parts:
        changes.append(st.just((kind, *parts[:-1])))
        changes.append(st.just((kind, *parts, parts[-1])))
        inner, *innermost = parts[0]
        if inner in FREE:
            changes.append(st.just((kind, (inner, *innermost, *parts[1:]))))
            changes.append(st.just((kind, *innermost, *parts[1:])))
    changed = st.one_of(changes).map(functools.partial(put, recipe, spot))
    return recipe, draw(changed.filter(_hashes_no_slice))


def _hashes_no_slice(recipe: Recipe) -> bool:
    """Whether every slice stands in plain tuples, where slices have no hash."""
    kind, *parts = recipe
    if sys.version_info >= (3, 12) or kind in {"tuple", "slice"}:
        return all(_hashes_no_slice(part) for part in parts if isinstance(part, tuple))
    return all(at(recipe, spot)[0] != "slice" for spot in spots(recipe))
