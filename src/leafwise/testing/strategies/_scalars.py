"""Strategies for values without parts: numbers, text, members of enums, objects of JAX."""

import enum
import pathlib
import typing
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import jax
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from leafwise._objects.frozen import StaticArray
from leafwise.testing.strategies._arrays import (
    Strategy,
    alike,
    array_values,
    arrays,
    concrete_scalar,
    jaxtyped_values,
)
from leafwise.testing.strategies._constructor import FieldContext

Ask: TypeAlias = Callable[[Any, FieldContext], Strategy]
"""Returns the strategy of a part."""

Rule: TypeAlias = tuple[Callable[[Any], bool], Callable[[Any, FieldContext, Ask], Strategy]]
"""Tells whether an annotation is meant, and makes its strategy."""


def origin_of(kind: Any) -> Any:
    """Return `list` for ``list[int]``, and anything else as it is."""
    return typing.get_origin(kind) or kind


def issubclass_of(kind: Any, *bases: type) -> bool:
    """Return whether an annotation names a subclass of one of these."""
    return isinstance(origin_of(kind), type) and issubclass(origin_of(kind), bases)


def is_exactly(base: Any) -> Callable[[Any], bool]:
    """Return a test for one annotation."""
    return lambda kind: kind is base


def is_origin(*bases: Any) -> Callable[[Any], bool]:
    """Return a test for annotations with or without parts: ``list``, ``list[int]``."""
    return lambda kind: origin_of(kind) in bases


def is_subclass(*bases: type) -> Callable[[Any], bool]:
    """Return a test for subclasses."""
    return lambda kind: issubclass_of(kind, *bases)


def constant(strategy: Strategy) -> Callable[[Any, FieldContext, Ask], Strategy]:
    """Return what makes the same strategy for every annotation."""
    return lambda _kind, _where, _ask: strategy


def _integers(_kind: Any, where: FieldContext, _ask: Ask) -> Strategy:
    if not where.varied:
        return st.integers(0, 100)
    return _COUNTS if where.counts else st.integers(0, 5) | st.integers(-100, 100)


_COUNTS: Final = st.sampled_from((1, 2, 3, 0, 4, 5))


def _numpy_scalars(kind: Any, where: FieldContext, _ask: Ask) -> Strategy:
    scalar: Any = concrete_scalar(origin_of(kind))
    if not where.varied and scalar is origin_of(kind):
        return st.from_type(kind)
    if issubclass(scalar, np.bool_):
        return st.booleans().map(scalar)
    if issubclass(scalar, np.number):
        return st.integers(0, 10).map(scalar)
    return st.from_type(kind)


def _members(kind: Any, _where: FieldContext, _ask: Ask) -> Strategy:
    members: list[Any] = list(kind)
    return st.sampled_from(members) if members else st.nothing()


def _complex(_kind: Any, where: FieldContext, _ask: Ask) -> Strategy:
    if not where.varied:
        return st.complex_numbers(max_magnitude=10, width=64)
    return st.builds(complex, _FLOATS, _FLOATS)


_FLOATS: Final = st.floats(-10, 10, width=16)
_SMALL: Final = st.integers(-5, 5)


def _device() -> Any:
    return jax.devices()[0]


def _mesh() -> Any:
    return jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))


_SPEC: Final[Any] = jax.sharding.PartitionSpec
_SPECS: Final = st.sampled_from([_SPEC(), _SPEC(None), _SPEC("x"), _SPEC(None, "x")])
_STRUCTS: Final = st.builds(
    jax.ShapeDtypeStruct,
    st.lists(st.integers(1, 3), max_size=2).map(tuple),
    st.sampled_from([np.dtype("float32"), np.dtype("int32")]),
)
_STRUCTURES: Final = st.sampled_from([0, (), (0, 0), {"a": 0}, None]).map(
    jax.tree_util.tree_structure
)

_OF_JAX: Final[dict[Any, Strategy]] = {
    jax.sharding.PartitionSpec: _SPECS,
    jax.sharding.Mesh: st.builds(_mesh),
    jax.sharding.NamedSharding: st.builds(jax.sharding.NamedSharding, st.builds(_mesh), _SPECS),
    jax.sharding.Sharding: st.builds(lambda: jax.sharding.SingleDeviceSharding(jax.devices()[0])),
    jax.sharding.SingleDeviceSharding: st.builds(
        lambda: jax.sharding.SingleDeviceSharding(jax.devices()[0])
    ),
    jax.Device: st.builds(_device),
    jax.ShapeDtypeStruct: _STRUCTS,
    jax.tree_util.PyTreeDef: _STRUCTURES,
}

_DTYPE_LIKE: Final = (jax.typing.DTypeLike, npt.DTypeLike)
_DTYPES: Final = st.sampled_from([np.dtype("float32"), np.dtype("int32")])


def _dtypes(kind: Any, where: FieldContext, _ask: Ask) -> Strategy:
    said = [part for part in typing.get_args(kind) if isinstance(part, type)]
    if where.varied and issubclass_of(kind, np.dtype) and said:
        return st.just(np.dtype(concrete_scalar(said[0])))
    return _DTYPES


def _paths(kind: Any, _where: FieldContext, _ask: Ask) -> Strategy:
    return st.sampled_from(["a", "b/c", "/d"]).map(kind)


RULES: Final[tuple[Rule, ...]] = (
    (is_exactly(bool), constant(st.booleans())),
    (is_exactly(int), _integers),
    (is_exactly(float), constant(_FLOATS)),
    (is_exactly(complex), _complex),
    (is_exactly(str), constant(st.text("abc", min_size=1, max_size=3))),
    (is_exactly(typing.LiteralString), constant(st.text("abc", min_size=1, max_size=3))),
    (is_exactly(range), constant(st.builds(range, st.integers(0, 5), st.integers(0, 5)))),
    (is_exactly(slice), constant(st.builds(slice, *[st.none() | _SMALL] * 2))),
    (is_exactly(np.random.Generator), constant(st.integers(0, 9).map(np.random.default_rng))),
    (is_exactly(bytes), constant(st.binary(max_size=3))),
    (is_exactly(type(None)), constant(st.none())),
    (is_exactly(None), constant(st.none())),
    (lambda kind: hasattr(kind, "array_type"), lambda kind, at, _: jaxtyped_values(kind, at)),
    (
        is_exactly(StaticArray),
        lambda _kind, at, _ask: (arrays(numpy=True) if at.varied else alike()).map(StaticArray),
    ),
    (is_subclass(jax.Array, np.ndarray), lambda kind, at, _: array_values(kind, at)),
    (is_subclass(enum.Enum), _members),
    (is_subclass(np.dtype), _dtypes),
    (is_subclass(np.generic), _numpy_scalars),
    (is_subclass(pathlib.PurePath), _paths),
    (
        lambda kind: isinstance(kind, type) and kind in _OF_JAX,
        lambda kind, _at, _ask: _OF_JAX[kind],
    ),
    (is_origin(Literal), lambda kind, _at, _ask: st.sampled_from(typing.get_args(kind))),
    (lambda kind: any(kind == like for like in _DTYPE_LIKE), _dtypes),
)
"""Later rules are asked only if no earlier one means the annotation."""
