"""Strategies for arrays, and for other values without parts, by annotation."""

import ast
import builtins
import contextlib
import contextvars
import dataclasses
import functools
import math
import numbers
import operator
import pathlib
import types
import typing
from collections.abc import Callable, Generator
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from leafwise._objects.frozen import StaticArray
from leafwise._objects.interrupts import or_default
from leafwise.errors import CannotBuildError
from leafwise.testing.strategies._constructor import (
    FieldContext,
    entry_of,
    issubclass_of,
    origin_of,
    subclasses_of,
)

Strategy: TypeAlias = st.SearchStrategy[Any]

_LENGTHS: Final = st.integers(1, 4)
"""The length of an axis that an annotation does not give."""

_SEVERAL: Final = st.lists(st.integers(1, 3), max_size=2).map(tuple)
"""The axes of ``*name`` and of ``...``."""


class ImpossibleError(Exception):
    """The values drawn so far do not fit together; another attempt may succeed."""


@st.composite
def drawn_by(draw: st.DrawFn, make: Callable[[st.DrawFn], Any]) -> Any:
    """Draw the result of `make`; `st.composite` itself would read the source of each function."""
    return make(draw)


@dataclasses.dataclass
class Dims:
    """The lengths that ``name`` and ``*name`` stand for in the annotations of one instance."""

    lengths: dict[str, int] = dataclasses.field(default_factory=dict[str, int])
    shapes: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict[str, Any])
    alike: bool = False


_CURRENT: Final[contextvars.ContextVar[Dims | None]] = contextvars.ContextVar(
    "_CURRENT", default=None
)


@contextlib.contextmanager
def own_dims(*, alike: bool = False) -> Generator[Dims, None, None]:
    """Bind axis names to new lengths while one instance is drawn."""
    dims = Dims(alike=alike)
    token = _CURRENT.set(dims)
    try:
        yield dims
    finally:
        _CURRENT.reset(token)


def _name_of(axis: Any) -> str:
    """Return the name that has one length throughout an instance, or an empty text."""
    # `?name` may differ between leaves of a tree.
    return "" if getattr(axis, "treepath", False) else getattr(axis, "name", "")


@st.composite
def shapes_of(draw: st.DrawFn, annotation: Any) -> tuple[int, ...]:
    """Draw a shape that a jaxtyping annotation allows within the current instance."""
    dims = _CURRENT.get() or Dims(alike=True)
    shape: list[int] = []
    for place, axis in enumerate(annotation.dims):
        several = place == annotation.index_variadic
        shape += _several(draw, axis, dims) if several else [_one(draw, axis, dims)]
    return tuple(shape)


def _one(draw: st.DrawFn, axis: Any, dims: Dims) -> int:
    if getattr(axis, "broadcastable", False) and draw(st.booleans()):
        return 1
    if hasattr(axis, "size"):
        return int(axis.size)
    if hasattr(axis, "elem"):
        return _evaluate(draw, axis.elem, dims)
    name = _name_of(axis)
    return _named(draw, name, dims) if name else draw(_LENGTHS)


def _named(draw: st.DrawFn, name: str, dims: Dims) -> int:
    if name not in dims.lengths:
        dims.lengths[name] = 3 if dims.alike else draw(_LENGTHS)
    return dims.lengths[name]


def _several(draw: st.DrawFn, axis: Any, dims: Dims) -> tuple[int, ...]:
    name = _name_of(axis)
    if not name:
        return draw(_SEVERAL)
    if name not in dims.shapes:
        dims.shapes[name] = draw(_SEVERAL)
    return dims.shapes[name]


def _evaluate(draw: st.DrawFn, text: str, dims: Dims) -> int:
    """Evaluate ``dim + 1``, as jaxtyping does, but not ``{self.n}``, the value of another field."""
    try:
        for each in ast.walk(ast.parse(text)):
            if isinstance(each, ast.Name) and not hasattr(builtins, each.id):
                _named(draw, each.id, dims)
        length = int(eval(text, dict(dims.lengths)))  # noqa: S307  # from the class's annotation
    except (ArithmeticError, AttributeError, NameError, SyntaxError, TypeError) as error:
        raise ImpossibleError(
            f"the length of the axis {text!r} cannot be computed ({error})"
        ) from error
    if length < 0:
        raise ImpossibleError(f"the length of the axis {text!r} would be {length}")
    return length


def has_axes(annotation: Any) -> bool:
    is_shaped = isinstance(getattr(annotation, "dims", None), tuple)
    return is_shaped or any(map(has_axes, typing.get_args(annotation)))


def bind(dims: Dims, annotation: Any, value: Any) -> None:
    """Bind the axis names of an annotation to the lengths in a value."""
    for part in typing.get_args(annotation):
        bind(dims, part, value)
    if not isinstance(getattr(annotation, "dims", None), tuple):
        return
    axes, shape = list(annotation.dims), tuple(getattr(value, "shape", ()))
    place = annotation.index_variadic
    if place is not None:
        end = len(shape) - (len(axes) - place - 1)
        axis, several = axes.pop(place), shape[place:end]
        shape = shape[:place] + shape[end:]
        if _name_of(axis) and not axis.broadcastable:
            dims.shapes.setdefault(axis.name, several)
    for axis, length in zip(axes, shape, strict=False):
        if _name_of(axis) and not axis.broadcastable:
            dims.lengths.setdefault(axis.name, length)


_SHAPES: Final = hnp.array_shapes(min_dims=0, max_dims=3, min_side=1, max_side=3)
_DTYPES: Final = st.sampled_from([*["float32"] * 6, "int32", "bool"])
_FEW: Final = 64
"""The largest array whose elements may all differ."""


def arrays(
    shape: int | tuple[int, ...] | Strategy | None = None,
    dtype: Any = None,
    elements: Strategy | None = None,
    *,
    numpy: bool = False,
) -> Strategy:
    """Return a strategy for arrays that are fast to draw: most are filled with one value.

    Args:
        shape: The shape, or a strategy for shapes; None for zero to three axes of length
            one to three.
        dtype: The dtype, or a strategy for dtypes; None for mostly float32, sometimes int32
            or bool. The dtype of `jax.random.key` gives random keys.
        elements: A strategy for elements; None for small numbers that every dtype can
            represent.
        numpy: Whether to make NumPy arrays instead of JAX arrays.

    Returns:
        A strategy for `jax.Array`, or for `np.ndarray`; it shrinks to zeros of the smallest
        shape.

    Raises:
        TypeError: An argument has the wrong type, and is not a strategy.

    Examples:
        >>> from leafwise.testing import strategies as lst
        >>> weights = lst.arrays((3, 4))
        >>> batches = lst.arrays(st.tuples(st.integers(0, 5), st.just(8)), "bfloat16")
    """
    shapes = _SHAPES if shape is None else _shape_strategy(shape)
    dtypes = _DTYPES if dtype is None else dtype
    if not isinstance(dtypes, st.SearchStrategy):
        if not _is_key_dtype(dtypes):
            jnp.dtype(dtypes)  # raises if it is not a dtype
        dtypes = st.just(dtypes)
    strategy: Any = elements
    if strategy is not None and not isinstance(strategy, st.SearchStrategy):
        raise TypeError(
            f"arrays(elements=...) takes a strategy, got {elements!r}: write st.just(...)"
        )

    def draw_one(draw: st.DrawFn) -> Any:
        drawn = draw(dtypes)
        lengths = draw(shapes)
        lengths = (lengths,) if isinstance(lengths, int) else tuple(lengths)
        if _is_key_dtype(drawn):
            return draw(keys(lengths))
        array = draw(_numpy_arrays(lengths, jnp.dtype(drawn), elements))
        dtype = jax.dtypes.canonicalize_dtype(array.dtype)
        return array if numpy else jax.device_put(array.astype(dtype))

    return drawn_by(draw_one)


def _shape_strategy(shape: Any) -> Strategy:
    if isinstance(shape, st.SearchStrategy):
        return shape
    axes = (shape,) if isinstance(shape, int) else shape
    if isinstance(axes, tuple | list) and all(isinstance(n, int) and n >= 0 for n in axes):
        return st.just(tuple(axes))
    raise TypeError(
        f"arrays(shape=...) takes a tuple of lengths or a strategy for them, got {shape!r}"
    )


@or_default(default=False)  # it is not a dtype
def _is_key_dtype(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))


@functools.lru_cache(maxsize=500)  # making one is slower than drawing from it
def _numpy_arrays(shape: tuple[int, ...], dtype: Any, elements: Strategy | None) -> Strategy:
    """Return a strategy for numpy arrays, most of them filled with one number."""
    elements = _elements(dtype) if elements is None else elements
    drawn = dtype
    if type(dtype) not in vars(np.dtypes).values():  # from ml_dtypes, unknown to Hypothesis
        drawn = np.dtype("float64" if jnp.issubdtype(dtype, np.floating) else "int64")
    strategy = elements.map(lambda element: np.full(shape, element, drawn))
    if 1 < math.prod(shape) <= _FEW:
        strategy |= hnp.arrays(drawn, shape, elements=elements, fill=elements)
    return strategy if drawn == dtype else strategy.map(lambda array: array.astype(dtype))


def _elements(dtype: Any) -> Strategy:
    """Return a strategy for small numbers that a dtype represents exactly."""
    if dtype.kind == "b":
        return st.booleans()
    if jnp.issubdtype(dtype, np.integer):
        iinfo: Any = jnp.iinfo
        info = iinfo(dtype)
        return st.integers(max(-10, int(info.min)), min(10, int(info.max)))
    # The narrowest floats represent 1, 2, 3, 4 and their halves.
    floats: Strategy = st.integers(-8, 8).map(lambda number: number / 2)
    if dtype.itemsize == 1:
        floats = st.integers(-2, 2).map(float)
    if jnp.issubdtype(dtype, np.complexfloating):
        return st.builds(complex, floats, floats)
    return floats if jnp.issubdtype(dtype, np.floating) else hnp.from_dtype(dtype)


def keys(shape: tuple[int, ...] = ()) -> Strategy:
    """Return a strategy for random keys of the default implementation."""

    def make(seed: int) -> Any:
        first = jax.random.key(seed)
        if not shape:
            return first
        data = np.zeros((*shape, *jax.random.key_data(first).shape), np.uint32)
        data[..., -1] = seed + np.arange(math.prod(shape), dtype=np.uint32).reshape(shape)
        return jax.random.wrap_key_data(jnp.asarray(data), impl=jax.random.key_impl(first))

    return st.integers(0, 9).map(make)


@st.composite
def _shapes_of_plain_arrays(draw: st.DrawFn) -> tuple[int, ...]:
    """Draw a shape without an annotation; many classes accept arrays of one shape only."""
    dims = _CURRENT.get() or Dims(alike=True)
    if draw(st.booleans()):
        return draw(_SHAPES)
    if "" not in dims.shapes:
        dims.shapes[""] = (3,) if dims.alike else draw(_SHAPES)
    return dims.shapes[""]


def array_values(kind: Any) -> Strategy:
    """Return a strategy for arrays whose annotation has at most a dtype and a number of axes."""
    shape: Strategy = _shapes_of_plain_arrays()
    dtype: Any = None
    said = typing.get_args(kind)  # np.ndarray[shape, np.dtype[scalar]]
    if len(said) > 1:
        lengths = typing.get_args(said[0])
        if lengths and ... not in lengths:
            shape = st.tuples(*[st.integers(1, 3) for _ in lengths])
        scalars = typing.get_args(said[1])
        if scalars and isinstance(scalars[0], type):
            dtype = concrete_scalar(scalars[0])
    return arrays(shape, dtype, numpy=origin_of(kind) is np.ndarray)


_CONCRETE: Final[dict[Any, type]] = {
    **dict.fromkeys((np.generic, np.number, np.inexact, np.floating), np.float32),
    **dict.fromkeys((np.integer, np.signedinteger), np.int32),
}


def concrete_scalar(kind: type) -> type:
    """Return a concrete scalar type of numpy: float32 for ``np.floating``."""
    return _CONCRETE.get(kind, kind)


_USUAL: Final = ("float32", "int32", "bool", "uint32", "complex64")
_RARE: Final = ("int32", "bool", "bfloat16", "float16", "int8", "int16", "uint8")
_WIDE: Final = ("float64", "int64", "uint64", "complex128")


def jaxtyped_values(kind: Any, where: FieldContext) -> Strategy:
    """Return a strategy for ``Float[Array, "batch 3"]``, whose named axes have one length each."""
    numpy = getattr(kind, "array_type", None) is np.ndarray
    said = getattr(kind, "dtypes", None)
    listed = said if isinstance(said, tuple | list) else ()  # otherwise any dtype
    names = [each for each in listed if isinstance(each, str)] or ["float32", "int32", "bool"]
    if names == ["prng_key"]:
        return shapes_of(kind).flatmap(keys)
    has_wide = numpy or jax.config.jax_enable_x64
    usual = next((name for name in _USUAL if name in names), names[0])
    if usual in _WIDE and not has_wide:
        raise CannotBuildError(
            f"{where}: JAX has no {usual} unless 64-bit types are enabled\n"
            f"  fix: `jax.config.update('jax_enable_x64', True)`; or {where.fix()}"
        )
    rare = [name for name in _RARE + _WIDE * has_wide if name in names and name != usual]
    return arrays(shapes_of(kind), st.sampled_from([usual] * 6 + rare), numpy=numpy)


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
_OWN_DTYPES: Final = st.sampled_from([np.dtype("float32"), np.dtype("int32")])


def _dtypes(kind: Any) -> Strategy:
    scalars = [part for part in typing.get_args(kind) if isinstance(part, type)]
    return st.just(np.dtype(concrete_scalar(scalars[0]))) if scalars else _OWN_DTYPES


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
    **dict.fromkeys((jax.typing.DTypeLike, npt.DTypeLike), _OWN_DTYPES),
    _SPEC: _SPECS,
    jax.sharding.Mesh: st.builds(_mesh),
    jax.sharding.NamedSharding: st.builds(jax.sharding.NamedSharding, st.builds(_mesh), _SPECS),
    **dict.fromkeys((jax.sharding.Sharding, jax.sharding.SingleDeviceSharding), _SHARDINGS),
    jax.Device: _DEVICES,
    INITIALIZER: st.sampled_from([jax.nn.initializers.zeros, jax.nn.initializers.ones]),
    jax.ShapeDtypeStruct: st.builds(
        jax.ShapeDtypeStruct, st.lists(st.integers(1, 3), max_size=2).map(tuple), _OWN_DTYPES
    ),
    jax.tree_util.PyTreeDef: st.sampled_from([0, (0, 0)]).map(jax.tree_util.tree_structure),
}
