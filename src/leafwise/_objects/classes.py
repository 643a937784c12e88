"""What the type of a value says, whatever the value says that its class is.

``isinstance`` asks ``__class__``, which a proxy or a `unittest.mock.Mock` answers with another
class than its own, and which may raise. A class may raise as well, through its metaclass.
"""

import sys
import types
from typing import Any, Final, TypeGuard, TypeVar, overload

from jax.core import Tracer

from leafwise._objects.stand_ins import MISSING

T = TypeVar("T")

REDEFINED: Final = "old definition, redefined since"
"""Stands behind the name of a class whose name a newer one has taken."""


@overload
def is_a(value: object, kinds: type[T]) -> TypeGuard[T]: ...
@overload
def is_a(value: object, kinds: Any) -> bool: ...
def is_a(value: object, kinds: Any) -> bool:
    """Return whether a value is an instance of some classes, by its type.

    A tracer is an array to ``isinstance`` alone, through the metaclass of `jax.Array`.
    """
    kind = type(value)
    try:
        return issubclass(kind, kinds) or (issubclass(kind, Tracer) and isinstance(value, kinds))
    except RecursionError:  # of the caller's depth, which says nothing of the value
        raise
    except Exception:  # noqa: BLE001  # an abstract class asks the metaclass for ``==`` and hash
        return False


def derives(cls: type, base: type[T]) -> TypeGuard[type[T]]:
    """Return whether a class derives from another: an abstract one may ask the first for ``==``."""
    if type(base) is type:
        return issubclass(cls, base)
    mro: tuple[type, ...] = _NAMES["__mro__"].__get__(cls)
    return any(each is base for each in mro)


def read(value: object, name: str, default: Any = MISSING) -> Any:
    """Return an attribute, or the default if there is none, or if reading it raises."""
    try:
        return getattr(value, name)
    except RecursionError:  # as in `is_a`
        raise
    except Exception:  # noqa: BLE001  # code of the user's, which may raise anything
        return default


_NAMES: Final[Any] = vars(type)


def qualname_of(cls: type) -> str:
    """Return the qualified name of a class, past its metaclass."""
    return str(_NAMES["__qualname__"].__get__(cls))


def module_of(cls: type) -> str:
    """Return the name of the module of a class, past its metaclass; empty if it has none."""
    try:
        found = _NAMES["__module__"].__get__(cls)
    except AttributeError:
        return ""
    return found if type(found) is str else ""


def public_name(cls: type) -> str:
    """Return the name by which a class is imported: ``equinox.nn.Linear``."""
    module, name = module_of(cls), qualname_of(cls)
    parts = [part for part in module.split(".") if not part.startswith("_")]
    for end in range(1, len(parts) + 1):
        public = ".".join(parts[:end])
        if getattr(sys.modules.get(public), name, None) is cls:
            module = public
            break
    return f"{module}.{name}".replace(".<locals>", "")


def is_alias(value: Any) -> bool:
    """Return whether a value is a type with arguments."""
    cls = type(value)
    if issubclass(cls, types.GenericAlias | types.UnionType):
        return True
    return module_of(cls) == "typing" and hasattr(value, "__args__")
