"""What a captured value is made of, so that a later look can tell whether it changed.

Nothing large is kept alive: of an array, a function or an object there is a weak reference, of
what can change in place the content, up to a size. What a value says of itself through ``==``
is not asked.
"""

import operator
import struct
import weakref
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

MOST_BYTES: Final = 1 << 10
"""A NumPy array, or a text, of more bytes than these is large."""

MOST_ITEMS: Final = 32
"""A container of more items than these is large."""

MOST_PARTS: Final = 64
"""A value with more parts than these, all the way down, is large."""

_MOST_COMPARED: Final = 1 << 26
"""Two JAX arrays of more bytes than these are different ones unless they are one object."""

_MOST_BY_FORCE: Final = 100_000
"""The parts of a large value that are looked at where large ones are."""

Same: TypeAlias = Callable[[Any], bool]


class Seen(NamedTuple):
    """A value as it was looked at.

    Attributes:
        form: Equal for values that cannot be told apart.
        same: Quickly says of a value whether it is this one, unchanged; None if being the same
            object is enough, and the object is small.
        hidden: Why changes of it cannot be seen; empty if they can.
    """

    form: Any
    same: Same | None = None
    hidden: str = ""


class Large(Exception):  # noqa: N818  # a signal between two functions of this module
    """A value has too many parts to be looked at."""


class Look:
    """One look at a value, and at what is inside of it.

    Args:
        kinds: What looks at a value of which types.
        large: Whether to look into large values, too.
        holds: Whether a function's closure is a part of it.
    """

    def __init__(self, kinds: "Kinds", *, large: bool, holds: bool) -> None:
        """Start at nothing."""
        self._kinds = kinds
        self.large = large
        self.holds = holds
        self._parts = 0
        self._above: dict[int, int] = {}

    def see(self, value: Any) -> Seen:
        """Look at a value, or at a part of it."""
        self._parts += 1
        if self._parts > (_MOST_BY_FORCE if self.large else MOST_PARTS):
            raise Large
        kind: Any = type(value)
        if kind in PLAIN:
            return self._plain(value)
        number = self._above.get(id(value))
        if number is not None:  # it contains itself
            return Seen(("again", number), is_it(value))
        self._above[id(value)] = len(self._above)
        try:
            look = next(look for kinds, look in self._kinds if isinstance(value, kinds))
            return look(self, value)
        finally:
            del self._above[id(value)]

    def check_size(self, size: int, most: int) -> None:
        """Raise if a value is large, and large ones are not wanted."""
        if size > most and not self.large:
            raise Large

    def _plain(self, value: Any) -> Seen:
        kind = type(value)
        if kind is float:
            return Seen((kind, struct.pack("d", value)))
        if kind is complex:
            return Seen((kind, struct.pack("dd", value.real, value.imag)))
        if kind in (str, bytes) and len(value) > MOST_BYTES:
            return Seen((kind, len(value), hash(value)), held_by_id(value))
        return Seen((kind, value))


Kinds: TypeAlias = tuple[tuple[Any, Callable[[Look, Any], Seen]], ...]

PLAIN: Final = frozenset(
    {int, bool, float, complex, str, bytes, type(None), type(...), type(NotImplemented)}
)


class Itself:
    """An object that is equal to itself alone, and is not kept alive; a container with its size.

    Args:
        value: The object. Of one that takes no weak references, the address is compared.
    """

    __slots__ = ("_find", "_place")

    def __init__(self, value: Any) -> None:
        """Keep what tells it from others."""
        self._place = _place_of(value)
        self._find = _weak(value)

    def is_of(self, value: Any) -> bool:
        """Return whether a value is this object."""
        return self._place == _place_of(value) and self._is_there()

    def _is_there(self) -> bool:
        return self._find is None or self._find() is not None

    def __eq__(self, other: object) -> bool:
        """Return whether both are of one object."""
        return isinstance(other, Itself) and self._place == other._place and self._is_there()

    def __hash__(self) -> int:
        """Return a hash of the place."""
        return hash(self._place)


def _place_of(value: Any) -> tuple[int, type[Any], int]:
    kind = type(value)  # an object may say another thing to `isinstance`, or raise
    return id(value), kind, len(value) if issubclass(kind, list | dict | set) else 0


class OfArray:
    """A JAX array, which never changes: equal to one of the same type and content."""

    __slots__ = ("_bytes", "_find", "_type")

    def __init__(self, value: Any) -> None:
        """Keep a weak reference, and the content if it is small."""
        weak = bool(getattr(value, "weak_type", False))  # which a PRNG key does not have
        self._type = str(value.dtype), tuple(value.shape), weak
        self._find: Callable[[], Any] = weakref.ref(value)
        self._bytes = content_of(value, MOST_BYTES)

    def __eq__(self, other: object) -> bool:
        """Return whether both have one type and one content, as far as both are there."""
        if not isinstance(other, OfArray) or self._type != other._type:
            return False
        one, another = self._find(), other._find()
        if one is not None and one is another:
            return True
        mine, its = self._content(), other._content()
        return mine is not None and mine == its

    def __hash__(self) -> int:
        """Return a hash of the type."""
        return hash(self._type)

    def _content(self) -> bytes | None:
        if self._bytes is not None:
            return self._bytes
        value = self._find()
        return None if value is None else content_of(value, _MOST_COMPARED)


def content_of(value: Any, most: int) -> bytes | None:
    """Return the bytes of a JAX array; None if there are too many, or they cannot be had."""
    try:
        if value.nbytes > most or not value.is_fully_addressable or value.is_deleted():
            return None
        if jnp.issubdtype(value.dtype, jax.dtypes.extended):
            value = jax.random.key_data(value)
        return np.asarray(value).tobytes()
    except Exception:  # noqa: BLE001  # donated meanwhile, or a guard forbids the transfer
        return None


def _weak(value: Any) -> Callable[[], Any] | None:
    try:
        return weakref.ref(value)
    except TypeError:
        return None


def is_it(value: Any) -> Same:
    """Return what says whether it is given `value`, without keeping that alive."""
    find = _weak(value)
    if find is None:
        return held_by_id(value)
    return lambda now: find() is now


def held_by_id(value: Any) -> Same:
    """Return what says whether an object of the same type lies in the same place."""
    place, kind = id(value), type(value)
    return lambda now: id(now) == place and type(now) is kind


def all_same(sames: list[Same], values: list[Any]) -> bool:
    return len(sames) == len(values) and all(
        same(now) for same, now in zip(sames, values, strict=True)
    )


def identical(kept: list[Any], now: list[Any]) -> bool:
    return len(kept) == len(now) and all(map(operator.is_, kept, now))


def sameness(seen: Seen, value: Any) -> Same:
    """Return how a part is compared quickly."""
    if seen.same is not None:
        return seen.same
    return lambda now: now is value


def hidden_of(parts: list[Seen]) -> str:
    return next((part.hidden for part in parts if part.hidden), "")
