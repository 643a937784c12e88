"""Immutable equivalents of lists, dicts, sets and arrays, for static fields."""

from collections.abc import Callable, Iterator, Mapping, Set as AbstractSet
from typing import Any, TypeVar, cast

import jax
import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from leafwise.errors import Finding, TracerInStaticError, static_field_error

K = TypeVar("K")
V = TypeVar("V", covariant=True)


class FrozenMapping(Mapping[K, V]):
    """An immutable, hashable mapping that keeps insertion order.

    Equal to any mapping with equal items, in any order, as a dict is. As a static
    value it is stricter: another order is another key, since traced code sees it.

    Args:
        *args: As for `dict`.
        **kwargs: As for `dict`.

    Example:
        >>> FrozenMapping({"depth": 2})["depth"]
        2
    """

    __slots__ = ("__weakref__", "_hash", "_items")

    _items: dict[K, V]
    _hash: int | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Copy the items."""
        object.__setattr__(self, "_items", dict(*args, **kwargs))
        object.__setattr__(self, "_hash", None)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse."""
        msg = f"a FrozenMapping cannot be changed (setting {name!r})"
        raise AttributeError(msg)

    def __delattr__(self, name: str) -> None:
        """Refuse."""
        self.__setattr__(name, None)

    def __getitem__(self, key: K) -> V:
        """Return the value of `key`."""
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys in insertion order."""
        return iter(self._items)

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._items)

    def __or__(self, other: Mapping[K, Any]) -> "FrozenMapping[K, Any]":
        """Return a mapping with the items of both, `other`'s winning."""
        return FrozenMapping({**self, **other})

    def __hash__(self) -> int:
        """Return a hash that agrees with ``==``; a TypeError if a value has none."""
        if self._hash is None:
            object.__setattr__(self, "_hash", hash(frozenset(self._items.items())))
        return cast("int", self._hash)

    def __repr__(self) -> str:
        """Return code that makes this mapping."""
        return f"FrozenMapping({self._items!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by items: hashes differ between processes."""
        return FrozenMapping, (self._items,)

    def __copy__(self) -> "FrozenMapping[K, V]":
        """Return itself, as nothing can change it."""
        return self


class StaticArray(NDArrayOperatorsMixin):
    """A read-only numpy array that can be a static value.

    Two are equal, and one key, if dtype, shape and bytes are: NaN equals NaN of the
    same bits and ``0.0`` is not ``-0.0``. ``==`` and ``!=`` therefore answer with one
    bool; every other operator, indexing, and every numpy and jax.numpy function treat
    it as the array that it holds.

    Args:
        value: Anything that `numpy.asarray` takes, of any shape and of any dtype but
            object; copied.

    Raises:
        TracerInStaticError: `value` is traced, so it has no content yet.
        TypeError: The dtype holds Python objects.

    Example:
        >>> table = StaticArray([1.0, 2.0])
        >>> table.shape, table == StaticArray([1.0, 2.0])
        ((2,), True)
    """

    __slots__ = ("__weakref__", "_array", "_hash")

    _array: np.ndarray[Any, Any]
    _hash: int

    def __init__(self, value: Any) -> None:
        """Copy the content and hash it once."""
        if isinstance(value, jax.core.Tracer):
            raise static_field_error(
                [TracerInStaticError],
                [
                    Finding(
                        "StaticArray(value)",
                        f"{value!r}",
                        "a traced value has no content to keep",
                        "make the field dynamic, or build the array outside of jit",
                    )
                ],
            )
        if isinstance(value, StaticArray):
            value = value._array
        source = np.asarray(value)
        if source.dtype.hasobject:
            msg = f"StaticArray holds numbers, not Python objects: got dtype {source.dtype}"
            raise TypeError(msg)
        content = source.tobytes()
        # An array over immutable bytes: nobody can make it writeable again.
        array = np.frombuffer(content or bytes(1), np.uint8)[: len(content)]
        array = array.view(source.dtype) if content else np.empty(0, source.dtype)
        array = array.reshape(source.shape)
        array.flags.writeable = False
        object.__setattr__(self, "_array", array)
        object.__setattr__(
            self, "_hash", hash((repr(source.dtype), source.shape, content))
        )

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse."""
        msg = f"a StaticArray cannot be changed (setting {name!r})"
        raise AttributeError(msg)

    def __delattr__(self, name: str) -> None:
        """Refuse."""
        self.__setattr__(name, None)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Return the array that numpy works on: read-only unless copied."""
        if dtype is not None and dtype != self._array.dtype:
            return self._array.astype(dtype)
        return self._array.copy() if copy else self._array

    def __jax_array__(self) -> jax.Array:
        """Return the array that jax.numpy works on: a constant of the program."""
        return jax.numpy.asarray(self._array)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Apply a numpy function to the array, or leave it to a jax operand."""
        if any(isinstance(operand, jax.Array) for operand in inputs):
            jax_function = getattr(jax.numpy, ufunc.__name__, None)
            if method != "__call__" or jax_function is None:
                return NotImplemented
            operands = [
                operand.__jax_array__() if isinstance(operand, StaticArray) else operand
                for operand in inputs
            ]
            return jax_function(*operands, **kwargs)
        operands = [
            operand._array if isinstance(operand, StaticArray) else operand
            for operand in inputs
        ]
        return getattr(ufunc, method)(*operands, **kwargs)

    def __eq__(self, other: object) -> bool:  # type: ignore[override]  # one bool
        """Return whether dtype, shape and bytes are the same."""
        if self is other:
            return True
        if not isinstance(other, StaticArray):
            return NotImplemented
        return (
            self._hash == other._hash
            and self._array.shape == other._array.shape
            and repr(self._array.dtype) == repr(other._array.dtype)
            and self._array.tobytes() == other._array.tobytes()
        )

    def __ne__(self, other: object) -> bool:  # type: ignore[override]  # one bool
        """Return whether dtype, shape or bytes differ."""
        return not self == other

    def __hash__(self) -> int:
        """Return the hash of dtype, shape and bytes."""
        return self._hash

    def __getitem__(self, index: Any) -> Any:
        """Return an element or a read-only view."""
        return self._array[index]

    def __len__(self) -> int:
        """Return the length of the first axis."""
        return len(self._array)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the first axis."""
        return iter(self._array)

    def __float__(self) -> float:
        """Return the value of an array of one element."""
        return float(self._array.item())

    def __int__(self) -> int:
        """Return the value of an array of one element."""
        return int(self._array.item())

    def __bool__(self) -> bool:
        """Return the truth of an array of one element."""
        return bool(self._array)

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self._array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        return self._array.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._array.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._array.size

    @property
    def nbytes(self) -> int:
        """The size of the content in bytes."""
        return self._array.nbytes

    @property
    def T(self) -> np.ndarray[Any, Any]:  # noqa: N802  # numpy's name
        """A read-only view with the axes reversed."""
        return self._array.T

    def tolist(self) -> Any:
        """Return the content as nested lists of Python scalars."""
        return self._array.tolist()

    def __repr__(self) -> str:
        """Return a summary, with the values when they are few."""
        if self._array.size <= 8:  # noqa: PLR2004  # one line
            values = np.array2string(self._array, separator=", ").replace("\n", "")
            return f"StaticArray({values}, dtype={self._array.dtype})"
        shape = ",".join(map(str, self._array.shape))
        return f"StaticArray({self._array.dtype}[{shape}], hash={self._hash & 0xFFFFFFFF:08x})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by content: hashes differ between processes."""
        return StaticArray, (self._array,)

    def __copy__(self) -> "StaticArray":
        """Return itself, as nothing can change it."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "StaticArray":
        """Return itself, as nothing can change it."""
        return self


def freeze(value: Any) -> Any:
    """Return `value` with all that can change in place made immutable, at any depth.

    Lists become tuples, dicts and other mappings `FrozenMapping`, sets `frozenset`,
    bytearrays `bytes`, numpy and jax arrays `StaticArray`; tuples and namedtuples are
    rebuilt around frozen items. Anything else comes back as it is.

    Args:
        value: Any value.

    Returns:
        The immutable equivalent; `value` itself if nothing in it had to change.

    Raises:
        TracerInStaticError: An array inside is traced.
        ValueError: A container contains itself.

    Example:
        >>> freeze({"layers": [64, 64], "act": "relu"})
        FrozenMapping({'layers': (64, 64), 'act': 'relu'})
    """
    return _freeze(value, set())


def _freeze(value: Any, above: set[int]) -> Any:
    if isinstance(value, jax.Array | np.ndarray):
        return StaticArray(value)
    if isinstance(value, bytearray):
        return bytes(value)
    rebuild = _rebuilder(value)
    if rebuild is None:
        return value
    if id(value) in above:
        msg = f"cannot freeze a {type(value).__name__} that contains itself"
        raise ValueError(msg)
    above.add(id(value))
    try:
        return rebuild(lambda item: _freeze(item, above))
    finally:
        above.discard(id(value))


def _rebuilder(value: Any) -> Callable[[Callable[[Any], Any]], Any] | None:
    """Return how to rebuild a container around its frozen items, or None."""
    if isinstance(value, tuple):
        items = cast("tuple[Any, ...]", value)

        def rebuild_tuple(frozen: Callable[[Any], Any]) -> Any:
            made = [frozen(item) for item in items]
            if all(new is old for new, old in zip(made, items, strict=True)):
                return items
            make = getattr(type(items), "_make", tuple)
            return make(made)

        return rebuild_tuple
    if isinstance(value, list):
        return lambda frozen: tuple(frozen(item) for item in cast("list[Any]", value))
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value)

        def rebuild_mapping(frozen: Callable[[Any], Any]) -> Any:
            made = {key: frozen(item) for key, item in pairs.items()}
            same = all(made[key] is pairs[key] for key in made)
            return pairs if isinstance(pairs, FrozenMapping) and same else FrozenMapping(made)

        return rebuild_mapping
    if isinstance(value, AbstractSet):
        # The items of a set are hashable, which is all that a frozenset asks for.
        items_of_set = cast("AbstractSet[Any]", value)
        return lambda frozen: frozenset(frozen(item) for item in items_of_set)
    return None
