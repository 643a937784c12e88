"""A table of classes by identity, which keeps none of them alive."""

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

V = TypeVar("V")


class ClassMap(Generic[V]):
    """What is known of classes, each by its identity.

    A `weakref.WeakKeyDictionary` would ask the metaclass's ``==``, and take two classes
    for one when that says so.
    """

    __slots__ = ("_found",)

    def __init__(self) -> None:
        """Start empty."""
        self._found: dict[int, tuple[weakref.ref[type], V]] = {}

    def get(self, cls: type) -> V | None:
        """Return what is known of a class, or None."""
        found = self._found.get(id(cls))
        return found[1] if found is not None and found[0]() is cls else None

    def __setitem__(self, cls: type, value: V) -> None:
        """Know `value` of a class."""
        place = id(cls)
        self._found[place] = (weakref.ref(cls, lambda dead: self._forget(place, dead)), value)

    def setdefault(self, cls: type, make: Callable[[], V]) -> V:
        """Return what is known of a class, which is made if nothing is."""
        found = self.get(cls)
        if found is None:
            self[cls] = found = make()
        return found

    def values(self) -> Iterator[V]:
        """Iterate over what is known."""
        return iter([value for _, value in list(self._found.values())])

    def _forget(self, place: int, dead: "weakref.ref[Any]") -> None:
        found = self._found.get(place)
        if found is not None and found[0] is dead:
            del self._found[place]


_KNOWN: Final[list[weakref.ref[Any]]] = []
_TOLD: Final[list[Callable[[Any], object]]] = []
_LOCK: Final = threading.RLock()  # what is told of a class may make another


def notify_registered(cls: type) -> None:
    """Tell of a class that has just been registered with JAX."""
    with _LOCK:
        _KNOWN.append(weakref.ref(cls))
        for told in _TOLD:
            told(cls)


def on_registered(told: Callable[[Any], object]) -> None:
    """Have a function called with each pytree class, now or when it is made.

    Args:
        told: The function. It is told of a class once, however often this is called with it.
    """
    with _LOCK:
        if told in _TOLD:
            return
        _TOLD.append(told)
        for cls in [known() for known in _KNOWN]:
            if cls is not None:
                told(cls)
