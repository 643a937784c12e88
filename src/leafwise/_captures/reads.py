"""What the functions that ran in a trace read from outside: one entry for each place.

Each chain that their code spells is followed from its start until user code would run; a property
or a method that runs has chains of its own.
"""

import dataclasses
import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias, TypeVar, cast

import jax
import numpy as np
from jax.core import Tracer

from leafwise._captures.check import Terms, check_function
from leafwise._captures.observe import Run, Source, holds_tracers, source_of
from leafwise._captures.places import (
    DEAD,
    BoundIn,
    Names,
    Place,
    PlaceKey,
    RootKey,
    class_place,
    defaults_of,
    object_place,
    partial_place,
    place_of,
    step_into,
)
from leafwise._findings.reasons import Change, Passing, how_to_pass
from leafwise._objects.attributes import (
    MemberKind,
    functions_behind,
    functions_in,
    in_class,
    is_bound_method,
    is_callable,
    is_installed,
    is_of_package,
    is_plain_object,
    is_tree,
    items_in,
    never_changes,
    of_partial,
    wrapped_by,
)
from leafwise._objects.classes import is_a, module_of, read
from leafwise._objects.describe import describe_value
from leafwise._objects.interrupts import or_default
from leafwise._objects.methods import BoundMethod
from leafwise._objects.source.code import facts_of, int_as_float, is_installed_module
from leafwise._objects.source.names import LAZY_IMPORT, MUTATORS, Chain, Root, absolute, all_chains
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import shorten_both
from leafwise._statics.account import (
    FUNCTION,
    Account,
    AccountFold,
    CheckedBy,
    Held,
    PartNode,
    Path,
)

K = TypeVar("K")

_Arguments: TypeAlias = dict[tuple[Any, str], Place]
"""The places of the arguments that a partial binds, by function and parameter."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Read:
    """One place outside its arguments that a function reads."""

    place: Place
    code: types.CodeType | None = None  # which reads it
    line: int = 0  # of the first read; 0 if unknown
    itself: bool = False
    """Whether a method of it runs, so that its attributes are captures of their own."""
    is_fixed: bool = False
    """Whether it cannot change: an attribute of an object that refuses assignment."""
    words: frozenset[str] = frozenset()
    """The names and strings in the code that ran; only these attributes of an object count."""
    readers: Sequence[types.CodeType] = ()
    """All codes that read it."""

    @property
    def reader(self) -> str:
        return "" if self.code is None else self.code.co_qualname

    @property
    def site(self) -> str:
        """The line that reads it: ``train.py:12``."""
        code = self.code
        return "" if code is None else f"{code.co_filename}:{self.line or code.co_firstlineno}"


def reads_of(runs: Iterable[Run], root: Callable[..., Any]) -> list[Read]:
    """Return the places that `runs` read from outside, and those bound in `root`, each once."""
    # Locals that die with the trace are replaced by a path from something that outlives it.
    methods = [(run, *_receiver(run)) for run in runs]
    receivers = {id(receiver) for _, receiver, method in methods if method is not None}
    cells = _cells([run for run, _, _ in methods])
    reads, arguments = _around(root)
    known: set[Any] = set()
    for run, _, method in methods:
        if method is not None:
            reads.append(Read(method, run.code, run.code.co_firstlineno))
        for chain in run.chains(run.code):
            is_read = (run.function, id(run.code)) in known and chain.root is not Root.LOCAL
            start = None if is_read else _start(run, chain, arguments)
            if start is None or _is_package(start):
                continue
            if chain.root is Root.CELL and start.root not in cells:
                # A variable of the enclosing function ends with the trace; its value may not.
                start = object_place(chain.name, start.read())
            reads += [] if start is None else _follow(start, chain, run.code)
        known.add((run.function, id(run.code)))
    lasting = dict(cells)
    for capture in reads if receivers else ():
        place = capture.place.behind(lasting)
        value = place.read()
        if id(value) in receivers and place.steps[-1:] != ("__class__",):  # it has its own place
            lasting.setdefault(RootKey(None, id(value)), place)
    words = names_in(run for run, _, _ in methods)
    by_place: dict[PlaceKey, Read] = {}
    readers: dict[PlaceKey, list[types.CodeType]] = {}
    for capture in reads:
        place, code = capture.place.behind(lasting), capture.code
        key, value = place.key, place.read()
        readers.setdefault(key, []).extend([code] if code else [])
        if key not in by_place and not _is_import(place, value):
            itself = capture.itself or id(value) in receivers
            facts = code, capture.line, itself, capture.is_fixed, words, readers[key]
            by_place[key] = Read(place, *facts)
    return list(by_place.values())


def names_in(runs: Iterable[Run]) -> frozenset[str]:
    """Return the names and strings in the code that ran."""
    codes = [run.code for run in runs]
    texts = [const for code in codes for const in code.co_consts if type(const) is str]
    return frozenset(texts).union(*(code.co_names for code in codes))


def _cells(runs: list[Run]) -> dict[RootKey, Place]:
    """Return the places of closure variables of functions that no other run created."""
    made = {const for run in runs for const in run.code.co_consts if is_a(const, types.CodeType)}
    outermost = [run.function for run in runs if run.function and run.code not in made]
    found: dict[RootKey, Place] = {}
    for function in outermost:
        for name in function.__code__.co_freevars:
            place = place_of(BoundIn.CLOSURE, function, name)
            known = found.get(place.root)
            found[place.root] = place if known is None else known.shared_with(place)
    return found


def reachable(fn: Callable[..., Any]) -> list[Run]:
    """Return hypothetical runs of a function and of the user functions that it names."""
    pending: list[tuple[Any, Any]] = [(fn, MISSING)]  # each with its receiver
    runs: dict[Any, Run] = {}
    _, arguments = _around(fn)
    for _ in range(4096):
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


def alone(function: types.FunctionType, receiver: Any = MISSING) -> Run:
    """Return a hypothetical run of any function, with the receiver of a method."""
    code, given = function.__code__, defaults_of(function)
    if code.co_argcount and receiver is not MISSING:
        given = {code.co_varnames[0]: receiver, **given}
    return Run(code, function, function.__globals__, given, set(), {}, all_chains)


def _named(run: Run, arguments: _Arguments) -> Iterator[Any]:
    """Yield the functions, methods and properties that a run calls by name."""
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


def _receiver(run: Run) -> tuple[Any, Place | None]:
    """Return the receiver of a method that ran, and the method's place; None for a function."""
    first, function = next(iter(run.given.values()), None), run.function
    cls = first if is_a(first, type) else type(first)
    for base in cls.__mro__ if function is not None and not is_a(first, Tracer) else ():
        for name, raw in {} if is_installed_module(module_of(base)) else vars(base).items():
            # A private name is mangled: it begins with the class name.
            is_named = name.endswith(run.code.co_name)
            if raw is function or (is_named and function in functions_behind(raw)):
                return first, dataclasses.replace(class_place(cls, name), is_member=True)
    return None, None


def _around(root: Any) -> tuple[list[Read], _Arguments]:
    """Return the reads of arguments bound for packages, and the places of those for user code."""
    found: list[Read] = []
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
                found.append(Read(place))
        root = func
    is_own = is_a(root, BoundMethod | types.FunctionType)
    if not is_own and is_installed_module(module_of(type(root))) and is_tree(root):
        itself = object_place("self", root)  # an equinox module
        found += [] if itself is None else [Read(itself)]
    return found, arguments


def _start(run: Run, chain: Chain, arguments: _Arguments) -> Place | None:
    """Return the place where a chain starts; None if that does not outlive the trace."""
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
    if function is not None and defaults_of(function).get(chain.name, DEAD) is value:
        return place_of(BoundIn.DEFAULT, function, chain.name)
    return object_place(chain.name, value) if chain.steps and value is not MISSING else None


def _follow(place: Place, chain: Chain, code: types.CodeType) -> Iterator[Read]:
    """Yield the read that a chain leads to, and the receiver of a method or property on the way."""
    value, is_fixed = place.read(), place.holder is BoundIn.ATTRIBUTE
    of_classes: list[Place] = []
    for step in chain.steps:
        if step in MUTATORS and type(value) in _CONTAINERS:  # log.append, in a callback
            return
        member = step_into(value, step)
        if member.kind is MemberKind.HIDDEN:  # proxy.rate, by a `__getattr__`
            break
        if member.kind is not MemberKind.VALUE:  # model.step, model.scale
            yield Read(place, code, chain.line)
            is_property = member.kind is MemberKind.PROPERTY
            runs = dataclasses.replace(place.then(step), is_member=is_property)
            yield Read(runs, code, chain.line)
            return
        # model.rate and type(model).rate, of `class Model: rate = 1.0`
        cls = value if place.name.endswith(".__class__") and is_a(value, type) else type(value)
        is_of_class = member.is_of_class or cls is value
        if is_of_class and not is_installed_module(module_of(cls)):
            of_classes.append(class_place(cls, str(step)))
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
        yield Read(place, code, chain.line, is_fixed=is_fixed or is_a(value, Tracer))
    for each in of_classes:  # which outlive their objects
        yield Read(each, code, chain.line)


_CONTAINERS: Final = (list, dict, set, bytearray)
_NEVER: Final = (int, float, complex, str, bytes, type(None), jax.Array, np.generic)


def _is_package(start: Place) -> bool:
    """Return whether a place is a package's module, or a lazy import, which nothing has read."""
    module = start.start()
    is_installed = is_a(module, types.ModuleType) and is_installed_module(module.__name__)
    return is_installed or is_a(module, LAZY_IMPORT)


def _is_import(place: Place, value: Any) -> bool:
    """Return whether an import statement bound a name, which is then assumed to stay."""
    name = place.name.rpartition(".")[2]
    is_named = place.holder is BoundIn.GLOBAL and read(value, "__name__", None) == name
    return is_named and callable(value) and is_of_package(value)


@dataclasses.dataclass(frozen=True, slots=True)
class Traced:
    """A value as a trace saw it: equal if indistinguishable. It keeps nothing alive."""

    account: Account
    described: str = dataclasses.field(compare=False)
    """The value as text; empty for one that never changes, which the account holds."""

    @property
    def text(self) -> str:
        return self.described or describe_value(self.account[()].shown)


@dataclasses.dataclass(frozen=True, slots=True)
class Captured(Traced):
    """A capture as a trace saw it."""

    read: Read = dataclasses.field(compare=False)
    is_around: bool = dataclasses.field(compare=False)
    """Whether it is a function or a receiver: what these read is captured, too."""

    @property
    def name(self) -> str:
        return self.read.place.name


class Current:
    """The current values of places, by key, without those whose owner was garbage-collected."""

    def __init__(self, reads: Iterable[Read]) -> None:
        found = [(read, DEAD if read.is_fixed else read.place.read()) for read in reads]
        spaces = [read.place.owner() for read, _ in found if read.place.holder is BoundIn.GLOBAL]
        self._space = spaces[:1]
        self._folds: dict[PlaceKey, AccountFold] = {}
        self.places = {read.place.key for read, _ in found}
        self.captured: dict[PlaceKey, Captured] = {}
        self.values: dict[PlaceKey, Any] = {}
        for each, value in found:
            if value is not DEAD:
                self._add(each, value)

    def _add(self, read: Read, value: Any) -> None:
        place, code, key = read.place, read.code, read.place.key
        is_variable = place.holder is BoundIn.CLOSURE and not place.steps and code is not None
        is_rebound = is_variable and place.variable in facts_of(code).rebinds
        fold = AccountFold(read.words).add(int_as_float(value) if is_rebound else value, ())
        is_around = read.itself or (callable(value) and not is_a(value, type))
        account, text = fold.account(), ""
        if account[()].shown is not value:  # it may change; and a mock keeps its calls
            text = "nothing" if value is MISSING else describe_value(value)
        self.captured[key] = Captured(account, text, read, is_around)
        self.values[key], self._folds[key] = value, fold

    def _terms(self, key: PlaceKey, names: Names) -> list[str]:
        """Return expressions that are all true while a capture is unchanged."""
        read, value, fold = self.captured[key].read, self.values[key], self._folds[key]
        terms, kind = list[str](), type(value)
        code = names.expression(read.place, value, terms)
        if read.itself and (is_plain_object(kind) or never_changes(kind)):
            # What its methods read is a capture of its own.
            fold.nodes[()] = PartNode(value, CheckedBy.SAME)
        return [*terms, *Terms(fold, names).of((), code).terms]

    def check(
        self,
        call: Callable[..., Any],
        otherwise: Callable[..., Any],
        keys: Iterable[PlaceKey] | None = None,
        *,
        is_weak: bool = False,
    ) -> Callable[..., Any]:
        """Return a function that calls `call` if these captures are unchanged, else `otherwise`."""
        names = Names(*self._space[: not is_weak], is_weak=is_weak)
        chosen = self._folds.keys() if keys is None else self._folds.keys() & {*keys}
        terms = [term for key in self._folds if key in chosen for term in self._terms(key, names)]
        return check_function(names, terms, call, otherwise)


class Observation:
    """The reads of the functions in a trace, with the values at its end.

    Without a number, what JAX reused from earlier traces was read with the values of those.
    """

    def __init__(
        self,
        runs: list[Run],
        root: Callable[..., Any],
        reused: list[Captured],
        number: int | None,
    ) -> None:
        own = {read.place.key: read for read in reads_of(runs, root)}
        earlier = {key: was for was in reused if (key := was.read.place.key) not in own}
        self.reused = frozenset(earlier)
        self.reads = own | {key: was.read for key, was in earlier.items()}
        # Until the trace is noted; the rest keeps only what has no weak reference alive.
        self.current: Current | None = Current(self.reads.values())
        self.captured = self.current.captured
        if number is None:
            self.captured |= {key: earlier[key] for key in earlier.keys() & self.captured.keys()}
        self.words = frozenset[str]().union(*(read.words for read in self.reads.values()))
        self._check = self.current.check(*_YES_OR_NO, is_weak=True)
        # By id, as the codes of two modules may be equal. The reads keep those that matter alive.
        self.around: dict[int, set[Source]] = {}
        codes = [(code, ()) for read in self.reads.values() for code in read.readers]
        for code, inside in (*codes, *((run.code, run.inside) for run in runs)):
            self.around.setdefault(id(code), {source_of(code)}).update(inside)
        self.functions: dict[int, tuple[str, set[int]]] = {}
        """JAX's text for each function inside, by its id, and the ids of the code run in it."""
        for run in runs:
            for function, text in run.within.items():
                self.functions.setdefault(function, (text, set()))[1].add(id(run.code))

    def merge(self, other: "Observation") -> None:
        """Add who has read what, and where, in a trace that has read the same."""
        for key, was in self.captured.items():
            readers = [*was.read.readers, *other.captured[key].read.readers]
            unique = list({id(code): code for code in readers}.values())
            self.captured[key] = dataclasses.replace(
                was, read=dataclasses.replace(was.read, readers=unique)
            )
        for code, sources in other.around.items():
            self.around.setdefault(code, set()).update(sources)
        for function, (text, codes) in other.functions.items():
            self.functions.setdefault(function, (text, set()))[1].update(codes)

    @property
    def keeps_alive(self) -> bool:
        """Whether it keeps an object alive that may be large."""
        tokens = [token for was in self.captured.values() for token in was.account.values()]
        owners = [read.place.keeps_owner for read in self.reads.values()]
        return any(owners) or any(token.keeps_alive for token in tokens)

    def read_in(self, source: Source) -> list[Captured]:
        """Return the captures of the functions at `source` in this trace, and of code inside them.

        Receivers of methods, which every function reads, are included.
        """
        return self._read_by({code for code, around in self.around.items() if source in around})

    def read_within(self, function: int) -> list[Captured]:
        """Return the same for what ran in a function, by the id of JAX's text for it."""
        return self._read_by(self.functions[function][1] if function in self.functions else set())

    def _read_by(self, codes: set[int]) -> list[Captured]:
        captured = [(was, was.read) for was in self.captured.values() if codes]
        return [was for was, read in captured if read.itself or codes & {*map(id, read.readers)}]

    def is_unchanged(self) -> bool:
        if self._check():
            return True
        current = Current(self.reads.values())
        self._check = current.check(*_YES_OR_NO, is_weak=True)  # without dead owners
        return not changed(self.captured, current.captured)


_YES_OR_NO: Final = (lambda: True), (lambda: False)


@or_default(dict[PlaceKey, Captured]())  # the user's own code
def captured_places(fn: Callable[..., Any]) -> dict[PlaceKey, Captured]:
    """Return the captures of a function, found by the names in its code, by place."""
    runs = reachable(fn) or ([alone(fn)] if type(fn) is types.FunctionType else [])
    return Current(reads_of(runs, fn)).captured


def captured_by(fn: Callable[..., Any]) -> dict[Any, Captured]:
    """Return the same by reader and name, to compare functions of equal code."""
    found = captured_places(fn).values()
    return {(each.read.reader, each.name, each.read.place.holder): each for each in found}


def changed(old: dict[K, Captured], new: dict[K, Captured]) -> list[K]:
    """Return the keys of the captures that both have, and that differ."""
    return [key for key, each in new.items() if key in old and old[key] != each]


def differing(was: Account, now: Account) -> list[Path]:
    return [path for path in {**was, **now} if was.get(path) != now.get(path)]


def _texts(path: Path, was: Account, now: Account) -> tuple[str, str]:
    one, other = was.get(path), now.get(path)
    before, after = ("nothing" if token is None else token.text for token in (one, other))
    if before == after and one is not None and other is not None and one.is_exact:
        return shorten_both(one.shown, other.shown, 120)  # two long strings
    return before, after


def value_change(was: Traced, now: Traced) -> tuple[Path, str, str]:
    """Return a path and the texts before and after: of a value, or its first part that differs."""
    if was.text != now.text:
        return (), was.text, now.text
    texts = {
        path: _texts(path, was.account, now.account) for path in differing(was.account, now.account)
    }
    path = next((path for path, (before, after) in texts.items() if before != after), [*texts][-1])
    before, after = texts[path]
    if before == after and not path:
        before = after = now.text
    return path, before, f"another {after}" if before == after else after


def format_change(was: Traced, now: Traced) -> tuple[str, str]:
    """Return a value before and after as texts, which name the part that differs if need be."""
    path, before, after = value_change(was, now)
    if not path:
        return before, after
    way = "".join(map(str, path))
    return f"{was.text} with `{way}` {before}", f"{now.text} with `{way}` {after}"


def describe_changes(old: dict[K, Captured], new: dict[K, Captured]) -> list[Change]:
    """Return the captures that differ between two functions of the same code, four at most."""
    changes: dict[str, Change] = {}
    for key in sorted(changed(old, new), key=lambda key: new[key].is_around):
        was, now = old[key], new[key]
        if not now.is_around:
            token = now.account[()]
            how = how_to_pass(token.shown) if token.is_exact else Passing.ARGUMENT
            texts = _if_short(*format_change(was, now))
            changes.setdefault(now.name, Change(now.name, *texts, how=how))
            continue
        # A difference inside a function is a capture of its own, if it can be named.
        held = list(_held_changes(was.account, now.account))
        for name, before, after in held:
            changes.setdefault(name, Change(name, *_if_short(before, after), holder=now.name))
        if not held and not changes:
            is_other = () in differing(was.account, now.account)  # `sin`, then `cos`
            how = Passing.STATIC if is_other else Passing.ARGUMENT
            changes[now.name] = Change(now.name, is_function=not is_other, how=how)
    # `model` and `model.w` are both captures: report the most specific, which comes last.
    return sorted(changes.values(), key=lambda one: not (one.before or one.is_function))[:4]


def _held_changes(was: Account, now: Account) -> Iterator[tuple[str, str, str]]:
    """Yield the closure variables that differ: the name, and the text before and after."""
    paths = differing(was, now)
    around = {path[:size] for path in paths for size in range(len(path))}
    for path in paths:
        places = [at for at, step in enumerate(path) if isinstance(step, Held) and step.variable]
        is_function = any(path in each and each[path].shown is FUNCTION for each in (was, now))
        if places and path not in around and not is_function:
            at = places[-1]
            step = cast("Held", path[at])
            before, after = _texts(path, was, now)
            after = f"another {after}" if before == after else after
            yield "".join([step.variable, *map(str, path[at + 1 :])]), before, after


def _if_short(before: str, after: str) -> tuple[str, str]:
    return (before, after) if len(before + after) <= _LONGEST_CHANGE else ("", "")


_LONGEST_CHANGE: Final = 80
