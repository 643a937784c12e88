"""A place outside a function's arguments that its code reads: the way there, and the value."""

import builtins
import collections
import contextlib
import dataclasses
import functools
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from enum import Enum, StrEnum
from typing import Any, Final

import jax
import numpy as np

from leafwise._objects.attributes import Member, MemberKind, in_class, is_data, member_of
from leafwise._objects.classes import is_a
from leafwise._objects.code import contents
from leafwise._objects.reads import Asked, Const, Item, Read, Step, Usage
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

    Attributes:
        holder: Where the way starts.
        key: Equal for places that start at the same variable.
        start: Returns the value of that variable.
        steps: The attributes and keys from there on.
        name: The way as the code spells it.
        variable: The name that the way starts with.
        owner: What holds the variable: the globals, the cell, the object, the function.
        is_question: Whether it is the answer to a question about other places: ``a is b``.
        is_member: Whether it is a function that a class has, which the code runs unnamed.
    """

    holder: BoundIn
    key: tuple[Any, ...]
    start: Callable[[], Any]
    steps: tuple[Step, ...]
    name: str
    variable: str
    owner: Any
    is_question: bool = False
    is_member: bool = False

    def then(self, step: Step) -> "CapturedPlace":
        """Return the place one step further on."""
        steps, name = (*self.steps, step), self.name + _format_step(step)
        return dataclasses.replace(self, steps=steps, name=name, is_member=False)

    def read(self) -> Any:
        """Return the current value; `MISSING` if nothing is bound."""
        value = self.start()
        for step in self.steps:
            if value is MISSING:
                break
            value = item_of(value, step.key) if isinstance(step, Item) else _attribute(value, step)
        return value

    def way(self) -> Iterator[tuple[Any, Step, Any]]:
        """Yield each step with the object that it is taken of, and what is found there."""
        value = self.start()
        for end, step in enumerate(self.steps, 1):
            holder, value = value, dataclasses.replace(self, steps=self.steps[:end]).read()
            yield holder, step, value

    def before(self) -> "CapturedPlace":
        """Return the place one step back."""
        last = _format_step(self.steps[-1])
        return dataclasses.replace(self, steps=self.steps[:-1], name=self.name.removesuffix(last))

    def holding(self) -> Any:
        """Return the object whose attribute or item it is; `MISSING` if it is none."""
        return self.before().read() if self.steps else MISSING


def _format_step(step: Step) -> str:
    return f"[{shorten(step.key, 200)}]" if isinstance(step, Item) else f".{step}"


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


_READABLE: Final = (
    *(MemberKind.VALUE, MemberKind.METHOD, MemberKind.CLASS_METHOD, MemberKind.DISPATCHED),
)


def _attribute(value: Any, name: str) -> Any:
    member = step_into(value, name)
    return member.value if member.kind in _READABLE else MISSING


def global_place(function: types.FunctionType, name: str) -> CapturedPlace:
    """Return the place of a global, or of a builtin."""
    names = function.__globals__
    start = functools.partial(_global, names, name)
    return CapturedPlace(BoundIn.GLOBAL, ("global", id(names), name), start, (), name, name, names)


def _global(names: dict[str, Any], name: str) -> Any:
    found = names.get(name, MISSING)
    return vars(builtins).get(name, MISSING) if found is MISSING else found


def import_place(function: types.FunctionType, name: str) -> CapturedPlace:
    """Return the place of a module that a function imports; dots begin a relative name."""
    package = function.__globals__.get("__package__")
    with contextlib.suppress(ImportError, TypeError, ValueError):
        name = importlib.util.resolve_name(name, package if isinstance(package, str) else None)
    start = functools.partial(sys.modules.get, name, MISSING)
    short = name.rpartition(".")[2]
    key = "import", id(sys.modules), name
    return CapturedPlace(BoundIn.IMPORT, key, start, (), short, name, sys.modules)


def _question(place: CapturedPlace, name: str, own: Any, ask: Callable[[], bool]) -> CapturedPlace:
    """Return a place whose value is the answer to a question about what is at another one."""
    key = "question", *place.key, place.steps, own
    return dataclasses.replace(place, key=key, start=ask, steps=(), name=name, is_question=True)


def is_place(place: CapturedPlace, other: CapturedPlace | Const) -> CapturedPlace:
    """Return the place of the answer to ``place is other``."""
    if isinstance(other, CapturedPlace):
        name, key = other.name, repr((other.key, other.steps))
        ask = functools.partial(_is_same, place.read, other.read)
    else:
        name = key = repr(other.value)
        ask = functools.partial(_is_same, place.read, functools.partial(_itself, other.value))
    return _question(place, f"{place.name} is {name}", key, ask)


def _is_same(read: Callable[[], Any], another: Callable[[], Any]) -> bool:
    return read() is another()


def presence_place(place: CapturedPlace) -> CapturedPlace:
    """Return the place of the answer to whether there is something at a place."""
    holder, step = place.before(), place.steps[-1]
    if isinstance(step, Item):
        name = f"{step.key!r} in {holder.name}"
    else:
        name = f"hasattr({holder.name}, {step!r})"
    return _question(place, name, "present", functools.partial(_is_present, holder, step))


def _is_present(holder: CapturedPlace, step: Step) -> bool:
    found = holder.read()
    return found is not MISSING and step_into(found, step).kind is not MemberKind.MISSING


def cell_place(function: types.FunctionType, name: str) -> CapturedPlace:
    """Return the place of a variable of the enclosing function."""
    place = function.__code__.co_freevars.index(name)
    cell = (function.__closure__ or ())[place]
    start = functools.partial(contents, cell)
    return CapturedPlace(BoundIn.CLOSURE, ("cell", id(cell)), start, (), name, name, function)


def default_place(function: types.FunctionType, name: str) -> CapturedPlace | None:
    """Return the place of the default of a parameter, if it has one."""
    place = CapturedPlace(
        BoundIn.DEFAULT,
        ("default", id(function), name),
        functools.partial(_default, function, name),
        (),
        name,
        name,
        function,
    )
    return None if place.read() is MISSING else place


def _default(function: types.FunctionType, name: str) -> Any:
    code, defaults = function.__code__, function.__defaults__ or ()
    positional = code.co_varnames[: code.co_argcount]
    if name not in positional:
        return (function.__kwdefaults__ or {}).get(name, MISSING)
    place = positional.index(name) - len(positional)
    return defaults[place] if place >= -len(defaults) else MISSING


def fixed_place(holder: BoundIn, name: str, value: Any, owner: Any) -> CapturedPlace:
    """Return the place of something that is never rebound: a receiver, an argument."""
    # A receiver is one place, whichever way leads to it.
    key = (holder, id(owner), "" if value is owner else name)
    return CapturedPlace(holder, key, functools.partial(_itself, value), (), name, name, owner)


def class_place(cls: type) -> CapturedPlace:
    """Return the place of a class that a method is given, or that it belongs to."""
    return fixed_place(BoundIn.ATTRIBUTE, cls.__name__, cls, cls)


def member_place(cls: type, name: str) -> CapturedPlace:
    """Return the place of a method that instances of a class find."""
    place = class_place(cls).then(name)
    if is_a(in_class(cls, name), functools.singledispatchmethod):
        return registry_of(place)
    return dataclasses.replace(place, is_member=True)


def registry_of(place: CapturedPlace) -> CapturedPlace:
    """Return the place of what a `functools.singledispatchmethod` chooses from."""
    return dataclasses.replace(place, is_member=False).then("dispatcher").then("registry")


def in_type_of(place: CapturedPlace) -> CapturedPlace:
    """Return the place of the property or descriptor that answers for an attribute."""
    name = place.steps[-1]
    found = place.before().then("__class__").then(name)
    return dataclasses.replace(found, name=place.name, is_member=True)


def _itself(value: Any) -> Any:
    return value


_WHOLE: Final = Member(MemberKind.HIDDEN)
_UNBOUND: Final = Member(MemberKind.MISSING)


def step_into(value: Any, step: Step) -> Member:
    """Return what a step leads to; `MemberKind.HIDDEN` if the value is used as a whole."""
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


MUTABLE: Final = (list, dict, set, bytearray, collections.deque)


def as_used(place: CapturedPlace, read: Read) -> Read:
    """Return a call of ``get`` or of ``append`` as what it is for the container at a place."""
    read = _as_asked(place, read)
    if read.usage is not Usage.MUTATED:
        return read
    holder = functools.reduce(CapturedPlace.then, read.steps[:-1], place)
    if isinstance(holder.read(), MUTABLE):
        return read._replace(steps=read.steps[:-1], usage=Usage.WRITTEN)
    return read._replace(usage=Usage.CALLED)


def _as_asked(place: CapturedPlace, read: Read) -> Read:
    """Return ``config.get('rate')`` as the item of a dict; of anything else as a call."""
    if not any(type(step) is Asked for step in read.steps):
        return read
    steps: tuple[Step, ...] = ()
    for step in read.steps:
        if isinstance(step, Asked):
            by_get = steps[-1:] == ("get",)
            holder = functools.reduce(
                CapturedPlace.then, steps[: len(steps) - by_get], place
            ).read()
            if not (type(holder) in _INDEXED and isinstance(holder, dict)):
                usage = Usage.CALLED if by_get else Usage.READ
                return read._replace(steps=steps, usage=usage)
            steps = steps[: len(steps) - by_get]
        steps = (*steps, step)
    return read._replace(steps=steps)


def in_package(
    place: CapturedPlace, module: types.ModuleType, steps: tuple[Step, ...]
) -> tuple[CapturedPlace, Any]:
    """Return a number of a package, such as ``np.pi``; the module for anything else."""
    value: Any = module
    ahead = place
    for step in steps:
        if not isinstance(step, str) or not is_a(value, types.ModuleType):
            break
        value, ahead = vars(value).get(step, MISSING), ahead.then(step)
    plain = is_a(value, int | float | complex | np.ndarray | np.generic | jax.Array)
    return (ahead, value) if plain else (place, module)
