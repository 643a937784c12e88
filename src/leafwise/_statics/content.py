"""Static values by content: functions by what they are made of, not by which object they are.

Two functions have equal forms if they have the same code, defaults, attributes and closures,
all the way down, and their code finds the same objects under the global names that it reads.
Code of installed packages is assumed to find the same at all times, and a function that such a
package has under a name is compared by identity. What cannot be compared is refused by its path.
"""

import array
import collections
import functools
import operator
import struct
import sys
import types
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, TypeAlias, cast

import numpy as np

from leafwise._objects.attributes import (
    WEAK,
    attributes,
    attributes_flat,
    builtin_base,
    compares_by_identity,
    has_hidden_state,
    is_installed,
    is_itself,
    of_partial,
    record_fields,
    registry_of,
)
from leafwise._objects.bytecode import chains_of
from leafwise._objects.code import (
    Chain,
    CodeFacts,
    contents,
    facts_of,
    find_all,
    function_in,
    int_as_float,
    is_importable,
    is_installed_module,
    own_bases,
    resolve,
)
from leafwise._objects.methods import BoundMethod
from leafwise._objects.parts import kind_of
from leafwise._objects.stand_ins import MISSING, ById
from leafwise._statics import findings
from leafwise._statics.form import (
    CANONICAL,
    Canonicaliser,
    CanonicalOf,
    canonicalise,
    read_parts,
)
from leafwise._statics.guards import Guards, PartsReader, items
from leafwise._statics.snapshot import MOST_BYTES

_AGAIN: Final = object()
"""Stands in a form before the number of a value that is met again."""

_MOST_NUMBERED: Final = 5_000
"""From here on, what code finds by name is compared by identity."""


class Kept:
    """The objects whose ids stand in a form, kept alive with it; all are equal."""

    __slots__ = ("values",)

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kept)

    def __hash__(self) -> int:
        return hash(Kept)


class ContentCanonicaliser(Canonicaliser):
    """One static value, by content.

    Functions, lists and whatever else can change in place are numbered as they are met, and a
    number stands where one is met again. So cycles end, and sharing is part of the form.

    Attributes:
        depth: How many functions, cells and the like enclose what is being read.
        kept: Objects whose ids may stand in the form.
        own_guards: What the value itself is made of and could change.
        outer_guards: What its code finds by name, and objects with an ``==`` of their own.
        guards_now: The one of the two that guards what is being read.
    """

    __slots__ = (
        "_names",
        "_numbers",
        "_parts",
        "_positions",
        "depth",
        "guards_now",
        "kept",
        "outer_guards",
        "own_guards",
    )

    def __init__(self, readers: Mapping[type, CanonicalOf]) -> None:
        super().__init__(readers)
        self._numbers: dict[int, int] = {}
        self._positions: dict[int, int] = {}
        self.depth = 0
        self.kept: list[Any] = []
        self.own_guards = Guards()
        self.outer_guards = Guards()
        self.guards_now = self.own_guards
        self._parts: list[tuple[Any, str]] = []
        self._names: list[tuple[Any, str]] = []

    def numbered(self, value: Any, read_parts: Callable[[], None]) -> None:
        """Read the parts of something that can change, or push its number if it has one."""
        number = self._numbers.get(id(value))
        if number is not None:
            self.push(_AGAIN, number)
            return
        self._numbers[id(value)] = len(self._numbers)
        self.kept.append(value)
        self.depth += 1
        try:
            read_parts()
        finally:
            self.depth -= 1

    def inside(self, value: Any, path: str, read_parts: Callable[[], None]) -> None:  # noqa: ARG002  # as the base
        position = self._positions.get(id(value))
        if position is not None:
            # Negative, so that it is never the number of something that can change.
            self.push(_AGAIN, ~position)
            return
        self._positions[id(value)] = len(self._positions)
        self.kept.append(value)
        try:
            read_parts()
        finally:
            del self._positions[id(value)]

    def watched(self, value: Any, path: str, read_parts: Callable[[], None]) -> None:
        # Guards take the place of the digests that the base class records.
        self.depth += isinstance(value, functools.partial)
        self.inside(value, path, read_parts)
        self.depth -= isinstance(value, functools.partial)
        if _has_own_eq(value):
            self.push(hash(value))
            self.guards_now.add(_hash, value)
        elif not isinstance(value, tuple) or type(value).__dictoffset__:
            self.outer_guards.add(_state, value)

    def separate_form(self, read_parts: Callable[[], None]) -> tuple[Any, ...]:
        # It is of a member of a set, which has no order: each member starts to count at 0.
        before = self._numbers, self._parts, self._names
        self._numbers, self._parts, self._names = {}, [], []

        def read_all() -> None:
            read_parts()
            self.finish()

        try:
            return super().separate_form(read_all)
        finally:
            self._numbers, self._parts, self._names = before

    def defer_part(self, value: Any, path: str) -> None:
        """Read what an object contains, which may not be comparable, once its owner is read."""
        (self._parts if self.guards_now is self.own_guards else self._names).append((value, path))

    def defer_name(self, value: Any, path: str) -> None:
        """Read what code finds under a name, once the value itself has been read."""
        self._names.append((value, path))

    def finish(self) -> None:
        """Read what was deferred, and what that leads to."""
        before = self.guards_now
        self.depth += 1
        for value, path in self._parts:  # which grows meanwhile
            self._read_leniently(value, path)
        self.guards_now = self.outer_guards
        for value, path in self._names:  # which grows meanwhile
            self._read_leniently(value, path)
        self.depth -= 1
        self.guards_now = before

    def _read_leniently(self, value: Any, path: str) -> None:
        """Read a value by content, or by identity if its content cannot be compared."""
        start, problems, numbered = len(self._out), len(self._found), len(self._numbers)
        if numbered < _MOST_NUMBERED:
            canonicalise(self, value, path)
            if len(self._found) == problems:
                return
        del self._out[start:], self._found[problems:]
        for number in list(self._numbers)[numbered:]:
            del self._numbers[number]
        self.read_by_identity(value, path)

    def read_by_identity(self, value: Any, path: str) -> None:
        """Read a value that is equal to itself alone, and guard what it contains now."""
        self.push(ById(value))
        found = _parts_of(value)
        if found is None:
            return
        read_flat, parts = found

        def read_parts() -> None:
            self.guards_now.add(read_flat, value)
            for name, item in parts:
                self.push(name)
                self.defer_part(item, f"{path}.{name}")

        self.numbered(value, read_parts)


def _parts_of(value: Any) -> tuple[PartsReader, list[tuple[str, Any]]] | None:
    """Return how a guard reads the parts of a value, and the parts, if they can be found."""
    kind: Any = type(value)
    if isinstance(value, WEAK):
        return None
    if isinstance(value, dict):
        return items, [("items", part) for part in items(cast("Any", value))]
    if isinstance(value, list | tuple | set | frozenset | collections.deque):
        return tuple, [("items", part) for part in cast("Any", value)]
    shown = kind.__hash__ is None or not is_installed_module(kind.__module__)
    if not shown or has_hidden_state(kind):
        return None
    return _attributes_reader(value), attributes(value)


def _attributes_reader(value: Any) -> PartsReader:
    """Return how a guard reads the attributes of an object."""
    has_slots = any(vars(base).get("__slots__") for base in type(value).__mro__)
    return attributes_flat if has_slots or not type(value).__dictoffset__ else _items_of_dict


def _items_of_dict(value: Any) -> tuple[Any, ...]:
    return items(value.__dict__)


def _has_own_eq(value: Any) -> bool:
    kind = type(value)
    known = isinstance(value, functools.partial) or compares_by_identity(kind)
    return not known and record_fields(kind) is None and builtin_base(kind) is None


def _hash(value: Any) -> tuple[Any, ...]:
    return (hash(value),)


def _state(value: Any) -> tuple[Any, ...]:
    """Return the parts of an immutable value, which only ``object.__setattr__`` can change."""
    if isinstance(value, functools.partial):
        func, args, keywords = of_partial(value)
        return func, args, *items(keywords), *items(value.__dict__)
    return attributes_flat(value)


def read_by_content(canon: Canonicaliser, value: Any, path: str) -> None:
    """Add the form of `value` by content, and the guards of what it is made of."""
    content = ContentCanonicaliser(_content_readers())
    try:
        canonicalise(content, value, path)
        content.finish()
    except RecursionError:
        content.add_finding(findings.uncomparable(path, value, "it is nested too deeply"))
    canon.take_over(content)
    canon.push(Kept(content.kept))
    canon.guards.append((content.own_guards, content.outer_guards))


_Content: TypeAlias = Any
"""A `ContentCanonicaliser`, where a table wants functions of any `Canonicaliser`."""


def _read_function(canon: _Content, value: types.FunctionType, path: str) -> None:
    facts = facts_of(value.__code__)
    is_dispatching = registry_of(value) is not None
    if facts.installed and is_importable(value) and not is_dispatching:
        canon.push(ById(value))
        return
    read_parts = _read_dispatching if is_dispatching else _read_function_parts
    canon.numbered(value, lambda: read_parts(canon, value, facts, path))


def _read_function_parts(
    canon: ContentCanonicaliser, value: types.FunctionType, facts: CodeFacts, path: str
) -> None:
    if facts.form is None:
        reason = "its code has constants that no source code can spell"
        canon.add_finding(findings.uncomparable(path, value, reason))
    if facts.rebinds and not facts.installed:
        reason = f"it assigns {facts.rebinds[0]!r} whenever it runs, so it never stays the same"
        canon.add_finding(findings.uncomparable(path, value, reason))
    _read_names(canon, value, facts)
    canon.guards_now.add_attributes(value)
    (canon.outer_guards if facts.installed else canon.guards_now).add_function(value)
    _read_globals(canon, value, facts, path)
    canonicalise(canon, value.__defaults__, f"{path}.__defaults__")
    _read_named(canon, value.__kwdefaults__ or {}, f"{path}.__kwdefaults__")
    cells = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True))
    for name, cell in cells.items():
        where = f"{path}.__closure__[{name!r}]"
        if name in facts.rebinds and (number := _number_in(cell)):
            # optax's cosine_decay_schedule turns an int it closes over into a float, once.
            canon.push(*number)
            canon.guards_now.add(_number_in, cell)
        else:
            _read_cell(canon, cell, where)
    chains = chains_of(value.__code__)
    if chains.of_cells and not facts.installed:
        values = {name: contents(cell) for name, cell in cells.items()}
        _read_chains(canon, values, chains.of_cells, path)
    for name, item in sorted(vars(value).items()):
        canon.push(name)
        canonicalise(canon, item, f"{path}.{name}")


def _read_names(canon: Canonicaliser, value: types.FunctionType, facts: CodeFacts) -> None:
    canon.push(id(types.FunctionType), facts.form)
    canon.push(value.__name__, value.__qualname__, value.__module__)


def _read_dispatching(
    canon: ContentCanonicaliser, value: types.FunctionType, facts: CodeFacts, path: str
) -> None:
    """Read a function of `functools.singledispatch`, whose closure is caches."""
    _read_names(canon, value, facts)
    canon.guards_now.add(lambda now: items(registry_of(now) or {}), value)
    (step, registry), *attributes = kind_of(value).parts(value)
    for cls, function in registry.items():
        canonicalise(canon, cls, f"{path}{step}")
        canonicalise(canon, function, f"{path}{step}[{cls.__qualname__}]")
    for name, item in attributes:
        canon.push(name)
        canonicalise(canon, item, path + name)


def _read_named(canon: Canonicaliser, named: Mapping[str, Any], path: str) -> None:
    canon.push(len(named))
    for name, item in named.items():
        canon.push(name)
        canonicalise(canon, item, f"{path}[{name!r}]")


def _read_cell(canon: _Content, cell: types.CellType, path: str) -> None:
    def read_parts() -> None:
        value = contents(cell)
        canon.push(id(types.CellType))
        if value is MISSING:
            canon.push(MISSING)
            canon.guards_now.add(_in_a_tuple, cell)
        else:
            canon.guards_now.add_cell(cell, value)
            canonicalise(canon, value, path)

    # Which cells are shared does not count, as no code may assign them: copies by
    # cloudpickle do not share them any more.
    canon.inside(cell, path, read_parts)


def _number_in(cell: types.CellType) -> tuple[Any, ...]:
    """Return the number in a cell, an int as the float it equals; empty for anything else."""
    value = int_as_float(contents(cell))
    return (float, struct.pack("d", value)) if type(value) is float else ()


def _in_a_tuple(cell: types.CellType) -> tuple[Any, ...]:
    return (contents(cell),)


def _read_globals(
    canon: ContentCanonicaliser, value: types.FunctionType, facts: CodeFacts, path: str
) -> None:
    """Read what the code finds under global names."""
    names = value.__globals__
    module = names.get("__name__")
    if facts.installed:
        own: Any = getattr(sys.modules.get(cast("str", module)), "__dict__", {})
        wanted = {chain[0] for chain in chains_of(value.__code__).of_globals}
        same = own is names or all(own.get(n, own) is names.get(n, own) for n in wanted)
        canon.push(module if same else ById(names))
        return
    if facts.sees_all:
        canon.push(ById(names))
    _read_chains(canon, names, chains_of(value.__code__).of_globals, f"{path}.__globals__")


def _read_chains(
    canon: ContentCanonicaliser, names: Mapping[str, Any], chains: tuple[Chain, ...], path: str
) -> None:
    canon.outer_guards.add(functools.partial(find_all, chains), names)
    for chain in chains:
        found = resolve(names, chain)
        canon.push(chain[0])
        if found is MISSING:
            canon.push(MISSING)
        else:
            canon.defer_name(found, f"{path}[{'.'.join(chain)!r}]")


def _read_method(canon: _Content, value: types.MethodType | BoundMethod, path: str) -> None:
    canon.push(id(type(value)))
    canonicalise(canon, value.__func__, f"{path}.__func__")
    _read_receiver(canon, value.__self__, f"{path}.__self__")


def _read_receiver(canon: _Content, value: Any, path: str) -> None:
    if is_itself(value) and not has_hidden_state(type(value)):
        _read_object(canon, value, path)
    else:
        canonicalise(canon, value, path)


def _read_builtin(canon: _Content, value: Any, path: str) -> None:
    owner = value.__self__
    if owner is None:
        canon.push(ById(value))
        return
    if isinstance(owner, types.ModuleType | type):
        canon.push(value.__qualname__)
        _read_other(canon, owner, f"{path}.__self__")
        return
    canon.push(id(type(value)), value.__name__)
    canon.depth += 1
    _read_receiver(canon, owner, f"{path}.__self__")
    canon.depth -= 1


def _read_cached(canon: _Content, value: Any, path: str) -> None:
    """Read a function of `functools.lru_cache`, which its cache follows from."""
    _read_other(canon, value, path)
    if not is_installed(value.__wrapped__):
        canon.defer_name(value.__wrapped__, f"{path}.__wrapped__")


def _read_object(canon: _Content, value: Any, path: str) -> None:
    """Read an object by its class and its attributes."""
    kind: type = type(value)

    def read_parts() -> None:
        canon.push(id(kind))
        canon.guards_now.add(_attributes_reader(value), value)
        for name, item in attributes(value):
            canon.push(name)
            canonicalise(canon, item, f"{path}.{name}")
        canon.push(None)

    canon.numbered(value, read_parts)
    _read_classes(canon, kind, path)


def _read_classes(canon: ContentCanonicaliser, cls: type, path: str) -> None:
    for base in own_bases(cls):
        _read_class(canon, base, f"{path}.{base.__name__}")


def _read_class(canon: ContentCanonicaliser, cls: type, path: str) -> None:
    """Read what the code of a class finds by name, and what it could assign on the class."""

    def read_parts() -> None:
        canon.outer_guards.add(lambda each: items(vars(each)), cls)
        for name, member in vars(cls).items():
            if name not in _OF_EVERY_CLASS:
                canon.push(name)
                canon.defer_name(function_in(member), f"{path}.{name}")

    canon.push(ById(cls))
    canon.numbered(cls, read_parts)


_OF_EVERY_CLASS: Final = frozenset(
    {
        *("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__slots__"),
        *("__slotnames__", "__annotations_cache__", "__annotate_func__"),  # made when asked for
        "_value2member_map_",  # as are the combinations of an `enum.Flag`
    }
)


def _read_array(canon: ContentCanonicaliser, value: Any, path: str) -> None:
    is_numpy = issubclass(type(value), np.ndarray)
    if is_numpy:
        fits = type(value) is np.ndarray and not value.dtype.hasobject
    else:
        fits = not value.is_deleted() and value.is_fully_addressable
    if not fits or value.nbytes > MOST_BYTES:
        reason = "only arrays of at most 64 KiB, of numbers, all of them on this host, are compared"
        canon.add_finding(findings.uncomparable(path, value, reason))
    elif is_numpy:
        canon.numbered(value, lambda: _read_guarded(canon, value, path))
    else:
        read_parts(canon, value, path)


def _read_mutable(canon: _Content, value: Any, path: str) -> None:
    """Read a list or the like, which only a function may contain."""
    if canon.depth:
        canon.numbered(value, lambda: _read_guarded(canon, value, path))
    else:
        _read_other(canon, value, path)


def _read_guarded(canon: _Content, value: Any, path: str) -> None:
    kind = kind_of(value)

    def content_and_parts(now: Any) -> tuple[Any, ...]:
        return *kind.content(now), *kind.values(now)

    canon.guards_now.add(content_and_parts, value)
    read_parts(canon, value, path)


def _read_identity(canon: Canonicaliser, value: Any, _path: str) -> None:
    canon.push(ById(value))


def _read_other(canon: _Content, value: Any, path: str) -> None:
    """Read a value of a type that is not in the table."""
    canon.kept.append(value)
    _read_classes(canon, value if isinstance(value, type) else type(value), path)
    is_known = isinstance(value, type | types.ModuleType | Enum | np.ufunc)
    if is_known or (canon.depth and isinstance(value, WEAK)):
        canon.push(ById(value))
    elif kind_of(value).name in ("array", "jax.Array") and canon.depth:
        _read_array(canon, value, path)
    elif not is_itself(value):
        CANONICAL[object](canon, value, path)
    elif (problem := findings.refused(path, value)) is not None:
        canon.add_finding(problem)
    elif is_importable(value):
        canon.push(ById(value))
    elif has_hidden_state(type(value)):
        reason = f"a {type(value).__name__} does not show all that it holds"
        canon.add_finding(findings.uncomparable(path, value, reason))
    elif callable(value):
        _read_object(canon, value, path)
    else:
        canon.read_by_identity(value, path)


@functools.cache
def _content_readers() -> dict[type, CanonicalOf]:
    """Return `CANONICAL` with what differs by content."""
    return {
        **CANONICAL,
        types.FunctionType: _read_function,
        types.CellType: _read_cell,
        types.MethodType: _read_method,
        BoundMethod: _read_method,
        types.BuiltinFunctionType: _read_builtin,
        types.MethodWrapperType: _read_builtin,
        **dict.fromkeys(
            (types.MethodDescriptorType, types.WrapperDescriptorType, types.ModuleType),
            _read_identity,
        ),
        type: _read_other,
        type(functools.cache(len)): _read_cached,
        **dict.fromkeys(
            (operator.itemgetter, operator.attrgetter, operator.methodcaller), read_parts
        ),
        **dict.fromkeys(
            (
                *(list, collections.deque, bytearray, array.array, set),
                *(dict, collections.OrderedDict, collections.defaultdict, collections.Counter),
            ),
            _read_mutable,
        ),
        object: _read_other,
    }
