"""The pytree classes there are and will be, for libraries that keep a table of their own."""

import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

_KNOWN: Final[list[weakref.ref[Any]]] = []
_TOLD: Final[list[Callable[[Any], object]]] = []
_LOCK: Final = threading.RLock()  # what is told of a class may make another


def announce(cls: type) -> None:
    """Tell of a class that has just been registered with JAX."""
    with _LOCK:
        _KNOWN.append(weakref.ref(cls))
        for told in _TOLD:
            told(cls)


def tell_of_classes(told: Callable[[Any], object]) -> None:
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
