"""The methods that a walk over captures has met, and not entered so far."""

import types
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar, cast

from leafwise._objects.attributes import functions_behind, in_class
from leafwise._objects.bytecode import reads_of
from leafwise._objects.class_map import ClassMap
from leafwise._objects.classes import is_a
from leafwise._objects.code import is_installed_module, own_bases
from leafwise._objects.reads import Usage

T = TypeVar("T")

_NAMES: Final[ClassMap[frozenset[str]]] = ClassMap()
"""What `names_in` yields, by the code."""

_MAKE_NAMES: Final = frozenset(
    {"getattr", "attrgetter", "methodcaller", "__getattribute__", "__dict__", "vars", "dir"}
)
"""Code that names one of these may read an attribute of any name."""

_JAX_CALLS: Final = frozenset({"tree_flatten", "tree_flatten_with_keys", "tree_unflatten"})


class WaitingMethods(Generic[T]):
    """The methods that were met on a walk; each waits until code that is entered names it."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._waiting: dict[str, list[T]] = {}
        self._all = False

    def add(self, cls: type, name: str, entries: list[T]) -> list[T]:
        """Return the functions of a method if it is to be entered now; otherwise keep them."""
        if self._all or name in self._names or _is_special(cls, name):
            return entries
        self._waiting.setdefault(name, []).extend(entries)
        return []

    def named(self, code: types.CodeType) -> list[T]:
        """Return the methods that waited for the names in some code."""
        named = _NAMES.setdefault(cast("Any", code), lambda: frozenset(names_in(code)))
        new = named - self._names - {"getattr"}  # unless by a name that is not known
        self._names |= new
        new |= {each.name for each in reads_of(code) if each.name == "getattr"}
        if not self._all and not _MAKE_NAMES.isdisjoint(new):
            self._all, new = True, frozenset(self._waiting)
        return [each for name in sorted(new) for each in self._waiting.pop(name, ())]


def is_class_value(cls: type, name: str) -> bool:
    """Return whether an instance of a class of the user's finds a plain value in its class."""
    bases = own_bases(cls)
    value = in_class(cls, name)
    is_own = any(name in vars(base) for base in bases)
    if not is_own or hasattr(type(value), "__get__") or is_a(value, type):
        return False
    fields = ("__annotations__", "__dataclass_fields__")  # where the class has a default only
    if any(name in vars(base).get(field, ()) for base in bases for field in fields):
        return False
    return not any(_assigns(member, name) for base in bases for member in vars(base).values())


def _assigns(member: object, name: str) -> bool:
    reads = [read for each in functions_behind(member) for read in reads_of(each.__code__)]
    return any(read.usage is Usage.WRITTEN and read.steps == (name,) for read in reads)


def _is_special(cls: type, name: str) -> bool:
    """Return whether Python, JAX or a package whose class it overrides may call a method."""
    if name in _JAX_CALLS or (name.startswith("__") and name.endswith("__")):
        return True
    bases = [base for base in cls.__mro__ if is_installed_module(base.__module__)]
    return any(name in vars(base) for base in bases)


def names_in(code: types.CodeType) -> Iterator[str]:
    """Yield the names in code, and the texts, which may be names for somebody else."""
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, str):
            yield const
        elif isinstance(const, types.CodeType):
            yield from names_in(const)
