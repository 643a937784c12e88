"""Values without parts, and static values of every kind that leafwise distinguishes."""

import dataclasses
import datetime as dt
import enum
import fractions
import functools
import math
import numbers
import operator
import pathlib
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from leafwise._objects.frozen import FrozenMapping, StaticArray
from leafwise.testing.strategies._arrays import (
    Strategy,
    array_values,
    arrays,
    concrete_scalar,
    jaxtyped_values,
)
from leafwise.testing.strategies._constructor import (
    FieldContext,
    entry_of,
    issubclass_of,
    origin_of,
)


def nothing() -> float:
    return 0.0


def one() -> float:
    return 1.0


def first(*arguments: Any, **_named: Any) -> Any:
    return arguments[0]


def last(*arguments: Any, **_named: Any) -> Any:
    return arguments[-1]


FUNCTIONS: Final = (jnp.tanh, jnp.sin, jnp.cos)
"""Functions of one argument."""

BY_ARITY: Final[dict[int, tuple[Any, ...]]] = {0: (nothing, one), 1: FUNCTIONS}
"""Functions by the number of their arguments."""

OF_MANY: Final = (first, last)
"""Functions of any number of arguments, at least one."""

_PARTIAL: Final[Any] = jax.tree_util.Partial


# ------------------------------------------------------------------------ by annotation


def plain_values(kind: Any, where: FieldContext) -> Strategy | None:
    """Return a strategy for values without parts; None if those of Hypothesis will do."""
    if hasattr(kind, "array_type"):
        return jaxtyped_values(kind, where)
    if kind in (int, numbers.Integral):
        return _SIZES if where.counts else st.integers(0, 5) | st.integers(-100, 100)
    make = next((make for base, make in _BY_BASE if issubclass_of(kind, base)), None)
    return make(kind) if make else entry_of(_KNOWN, kind)


_SIZES: Final = st.sampled_from((1, 2, 3, 0, 1, 2, 1, 2, 1, 2, 4, 5))
"""Seldom others than 1 and 2: an initializer is compiled for each shape."""
INITIALIZER: Final[Any] = jax.nn.initializers.Initializer
_FLOATS: Final = st.floats(-10, 10, width=16)
_DTYPES: Final = st.sampled_from([np.dtype("float32"), np.dtype("int32")])


def _dtypes(kind: Any) -> Strategy:
    scalars = [part for part in typing.get_args(kind) if isinstance(part, type)]
    return st.just(np.dtype(concrete_scalar(scalars[0]))) if scalars else _DTYPES


def _numpy_scalars(kind: Any) -> Strategy:
    scalar: Any = concrete_scalar(origin_of(kind))
    is_number = issubclass(scalar, np.number | np.bool_)
    return st.integers(0, 10).map(scalar) if is_number else st.from_type(scalar)


_BY_BASE: Final[tuple[tuple[type, Callable[[Any], Strategy | None]], ...]] = (
    (StaticArray, lambda _: arrays(numpy=True).map(StaticArray)),
    (jax.Array, array_values),
    (np.ndarray, array_values),
    (np.dtype, _dtypes),
    (np.generic, _numpy_scalars),
    (pathlib.PurePath, lambda kind: st.sampled_from(["a", "b/c", "/d"]).map(kind)),
    (_PARTIAL, lambda _: st.sampled_from([_PARTIAL(jnp.tanh), _PARTIAL(jnp.add, 1.0)])),
    (functools.partial, lambda _: st.just(functools.partial(jnp.add, 1))),
    (types.FunctionType, lambda _: st.sampled_from(OF_MANY)),
)


def _mesh() -> Any:
    return jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))


_SPEC: Final[Any] = jax.sharding.PartitionSpec
_SPECS: Final = st.sampled_from([_SPEC(), _SPEC(None), _SPEC("x"), _SPEC(None, "x")])
_DEVICES: Final[Strategy] = st.builds(jax.devices).map(operator.itemgetter(0))
_SHARDINGS: Final = _DEVICES.map(jax.sharding.SingleDeviceSharding)

_KNOWN: Final[dict[Any, Strategy]] = {
    None: st.none(),
    **dict.fromkeys((float, numbers.Real, numbers.Number), _FLOATS),
    complex: st.builds(complex, _FLOATS, _FLOATS),
    str: st.text("abc", min_size=1, max_size=3),
    **dict.fromkeys((jax.typing.DTypeLike, npt.DTypeLike), _DTYPES),
    _SPEC: _SPECS,
    jax.sharding.Mesh: st.builds(_mesh),
    jax.sharding.NamedSharding: st.builds(jax.sharding.NamedSharding, st.builds(_mesh), _SPECS),
    **dict.fromkeys((jax.sharding.Sharding, jax.sharding.SingleDeviceSharding), _SHARDINGS),
    jax.Device: _DEVICES,
    INITIALIZER: st.sampled_from([jax.nn.initializers.zeros, jax.nn.initializers.ones]),
    jax.ShapeDtypeStruct: st.builds(
        jax.ShapeDtypeStruct, st.lists(st.integers(1, 3), max_size=2).map(tuple), _DTYPES
    ),
    jax.tree_util.PyTreeDef: st.sampled_from([0, (0, 0)]).map(jax.tree_util.tree_structure),
}
"""Strategies by annotation."""


# ------------------------------------------------------------------- made to be confused


# A member of the first is not equal to its value.
Color = enum.Enum("Color", ["RED", "BLUE"])
Level = enum.IntEnum("Level", {"OFF": 0, "ON": 1})
Mode = enum.StrEnum("Mode", {"A": "a", "B": "b"})


class Point(NamedTuple):
    """Equal to a tuple, and to a `Size`."""

    x: Any
    y: Any


class Size(NamedTuple):
    """Equal to a tuple, and to a `Point`."""

    x: Any
    y: Any


@dataclasses.dataclass(frozen=True)
class Config:
    """A frozen dataclass that does not compare its note: equal ones may differ."""

    value: Any
    note: Any = dataclasses.field(default=None, compare=False)


_NUMBERS: Final[tuple[Any, ...]] = (
    *(0, 1, 2, -1, 2**31, 2**64),
    *(False, True),
    *(0.0, 1.0, -0.0, 0.5, math.nan, math.inf, -math.inf),
    *(0j, 1 + 0j, complex(0.0, -0.0)),
    *(np.int32(1), np.int64(1), np.float32(1), np.float64(1), np.float32("nan"), np.bool_(1)),
)
_NAMED: Final[tuple[Any, ...]] = (
    *(None, ...),
    *(*Color, *Level, *Mode),
    *(int, bool, float, np.float32, jnp.float32, Config, Point),
    *(np.dtype("float32"), np.dtype("int32"), jnp.dtype("bfloat16")),
    *(first, last, math.sin, jnp.sin, jnp.tanh),
)
_INSTANT: Final = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
_EAST: Final = dt.timezone(dt.timedelta(hours=1))
_OTHERS: Final[tuple[Any, ...]] = (
    *("", "a", "b", "1", b"", b"a"),
    *(range(0), range(3), range(0, 3, 2), range(0, 4, 2)),
    *(fractions.Fraction(1), fractions.Fraction(1, 2)),
    *(_INSTANT, _INSTANT.astimezone(_EAST), _INSTANT.date(), dt.timedelta(1)),
)


def static_values() -> Strategy:
    """Return a strategy for values that a static field accepts, made to be confused.

    They are numbers (1, True, 1.0, 1+0j and numpy's ones; NaN, the two zeros, infinities),
    text and bytes, None and ``...``, members of enums that are equal to their values and of
    one that is not, types, dtypes, named functions, ranges, fractions, dates, and tuples,
    frozensets, `FrozenMapping`, namedtuples of two classes, frozen dataclasses with a field
    that is not compared, partials, `StaticArray`, and, since Python 3.12, slices of these.
    Many are equal (``==``) and of another type, or equal with another repr; each is hashable.

    Returns:
        A strategy for the values; ``None`` is the simplest.

    Examples:
        >>> from hypothesis import given
        >>> from leafwise.testing import strategies as lst
        >>> @given(lst.static_values())
        ... def test(value):
        ...     hash(value)
        >>> test()
    """
    elements = arrays(st.sampled_from([(), (2,), (0, 2), (2, 0)]), numpy=True, special=True)
    leaves = st.one_of(
        st.sampled_from(_NAMED),
        # A float is another object each time, as a computation would make it.
        st.sampled_from(_NUMBERS).map(
            lambda number: float(str(number)) if type(number) is float else number
        ),
        st.sampled_from(_OTHERS),
        st.integers() | st.floats() | st.text("ab", max_size=3),
        elements.map(StaticArray),
    )
    flat = _containers(leaves)
    return leaves | flat | _containers(leaves | flat)


@st.composite
def _containers(draw: st.DrawFn, parts: Strategy) -> Any:
    """Draw a container; mapped, each branch of its parts would be met as often as a leaf."""
    few = st.lists(parts, max_size=3)
    kinds = [
        few.map(tuple),
        *(st.builds(kind, parts, parts) for kind in (Point, Size, Config)),
        few.map(frozenset),
        st.dictionaries(st.sampled_from(["a", "b", 1]), parts, max_size=2).map(FrozenMapping),
        parts.map(lambda part: functools.partial(first, part, key=part)),
    ]
    if sys.version_info >= (3, 12):  # before, they have no hash
        kinds.append(st.builds(slice, parts, parts))
    return draw(draw(st.sampled_from(kinds)))
