"""Values for static fields, of every kind that leafwise distinguishes."""

import dataclasses
import datetime as dt
import enum
import fractions
import functools
import math
import sys
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from leafwise._objects.frozen import FrozenMapping, StaticArray
from leafwise.testing.strategies._arrays import Strategy, arrays


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

PARTIALS: Final = (functools.partial(jnp.add, 1), functools.partial(jnp.sum, axis=0))
"""Functions with some arguments given."""

_PARTIAL: Final[Any] = jax.tree_util.Partial

TREE_PARTIALS: Final = (_PARTIAL(jnp.tanh), _PARTIAL(jnp.add, 1.0))
"""Partials that are nodes of a pytree."""


class Color(enum.Enum):
    """A member is not equal to its value."""

    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    """A member is equal to a whole number."""

    OFF = 0
    ON = 1


class Mode(enum.StrEnum):
    """A member is equal to text."""

    A = "a"
    B = "b"


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
_TEXTS: Final = ("", "a", "b", "1", b"", b"a")
_INSTANT: Final = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
_EAST: Final = dt.timezone(dt.timedelta(hours=1))
_OTHERS: Final[tuple[Any, ...]] = (
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
        st.sampled_from(_TEXTS),
        st.integers() | st.floats() | st.text("ab", max_size=3),
        st.sampled_from(_OTHERS),
        elements.map(StaticArray),
    )
    flat = _containers(leaves)
    deep = _containers(leaves | flat)
    # `one_of` takes the branches of what it is given, each once, and those of containers are
    # many: built, they are one, and plain values are met more often than containers.
    return st.one_of(leaves, *(st.builds(_itself, each) for each in (flat, flat, deep, deep)))


def _itself(value: Any) -> Any:
    return value


def _partial(part: Any) -> Any:
    return functools.partial(first, part, key=part)


def _containers(parts: Strategy) -> Strategy:
    few = st.lists(parts, max_size=3)
    made = [
        few.map(tuple),
        *(st.builds(kind, parts, parts) for kind in (Point, Size, Config)),
        few.map(frozenset),
        st.dictionaries(st.sampled_from(["a", "b", 1]), parts, max_size=2).map(FrozenMapping),
        st.builds(_partial, parts),  # mapped, each of the parts' branches would be one here
    ]
    if sys.version_info >= (3, 12):  # before, they have no hash
        made.append(st.builds(slice, parts, parts))
    return st.one_of(made)
