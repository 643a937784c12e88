"""Strategies for values without parts that Hypothesis draws otherwise than JAX takes them."""

import numbers
import operator
import pathlib
import typing
from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from leafwise._objects.frozen import StaticArray
from leafwise.testing.strategies._arrays import (
    Strategy,
    array_values,
    arrays,
    concrete_scalar,
    jaxtyped_values,
)
from leafwise.testing.strategies._constructor import FieldContext
from leafwise.testing.strategies._objects import entry_of, origin_of


def plain_values(kind: Any, where: FieldContext) -> Strategy | None:
    """Return a strategy for values without parts; None if those of Hypothesis will do.

    Its numbers overflow or are not finite, its texts are of any character, its ranges and
    slices go into the millions; it has one path, and does not know JAX.
    """
    if hasattr(kind, "array_type"):
        return jaxtyped_values(kind, where)
    if kind in (int, numbers.Integral):
        return _COUNTS if where.counts else st.integers(0, 5) | st.integers(-100, 100)
    known: Strategy | None = entry_of(_KNOWN, kind)
    cls = origin_of(kind)
    if known is None and isinstance(cls, type):
        make = next((make for base, make in _BY_BASE if issubclass(cls, base)), None)
        return make and make(kind, where)
    return known


_COUNTS: Final = st.sampled_from((1, 2, 3, 0, 4, 5))
FLOATS: Final = st.floats(-10, 10, width=16)
_SMALL: Final = st.integers(-5, 5)
_DTYPES: Final = st.sampled_from([np.dtype("float32"), np.dtype("int32")])


def _dtypes(kind: Any, _where: FieldContext) -> Strategy:
    scalars = [part for part in typing.get_args(kind) if isinstance(part, type)]
    return st.just(np.dtype(concrete_scalar(scalars[0]))) if scalars else _DTYPES


def _numpy_scalars(kind: Any, _where: FieldContext) -> Strategy:
    scalar: Any = concrete_scalar(origin_of(kind))
    if issubclass(scalar, np.bool_):
        return st.booleans().map(scalar)
    return st.integers(0, 10).map(scalar) if issubclass(scalar, np.number) else st.from_type(scalar)


_BY_BASE: Final[tuple[tuple[Any, Callable[[Any, FieldContext], Strategy]], ...]] = (
    (StaticArray, lambda _kind, _where: arrays(numpy=True).map(StaticArray)),
    ((jax.Array, np.ndarray), array_values),
    (np.dtype, _dtypes),
    (np.generic, _numpy_scalars),
    (pathlib.PurePath, lambda kind, _where: st.sampled_from(["a", "b/c", "/d"]).map(kind)),
)


def _mesh() -> Any:
    return jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))


_SPEC: Final[Any] = jax.sharding.PartitionSpec
_SPECS: Final = st.sampled_from([_SPEC(), _SPEC(None), _SPEC("x"), _SPEC(None, "x")])
_DEVICES: Final[Strategy] = st.builds(jax.devices).map(operator.itemgetter(0))
_SHARDINGS: Final = _DEVICES.map(jax.sharding.SingleDeviceSharding)

_KNOWN: Final[dict[Any, Strategy]] = {
    None: st.none(),
    **dict.fromkeys((float, numbers.Real), FLOATS),
    **dict.fromkeys((complex, numbers.Complex, numbers.Number), st.builds(complex, FLOATS, FLOATS)),
    **dict.fromkeys((str, typing.LiteralString), st.text("abc", min_size=1, max_size=3)),
    range: st.builds(range, st.integers(0, 5), st.integers(0, 5)),
    slice: st.builds(slice, *[st.none() | _SMALL] * 2),
    np.random.Generator: st.integers(0, 9).map(np.random.default_rng),
    **dict.fromkeys((jax.typing.DTypeLike, npt.DTypeLike), _DTYPES),
    jax.sharding.PartitionSpec: _SPECS,
    jax.sharding.Mesh: st.builds(_mesh),
    jax.sharding.NamedSharding: st.builds(jax.sharding.NamedSharding, st.builds(_mesh), _SPECS),
    **dict.fromkeys((jax.sharding.Sharding, jax.sharding.SingleDeviceSharding), _SHARDINGS),
    jax.Device: _DEVICES,
    jax.ShapeDtypeStruct: st.builds(
        jax.ShapeDtypeStruct, st.lists(st.integers(1, 3), max_size=2).map(tuple), _DTYPES
    ),
    jax.tree_util.PyTreeDef: st.sampled_from([0, (), (0, 0), {"a": 0}, None]).map(
        jax.tree_util.tree_structure
    ),
}
"""Strategies by annotation."""
