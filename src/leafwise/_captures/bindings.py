"""What the functions that ran in a trace read from outside: one entry for each place.

Each chain that their code spells is followed from where it starts, as far as no code of the user's
runs; what runs, as a property or a method, has chains of its own.
"""

import dataclasses
import functools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import jax
import numpy as np
from jax.core import Tracer

from leafwise._captures.observe import Run
from leafwise._captures.places import (
    BoundIn,
    CapturedPlace,
    cell_place,
    default_place,
    global_place,
    import_place,
    member_place,
    object_place,
    partial_place,
    step_into,
)
from leafwise._objects.attributes import (
    Member,
    MemberKind,
    dict_of,
    functions_behind,
    functions_in,
    in_class,
    is_bound_method,
    is_installed,
    never_changes,
    of_partial,
    registry_of,
    wrapped_by,
)
from leafwise._objects.classes import is_a, module_of
from leafwise._objects.code import is_installed_module
from leafwise._objects.methods import BoundMethod
from leafwise._objects.names import MUTATORS, Chain, Item, Root, chains_of, chains_within
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import got


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Binding:
    """One place outside its arguments that a function reads.

    Attributes:
        place: Where to look.
        code: The code that reads it.
        line: The line of the first read; 0 if there is none.
        itself: Whether a method of it runs: its attributes are captures of their own.
        is_fixed: Whether it cannot change: an attribute of an object that refuses assignment.
        words: The names and texts in the code that ran: of a plain object these attributes count.
    """

    place: CapturedPlace
    code: types.CodeType | None
    line: int
    itself: bool = False
    is_fixed: bool = False
    words: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The place, as the code spells it: ``lr``, ``config.rate``, ``self.w``."""
        return self.place.name

    @property
    def reader(self) -> str:
        """The name of the function that reads it."""
        return "" if self.code is None else self.code.co_qualname

    @property
    def key(self) -> tuple[Any, ...]:
        """What is equal for one place, whoever reads it."""
        return (*self.place.key, self.place.steps)

    def read(self) -> Any:
        """Return the current value; `MISSING` if nothing is bound.

        No property and no ``__getattr__`` runs.
        """
        return self.place.read()


def bindings_of(runs: Iterable[Run], root: Callable[..., Any]) -> list[Binding]:
    """Return everything that functions read from outside, each place once.

    Args:
        runs: What ran.
        root: The function that was called; also a partial, a bound method, a callable object.
    """
    every = list(runs)
    words = frozenset[str]().union(*(_words(run.code) for run in every))
    receivers = {id(each) for run in every for each in _receiver(run)}
    found: dict[Any, Binding] = {}
    named = _cells(every)
    for binding in (*_around(root), *(each for run in every for each in _reads(run))):
        place = _through(binding.place, named)
        value = place.read()
        own = dataclasses.replace(binding, place=place, words=words)
        if own.key in found or _is_import(own, value):
            continue
        if is_a(value, Tracer):
            own = dataclasses.replace(own, is_fixed=True)
        if binding.itself or id(value) in receivers:
            named.setdefault(("object", id(value)), place)
            own = dataclasses.replace(own, itself=True)
        found[own.key] = own
    return list(found.values())


def _cells(runs: list[Run]) -> dict[Any, CapturedPlace]:
    """Return the places of all variables that are closed over, in the outermost functions."""
    found: dict[Any, CapturedPlace] = {}
    for run in runs:
        for name in run.code.co_freevars if run.function is not None else ():
            place = cell_place(run.function, name)
            if place is not None:
                found.setdefault(place.key, place)
    return found


def _through(place: CapturedPlace, named: dict[Any, CapturedPlace]) -> CapturedPlace:
    """Return a place behind an object or a variable by another way, which outlives the trace."""
    holder = named.get(place.key)
    if holder is None:
        return place
    for step in place.steps:
        holder = holder.then(step)
    return holder


def reachable(fn: Callable[..., Any]) -> list[Run]:
    """Return the runs of a function and of the user's functions that it names, made up.

    Raises:
        TypeError: `fn` is not callable.
    """
    if not callable(fn):
        msg = f"a function is wanted, got {got(fn)}"
        raise TypeError(msg)
    pending: list[Any] = [fn]
    runs: dict[Any, Run] = {}
    while pending and len(runs) < _MOST_REACHED:
        for function, given in _functions(pending.pop(0), {}):
            run = alone(function)
            run.given.update(given)
            key = function, *map(id, run.given.values())
            if key not in runs:
                runs[key] = run
                pending += _named(runs[key])
    return list(runs.values())


_MOST_REACHED: Final = 1024


def alone(function: types.FunctionType) -> Run:
    """Return a run of a function, whoever's it is, made up."""
    code, given = function.__code__, _defaults(function)
    return Run(code, function, function.__globals__, given, set(), _all_chains)


def _all_chains(code: types.CodeType) -> tuple[Chain, ...]:
    """Return the chains of code and of the functions inside, which may run."""
    return tuple(dict.fromkeys((*chains_of(code), *chains_within(code))))


def _defaults(function: types.FunctionType) -> dict[str, Any]:
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    by_place = zip(names[len(names) - len(defaults) :], defaults, strict=True)
    return {**dict(by_place), **(function.__kwdefaults__ or {})}


def _functions(
    value: Any, first: dict[int, Any], depth: int = 0
) -> Iterator[tuple[types.FunctionType, dict[str, Any]]]:
    """Yield the user's functions that run when a value is called, with what they are given."""
    if depth > _DEEPEST or is_a(value, type):
        return
    inner: list[tuple[Any, dict[int, Any]]] = []
    if is_a(value, functools.partial):
        func, args, _ = of_partial(value)
        inner = [(func, {**dict(enumerate(args)), **{at + len(args): first[at] for at in first}})]
    elif is_a(value, types.MethodType) or is_bound_method(value):
        inner = [(value.__func__, {0: value.__self__})]
    elif type(value) is not types.FunctionType:
        call = in_class(type(value), "__call__")
        own = [each for each in functions_behind(call) if not is_installed(each)]
        inner = [(each, {0: value}) for each in own] or [
            (each, first) for each in functions_in(value)
        ]
    elif (choice := registry_of(value)) is not None:
        inner = [(each, first) for each in choice.values()]
    elif not is_installed(value):
        names = value.__code__.co_varnames[: value.__code__.co_argcount]
        yield value, {names[at]: each for at, each in first.items() if at < len(names)}
        inner = [(wrapped_by(value), first)]
    else:
        inner = [(each, first) for each in functions_in(value)]
    for each, given in inner:
        if each is not None:
            yield from _functions(each, given, depth + 1)


_DEEPEST: Final = 20


def _named(run: Run) -> Iterator[Any]:
    """Yield what is called through the names of a run: functions, methods, properties."""
    for chain in run.chains(run.code):
        place = _start(run, chain)
        value = run.given.get(chain.name, MISSING) if place is None else place.read()
        for step in chain.steps:
            member = step_into(value, step)
            if member.kind in _RUNS and callable(member.value):
                yield types.MethodType(member.value, value)
            if member.kind is not MemberKind.VALUE:
                break
            value = member.value
        else:
            if callable(value) and not is_a(value, type):
                yield value


_RUNS: Final = (
    *(MemberKind.METHOD, MemberKind.CLASS_METHOD, MemberKind.PROPERTY, MemberKind.DESCRIPTOR),
)


def _words(code: types.CodeType) -> frozenset[str]:
    return frozenset((*code.co_names, *(each for each in code.co_consts if type(each) is str)))


def _receiver(run: Run) -> Iterator[Any]:
    """Yield the object whose method ran."""
    first = next(iter(run.given.values()), None)
    cls = first if is_a(first, type) else type(first)
    if run.given and _member(cls, run):
        yield first


def _member(cls: type, run: Run) -> str:
    """Return the name under which a class of the user's has a function that ran; or nothing."""
    for base in cls.__mro__:
        for name, raw in {} if is_installed_module(module_of(base)) else vars(base).items():
            if run.function is not None and run.function in functions_behind(raw):
                return name
    return ""


def _around(root: Any) -> Iterator[Binding]:
    """Yield the arguments of a partial."""
    while is_a(root, functools.partial) and not is_a(root, BoundMethod):
        func, args, keywords = of_partial(root)
        code = getattr(func, "__code__", None)
        for name in (*range(len(args)), *keywords):
            yield Binding(
                partial_place(root, name), code, 0 if code is None else code.co_firstlineno
            )
        root = func


def _reads(run: Run) -> Iterator[Binding]:
    """Yield what one run of a function reads."""
    function, chains = run.function, run.chains(run.code)
    read = {chain.name: chain.line for chain in chains if chain.root is Root.LOCAL}
    for receiver in _receiver(run):
        cls = receiver if is_a(receiver, type) else type(receiver)
        place = member_place(cls, _member(cls, run))
        yield Binding(place, run.code, run.code.co_firstlineno)
    for chain in chains:
        place = _start(run, chain)
        if place is not None:
            yield from _follow(place, chain, run.code)
    for name, value in run.given.items() if function is not None else ():
        place = default_place(function, name) if name in read else None
        if place is not None and place.read() is value:
            yield Binding(place, run.code, read[name])


def _start(run: Run, chain: Chain) -> CapturedPlace | None:
    """Return the place where a chain starts; None for what is not kept beyond the trace."""
    if chain.root is Root.GLOBAL:
        return global_place(run.function, run.names, chain.name)
    if chain.root is Root.IMPORT:
        return import_place(run.names, chain.name)
    if chain.root is Root.CELL:
        return None if run.function is None else cell_place(run.function, chain.name)
    value = run.given.get(chain.name, MISSING)
    if value is MISSING or not chain.steps:
        return None
    return object_place(chain.name, value)


def _follow(place: CapturedPlace, chain: Chain, code: types.CodeType) -> Iterator[Binding]:
    """Yield what a chain leads to, and the object of a method or property that runs on the way."""
    value, is_open = place.read(), chain.root is not Root.LOCAL
    of_classes: list[CapturedPlace] = []
    is_kept = True
    for step in chain.steps:
        member, owner = step_into(value, step), _class_with(value, step)
        if member.kind in _RUNS and not is_installed(member.value):
            for each, itself in _that_runs(place, str(step), member):
                yield Binding(each, code, chain.line, itself=itself)
            return
        if member.kind is MemberKind.MISSING:
            place, value, is_open = place.then(step), MISSING, True
            break
        if step in MUTATORS and type(value) in _CONTAINERS:  # a callback that appends
            return
        if member.kind is not MemberKind.VALUE:
            break
        of_classes += [] if owner is None else [member_place(owner, str(step))]
        if _is_of_trace(value):  # what is behind an object that was made in the trace may be kept
            inner = object_place(f"{place.name}.{step}", member.value)
            if inner is None:
                is_kept = False
                break
            place, value, is_open = inner, member.value, False
            continue
        is_open = is_open or not never_changes(type(value))
        place, value = place.then(step), member.value
    if is_kept:
        is_fixed = not is_open and _is_fixed(value)
        yield Binding(place, code, chain.line, is_fixed=is_fixed)
    for each in of_classes:
        yield Binding(dataclasses.replace(each, is_member=False), code, chain.line)


def _that_runs(
    place: CapturedPlace, step: str, member: Member
) -> Iterator[tuple[CapturedPlace, bool]]:
    """Yield the object whose method or property runs, and where that is found."""
    yield place, True
    is_property = member.kind in (MemberKind.PROPERTY, MemberKind.DESCRIPTOR)
    yield dataclasses.replace(place.then(step), is_member=is_property), False
    if is_property:
        yield member_place(type(place.read()), step), False


_CONTAINERS: Final = (list, dict, set, bytearray)


def _class_with(value: Any, step: str | Item) -> type | None:
    """Return the class of the user's that has the value of an attribute of an instance."""
    if isinstance(step, Item) or is_a(value, types.ModuleType | type) or step in dict_of(value):
        return None
    found = next((each for each in type(value).__mro__ if step in vars(each)), None)
    is_data = found is not None and not hasattr(type(vars(found)[step]), "__get__")
    return found if is_data and not is_installed_module(module_of(found)) else None


def _is_of_trace(value: Any) -> bool:
    """Return whether an object was made for a trace: it holds what is traced."""
    held = dict_of(value).values()
    if any(isinstance(each, Tracer) for each in held):
        return True
    try:
        leaves = jax.tree.leaves(value) if held else ()
    except Exception:  # noqa: BLE001  # a flatten of the user's may raise anything
        return False
    return any(isinstance(each, Tracer) for each in leaves)


def _is_fixed(value: Any) -> bool:
    """Return whether a value cannot change in place."""
    kind = type(value)
    return is_a(value, (*_NEVER, np.generic)) or callable(value) or never_changes(kind)


_NEVER: Final = (int, float, complex, str, bytes, type(None), jax.Array)


def _is_import(binding: Binding, value: Any) -> bool:
    """Return whether a name is what an import statement binds, which nobody rebinds."""
    start = binding.place.start()
    if issubclass(type(start), types.ModuleType) and is_installed_module(start.__name__):
        return True
    if binding.place.holder is not BoundIn.GLOBAL:
        return False
    try:
        module, own = value.__module__, value.__name__
    except Exception:  # noqa: BLE001  # the user's own code, or no name at all
        return False
    last = binding.name.rpartition(".")[2]
    return callable(value) and own == last and is_installed_module(module)
