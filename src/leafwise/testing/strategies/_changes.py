"""Strategies for other values in place of a static or a container."""

import enum
import functools
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from leafwise._objects.frozen import FrozenMapping, StaticArray
from leafwise._trees.equality import is_distinct
from leafwise.testing.strategies._leaves import is_numeric, other_dtype, other_shape, other_value

Strategy = st.SearchStrategy[Any]

_FUNCTIONS: Final = (jnp.tanh, jnp.sin, jnp.cos)


def other_containers(value: Any) -> Strategy | None:
    """Return a strategy for trees of another structure than a leaf or container."""
    kind = type(value)
    if value is None:
        return st.sampled_from([1.0, ()])
    if kind is list or kind is tuple:
        turned = tuple(value) if kind is list else list(value)
        return st.sampled_from([turned, value[:-1] if value else kind([1.0]), kind([*value, 1.0])])
    if kind is dict:
        longer = {**value, _new_name(value): 1.0}
        shorter = dict(list(value.items())[:-1]) if value else longer
        return st.sampled_from([longer, shorter])
    return st.sampled_from([None, (value,)]) if is_numeric(value) else None


def _new_name(value: Any) -> Any:
    if all(isinstance(key, str) for key in value):
        return next(name for name in ("extra", "extra_", "extra__") if name not in value)
    numbers = [key for key in value if isinstance(key, int)]
    return max(numbers) + 1 if len(numbers) == len(value) else next(iter(value))


class StrSubclass(str):
    """Text that is equal to a str, and not one."""

    __slots__ = ()
    __repr__ = str.__repr__


class TupleSubclass(tuple[Any, ...]):
    """Items that are equal to a tuple, and not one."""

    __slots__ = ()


def twins(value: Any) -> Iterator[Any]:
    """Yield values that are equal (``==``) to `value` and of another type."""
    for convert in _conversions(value):
        try:
            twin = convert(value)
        except (OverflowError, ValueError):  # no such number
            continue
        if type(twin) is not type(value) and twin == value:
            yield twin


def _conversions(value: Any) -> list[Callable[[Any], Any]]:
    if isinstance(value, enum.Enum):
        return [lambda member: member.value] if isinstance(value, int | str) else []
    if isinstance(value, bool):
        return [int]
    if isinstance(value, int):
        return [float, np.int64]
    if isinstance(value, float):
        return [int, np.float64, float]
    if type(value) is str:
        return [StrSubclass]
    return [TupleSubclass] if type(value) is tuple else []


def static_types(value: Any) -> Strategy | None:
    """Return a strategy for statics that are equal and of another type."""
    found = list(twins(value))
    return st.sampled_from(found) if found else None


def static_values(value: Any) -> Strategy | None:
    """Return a strategy for other statics, as a rule of the same type; None if none are known."""
    made = _static_values(value)
    return None if made is None else made.filter(lambda new: is_distinct(value, new) is not False)


def _static_values(value: Any) -> Strategy | None:
    kind = type(value)
    if kind in _BY_TYPE:
        return _BY_TYPE[kind](value)
    return next((make(value) for test, make in _RULES if test(value)), None)


def _from(*candidates: Any) -> Callable[[Any], Strategy | None]:
    return lambda _value: st.sampled_from(candidates)


def _tuples(value: tuple[Any, ...]) -> Strategy:
    turned = [value[::-1]] if is_distinct(value, value[::-1]) else []
    shorter = [value[:-1]] if value else []
    return st.sampled_from([(*value, "extra"), *shorter, *turned])


def _members(value: enum.Enum) -> Strategy | None:
    others = [member for member in type(value) if member is not value]
    return st.sampled_from(others) if others else None


def _floats(value: float) -> Strategy:
    bits = struct.pack("d", value)
    finite = st.floats(-1000, 1000, width=16)
    simple = st.sampled_from([0.0, 1.0, 0.5, -0.0])
    return (simple | finite | st.just(float("nan"))).filter(
        lambda new: struct.pack("d", new) != bits
    )


def _mappings(value: Any) -> Strategy:
    shorter = dict(list(value.items())[:-1])
    return st.sampled_from([{**value, _new_name(value): 1}, shorter]).map(FrozenMapping)


def _sets(value: frozenset[Any]) -> Strategy:
    return st.sampled_from([value | {"extra"}, frozenset(list(value)[1:])])


def _arrays(value: StaticArray) -> Strategy:
    elements = np.asarray(value)
    is_full = elements.size and elements.dtype.kind in "iufcb"
    return st.just(StaticArray(other_value(elements) if is_full else np.ones(2, "int8")))


def _raw_arrays(value: Any) -> Strategy | None:
    """Return a strategy for arrays that no static should be, and that some libraries take."""
    if not is_numeric(value):
        return None
    elements = np.asarray(value)
    changed = [other_value(value), other_shape(value), other_dtype(value), elements[None]]
    if elements.dtype in _SAME_BYTES:
        changed.append(elements.view(_SAME_BYTES[elements.dtype]))
    make: Any = np.asarray if isinstance(value, np.ndarray) else jnp.asarray
    return st.sampled_from([make(each) for each in changed if each is not None])


_SAME_BYTES: Final = {
    np.dtype(one): np.dtype(other)
    for one, other in (("f4", "i4"), ("i4", "f4"), ("i2", "f2"), ("f2", "i2"), ("?", "u1"))
}
"""Dtypes that the same bytes can be read as."""


def _scalars(value: np.generic) -> Strategy | None:
    other = other_value(value) if is_numeric(value) else None
    return None if other is None else st.just(other)


_BY_TYPE: Final[dict[type, Callable[[Any], Strategy | None]]] = {
    bool: lambda value: st.just(not value),
    int: lambda _value: st.integers(0, 9) | st.integers(-99, 99),
    float: _floats,
    complex: _from(0j, 1j, 1 + 0j),
    str: lambda value: st.sampled_from(["", "other", f"{value}s", value.upper()]),
    bytes: lambda value: st.sampled_from([b"", b"other", value + b"s"]),
    type(None): _from(0, "other", ()),
    tuple: _tuples,
    frozenset: _sets,
    FrozenMapping: _mappings,
    range: lambda value: st.just(range(value.start, value.stop + value.step, value.step)),
    StaticArray: _arrays,
}
_RULES: Final[Sequence[tuple[Callable[[Any], bool], Callable[[Any], Strategy | None]]]] = (
    (lambda value: isinstance(value, enum.Enum), _members),
    (lambda value: isinstance(value, np.dtype), _from(*map(jnp.dtype, ("int32", "float32")))),
    (lambda value: isinstance(value, np.generic), _scalars),
    (lambda value: isinstance(value, np.ndarray | jax.Array), _raw_arrays),
    (lambda value: isinstance(value, type), _from(np.float32, np.int32, int)),
    # A named tuple, a dataclass or a partial: changes are made inside it.
    (lambda value: hasattr(type(value), "_fields"), lambda _value: None),
    (lambda value: isinstance(value, functools.partial), lambda _value: st.just(_FUNCTIONS[0])),
    (callable, _from(*_FUNCTIONS)),
)
