"""Tables that know classes by identity and keep none of them alive.

`ClassMap` holds something for each class. The list below it holds the pytree classes of this
process, for those who want to hear of each: `on_registered`.
"""

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

from leafwise._objects.locks import new_lock

V = TypeVar("V")


class ClassMap(Generic[V]):
    """A mapping from classes, each by its identity.

    A `weakref.WeakKeyDictionary` would ask the metaclass's ``==``, and take two classes
    for one when that says so.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[type], V]] = {}

    def get(self, cls: type) -> V | None:
        """Return the value of a class, or None."""
        entry = self._entries.get(id(cls))
        return entry[1] if entry is not None and entry[0]() is cls else None

    def __setitem__(self, cls: type, value: V) -> None:
        key = id(cls)
        self._entries[key] = (weakref.ref(cls, lambda dead: self._remove(key, dead)), value)

    def setdefault(self, cls: type, make: Callable[[], V]) -> V:
        """Return the value of a class, which `make` makes if there is none."""
        found = self.get(cls)
        if found is None:
            self[cls] = found = make()
        return found

    def values(self) -> Iterator[V]:
        """Iterate over the values of all classes that are alive."""
        return iter([value for _, value in list(self._entries.values())])

    def _remove(self, key: int, dead: "weakref.ref[Any]") -> None:
        entry = self._entries.get(key)
        if entry is not None and entry[0] is dead:  # another class may have this id by now
            del self._entries[key]


def per_class(find: Callable[[Any], V]) -> Callable[[Any], V]:
    """Have what a function finds of a class, or of code, found once."""
    found = ClassMap[tuple[V]]()

    @functools.wraps(find)
    def once(cls: Any) -> V:
        return found.setdefault(cls, lambda: (find(cls),))[0]

    return once


_REGISTERED: Final[list[weakref.ref[Any]]] = []
_LISTENERS: Final[list[Callable[[Any], object]]] = []
_LOCK: Final = new_lock()


def notify_registered(cls: type) -> None:
    """Call all listeners with a class that has just been registered with JAX."""
    with _LOCK:
        _REGISTERED.append(weakref.ref(cls))
        for listener in _LISTENERS:
            listener(cls)


def on_registered(listener: Callable[[Any], object]) -> None:
    """Have a function called with each pytree class, now or when it is made.

    Args:
        listener: The function. It is called with a class once, however often this is called
            with it.
    """
    with _LOCK:
        if listener in _LISTENERS:
            return
        _LISTENERS.append(listener)
        for cls in [registered() for registered in _REGISTERED]:
            if cls is not None:
                listener(cls)
