"""Static values of every kind that leafwise distinguishes, and trees of every kind of node."""

import collections
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

import leafwise as lw
from leafwise.testing.strategies import arrays

Strategy = st.SearchStrategy[Any]


def first(*arguments: Any, **_named: Any) -> Any:
    return arguments[0]


def last(*arguments: Any, **_named: Any) -> Any:
    return arguments[-1]


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
    """Return a strategy for values that a static field accepts: many equal ones of two types."""
    elements = arrays(st.sampled_from([(), (2,), (0, 2), (2, 0)]), numpy=True, special=True)
    leaves = st.one_of(
        st.sampled_from(_NAMED),
        # A float is another object each time, as a computation would make it.
        st.sampled_from(_NUMBERS).map(
            lambda number: float(str(number)) if type(number) is float else number
        ),
        st.sampled_from(_OTHERS),
        st.integers() | st.floats() | st.text("ab", max_size=3),
        elements.map(lw.StaticArray),
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
        st.dictionaries(st.sampled_from(["a", "b", 1]), parts, max_size=2).map(lw.FrozenMapping),
        parts.map(lambda part: functools.partial(first, part, key=part)),
    ]
    if sys.version_info >= (3, 12):  # before, they have no hash
        kinds.append(st.builds(slice, parts, parts))
    return draw(draw(st.sampled_from(kinds)))


class NamedNode(NamedTuple):
    """A node that is a namedtuple."""

    left: Any
    right: Any


@lw.pytree
class LeafwiseNode:
    """A node of leafwise."""

    left: Any
    right: Any
    tag: str = lw.static_field(default="a")


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["left", "right"], meta_fields=["tag"]
)
@dataclasses.dataclass
class RegisteredNode:
    """A node registered with JAX itself."""

    left: Any
    right: Any
    tag: str = "a"


_TAGS: Final = st.sampled_from(["a", "b"])
_NAMES: Final = st.sampled_from(["a", "b", "c"])


def pytrees(leaves: Strategy | None = None, *, max_leaves: int = 8) -> Strategy:
    """Return a strategy for trees of every kind of node."""
    if leaves is None:
        shapes = st.lists(st.integers(1, 3), max_size=2).map(tuple)
        halves = st.integers(-8, 8).map(lambda number: number / 2)
        scalars = st.integers(-10, 10) | halves | st.booleans()
        leaves = st.one_of(arrays(shapes), scalars, arrays(shapes, numpy=True))
    return st.recursive(leaves, _nodes, max_leaves=max_leaves)


def _nodes(children: Strategy) -> Strategy:
    few = st.lists(children, max_size=3)
    # Keys of one dict are of one type: JAX sorts them.
    named = st.dictionaries(_NAMES, children, max_size=3)
    numbered = st.dictionaries(st.integers(0, 9), children, max_size=2)
    return st.one_of(
        few,
        few.map(tuple),
        named | numbered,
        st.none(),
        st.builds(NamedNode, children, children),
        named.map(collections.OrderedDict),
        st.builds(LeafwiseNode, children, children, _TAGS),
        st.builds(RegisteredNode, children, children, _TAGS),
    )
