"""Strategies for other values in place of a leaf, a static or a container."""

import enum
import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from leafwise._objects.frozen import FrozenMapping, StaticArray
from leafwise._trees.equality import is_distinct
from leafwise.testing._format import is_key
from leafwise.testing.strategies._leaves import (
    is_default_dtype,
    is_numeric,
    other_dtype,
    other_shape,
    other_value,
    other_weak_type,
    put,
)
from leafwise.testing.strategies._statics import twins

Strategy = st.SearchStrategy[Any]

_FUNCTIONS: Final = (jnp.tanh, jnp.sin, jnp.cos)
_DTYPES: Final = ("int32", "float32", "float16", "int8", "uint8", "bool", "bfloat16", "complex64")
_LONGEST: Final = 3


def _made(make: Callable[[Any], Any], leaf: Any) -> Strategy:
    """Return a strategy for what is made of a leaf once it is drawn: few are, of many leaves."""
    return st.just(leaf).map(make)


def leaf_values(leaf: Any) -> Strategy | None:
    """Return a strategy for leaves of the same aval with other elements; None if there are none."""
    if not is_numeric(leaf) or not np.size(leaf):
        return None
    simplest = _made(other_value, leaf)
    if is_key(leaf) or getattr(leaf, "weak_type", False) or getattr(leaf, "committed", False):
        return simplest
    if isinstance(leaf, int | float) and not isinstance(leaf, bool | np.generic):
        return simplest | _numbers(type(leaf)).filter(lambda new: not _same(new, leaf))
    if not isinstance(leaf, jax.Array | np.ndarray) or leaf.dtype == bool:
        return simplest
    return simplest | st.integers(2, 9).map(functools.partial(_refilled, leaf)).filter(
        lambda new: not np.array_equal(np.asarray(new), np.asarray(leaf))
    )


def _refilled(leaf: Any, number: int) -> Any:
    elements = np.full(leaf.shape, number, leaf.dtype)
    return put(elements) if isinstance(leaf, jax.Array) else elements


def _numbers(kind: type) -> Strategy:
    if kind is float:  # with limits: without them those that do not fit end the whole example
        return st.floats(-1000, 1000, width=16)
    return st.integers(-9, 9)


def _same(one: Any, other: Any) -> bool:
    return is_distinct(one, other) is False


def leaf_shapes(leaf: Any) -> Strategy | None:
    """Return a strategy for leaves of other shapes."""
    if not is_numeric(leaf):
        return None
    simplest = _made(other_shape, leaf)
    if is_key(leaf) or getattr(leaf, "committed", False) or jax.typeof(leaf).weak_type:
        return simplest
    shape, dtype = jax.typeof(leaf).shape, jax.typeof(leaf).dtype
    shapes = st.lists(st.integers(0, _LONGEST), max_size=3).map(tuple)
    place: Any = put if isinstance(leaf, jax.Array) else np.asarray
    others = shapes.filter(lambda other: other != shape)
    return simplest | others.map(lambda other: place(np.ones(other, dtype)))


def leaf_dtypes(leaf: Any) -> Strategy | None:
    """Return a strategy for leaves of other dtypes, as weakly typed as this one."""
    if not is_numeric(leaf) or is_key(leaf):
        return None
    simplest, aval = _made(other_dtype, leaf), jax.typeof(leaf)
    if getattr(leaf, "committed", False) or aval.weak_type:
        return simplest
    names = [name for name in _DTYPES if jnp.dtype(name) != aval.dtype]
    dtypes = st.sampled_from(names).map(jnp.dtype)
    return simplest | dtypes.map(lambda dtype: put(np.ones(aval.shape, dtype)))


def leaf_weak_types(leaf: Any) -> Strategy | None:
    """Return a strategy for leaves that promote in the other way."""
    if not is_numeric(leaf) or is_key(leaf):
        return None
    aval = jax.typeof(leaf)
    has_twin = aval.weak_type or is_default_dtype(aval.dtype)
    return _made(other_weak_type, leaf) if has_twin else None


def leaf_kinds(leaf: Any) -> Strategy | None:
    """Return a strategy for leaves of the same aval whose data lies elsewhere."""
    if not is_numeric(leaf) or is_key(leaf) or getattr(leaf, "committed", False):
        return None
    if isinstance(leaf, jax.Array):
        if not leaf.weak_type:
            return _made(np.asarray, leaf)
        return st.just(leaf.item()) if leaf.ndim == 0 and leaf.dtype.kind in "ifc" else None
    with np.errstate(over="ignore"):
        made = jnp.asarray(leaf)
    return st.just(made) if jax.typeof(made) == jax.typeof(leaf) else None


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
    if not elements.size or elements.dtype.kind not in "iufcb":
        return st.just(StaticArray(np.ones(2, "int8")))
    zero, one = np.zeros_like(elements), np.ones_like(elements)
    return st.just(StaticArray(np.where(elements == 0, one, zero).astype(elements.dtype)))


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
