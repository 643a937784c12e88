"""Strategies for values without parts, by annotation."""

import functools
import numbers
import operator
import pathlib
import types
import typing
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
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
from leafwise.testing.strategies._constructor import (
    FieldContext,
    entry_of,
    issubclass_of,
    origin_of,
    subclasses_of,
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

OF_MANY: Final = (first, last)
"""Functions of one or more arguments."""

_PARTIAL: Final[Any] = jax.tree_util.Partial


def plain_values(kind: Any, where: FieldContext) -> Strategy | None:
    """Return a strategy for values without parts; None to use that of Hypothesis."""
    if hasattr(kind, "array_type"):
        return jaxtyped_values(kind, where)
    if kind in (int, numbers.Integral):
        return _SIZES if where.counts else st.integers(0, 5) | st.integers(-100, 100)
    make = next((make for base, make in _BY_BASE if issubclass_of(kind, base)), None)
    return make(kind) if make else entry_of(_KNOWN, kind)


class AnyNamedTuple(typing.NamedTuple):
    """Drawn for the annotation ``NamedTuple``, with which blackjax means any named tuple."""

    first: jax.Array
    second: jax.Array


def classes(kind: Any) -> Strategy:
    """Return a strategy for classes: the base in the annotation, and its subclasses."""
    base = origin_of((*typing.get_args(kind), object)[0])
    if not isinstance(base, type) or base.__module__ == "builtins":  # `int` has too many
        return st.sampled_from([np.float32, np.int32])
    return st.sampled_from([base, *subclasses_of(base)])


def functions(kind: Any) -> Strategy:
    """Return a strategy for functions with as many arguments as the annotation says."""
    arguments, result = typing.get_args(kind) or (..., Any)
    if not isinstance(arguments, list):
        return st.sampled_from(FUNCTIONS)
    taken: list[Any] = arguments
    if len(taken) in BY_ARITY:
        return st.sampled_from(BY_ARITY[len(taken)])
    # A hook that takes an object and its value may be called for that value: if it returned the
    # object, or converted it to an array, it would be called recursively without end.
    both = zip(OF_MANY, (taken[0], taken[-1]), strict=True)
    return st.sampled_from([each for each, part in both if part == result] or OF_MANY)


_SIZES: Final = st.sampled_from((1, 2, 3, 0, 1, 2, 1, 2, 1, 2, 4, 5))
"""Rarely other lengths than 1 and 2, since an initializer is compiled for each shape."""
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
