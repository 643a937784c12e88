"""Checks by the type of a value, whatever its ``__class__`` says; and tables by class.

``isinstance`` reads ``__class__``, for which a proxy or a `unittest.mock.Mock` returns another
class than its own, and which may raise. A class may raise as well, through its metaclass. So
`ClassMap` identifies classes by identity, and keeps none of them alive.
"""

import dataclasses
import functools
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeGuard, TypeVar, overload

import jax
from jax.core import Tracer

from leafwise._objects.interrupts import reraise_interrupt
from leafwise._objects.locks import new_lock
from leafwise._objects.stand_ins import MISSING

T = TypeVar("T")
V = TypeVar("V")

REDEFINED: Final = "old definition, redefined since"
"""Follows the name of a class that a newer definition of the same name has replaced."""


@overload
def is_a(value: object, kinds: type[T]) -> TypeGuard[T]: ...
@overload
def is_a(value: object, kinds: Any) -> bool: ...
def is_a(value: object, kinds: Any) -> bool:
    """Return whether a value is an instance of some classes, by its type."""
    # A tracer is an array to ``isinstance`` alone, through the metaclass of `jax.Array`.
    kind = type(value)
    return issubclass(kind, kinds) or (issubclass(kind, Tracer) and isinstance(value, kinds))


def is_tree_node(cls: Any) -> bool:
    """Return whether a class is registered as a pytree; JAX itself can tell since 0.10."""
    known: Callable[[Any], bool] | None = getattr(jax.tree_util, "is_tree_node", None)
    if known is not None:
        return known(cls)
    make: Any = jax.tree_util.PyTreeDef
    try:
        make.from_node_data_and_children(jax.tree_util.default_registry, (cls, []), [])
    except RuntimeError:
        return False
    return True


def read(value: object, name: str, default: Any = MISSING) -> Any:
    """Return an attribute, or the default if it does not exist or if reading it raises."""
    try:
        return getattr(value, name)
    except RecursionError:  # due to the caller's depth, not to the value
        raise
    except Exception as error:  # noqa: BLE001  # a user's property or `__getattr__`
        reraise_interrupt(error)
        return default


def module_of(cls: type) -> str:
    module = getattr(cls, "__module__", "")
    return module if type(module) is str else ""


def redefined_mark(cls: type) -> str:
    """Return the suffix for a class's name in a repr; empty unless a newer one replaced it."""
    return f" [{REDEFINED}]" if REDEFINED in cls.__qualname__ else ""


def distinct_names(one: type, other: type) -> tuple[str, str]:
    """Return the names of two classes, with their modules if the names are equal."""
    if one.__qualname__ != other.__qualname__:
        return one.__qualname__, other.__qualname__
    before, after = (f"{module_of(cls)}.{cls.__qualname__}" for cls in (one, other))
    return (before, f"another {after}") if before == after else (before, after)


def public_name(cls: type) -> str:
    """Return the public name of a class: ``equinox.nn.Linear``; without a module in a script."""
    module, name = module_of(cls), cls.__qualname__
    parts = [part for part in module.split(".") if not part.startswith("_")]
    for end in range(1, len(parts) + 1):
        public = ".".join(parts[:end])
        if getattr(sys.modules.get(public), name, None) is cls:
            module = public
            break
    return f"{module}.{name}".replace(".<locals>", "").removeprefix("__main__.")


def is_alias(value: Any) -> bool:
    """Return whether a value is a parametrised type, such as ``list[int]``."""
    cls = type(value)
    if issubclass(cls, types.GenericAlias | types.UnionType):
        return True
    return module_of(cls) == "typing" and hasattr(value, "__args__")


def declared_fields(cls: Any) -> tuple[Any, ...]:
    if dataclasses.is_dataclass(cls):
        return dataclasses.fields(cls)
    return tuple(getattr(cls, "__attrs_attrs__", ()))


class ClassMap(Generic[V]):
    """A mapping whose keys are classes, compared by identity.

    A `weakref.WeakKeyDictionary` would use the metaclass's ``==``, which may confuse two classes.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[type], V]] = {}

    def get(self, cls: type) -> V | None:
        entry = self._entries.get(id(cls))
        return entry[1] if entry is not None and entry[0]() is cls else None

    def __setitem__(self, cls: type, value: V) -> None:
        key = id(cls)
        self._entries[key] = (weakref.ref(cls, lambda dead: self._remove(key, dead)), value)

    def setdefault(self, cls: type, make: Callable[[], V]) -> V:
        """Return the value of a class; `make` creates it if it is missing."""
        value = self.get(cls)
        if value is None:
            self[cls] = value = make()
        return value

    def values(self) -> Iterator[V]:
        return iter([value for _, value in list(self._entries.values())])

    def _remove(self, key: int, dead: "weakref.ref[Any]") -> None:
        entry = self._entries.get(key)
        if entry is not None and entry[0] is dead:  # another class may have this id by now
            del self._entries[key]


def per_class(find: Callable[[Any], V]) -> Callable[[Any], V]:
    """Cache a function of a class, or of a code object, while its argument is alive."""
    results = ClassMap[tuple[V]]()

    @functools.wraps(find)
    def once(cls: Any) -> V:
        return results.setdefault(cls, lambda: (find(cls),))[0]

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
    """Call a function once with each pytree class, now or when the class is registered."""
    with _LOCK:
        if listener in _LISTENERS:
            return
        _LISTENERS.append(listener)
        for cls in [registered() for registered in _REGISTERED]:
            if cls is not None:
                listener(cls)
