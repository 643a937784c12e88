"""What is known of the arguments of functions on a walk over captures."""

import collections
import dataclasses
import inspect
import types
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias, cast

from leafwise._captures.places import BoundIn, CapturedPlace
from leafwise._objects.attributes import hides, is_installed
from leafwise._objects.classes import is_a, module_of
from leafwise._objects.code import function_in, is_installed_module, parameters
from leafwise._objects.methods import InheritedMethod, Method
from leafwise._objects.parts import kind_of

_MOST_SEARCHED: Final = 256


def code_within(values: Iterable[Any]) -> list[Any]:
    """Return the functions of the user's in static values, and classes, also of objects there."""
    found: dict[int, Any] = {}
    pending, met = collections.deque(values), dict[int, Any]()
    while pending and len(met) < _MOST_SEARCHED:
        value = pending.popleft()
        if id(value) in met or hides(value):
            continue
        met[id(value)] = value
        own = value if is_a(value, type) else type(value)
        if not is_installed_module(module_of(own)):
            found[id(own)] = own
        if is_a(value, types.FunctionType):
            found[id(value)] = value
        elif kind_of(value).name not in ("plain", "identity"):
            pending.extend(part for _, part in kind_of(value).parts(value))
    return list(found.values())


@dataclasses.dataclass(frozen=True, slots=True)
class Rest:
    """What is known of ``*args`` or ``**kwargs``."""

    args: "tuple[Argument, ...]" = ()
    kwargs: "tuple[tuple[str, Argument], ...]" = ()

    def places(self) -> list[CapturedPlace]:
        values = (*self.args, *(value for _, value in self.kwargs))
        return [each for each in values if isinstance(each, CapturedPlace)]


Argument: TypeAlias = CapturedPlace | type | None
"""What is known of a parameter: the place it comes from, or the class that it is of."""

Arguments: TypeAlias = dict[str, Argument | Rest]


@dataclasses.dataclass(slots=True)
class Call:
    """What a call passes on to the function that is called, if that is followed.

    Attributes:
        args: The positional arguments.
        kwargs: The others.
        is_followed: Whether they were given to a function that is entered; otherwise they are
            used as a whole.
    """

    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...]
    is_followed: bool = False

    def follow(self) -> tuple[tuple[Argument, ...], tuple[tuple[str, Argument], ...]]:
        self.is_followed = True
        return self.args, self.kwargs


class ToEnter(NamedTuple):
    """Something callable that is to be entered, and what is known of its arguments."""

    value: Any
    place: CapturedPlace | None
    args: tuple[Argument, ...] = ()
    kwargs: tuple[tuple[str, Argument], ...] = ()
    quiet: bool = False
    """Whether a package wrapped it: what its wrappers hold besides is the package's."""
    member: CapturedPlace | None = None
    """Where a class has it, if that is a method of an object that need not exist."""


def assigned(function: types.FunctionType, entry: ToEnter) -> Arguments:
    """Return what is known of the parameters of a function."""
    code = function.__code__
    names = parameters(code)
    given = dict(zip(names[: code.co_argcount], entry.args, strict=False))
    plain = names[: code.co_argcount + code.co_kwonlyargcount]
    given |= {name: each for name, each in entry.kwargs if name in plain}
    found: Arguments = {name: each and _renamed(each, name) for name, each in given.items()}
    rest = entry.args[code.co_argcount :]
    named = tuple((name, each) for name, each in entry.kwargs if name not in plain)
    others = [Rest(rest)] * bool(code.co_flags & inspect.CO_VARARGS)
    others += [Rest((), named)] * bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return {**found, **dict(zip(names[len(plain) :], others, strict=True))}


def _renamed(given: Argument, name: str) -> Argument:
    """Return an argument of a partial under the name of its parameter."""
    is_argument = (
        isinstance(given, CapturedPlace) and given.holder is BoundIn.PARTIAL and not given.steps
    )
    return dataclasses.replace(cast("CapturedPlace", given), name=name) if is_argument else given


def identity(given: Argument) -> Any:
    return (given.key, given.steps) if isinstance(given, CapturedPlace) else id(given)


def passed_to(member: Any, call: Call | None) -> tuple[Any, Any]:
    """Return the arguments of a method; none if what a class has is not a function as it is."""
    raw = function_in(member) if is_a(member, classmethod | staticmethod) else member
    is_plain = is_a(raw, types.FunctionType) and not is_installed(raw)
    if call is None or not (is_plain or is_a(raw, Method | InheritedMethod)):
        return (), ()
    return call.follow()
