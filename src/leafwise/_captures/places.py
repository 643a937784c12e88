"""A place outside a function's arguments that its code reads: how to reach it, and its value.

A place is read in two ways: by `Place.read`, and by generated code, with the expression that
`Names.expression` returns.
"""

import builtins
import dataclasses
import itertools
import types
import weakref
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from jax.core import Tracer

from leafwise._objects.attributes import (
    HIDDEN,
    Member,
    MemberKind,
    dict_of,
    in_class,
    is_data,
    is_plain,
    keeps_in_dict,
    member_of,
    of_partial,
    own_attributes,
    slots_of,
)
from leafwise._objects.classes import is_a
from leafwise._objects.source.code import contents
from leafwise._objects.source.names import Item
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import shorten


class BoundIn(StrEnum):
    """Where a captured variable is bound."""

    GLOBAL = "global"  # or a builtin
    CLOSURE = "closure"
    DEFAULT = "default"
    ATTRIBUTE = "attribute"  # of the object whose method it is
    PARTIAL = "argument of partial"
    IMPORT = "import"  # a module that the code of the function imports


class RootKey(NamedTuple):
    """The variable, or the object, where a place starts: equal for places that start there."""

    holder: BoundIn | None  # None for an object, wherever it is bound
    id: int  # of the owner or the cell, which lives as long as the place is read
    variable: str | int = ""


class PlaceKey(NamedTuple):
    """A key that identifies a place, whichever function reads it."""

    root: RootKey
    steps: tuple[str | Item, ...]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Place:
    """A variable outside a function's arguments, and the steps from there to a value.

    It keeps nothing alive except the globals of a module, and an object without a weak reference.
    """

    holder: BoundIn
    owner: Callable[[], Any]
    """Returns the owner of the variable: globals, function, partial or object; None once dead."""
    variable: str | int  # the name of the variable, or the position of an argument of a partial
    root: RootKey
    name: str  # the whole path, as the code spells it
    steps: tuple[str | Item, ...] = ()
    is_member: bool = False
    """Whether it is a function that runs without being named: a property, a method of a class."""
    keeps_owner: bool = False
    """Whether it keeps its owner alive, an object without a weak reference."""

    @property
    def key(self) -> PlaceKey:
        return PlaceKey(self.root, self.steps)

    def behind(self, places: Mapping[RootKey, "Place"]) -> "Place":
        """Return the place by its path from another one, if `places` has one for its root."""
        start = places.get(self.root)
        return self if start is None else start.then(*self.steps)

    def then(self, *steps: str | Item) -> "Place":
        text = [f"[{shorten(each.key, 200)}]" if is_a(each, Item) else f".{each}" for each in steps]
        name = "".join([self.name, *text])
        return dataclasses.replace(self, steps=(*self.steps, *steps), name=name)

    def shared_with(self, other: "Place") -> "Place":
        """Return the place of a variable that two functions share; it lasts while either lives."""
        mine, its = self.owner, other.owner

        def owner() -> Any:
            found = mine()
            return its() if found is None else found

        return dataclasses.replace(self, owner=owner)

    def start(self) -> Any:
        """Return the value of the variable; `DEAD` if its owner was garbage-collected."""
        owner, variable = self.owner(), self.variable
        if owner is None:
            return DEAD
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
        """Return the current value; `MISSING` if nothing is bound. Runs no user code."""
        value = self.start()
        for step in self.steps:
            value = step_into(value, step).value
        return value


def place_of(holder: BoundIn, owner: Any, variable: str | int, name: str = "") -> Place:
    """Return the place of a variable, without keeping its owner alive."""
    root = RootKey(holder, id(owner), variable)
    if holder is BoundIn.CLOSURE:
        root = RootKey(holder, id(cell_of(owner, str(variable))))
    is_kept = holder is BoundIn.GLOBAL or holder is BoundIn.IMPORT
    find = (lambda: owner) if is_kept else weakref.ref(owner)
    return Place(holder, find, variable, root, name or str(variable))


def cell_of(function: Any, name: str) -> types.CellType:
    cell: types.CellType = function.__closure__[function.__code__.co_freevars.index(name)]
    return cell


def defaults_of(function: types.FunctionType) -> dict[str, Any]:
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount][-len(defaults) :] if defaults else ()
    return {**dict(zip(names, defaults, strict=False)), **(function.__kwdefaults__ or {})}


def partial_place(partial: Any, name: str | int) -> Place:
    """Return the place of a keyword of a partial, or of an argument by position."""
    func = of_partial(partial)[0]
    code, bound = getattr(func, "__code__", None), is_a(func, types.MethodType)
    known = () if code is None else code.co_varnames[bound : code.co_argcount]
    by_name: dict[Any, str] = dict(enumerate(known))
    text = name if isinstance(name, str) else by_name.get(name, f"args[{name}]")
    return place_of(BoundIn.PARTIAL, partial, name, text)


def object_place(name: str, value: Any) -> Place | None:
    """Return the place of an object passed to a function; None for a tuple and the like."""
    root = RootKey(None, id(value))
    try:
        return Place(BoundIn.ATTRIBUTE, weakref.ref(value), name, root, name)
    except TypeError:  # `@dataclass(slots=True)`: kept alive, so that its id stays its own
        held = own_attributes(value).values() if slots_of(type(value)) else ()
        if not held or any(is_a(item, Tracer) for item in held):
            return None
        return Place(BoundIn.ATTRIBUTE, lambda: value, name, root, name, keeps_owner=True)


def class_place(cls: type, name: str) -> Place:
    return place_of(BoundIn.ATTRIBUTE, cls, cls.__name__).then(name)


DEAD: Final = types.SimpleNamespace()
"""The referent was garbage-collected, so no reader can see it change."""

_INDEXED: Final = (dict, list, tuple, OrderedDict, defaultdict, Counter)


def item_of(value: Any, key: Any) -> Any:
    """Return an item of a builtin container; `MISSING` without one."""
    if type(value) not in _INDEXED:
        return MISSING
    if is_a(value, dict):
        return value.get(key, MISSING)
    return value[key] if isinstance(key, int) and -len(value) <= key < len(value) else MISSING


def step_into(value: Any, step: str | Item) -> Member:
    """Return the member a step leads to; `MemberKind.HIDDEN` if the value is used as a whole."""
    if value is DEAD or value is MISSING:
        return Member(MemberKind.VALUE, value)
    if isinstance(step, Item):  # if missing, code may catch the error, or a factory add it
        is_indexed = type(value) in _INDEXED
        return Member(MemberKind.VALUE, item_of(value, step.key)) if is_indexed else HIDDEN
    return HIDDEN if is_data(value) else member_of(value, step)


class Names:
    """The variables of generated code: user variables that it reads, and values of its own.

    Its own names end with a number. Where it must keep nothing alive (`is_weak`), it reads no user
    variables directly, except globals.
    """

    def __init__(self, space: dict[str, Any] | None = None, *, is_weak: bool = False) -> None:
        self.is_weak = is_weak
        self.cells: dict[str, types.CellType] = {}
        own: dict[str, Any] = {"__builtins__": builtins}  # C code that imports looks there
        self._space = space if space and "__builtins__" in space else own  # its globals
        self._known: dict[tuple[str, int], str] = {}
        self._locals = itertools.count()

    def local(self) -> str:
        return f"at_{next(self._locals)}"

    def of(self, kind: str, value: Any) -> str:
        """Return the variable that holds a value; its name begins with `kind`."""
        name = self._known.get((kind, id(value)))
        if name is None:
            name = self._known[kind, id(value)] = f"{kind}_{len(self.cells)}"
            self.cells[name] = types.CellType(value)
        return name

    def function(self, code: types.CodeType) -> Callable[..., Any]:
        cells = tuple(self.cells[name] for name in code.co_freevars)
        return types.FunctionType(code, self._space, code.co_name, None, cells)

    def expression(self, place: Place, value: Any, terms: list[str]) -> str:
        """Return an expression that reads a place, valid while the terms that it adds are true."""
        at, first = place.start(), len(terms)
        is_kept = not self.is_weak or place.holder is BoundIn.GLOBAL  # whose names live on
        text = self._variable(place) if is_kept and at is not DEAD else ""
        for step in place.steps if text else ():
            text, at = self._next(text, at, step, terms)
            if not text:
                break
        if text and at is value and at is not MISSING:
            return text
        del terms[first:]
        return f"{self.of('read', place.read)}()"

    def _variable(self, place: Place) -> str:
        """Return an expression for the variable where a place starts; empty for a rare one."""
        owner, variable = place.owner(), place.variable
        match place.holder:
            case BoundIn.GLOBAL if owner is self._space and _is_free(str(variable)):
                return str(variable)
            case BoundIn.GLOBAL if variable in owner:  # not a builtin
                return f"{self.of('names', owner)}[{variable!r}]"
            case BoundIn.CLOSURE:
                cell = cell_of(owner, str(variable))
                name = self._known.setdefault(("", id(cell)), f"{variable}_{len(self.cells)}")
                self.cells[name] = cell
                return name
            case BoundIn.DEFAULT:
                code, found = owner.__code__, f"{self.of('ref', place.owner)}()"
                if variable in (owner.__kwdefaults__ or ()):
                    return f"{found}.__kwdefaults__[{variable!r}]"
                at = code.co_varnames.index(variable) - code.co_argcount
                return f"{found}.__defaults__[{at}]"
            case BoundIn.ATTRIBUTE:
                return f"{self.of('ref', place.owner)}()"
            case _:  # partial(f, 1)
                return ""

    def _next(self, text: str, at: Any, step: str | Item, terms: list[str]) -> tuple[str, Any]:
        """Return an expression one step further on, and the value there; empty without one."""
        kind = type(at)
        if isinstance(step, Item):  # rates["a"]
            return f"{text}[{self.of('key', step.key)}]", item_of(at, step.key)
        if step == "__class__":
            return f"{self.of('type', type)}({text})", kind
        if is_plain(at, step):  # settings.rate
            return f"{text}.{step}", getattr(at, step, MISSING)
        if _is_method(at, step):  # model.step
            if hasattr(at, "__dict__"):
                terms.append(f"{step!r} not in {text}.__dict__")
            return f"{self.of('type', type)}({text}).{step}", getattr(kind, step)
        # An attribute of an equinox module, which has a `__getattribute__` for its methods.
        is_first = hasattr(type(in_class(kind, step)), "__set__")  # before the instance's dict
        if keeps_in_dict(kind) and step in dict_of(at) and not is_first:
            find = self.of("getattribute", object.__getattribute__)
            return f"{find}({text}, '__dict__')[{step!r}]", dict_of(at)[step]
        return "", at


def _is_free(name: str) -> bool:
    """Return whether a global's name cannot clash with a variable of generated code."""
    return not name[-1].isdigit() and name not in ("args", "kwargs", "same")


def _is_method(value: Any, name: str) -> bool:
    kind: Any = type(value)
    if issubclass(kind, type) or type(kind) is not type or not is_plain(value, "__class__"):
        return False
    return type(in_class(kind, name)) is types.FunctionType and name not in dict_of(value)
