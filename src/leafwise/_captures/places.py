"""A place outside a function's arguments that its code reads: the way there, and the value."""

import builtins
import collections
import dataclasses
import functools
import sys
import types
import weakref
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

from leafwise._objects.attributes import (
    HIDDEN,
    Member,
    MemberKind,
    is_data,
    member_of,
    of_partial,
)
from leafwise._objects.classes import is_a
from leafwise._objects.code import contents
from leafwise._objects.names import Item, absolute
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import shorten


class BoundIn(StrEnum):
    """Where something that a function captures is bound."""

    GLOBAL = "global"
    """A global of the module, or a builtin."""
    CLOSURE = "closure"
    """A variable of the enclosing function."""
    DEFAULT = "default"
    """The default of a parameter."""
    ATTRIBUTE = "attribute"
    """An attribute of the object whose method it is."""
    PARTIAL = "argument of partial"
    """An argument that a partial has given."""
    IMPORT = "import"
    """A module that the code of the function imports."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class CapturedPlace:
    """A place outside a function's arguments.

    It keeps nothing alive but the globals of a module.

    Attributes:
        holder: Where the way starts.
        key: Equal for places that start at the same variable.
        start: Returns the value of that variable.
        steps: The attributes and keys from there on.
        name: The way as the code spells it.
        variable: The name that the way starts with.
        owner: Returns what holds the variable: globals, a class, the code of a function.
        is_member: Whether it is a function that runs unnamed: a property, a method of a class.
    """

    holder: BoundIn
    key: tuple[Any, ...]
    start: Callable[[], Any]
    steps: tuple[str | Item, ...]
    name: str
    variable: str
    owner: Callable[[], Any]
    is_member: bool = False

    def then(self, step: str | Item) -> "CapturedPlace":
        """Return the place one step further on."""
        text = f"[{shorten(step.key, 200)}]" if isinstance(step, Item) else f".{step}"
        return dataclasses.replace(self, steps=(*self.steps, step), name=self.name + text)

    def read(self) -> Any:
        """Return the current value; `MISSING` if nothing is bound."""
        value = self.start()
        for step in self.steps:
            value = step_into(value, step).value
        return value

    def holding(self) -> Any:
        """Return the object whose attribute or item it is; `MISSING` if it is none."""
        before = dataclasses.replace(self, steps=self.steps[:-1])
        return before.read() if self.steps else MISSING


def _behind(find: Callable[[], Any], at: Any, read: Callable[[Any, Any], Any]) -> Any:
    """Return what a holder that may have died has in one of its variables."""
    holder = find()
    return GONE if holder is None else read(holder, at)


def global_place(names: dict[str, Any], name: str) -> CapturedPlace:
    """Return the place of a global, or of a builtin."""
    key = ("global", id(names), name)
    start = functools.partial(_global, names, name)
    return CapturedPlace(BoundIn.GLOBAL, key, start, (), name, name, lambda: names)


def _global(names: dict[str, Any], name: str) -> Any:
    found = names.get(name, MISSING)
    return vars(builtins).get(name, MISSING) if found is MISSING else found


def import_place(names: dict[str, Any], name: str) -> CapturedPlace:
    """Return the place of a module that code imports; dots begin a relative name."""
    name = absolute(name, names)
    start = functools.partial(sys.modules.get, name, MISSING)
    key, short = ("import", name), name.rpartition(".")[2]
    return CapturedPlace(BoundIn.IMPORT, key, start, (), short, name, lambda: sys.modules)


def cell_place(function: Any, name: str) -> CapturedPlace:
    """Return the place of a variable of the enclosing function."""
    code: types.CodeType = function.__code__
    at = code.co_freevars.index(name)
    key = ("cell", id(function.__closure__[at]))
    start = functools.partial(_behind, weakref.ref(function), at, _cell)
    return CapturedPlace(BoundIn.CLOSURE, key, start, (), name, name, lambda: code)


def _cell(function: Any, at: int) -> Any:
    return contents(function.__closure__[at])


def default_place(function: types.FunctionType, name: str) -> CapturedPlace | None:
    """Return the place of the default of a parameter, if it has one."""
    if name not in defaults_of(function):
        return None
    code, key = function.__code__, ("default", id(function), name)
    start = functools.partial(_behind, weakref.ref(function), name, _default)
    return CapturedPlace(BoundIn.DEFAULT, key, start, (), name, name, lambda: code)


def _default(function: types.FunctionType, name: str) -> Any:
    return defaults_of(function).get(name, MISSING)


def defaults_of(function: types.FunctionType) -> dict[str, Any]:
    """Return the defaults of a function by parameter."""
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount][-len(defaults) :] if defaults else ()
    return {**dict(zip(names, defaults, strict=False)), **(function.__kwdefaults__ or {})}


def partial_place(partial: Any, name: str | int) -> CapturedPlace:
    """Return the place of a keyword of a partial, or of an argument by position."""
    find, key = weakref.ref(partial), ("partial", id(partial), name)
    start = functools.partial(_behind, find, name, _argument)
    func = of_partial(partial)[0]
    code, bound = getattr(func, "__code__", None), is_a(func, types.MethodType)
    known = () if code is None else code.co_varnames[bound : code.co_argcount]
    by_name = dict(enumerate(known))
    text = name if isinstance(name, str) else by_name.get(name, f"args[{name}]")
    return CapturedPlace(BoundIn.PARTIAL, key, start, (), text, text, find)


def _argument(partial: Any, name: str | int) -> Any:
    _, args, keywords = of_partial(partial)
    return keywords.get(name, MISSING) if isinstance(name, str) else args[name]


def object_place(name: str, value: Any) -> CapturedPlace | None:
    """Return the place of an object that a function is given; None of what is no object."""
    try:
        find = weakref.ref(value)
    except TypeError:
        return None
    key, start = ("object", id(value)), functools.partial(_alive, find)
    cls: Any = type(value)
    return CapturedPlace(BoundIn.ATTRIBUTE, key, start, (), name, name, lambda: cls)


def _alive(find: Callable[[], Any]) -> Any:
    found = find()
    return GONE if found is None else found


def class_place(cls: type, name: str) -> CapturedPlace:
    """Return the place of what a class has for its instances."""
    find, key, text = weakref.ref(cls), ("class", id(cls)), f"{cls.__name__}.{name}"
    start = functools.partial(_alive, find)
    return CapturedPlace(BoundIn.ATTRIBUTE, key, start, (name,), text, cls.__name__, find)


GONE: Final = types.SimpleNamespace()
"""Stands for an object that nobody has any more: nothing can change for those who read it."""

_INDEXED: Final = (
    *(dict, list, tuple),
    *(collections.OrderedDict, collections.defaultdict, collections.Counter),
)


def item_of(value: Any, key: Any) -> Any:
    """Return an item of a builtin container; `MISSING` if there is none."""
    if type(value) not in _INDEXED:
        return MISSING
    if is_a(value, dict):
        return value.get(key, MISSING)
    return value[key] if isinstance(key, int) and -len(value) <= key < len(value) else MISSING


def step_into(value: Any, step: str | Item) -> Member:
    """Return what a step leads to; `MemberKind.HIDDEN` if the value is used as a whole."""
    if value is GONE or value is MISSING:
        return Member(MemberKind.VALUE, value)
    if isinstance(step, Item):  # that is missing: code may catch the error, or a factory make it
        is_indexed = type(value) in _INDEXED
        return Member(MemberKind.VALUE, item_of(value, step.key)) if is_indexed else HIDDEN
    return HIDDEN if is_data(value) else member_of(value, step)
