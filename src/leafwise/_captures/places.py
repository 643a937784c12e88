"""A place outside a function's arguments that its code reads: the way there, and the value."""

import builtins
import dataclasses
import types
import weakref
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

from leafwise._objects.attributes import HIDDEN, Member, MemberKind, is_data, member_of, of_partial
from leafwise._objects.classes import is_a
from leafwise._objects.code import contents
from leafwise._objects.names import Item
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import shorten


class BoundIn(StrEnum):
    """Where something that a function captures is bound."""

    GLOBAL = "global"  # or a builtin
    CLOSURE = "closure"
    DEFAULT = "default"
    ATTRIBUTE = "attribute"  # of the object whose method it is
    PARTIAL = "argument of partial"
    IMPORT = "import"  # a module that the code of the function imports


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class CapturedPlace:
    """A variable outside a function's arguments, and the way on from there.

    It keeps nothing alive but the globals of a module.
    """

    holder: BoundIn
    owner: Callable[[], Any]
    """Returns what has the variable: globals, a function, a partial, an object; None if it died."""
    variable: str | int  # the name of the variable, or the position of an argument of a partial
    root: tuple[Any, ...]  # equal for places that start at the same variable
    name: str  # the way as the code spells it
    steps: tuple[str | Item, ...] = ()
    is_member: bool = False
    """Whether it is a function that runs unnamed: a property, a method of a class."""

    @property
    def key(self) -> tuple[Any, ...]:
        """What is equal for one place, whoever reads it."""
        return (*self.root, self.steps)

    def then(self, *steps: str | Item) -> "CapturedPlace":
        """Return the place some steps further on."""
        text = [f"[{shorten(each.key, 200)}]" if is_a(each, Item) else f".{each}" for each in steps]
        name = "".join([self.name, *text])
        return dataclasses.replace(self, steps=(*self.steps, *steps), name=name)

    def shared_with(self, other: "CapturedPlace") -> "CapturedPlace":
        """Return the place of a variable of two functions, there as long as one of them is."""
        mine, its = self.owner, other.owner

        def owner() -> Any:
            found = mine()
            return its() if found is None else found

        return dataclasses.replace(self, owner=owner)

    def start(self) -> Any:
        """Return the value of the variable; `GONE` if nobody has its owner any more."""
        owner, variable = self.owner(), self.variable
        if owner is None:
            return GONE
        match self.holder:
            case BoundIn.GLOBAL:
                return owner.get(variable, vars(builtins).get(str(variable), MISSING))
            case BoundIn.IMPORT:
                return owner.get(variable, MISSING)
            case BoundIn.CLOSURE:
                return contents(cell_of(owner, str(variable)))
            case BoundIn.DEFAULT:
                return defaults_of(owner).get(str(variable), MISSING)
            case BoundIn.PARTIAL:
                _, args, keywords = of_partial(owner)
                given: dict[Any, Any] = {**keywords, **dict(enumerate(args))}
                return given.get(variable, MISSING)
            case BoundIn.ATTRIBUTE:
                return owner

    def read(self) -> Any:
        """Return the current value; `MISSING` if nothing is bound. No code of the user's runs."""
        value = self.start()
        for step in self.steps:
            value = step_into(value, step).value
        return value


def place_of(holder: BoundIn, owner: Any, variable: str | int, name: str = "") -> CapturedPlace:
    """Return the place of a variable, of which the owner is not kept alive."""
    key: tuple[Any, ...] = holder, id(owner), variable
    if holder is BoundIn.CLOSURE:
        key = holder, id(cell_of(owner, str(variable)))
    is_kept = holder in (BoundIn.GLOBAL, BoundIn.IMPORT)
    find = (lambda: owner) if is_kept else weakref.ref(owner)
    return CapturedPlace(holder, find, variable, key, name or str(variable))


def cell_of(function: Any, name: str) -> types.CellType:
    """Return the cell of a variable of the enclosing function."""
    cell: types.CellType = function.__closure__[function.__code__.co_freevars.index(name)]
    return cell


def defaults_of(function: types.FunctionType) -> dict[str, Any]:
    """Return the defaults of a function by parameter."""
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount][-len(defaults) :] if defaults else ()
    return {**dict(zip(names, defaults, strict=False)), **(function.__kwdefaults__ or {})}


def partial_place(partial: Any, name: str | int) -> CapturedPlace:
    """Return the place of a keyword of a partial, or of an argument by position."""
    func = of_partial(partial)[0]
    code, bound = getattr(func, "__code__", None), is_a(func, types.MethodType)
    known = () if code is None else code.co_varnames[bound : code.co_argcount]
    by_name: dict[Any, str] = dict(enumerate(known))
    text = name if isinstance(name, str) else by_name.get(name, f"args[{name}]")
    return place_of(BoundIn.PARTIAL, partial, name, text)


def object_place(name: str, value: Any) -> CapturedPlace | None:
    """Return the place of an object that a function is given; None of what is no object."""
    try:
        find = weakref.ref(value)
    except TypeError:
        return None
    return CapturedPlace(BoundIn.ATTRIBUTE, find, name, ("object", id(value)), name)


def class_place(cls: type, name: str) -> CapturedPlace:
    """Return the place of what a class has for its instances."""
    return place_of(BoundIn.ATTRIBUTE, cls, cls.__name__).then(name)


GONE: Final = types.SimpleNamespace()
"""Stands for an object that nobody has any more: nothing can change for those who read it."""

_INDEXED: Final = (dict, list, tuple, OrderedDict, defaultdict, Counter)


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
