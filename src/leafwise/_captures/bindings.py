"""What the functions that ran in a trace read from outside: one entry for each place.

Each chain that their code spells is followed from where it starts, as far as no code of the user's
runs; what runs, as a property or a method, has chains of its own.
"""

import dataclasses
import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

import jax
import numpy as np
from jax.core import Tracer

from leafwise._captures.observe import Run, holds_tracers
from leafwise._captures.places import (
    GONE,
    BoundIn,
    CapturedPlace,
    class_place,
    defaults_of,
    object_place,
    partial_place,
    place_of,
    step_into,
)
from leafwise._objects.attributes import (
    MemberKind,
    functions_behind,
    functions_in,
    in_class,
    is_bound_method,
    is_callable,
    is_installed,
    is_of_package,
    is_tree,
    items_in,
    never_changes,
    of_partial,
    wrapped_by,
)
from leafwise._objects.classes import is_a, module_of, read
from leafwise._objects.code import is_installed_module
from leafwise._objects.methods import BoundMethod
from leafwise._objects.names import LAZY_IMPORT, MUTATORS, Chain, Root, absolute, all_chains
from leafwise._objects.stand_ins import MISSING

_Arguments: TypeAlias = dict[tuple[Any, str], CapturedPlace]
"""The arguments that a partial has for functions, by their parameters."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Binding:
    """One place outside its arguments that a function reads."""

    place: CapturedPlace
    code: types.CodeType | None = None  # which reads it
    line: int = 0  # of the first read; 0 if there is none
    itself: bool = False
    """Whether a method of it runs: its attributes are captures of their own."""
    is_fixed: bool = False
    """Whether it cannot change: an attribute of an object that refuses assignment."""
    words: frozenset[str] = frozenset()
    """The names and texts in the code that ran: of a plain object these attributes count."""

    @property
    def reader(self) -> str:
        """The name of the function that reads it."""
        return "" if self.code is None else self.code.co_qualname


def bindings_of(runs: Iterable[Run], root: Callable[..., Any]) -> list[Binding]:
    """Return all that functions read from outside, each place once: what ran, and what was called.

    A place behind an object or a variable that ends with the trace is reached by another way.
    """
    every = [(run, *_receiver(run)) for run in runs]
    words = names_in(run for run, _, _ in every)
    receivers = {id(receiver) for _, receiver, method in every if method is not None}
    named = _cells([run for run, _, _ in every])
    cells = frozenset(named)
    reads, arguments = _around(root)
    known: set[Any] = set()
    for run, _, method in every:
        if method is not None:
            reads.append(Binding(method, run.code, run.code.co_firstlineno))
        for chain in run.chains(run.code):
            is_read = (run.function, run.code) in known and chain.root is not Root.LOCAL
            start = None if is_read else _start(run, chain, arguments)
            if start is not None and chain.root is Root.CELL and start.root not in cells:
                # A variable of the function around it ends with the trace; what it holds may not.
                start = object_place(chain.name, start.read())
            reads += [] if start is None else _follow(start, chain, run.code)
        known.add((run.function, run.code))
    found: dict[Any, Binding] = {}
    for each in reads:
        place, holder = each.place, named.get(each.place.root)
        place = place if holder is None else holder.then(*place.steps)
        value = place.read()
        if place.key in found or _is_import(place, value):
            continue
        is_receiver = id(value) in receivers
        if is_receiver:
            named.setdefault(("object", id(value)), place)
        found[place.key] = Binding(
            place, each.code, each.line, each.itself or is_receiver, each.is_fixed, words
        )
    return list(found.values())


def names_in(runs: Iterable[Run]) -> frozenset[str]:
    """Return the names and texts in the code that ran."""
    codes = [run.code for run in runs]
    texts = [const for code in codes for const in code.co_consts if type(const) is str]
    return frozenset(texts).union(*(code.co_names for code in codes))


def _cells(runs: list[Run]) -> dict[Any, CapturedPlace]:
    """Return the places of variables closed over by functions that no other one made."""
    made = {const for run in runs for const in run.code.co_consts if is_a(const, types.CodeType)}
    outermost = [run.function for run in runs if run.function and run.code not in made]
    found: dict[Any, CapturedPlace] = {}
    for function in outermost:
        for name in function.__code__.co_freevars:
            place = place_of(BoundIn.CLOSURE, function, name)
            known = found.get(place.root)
            found[place.root] = place if known is None else known.shared_with(place)
    return found


def reachable(fn: Callable[..., Any]) -> list[Run]:
    """Return the runs of a function and of the user's functions that it names, made up."""
    pending: list[tuple[Any, Any]] = [(fn, MISSING)]  # with the object of a method
    runs: dict[Any, Run] = {}
    _, arguments = _around(fn)
    for _ in range(_MOST_REACHED):
        if not pending:
            break
        value, receiver = pending.pop(0)
        inner = [(each, receiver) for each in functions_in(value)]
        call = functions_behind(in_class(type(value), "__call__"))
        if is_a(value, types.MethodType | BoundMethod) or is_bound_method(value):
            inner = [(value.__func__, value.__self__)]
        elif is_a(value, functools.partial):
            inner = [(of_partial(value)[0], receiver)]
        elif is_a(value, types.FunctionType) and not is_installed(value):
            inner = [(wrapped_by(value), receiver)]
            run = alone(value, receiver)
            if (value, id(receiver)) not in runs:
                runs[value, id(receiver)] = run
                pending += [(each, MISSING) for each in _named(run, arguments)]
        elif own := [each for each in call if not is_installed(each)]:
            inner = [(each, value) for each in own]
        pending = [*(pair for pair in inner if is_callable(pair[0])), *pending]
    return list(runs.values())


_MOST_REACHED: Final = 4096


def alone(function: types.FunctionType, receiver: Any = MISSING) -> Run:
    """Return a run of a function, whoever's it is, made up; of a method with its object."""
    code, given = function.__code__, defaults_of(function)
    if code.co_argcount and receiver is not MISSING:
        given = {code.co_varnames[0]: receiver, **given}
    return Run(code, function, function.__globals__, given, set(), all_chains)


def _named(run: Run, arguments: _Arguments) -> Iterator[Any]:
    """Yield what is called through the names of a run: functions, methods, properties."""
    for chain in run.chains(run.code):
        place = _start(run, chain, arguments)
        value = run.given.get(chain.name, MISSING) if place is None else place.read()
        for step in chain.steps:
            member = step_into(value, step)
            if member.kind is not MemberKind.VALUE:
                if callable(member.value):
                    yield types.MethodType(member.value, value)
                break
            value = member.value
        else:
            yield from (each for each in items_in(value) if is_callable(each))


def _receiver(run: Run) -> tuple[Any, CapturedPlace | None]:
    """Return the object whose method ran, and where its class has that; None if it is none."""
    first, function = next(iter(run.given.values()), None), run.function
    cls = first if is_a(first, type) else type(first)
    for base in cls.__mro__ if function is not None else ():
        for name, raw in {} if is_installed_module(module_of(base)) else vars(base).items():
            # A private name begins with that of its class.
            is_named = name.endswith(run.code.co_name)
            if raw is function or (is_named and function in functions_behind(raw)):
                return first, dataclasses.replace(class_place(cls, name), is_member=True)
    return None, None


def _around(root: Any) -> tuple[list[Binding], _Arguments]:
    """Return what a package is given, and what a partial has for functions of the user's."""
    found: list[Binding] = []
    arguments: _Arguments = {}
    while not is_a(root, BoundMethod):
        if not is_a(root, functools.partial):
            if (inner := wrapped_by(root)) is None:
                break
            root = inner
            continue
        func, args, keywords = of_partial(root)
        called = func.__func__ if is_a(func, types.MethodType) else func
        is_own = is_a(called, types.FunctionType) and not is_installed(called)
        for each in (*range(len(args)), *keywords):
            place = partial_place(root, each)
            if is_own:
                arguments[called, place.name] = place
            else:
                found.append(Binding(place))
        root = func
    itself = object_place("self", root)
    if itself is not None and is_installed_module(module_of(type(root))) and is_tree(root):
        found += [] if is_a(root, BoundMethod) else [Binding(itself)]  # as of equinox
    return found, arguments


def _start(run: Run, chain: Chain, arguments: _Arguments) -> CapturedPlace | None:
    """Return the place where a chain starts; None for what is not kept beyond the trace."""
    if chain.root is Root.GLOBAL:
        return place_of(BoundIn.GLOBAL, run.names, chain.name)
    if chain.root is Root.IMPORT:
        name = absolute(chain.name, run.names)
        return place_of(BoundIn.IMPORT, sys.modules, name, name.rpartition(".")[2])
    function: Any = run.function
    if chain.root is Root.CELL:
        return None if function is None else place_of(BoundIn.CLOSURE, function, chain.name)
    value = run.given.get(chain.name, MISSING)
    argument = arguments.get((function, chain.name))
    if argument is not None and (run.chains is all_chains or argument.read() is value):
        return argument
    if function is not None and defaults_of(function).get(chain.name, GONE) is value:
        return place_of(BoundIn.DEFAULT, function, chain.name)
    return object_place(chain.name, value) if chain.steps and value is not MISSING else None


def _follow(place: CapturedPlace, chain: Chain, code: types.CodeType) -> Iterator[Binding]:
    """Yield what a chain leads to, and the object of a method or property that runs on the way."""
    value, is_fixed = place.read(), place.holder is BoundIn.ATTRIBUTE
    of_classes: list[CapturedPlace] = []
    for step in chain.steps:
        if step in MUTATORS and type(value) in _CONTAINERS:  # a callback that appends
            return
        member = step_into(value, step)
        if member.kind is MemberKind.HIDDEN:
            break
        if member.kind is not MemberKind.VALUE:
            yield Binding(place, code, chain.line)
            is_property = member.kind is MemberKind.PROPERTY
            runs = dataclasses.replace(place.then(step), is_member=is_property)
            yield Binding(runs, code, chain.line)
            return
        if member.is_of_class and not is_installed_module(module_of(type(value))):
            of_classes.append(class_place(type(value), str(step)))
        is_made, found = holds_tracers(value), member.value
        is_trusted = is_fixed and found is not MISSING and never_changes(type(value))
        is_fixed = is_made or is_trusted
        further = object_place(f"{place.name}.{step}", found) if is_made else place.then(step)
        if further is None:
            break
        place, value = further, found
    if not holds_tracers(value):
        is_fixed = is_fixed and (
            is_a(value, _NEVER) or callable(value) or never_changes(type(value))
        )
        yield Binding(place, code, chain.line, is_fixed=is_fixed or is_a(value, Tracer))
    for each in of_classes:  # which outlive their objects
        yield Binding(each, code, chain.line)


_CONTAINERS: Final = (list, dict, set, bytearray)
_NEVER: Final = (int, float, complex, str, bytes, type(None), jax.Array, np.generic)


def _is_import(place: CapturedPlace, value: Any) -> bool:
    """Return whether a name is what an import statement binds, which nobody rebinds."""
    start = place.start()
    if is_a(start, LAZY_IMPORT):  # which no code has read so far
        return True
    if is_a(start, types.ModuleType) and is_installed_module(start.__name__):
        return True
    name = place.name.rpartition(".")[2]
    is_named = place.holder is BoundIn.GLOBAL and read(value, "__name__", None) == name
    return is_named and callable(value) and is_of_package(value)
