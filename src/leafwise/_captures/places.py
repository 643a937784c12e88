"""A place outside a function's arguments that its code reads: the way there, and the value."""

import builtins
import collections
import dataclasses
import functools
import sys
import types
import weakref
from collections.abc import Callable
from enum import Enum, StrEnum
from typing import Any, Final

from leafwise._objects.attributes import Member, MemberKind, is_data, member_of, of_partial
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

    It keeps nothing alive.

    Attributes:
        holder: Where the way starts.
        key: Equal for places that start at the same variable.
        start: Returns the value of that variable.
        steps: The attributes and keys from there on.
        name: The way as the code spells it.
        variable: The name that the way starts with.
        owner: Returns what holds the variable: globals, a class, the code of a function.
        is_member: Whether it is a function that a class has, which the code runs unnamed.
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
            if value is MISSING:
                break
            member = step_into(value, step)
            value = member.value if member.kind in _READABLE else MISSING
        return value

    def holding(self) -> Any:
        """Return the object whose attribute or item it is; `MISSING` if it is none."""
        before = dataclasses.replace(self, steps=self.steps[:-1])
        return before.read() if self.steps else MISSING


_READABLE: Final = (
    *(MemberKind.VALUE, MemberKind.METHOD, MemberKind.CLASS_METHOD, MemberKind.PROPERTY),
    MemberKind.DESCRIPTOR,
)


def global_place(
    function: types.FunctionType | None, names: dict[str, Any], name: str
) -> CapturedPlace:
    """Return the place of a global, or of a builtin."""
    module = sys.modules.get(str(names.get("__name__")))
    is_kept = function is None or getattr(module, "__dict__", None) is names
    find = functools.partial(_itself, names) if is_kept else _globals_of(function)
    start = functools.partial(_global, find, name)
    return CapturedPlace(BoundIn.GLOBAL, ("global", id(names), name), start, (), name, name, find)


def _globals_of(function: Any) -> Callable[[], Any]:
    find = weakref.ref(function)
    return lambda: getattr(find(), "__globals__", None)


def _itself(value: Any) -> Any:
    return value


def _global(find: Callable[[], Any], name: str) -> Any:
    names = find()
    if names is None:
        return GONE
    found = names.get(name, MISSING)
    return vars(builtins).get(name, MISSING) if found is MISSING else found


def import_place(names: dict[str, Any], name: str) -> CapturedPlace:
    """Return the place of a module that code imports; dots begin a relative name."""
    name = absolute(name, names)
    start = functools.partial(sys.modules.get, name, MISSING)
    short, find = name.rpartition(".")[2], functools.partial(_itself, sys.modules)
    return CapturedPlace(BoundIn.IMPORT, ("import", name), start, (), short, name, find)


def cell_place(function: types.FunctionType, name: str) -> CapturedPlace | None:
    """Return the place of a variable of the enclosing function; None if there is none."""
    free = function.__code__.co_freevars
    if name not in free or not function.__closure__:
        return None
    find, at = weakref.ref(function), free.index(name)
    key, owner = ("cell", id(function.__closure__[at])), function.__code__
    start = functools.partial(_cell, find, at)
    find_owner = functools.partial(_itself, owner)
    return CapturedPlace(BoundIn.CLOSURE, key, start, (), name, name, find_owner)


def _cell(find: Callable[[], Any], at: int) -> Any:
    function = find()
    return GONE if function is None else contents(function.__closure__[at])


def default_place(function: types.FunctionType, name: str) -> CapturedPlace | None:
    """Return the place of the default of a parameter, if it has one."""
    start = functools.partial(_default, weakref.ref(function), name)
    find_owner = functools.partial(_itself, function.__code__)
    key = ("default", id(function), name)
    place = CapturedPlace(BoundIn.DEFAULT, key, start, (), name, name, find_owner)
    return None if place.read() is MISSING else place


def _default(find: Callable[[], types.FunctionType | None], name: str) -> Any:
    function = find()
    if function is None:
        return GONE
    code, defaults = function.__code__, function.__defaults__ or ()
    positional = code.co_varnames[: code.co_argcount]
    if name not in positional:
        return (function.__kwdefaults__ or {}).get(name, MISSING)
    place = positional.index(name) - len(positional)
    return defaults[place] if place >= -len(defaults) else MISSING


def partial_place(partial: Any, name: str | int) -> CapturedPlace:
    """Return the place of a keyword of a partial, or of an argument by position."""
    find, key = weakref.ref(partial), ("partial", id(partial), name)
    start = functools.partial(_argument, find, name)
    func = of_partial(partial)[0]
    code, bound = getattr(func, "__code__", None), is_a(func, types.MethodType)
    known = () if code is None else code.co_varnames[bound : code.co_argcount]
    by_name = dict(enumerate(known))
    text = name if isinstance(name, str) else by_name.get(name, f"args[{name}]")
    return CapturedPlace(BoundIn.PARTIAL, key, start, (), text, text, find)


def _argument(find: Callable[[], Any], name: str | int) -> Any:
    partial = find()
    if partial is None:
        return GONE
    _, args, keywords = of_partial(partial)
    return keywords.get(name, MISSING) if isinstance(name, str) else args[name]


def object_place(name: str, value: Any) -> CapturedPlace | None:
    """Return the place of an object that a function is given; None of what is no object."""
    try:
        find = weakref.ref(value)
    except TypeError:
        return None
    start = functools.partial(_alive, find)
    key = ("object", id(value))
    find_owner = functools.partial(_itself, type(value))
    return CapturedPlace(BoundIn.ATTRIBUTE, key, start, (), name, name, find_owner)


def _alive(find: Callable[[], Any]) -> Any:
    found = find()
    return GONE if found is None else found


def member_place(cls: type, name: str) -> CapturedPlace:
    """Return the place of a method or property that instances of a class find."""
    find = weakref.ref(cls)
    start = functools.partial(_alive, find)
    key, text = ("class", id(cls)), f"{cls.__name__}.{name}"
    place = CapturedPlace(BoundIn.ATTRIBUTE, key, start, (name,), text, cls.__name__, find)
    return dataclasses.replace(place, is_member=True)


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


_WHOLE: Final = Member(MemberKind.HIDDEN)
_UNBOUND: Final = Member(MemberKind.MISSING)


def step_into(value: Any, step: str | Item) -> Member:
    """Return what a step leads to; `MemberKind.HIDDEN` if the value is used as a whole."""
    if value is GONE:
        return Member(MemberKind.VALUE, GONE)
    if isinstance(step, Item):
        found = item_of(value, step.key)
        if found is MISSING:  # the code may catch the error, or a factory make the item
            return _UNBOUND if type(value) in _INDEXED else _WHOLE
        return Member(MemberKind.VALUE, found)
    if is_a(value, Enum) and step == "value" and "_value_" in vars(value):
        return Member(MemberKind.VALUE, vars(value)["_value_"])
    if is_data(value):
        return _WHOLE
    member = member_of(value, step)
    unknown = member.kind is MemberKind.MISSING and _answers_itself(value)
    return _WHOLE if unknown else member


def _answers_itself(value: Any) -> bool:
    """Return whether a module or a class may have attributes that it does not show."""
    if is_a(value, types.ModuleType):
        return "__getattr__" in vars(value) or type(value) is not types.ModuleType
    return is_a(value, type) and type(value) is not type
