"""Static values of every accepted kind.

A value is drawn as a recipe: nested tuples of a kind and its parts. `build` makes a value
from one, afresh at each call, so that copies share no object that could be compared by
identity.
"""

# ruff: noqa: F401  # the code of values uses them
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
from collections.abc import Callable
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

    def method(self) -> None: ...


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

    def method(self) -> None: ...


class Identity:
    """An object that compares by identity."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return _identity, (self.name,)

    def method(self) -> None: ...


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
VALUES = (  # as code
    *("None", "...", "True", "False", "int", "bool", "np.float32", "jnp.float32", "jnp.bfloat16"),
    *("Config", "math", "types", "function_a", "function_b", "math.sin", "np.sin", "jnp.sin"),
    *("Color.RED", "Level.LOW", "Flag.A", "Flag.A | Flag.B", "datetime.UTC", "IDENTITIES['a']"),
    *("IDENTITIES['b']", "IDENTITIES['a'].method", "IDENTITIES['b'].method"),
    # What is easily taken for another value.
    *("-0.0", "0.0", "float('nan')", "-float('nan')", "np.float32('nan')", "np.float32(-0.0)"),
    *("struct.unpack('d', struct.pack('Q', 0x7FF8000000000001))[0]", "complex(0.0, -0.0)"),
    *("np.datetime64('NaT', 's')", "range(0, 4, 2)", "range(0, 3, 2)", "datetime.date(2026, 1, 1)"),
    *("datetime.datetime(2026, 1, 1, fold=1)", "datetime.datetime(2026, 1, 1)"),
    *("lw.StaticArray([float('nan'), -0.0])", "lw.StaticArray(np.zeros((0, 2)))"),
    "lw.StaticArray(np.zeros((2, 0)))",
)
NUMBERS = (  # as code with a number `n`
    *("int(n)", "bool(n)", "float(n)", "complex(n)", "np.float16(n)", "np.float32(n)"),
    *("np.float64(n)", "ml_dtypes.bfloat16(n)", "np.int8(n)", "np.int64(n)", "np.uint8(abs(n))"),
    *("np.bool_(n)", "str(n)", "np.str_(n)", "str(n).encode()", "fractions.Fraction(n)"),
    # Not whole: `Decimal(1) == np.int64(1)` raises, and sets compare their members.
    *("decimal.Decimal(f'{n}.5')", "decimal.Decimal(f'{n}.50')"),
    *("datetime.timedelta(seconds=n)", "np.timedelta64(n, 's')", "np.timedelta64(n, 'ms')"),
    *("instant(n, 0)", "instant(n, 1)", "datetime.timezone(datetime.timedelta(hours=n))"),
    *("uuid.UUID(int=abs(n))", "range(0, n, 2)", "lw.StaticArray([n])"),
    *("lw.StaticArray(np.float32(n))", "np.dtype(('<f4', '>f4', '<i4', 'u1', 'M8[s]')[n])"),
    *("Own(abs(n), n)", "Own(abs(n), n).method"),
)


def instant(number: int, hours: int) -> datetime.datetime:
    zone = datetime.timezone(datetime.timedelta(hours=hours))
    return datetime.datetime(2026, 1, 1, 12, number % 60, tzinfo=datetime.UTC).astimezone(zone)


def _with_state(value: Any, state: Any) -> Any:
    value.state = state
    return value


BUILDERS: dict[str, tuple[int, Callable[..., Any]]] = {  # of so many parts, or at most so many
    "tuple": (3, lambda *parts: parts),
    "pair": (2, lambda *parts: Pair(parts)),
    "frozenset": (3, lambda *parts: frozenset(parts)),
    "mapping": (4, lambda *parts: lw.FrozenMapping(zip(parts[::2], parts[1::2], strict=False))),
    "point": (2, Point),
    "size": (2, Size),
    "config": (2, Config),
    "slotted": (2, Slotted),
    "leafless": (1, Leafless),
    "partial": (2, lambda a, b: functools.partial(function_a, a, k=b)),
    "partial-config": (1, lambda a: functools.partial(Config, note=a)),
    "attribute-partial": (2, lambda a, b: _with_state(functools.partial(function_a, a), b)),
    "kept": (2, Kept),
    "wider": (2, Wider),
    "dtype-of-field": (1, lambda a: np.dtype([("f", np.dtype("f4", metadata={"unit": a}))])),
    "slice": (2, slice),
    "method": (1, lambda a: Config(a).method),
    "text": (1, lambda a: _with_state(Text("t"), a)),
    "whole": (1, lambda a: _with_state(Whole(1), a)),
    "real": (1, lambda a: _with_state(Real(1.0), a)),
}
FREE = ("tuple", "pair", "frozenset", "mapping")
"""The containers that take any number of parts."""


def build(recipe: Recipe) -> Any:
    """Make a value; every call makes a new one, where that means anything."""
    name, *parts = recipe
    if name == "value":
        return eval(parts[0], globals())  # noqa: S307  # one of `VALUES`
    if name == "number":
        return eval(parts[0], globals() | {"n": parts[1]})  # noqa: S307  # one of `NUMBERS`
    return BUILDERS[name][1](*map(build, parts))


def spots(recipe: Recipe) -> list[tuple[int, ...]]:
    """Return the paths of all recipes inside a recipe, itself first."""
    found: list[tuple[int, ...]] = [()]
    for index, part in enumerate(recipe):
        if isinstance(part, tuple):
            found += [(index, *rest) for rest in spots(part)]
    return found


def at(recipe: Recipe, spot: tuple[int, ...]) -> Recipe:
    return at(recipe[spot[0]], spot[1:]) if spot else recipe


def put(recipe: Recipe, spot: tuple[int, ...], new: Recipe) -> Recipe:
    if not spot:
        return new
    index = spot[0]
    return (*recipe[:index], put(recipe[index], spot[1:], new), *recipe[index + 1 :])


def all_leaves() -> list[Recipe]:
    """Return the recipe of every leaf but the largest numbers."""
    counted = [("number", code, number) for code in NUMBERS for number in SMALL]
    return [*(("value", code) for code in VALUES), *counted]


SMALL = (0, 1, 2, -1, -2)
leaves: st.SearchStrategy[Recipe] = st.one_of(
    st.tuples(st.just("number"), st.sampled_from(NUMBERS), st.sampled_from(SMALL)),
    st.tuples(st.just("number"), st.sampled_from(["int(n)", "float(n)", "str(n)"]), st.integers()),
    st.tuples(st.just("value"), st.sampled_from(VALUES)),
)


def _grow(parts: st.SearchStrategy[Recipe], *, hashable: bool) -> st.SearchStrategy[Recipe]:
    kinds: list[st.SearchStrategy[Recipe]] = []
    for kind, (number, _) in BUILDERS.items():
        if hashable and kind == "slice":  # no hash before Python 3.12
            continue
        if kind in FREE:
            many = st.lists(parts, max_size=number)
            kinds.append(many.map(lambda items, kind=kind: (kind, *items)))
        else:
            kinds.append(st.tuples(st.just(kind), *[parts] * number))
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
        others = st.tuples(st.just("number"), st.sampled_from(NUMBERS), st.just(parts[1]))
        changes += [others, others] if parts[1] in SMALL else []
    if kind in BUILDERS and kind != "slice":
        twins = [k for k, (n, _) in BUILDERS.items() if k in FREE or n == len(parts)]
        twins.remove("slice") if "slice" in twins else None
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
