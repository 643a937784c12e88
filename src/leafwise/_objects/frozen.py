"""Immutable equivalents of lists, dicts, sets and arrays, for static fields."""

import operator
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, Self, TypeVar, cast, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from leafwise._objects.attributes import record_fields
from leafwise._objects.classes import is_a
from leafwise.errors import StaticFieldError, StaticFinding, StaticFix

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)


class FrozenMapping(Mapping[K, V_co]):
    """An immutable, hashable mapping that keeps insertion order.

    Equal to any mapping with equal items, in any order, like a dict. As a static value it is
    stricter: another order is another key, since traced code can observe it.

    Examples:
        >>> FrozenMapping({"depth": 2})["depth"]
        2
    """

    __slots__ = ("__weakref__", "_hash", "_items")

    _items: dict[K, V_co]
    _hash: int | None

    @overload
    def __new__(cls, items: Mapping[K, V_co], /) -> "FrozenMapping[K, V_co]": ...
    @overload
    def __new__(cls, items: Iterable[tuple[K, V_co]], /) -> "FrozenMapping[K, V_co]": ...
    @overload
    def __new__(cls, /, **kwargs: V_co) -> "FrozenMapping[str, V_co]": ...
    @overload
    def __new__(
        cls, items: Mapping[str, V_co], /, **kwargs: V_co
    ) -> "FrozenMapping[str, V_co]": ...
    def __new__(cls, /, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        object.__setattr__(self, "_items", dict(*args, **kwargs))
        object.__setattr__(self, "_hash", None)
        return self

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a FrozenMapping cannot be changed (setting {name!r})")

    def __getitem__(self, key: K) -> V_co:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __or__(self, other: Mapping[K, Any]) -> "FrozenMapping[K, Any]":
        """Return a mapping with the items of both; those of `other` take precedence."""
        return FrozenMapping({**self, **other})

    def __hash__(self) -> int:
        """Return a hash that agrees with ``==``; raise TypeError if a value is not hashable."""
        if self._hash is None:
            object.__setattr__(self, "_hash", hash(frozenset(self._items.items())))
        return cast("int", self._hash)

    def __repr__(self) -> str:
        return f"FrozenMapping({self._items!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by items: hashes differ between processes."""
        return FrozenMapping, (self._items,)


class StaticArray(np.ndarray[Any, Any]):
    """A read-only numpy array that can be a static value.

    Two are equal, and give the same key, if their dtype, shape and bytes are equal: NaN equals NaN
    with the same bits, and ``0.0`` differs from ``-0.0``. ``==`` and ``!=`` therefore return one
    bool, and an array of another class is never equal (`numpy.array_equal` compares elements).
    Everything else, including numpy and jax.numpy functions, treats it as an ordinary array;
    functions and operators return plain arrays.

    Examples:
        >>> table = StaticArray([1.0, 2.0])
        >>> table.shape, table == StaticArray([1.0, 2.0])
        ((2,), True)
    """

    __slots__ = ("_hash",)

    _hash: int

    def __new__(cls, value: Any, dtype: Any = None) -> Self:
        """Copy the content of an array.

        Args:
            value: Anything that `numpy.asarray` takes, of any shape and of any dtype but
                object.
            dtype: The dtype of the elements; by default that of `value`.

        Raises:
            StaticFieldError: `value` is traced, so it has no content yet.
            TypeError: The dtype is for Python objects or PRNG keys, or `value` has a mask.
        """
        if is_a(value, Tracer):
            fix = StaticFix("make the field dynamic, or build the array outside jit")
            reason = "a traced value has no content to keep"
            finding = StaticFinding("tracer", "StaticArray(value)", f"{value!r}", reason, (fix,))
            raise StaticFieldError(finding)
        if is_a(value, np.ma.MaskedArray):
            raise TypeError("StaticArray would lose the mask: pass value.filled(...)")
        source = np.asarray(value, dtype)
        if source.dtype.hasobject:
            raise TypeError(
                f"StaticArray holds numbers, not Python objects: got dtype {source.dtype}"
            )
        # Backed by immutable bytes, so that it can never be made writeable again.
        return super().__new__(cls, source.shape, source.dtype, buffer=source.tobytes())

    @property
    def is_sealed(self) -> bool:
        """Whether it cannot be written to, unlike copies that numpy makes with this class."""
        base: Any = self
        while isinstance(base, np.ndarray):  # views can be nested
            base = cast("Any", base).base
        return isinstance(base, bytes)

    def __setattr__(self, name: str, value: object) -> None:
        """Raise, also for shape and dtype, which can be assigned on other arrays."""
        raise AttributeError(f"a StaticArray cannot be changed (setting {name!r})")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Apply a ufunc to plain arrays; as ``out=``, this array is still read-only."""
        if "out" in kwargs:
            kwargs["out"] = tuple(map(_plain, kwargs["out"]))
        return getattr(ufunc, method)(*map(_plain, inputs), **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Apply a numpy function; instances of this class that it returns become plain."""
        return _plain(super().__array_function__(func, types, args, kwargs))

    def copy(self, order: Any = "C") -> Any:
        """Return a plain, writeable copy."""
        return _plain(self).copy(order)

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        """Return a plain copy of another dtype."""
        return _plain(self).astype(dtype, *args, **kwargs)

    def __getitem__(self, index: Any) -> Any:
        """Return an element or a read-only view, as a plain array."""
        if is_a(index, Tracer):
            return jnp.asarray(_plain(self))[index]
        return _plain(self)[_plain(index)]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            is_a(other, StaticArray)
            and self.shape == other.shape
            and repr(self.dtype) == repr(other.dtype)
            and self.tobytes() == other.tobytes()
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    # The base class is not hashable, so both type checkers object to this method.
    def __hash__(self) -> int:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the hash of dtype, shape and bytes, computed once."""
        try:
            return self._hash
        except AttributeError:
            hashed = hash((repr(self.dtype), self.shape, self.tobytes()))
        if self.is_sealed:
            object.__setattr__(self, "_hash", hashed)
        return hashed

    def __repr__(self) -> str:
        """Return a summary, with the values if there are few."""
        if self.size <= _FEW:
            values = np.array2string(_plain(self), separator=", ").replace("\n", "")
            return f"StaticArray({values}, dtype={str(self.dtype)!r})"
        shape = ",".join(map(str, self.shape))
        return f"StaticArray({self.dtype}[{shape}], hash={hash(self) & 0xFFFFFFFF:08x})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by content: hashes differ between processes."""
        return StaticArray, (np.array(_plain(self)),)

    def __copy__(self) -> "StaticArray":
        """Return itself, as nothing can change it."""
        return self

    def __deepcopy__(self, memo: dict[int, Any] | None) -> "StaticArray":
        return self


_FEW: Final = 8


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if is_a(value, StaticArray) else value


def freeze(value: Any) -> Any:
    """Return `value` with everything mutable in it made immutable, at any depth.

    Lists become tuples, dicts and other mappings `FrozenMapping`, sets `frozenset`, bytearrays
    `bytes`, numpy and jax arrays `StaticArray`; tuples and namedtuples are rebuilt with frozen
    items (other subclasses of tuple as tuples). Anything else is returned as it is, including a
    frozen dataclass or a hashable mapping.

    Args:
        value: Any value.

    Returns:
        The immutable equivalent; `value` itself if nothing in it had to change.

    Raises:
        StaticFieldError: An array inside is traced.
        RecursionError: A container contains itself, or is nested too deeply.

    Examples:
        >>> freeze({"layers": [64, 64], "act": "relu"})
        FrozenMapping({'layers': (64, 64), 'act': 'relu'})
    """
    return _freeze(value, StaticArray)


def freeze_but_tracers(value: Any) -> Any:
    """Return `freeze(value)` with tracers left in: the field's validation reports them."""

    def freeze_array(array: Any) -> Any:
        return array if is_a(array, Tracer) else StaticArray(array)

    return _freeze(value, freeze_array)


def _freeze(value: Any, freeze_array: Callable[[Any], Any]) -> Any:
    if is_a(value, jax.Array | np.ndarray):
        sealed = is_a(value, StaticArray) and value.is_sealed
        return value if sealed else freeze_array(value)
    if is_a(value, bytearray):
        return bytes(value)
    if record_fields(type(value)) is not None:  # a frozen class that derives from a container
        return value
    if is_a(value, list | tuple):
        items = [_freeze(item, freeze_array) for item in value]
        if is_a(value, tuple) and all(map(operator.is_, items, value)):
            return value
        return getattr(type(value), "_make", tuple)(items)
    if is_a(value, Mapping):
        frozen = {key: _freeze(item, freeze_array) for key, item in value.items()}
        same = all(frozen[key] is value[key] for key in frozen)
        has_hash = type(value).__hash__ is not None
        is_frozen = has_hash and not is_a(value, types.MappingProxyType)  # only a view
        return value if is_frozen and same else FrozenMapping(frozen)
    if is_a(value, AbstractSet) and not is_a(value, frozenset):
        # The items of a set are hashable, as a frozenset requires.
        return frozenset(_freeze(item, freeze_array) for item in value)
    return value
