"""What classes have that a walk over captures has met, until code that is entered names it."""

import collections
import dataclasses
import dis
import types
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

from leafwise._objects.attributes import functions_behind, in_class
from leafwise._objects.bytecode import reads_of
from leafwise._objects.class_map import ClassMap
from leafwise._objects.classes import is_a
from leafwise._objects.code import is_installed_module, own_bases
from leafwise._objects.reads import Item, Read, Root, Step, Usage

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


class ClassValue(NamedTuple):
    """A plain value that instances find in their class, and code that names it."""

    cls: type
    read: Read
    reader: types.FunctionType


class ClassValues:
    """The classes that were met on a walk, and the attributes that code reads of any object."""

    def __init__(self) -> None:
        self._classes: dict[int, type] = {}
        self._reads: dict[str, list[_Reading]] = collections.defaultdict(list)
        self._named: dict[int, types.FunctionType] = {}

    def met(self, cls: type) -> list[ClassValue]:
        """Return what the code that was entered so far reads of the instances of a class."""
        if id(cls) in self._classes or issubclass(cls, Enum):
            return []
        self._classes[id(cls)] = cls
        return [each for name, reads in self._reads.items() for each in _found(cls, name, reads)]

    def named(self, function: types.FunctionType) -> list[ClassValue]:
        """Return what a function that is entered reads of the instances of the classes so far."""
        if id(function) in self._named:
            return []
        self._named[id(function)] = function
        reads: dict[str, list[_Reading]] = collections.defaultdict(list)
        for read in _attribute_reads(function.__code__):
            reads[cast("str", read.steps[0])].append((read, function))
        for name, found in reads.items():
            self._reads[name] += found
        classes = self._classes.values()
        return [
            each for cls in classes for name in reads for each in _found(cls, name, reads[name])
        ]


_Reading: TypeAlias = tuple[Read, types.FunctionType]


def _found(cls: type, name: str, reads: list[_Reading]) -> list[ClassValue]:
    return [ClassValue(cls, *each) for each in reads] if is_class_value(cls, name) else []


_ATTRIBUTE_READS: Final[ClassMap[tuple[Read, ...]]] = ClassMap()


def _attribute_reads(code: types.CodeType) -> tuple[Read, ...]:
    """Return the attributes that code reads of any object, with those that it reads of them."""
    return _ATTRIBUTE_READS.setdefault(
        cast("Any", code), lambda: tuple(_find_attribute_reads(code))
    )


def _find_attribute_reads(code: types.CodeType) -> Iterator[Read]:
    steps: tuple[Step, ...] = ()
    is_key = False
    for each in reversed([*dis.get_instructions(code)]):
        if each.opname in _LOADS:
            steps = (each.argval, *steps)
            line = each.positions.lineno if each.positions else None
            if not each.argval.startswith("__"):
                yield Read(Root.PARAMETER, "", steps, line or 0, Usage.READ)
        elif is_key and each.opname == "LOAD_CONST" and isinstance(each.argval, str | int):
            steps = (Item(each.argval), *steps)
        elif each.opname != "BINARY_SUBSCR":
            steps = ()
        is_key = each.opname == "BINARY_SUBSCR"
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _find_attribute_reads(const)


_LOADS: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"})


def is_class_value(cls: type, name: str) -> bool:
    """Return whether an instance of a class of the user's finds a plain value in its class."""
    bases = own_bases(cls)
    value = in_class(cls, name)
    is_own = any(name in vars(base) for base in bases)
    if not is_own or hasattr(type(value), "__get__") or is_a(value, type):
        return False
    if dataclasses.is_dataclass(cls) and name in {each.name for each in dataclasses.fields(cls)}:
        return False  # the class has a default only
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
