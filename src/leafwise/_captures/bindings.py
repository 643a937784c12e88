"""What the functions that ran in a trace read from outside: one entry for each place.

Each chain that their code spells is followed from where it starts, as far as no code of the user's
runs; what runs, as a property or a method, has chains of its own.
"""

import dataclasses
import functools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

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
    hides,
    in_class,
    is_bound_method,
    is_installed,
    is_tree,
    items_in,
    never_changes,
    of_partial,
    registry_of,
    wrapped_by,
)
from leafwise._objects.classes import is_a, module_of, read
from leafwise._objects.code import is_installed_module, parameters
from leafwise._objects.methods import BoundMethod
from leafwise._objects.names import MUTATORS, Chain, Item, Root, chains_of
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import got

_Arguments: TypeAlias = dict[tuple[Any, str], CapturedPlace]
"""The arguments that a partial has for functions, by their parameters."""


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
    inner = {pair for run in every for pair in _cells_made_in(run.code)}
    receivers = {id(each) for run in every for each in _receiver(run)}
    found: dict[Any, Binding] = {}
    named = _cells(every)
    arguments: _Arguments = {}
    around = list(_around(root, arguments))
    reads = (each for run in every for each in _reads(run, inner, arguments))
    for binding in (*around, *reads):
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


def _cells_made_in(code: types.CodeType) -> Iterator[tuple[types.CodeType, str]]:
    """Yield the variables of inner functions that are made when a function runs."""
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from ((inner, name) for name in inner.co_freevars if name in code.co_cellvars)


def _cells(runs: list[Run]) -> dict[Any, CapturedPlace]:
    """Return the places of all variables that are closed over, in the outermost functions."""
    found: dict[Any, CapturedPlace] = {}
    for run in runs:
        for name in run.code.co_freevars:
            place = None if run.function is None else cell_place(run.function, name)
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
    found, given = list(chains_of(code)), parameters(code)
    for inner in code.co_consts:
        for each in _all_chains(inner) if isinstance(inner, types.CodeType) else ():
            is_cell = each.root is Root.CELL and each.name in code.co_cellvars
            if is_cell and each.name in given:
                found.append(each._replace(root=Root.LOCAL))
            elif each.root is not Root.LOCAL and not is_cell:
                found.append(each)
    return tuple(dict.fromkeys(found))


def _defaults(function: types.FunctionType) -> dict[str, Any]:
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    by_place = zip(names[len(names) - len(defaults) :], defaults, strict=True)
    return {**dict(by_place), **(function.__kwdefaults__ or {})}


def _functions(
    value: Any, first: dict[int | str, Any], depth: int = 0
) -> Iterator[tuple[types.FunctionType, dict[str, Any]]]:
    """Yield the user's functions that run when a value is called, with what they are given."""
    if depth > _DEEPEST or is_a(value, type):
        return
    inner: list[tuple[Any, dict[int | str, Any]]] = []
    if is_a(value, functools.partial):
        func, args, keywords = of_partial(value)
        later = {at + len(args) if isinstance(at, int) else at: first[at] for at in first}
        given: dict[int | str, Any] = dict(enumerate(args))
        given |= later
        given.update(keywords.items())
        inner = [(func, given)]
    elif is_a(value, types.MethodType) or is_bound_method(value):
        later = {at + 1 if isinstance(at, int) else at: first[at] for at in first}
        inner = [(value.__func__, {0: value.__self__, **later})]
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
        by_name: dict[int | str, Any] = {each: each for each in first} | dict(enumerate(names))
        yield value, {name: first[at] for at in first if isinstance(name := by_name[at], str)}
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
        place = _start(run, chain, {})
        value = run.given.get(chain.name, MISSING) if place is None else place.read()
        for step in chain.steps:
            member = step_into(value, step)
            if member.kind in _RUNS and callable(member.value):
                yield types.MethodType(member.value, value)
            if member.kind is not MemberKind.VALUE:
                break
            value = member.value
        else:
            for each in items_in(value):
                if callable(each) and not is_a(each, type):
                    yield each


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


def _around(root: Any, arguments: _Arguments) -> Iterator[Binding]:
    """Yield what a package is given: arguments of a partial, or an object that is called.

    The arguments that a partial has for a function of the user's are added to `arguments`.
    """
    while is_a(root, functools.partial) and not is_a(root, BoundMethod):
        func, args, keywords = of_partial(root)
        for each in (*range(len(args)), *keywords):
            place = partial_place(root, each)
            called = func.__func__ if is_a(func, types.MethodType) else func
            if type(called) is types.FunctionType and not is_installed(called):
                arguments[called, place.name] = place
            else:
                yield Binding(place, None, 0)
        root = func
    if (inner := wrapped_by(root)) is not None:
        yield from _around(inner, arguments)
        return
    itself = None if is_a(root, functools.partial) else object_place("self", root)
    if itself is not None and is_installed_module(module_of(type(root))) and is_tree(root):
        yield Binding(itself, None, 0)  # as a module of equinox


def _reads(run: Run, inner: set[Any], arguments: _Arguments) -> Iterator[Binding]:
    """Yield what one run of a function reads."""
    function, chains = run.function, run.chains(run.code)
    for receiver in _receiver(run):
        cls = receiver if is_a(receiver, type) else type(receiver)
        method = member_place(cls, _member(cls, run))
        yield Binding(method, run.code, run.code.co_firstlineno)
    for each in chains:
        chain, start = each, _start(run, each, arguments)
        # A parameter of the function around it ends with the trace; what it holds may not.
        if start is not None and (run.code, chain.name) in inner:
            start, chain = object_place(chain.name, start.read()), chain._replace(root=Root.LOCAL)
        if start is not None:
            yield from _follow(start, chain, run.code)
    # Functions inside that ran have the defaults in variables that end with the trace.
    for name in () if run.chains is _all_chains else run.code.co_cellvars:
        default = default_place(function, name) if function and name in run.given else None
        if default is not None and default.read() is run.given[name]:
            yield Binding(default, run.code, run.code.co_firstlineno)


def _start(run: Run, chain: Chain, arguments: _Arguments) -> CapturedPlace | None:
    """Return the place where a chain starts; None for what is not kept beyond the trace."""
    if chain.root is Root.GLOBAL:
        return global_place(run.function, run.names, chain.name)
    if chain.root is Root.IMPORT:
        return import_place(run.names, chain.name)
    if chain.root is Root.CELL:
        return None if run.function is None else cell_place(run.function, chain.name)
    value = run.given.get(chain.name, MISSING)
    default = None if run.function is None else default_place(run.function, chain.name)
    for each in (arguments.get((run.function, chain.name)), default):
        if each is not None and each.read() is value:
            return each
    return None if value is MISSING or not chain.steps else object_place(chain.name, value)


def _follow(place: CapturedPlace, chain: Chain, code: types.CodeType) -> Iterator[Binding]:
    """Yield what a chain leads to, and the object of a method or property that runs on the way."""
    value, is_open = place.read(), place.holder is not BoundIn.ATTRIBUTE
    of_classes: list[CapturedPlace] = []
    for step in chain.steps:
        if step in MUTATORS and type(value) in _CONTAINERS:  # a callback that appends
            return
        member, owner = step_into(value, step), _class_with(value, step)
        if member.kind in _RUNS and not is_installed(member.value):
            for each, itself in _that_runs(place, str(step), member):
                yield Binding(each, code, chain.line, itself=itself)
            return
        if member.kind not in (MemberKind.VALUE, MemberKind.MISSING):
            break
        if owner is not None:
            of_classes.append(dataclasses.replace(member_place(owner, str(step)), is_member=False))
        is_made, found = _is_of_trace(value), member.value
        is_open = not is_made and (is_open or found is MISSING or not never_changes(type(value)))
        further = object_place(f"{place.name}.{step}", found) if is_made else place.then(step)
        if further is None:
            break
        place, value = further, found
    if not _is_of_trace(value):
        yield Binding(place, code, chain.line, is_fixed=not is_open and _is_fixed(value))
    for each in of_classes:  # which outlive their objects
        yield Binding(each, code, chain.line)


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
    if found is None or is_installed_module(module_of(found)):
        return None
    return None if hasattr(type(vars(found)[step]), "__get__") else found


def _is_of_trace(value: Any) -> bool:
    """Return whether an object was made for a trace: it holds what is traced."""
    held = () if hides(value) else dict_of(value).values()
    if any(is_a(each, Tracer) for each in held):
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
    if hides(value) or not callable(value) or not is_installed_module(module_of(type(value))):
        return False
    is_named = "__name__" in dict_of(value) or in_class(type(value), "__name__") is not MISSING
    if not (is_named or is_a(value, type)):  # a mock would get such an attribute now
        return False
    last = binding.name.rpartition(".")[2]
    return read(value, "__name__", None) == last and is_installed_module(
        read(value, "__module__", None)
    )
