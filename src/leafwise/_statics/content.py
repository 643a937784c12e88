"""Static values by content: functions by what they are made of, not by which object they are.

Two functions have equal forms if they have the same code, defaults, attributes and closures,
all the way down, and their code finds the same under the global names that it spells. Code of
installed packages is assumed to find the same at all times, and a function that such a package
has under a name is compared by identity. What cannot be compared is refused by its path; what
code finds by name, and attributes of objects, are then compared by identity instead.
"""

import functools
import operator
import types
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, TypeAlias

import jax
import numpy as np

from leafwise._objects.attributes import (
    WEAK,
    has_hidden_state,
    is_installed,
    is_itself,
    own_attributes,
    registry_of,
    wrapped_by,
)
from leafwise._objects.code import (
    contents,
    facts_of,
    function_in,
    is_importable,
    is_installed_module,
    own_bases,
)
from leafwise._objects.methods import BoundMethod
from leafwise._objects.names import Chain, Root, chains_within, value_of
from leafwise._objects.parts import kind_of
from leafwise._objects.stand_ins import MISSING, ById
from leafwise._statics import findings
from leafwise._statics.form import (
    CANONICAL,
    Canonicaliser,
    CanonicalOf,
    canonicalise,
    consists_of_parts,
    read_parts,
)
from leafwise._statics.snapshot import MOST_BYTES

_AGAIN: Final = object()
"""Stands in a form before the number of a value that is met again."""


class Kept:
    """The objects whose ids stand in a form, kept alive with it; all are equal."""

    __slots__ = ("values",)

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kept)

    def __hash__(self) -> int:
        return hash(Kept)


class Guards:
    """The parts of some objects when they were read: a check fast enough for each flatten.

    They are compared by identity. So after False they may still be equal.
    """

    __slots__ = ("_cells", "_in_cells", "_others")

    def __init__(self) -> None:
        self._cells: list[types.CellType] = []
        self._in_cells: list[Any] = []
        self._others: list[tuple[Callable[[Any], Any], Any, Any]] = []

    def add_cells(self, function: types.FunctionType) -> None:
        cells = function.__closure__ or ()
        self._cells += cells
        self._in_cells += map(contents, cells)

    def add(self, read: Callable[[Any], Any], target: Any) -> None:
        """Guard what `read` finds in an object, a sequence."""
        self._others.append((read, target, read(target)))

    def unchanged(self) -> bool:
        """Return whether all parts are the same."""
        try:
            return all(map(operator.is_, map(_CONTENTS, self._cells), self._in_cells)) and all(
                _same(read(target), was) for read, target, was in self._others
            )
        except Exception:  # noqa: BLE001  # an emptied cell, a hash that raises: not the same
            return False


_CONTENTS: Final = operator.attrgetter("cell_contents")
_PLAIN: Final = (int, str, bytes)


def _same(now: Any, was: Any) -> bool:
    return len(now) == len(was) and all(
        one is two or (type(one) in _PLAIN and type(two) is type(one) and one == two)
        for one, two in zip(now, was, strict=True)
    )


class ContentCanonicaliser(Canonicaliser):
    """One static value, by content.

    Values are numbered, and where one is met again there is its number. So cycles end; and of
    functions, lists and whatever else can change in place, sharing is part of the form.

    Attributes:
        depth: How many functions and the like enclose what is being read.
        kept: All values that were numbered, since their ids may stand in the form.
        own_guards: What the value itself is made of and could change.
        outer_guards: What its code finds by name, and what hardly changes.
        guards_now: The one of the two that guards what is being read.
    """

    __slots__ = (
        *("_deferred", "_is_lenient", "_numbers"),
        *("depth", "guards_now", "kept", "outer_guards", "own_guards"),
    )

    def __init__(self, readers: Mapping[type, CanonicalOf]) -> None:
        super().__init__(readers)
        self.depth = 0
        self.kept: list[Any] = []
        self.own_guards = self.guards_now = Guards()
        self.outer_guards = Guards()
        self._numbers: dict[int, int] = {}
        self._deferred: tuple[list[Any], list[Any]] = [], []
        self._is_lenient = False

    def once(self, value: Any, read: Callable[[], None]) -> None:
        """Read something that can change, or push its number if it has one."""
        if not self._is_met(value):
            self.depth += 1
            read()
            self.depth -= 1

    def inside(self, value: Any, path: str, read_parts: Callable[[], None]) -> None:  # noqa: ARG002  # as the base
        if not self._is_met(value):
            read_parts()
            del self._numbers[id(value)]

    def _is_met(self, value: Any) -> bool:
        number = self._numbers.get(id(value))
        if number is None:
            self._numbers[id(value)] = len(self.kept)
            self.kept.append(value)
            return False
        self.push(_AGAIN, number)
        return True

    def watched(self, value: Any, path: str, read_parts: Callable[[], None]) -> None:
        # Guards take the place of the digests that the base class records.
        self.inside(value, path, read_parts)
        if not consists_of_parts(type(value)):  # its own == decides
            self.push(hash(value))
            self.guards_now.add(_hash, value)
        elif not isinstance(value, tuple) or type(value).__dictoffset__:
            self.outer_guards.add(_content_and_parts, value)

    def separate_form(self, read_parts: Callable[[], None]) -> tuple[Any, ...]:
        # It is of a member of a set, which has no order: what it leads to belongs to it.
        def read_all() -> None:
            read_parts()
            self.finish()

        before, self._deferred = self._deferred, ([], [])
        found = super().separate_form(read_all)
        self._deferred = before
        return found

    def defer(self, value: Any, path: str, *, is_named: bool = False) -> None:
        """Read an attribute, or what code finds by a name, once all that is around is read."""
        is_outer = is_named or self.guards_now is self.outer_guards
        self._deferred[is_outer].append((value, path))

    def finish(self) -> None:
        """Read what was deferred, attributes first, and what that leads to."""
        before = self.depth, self.guards_now, self._is_lenient
        self.depth, self._is_lenient = 1, True
        both = self.own_guards, self.outer_guards
        for guards, deferred in zip(both, self._deferred, strict=True):
            self.guards_now = guards
            for value, path in deferred:  # which grows meanwhile
                canonicalise(self, value, path)
        self.depth, self.guards_now, self._is_lenient = before

    def refuse(self, value: Any, path: str, reason: str) -> None:
        """Add that a value cannot be compared, or its identity where that is enough."""
        if self._is_lenient:
            self.push(ById(value))
        else:
            self.findings.append(findings.uncomparable(path, value, reason))

    def read_as_ever(self, value: Any, path: str) -> None:
        """Read a value as without `by="content"`, which may refuse it."""
        start, problems, number = len(self._out), len(self.findings), len(self.kept)
        CANONICAL[object](self, value, path)
        if self._is_lenient and len(self.findings) > problems:
            del self._out[start:], self.findings[problems:]
            self._numbers = {key: n for key, n in self._numbers.items() if n < number}
            self.push(ById(value))


def read_by_content(canon: Canonicaliser, value: Any, path: str) -> None:
    """Add the form of `value` by content, and the guards of what it is made of."""
    content = ContentCanonicaliser(_content_readers())
    canonicalise(content, value, path)
    content.finish()
    canon.take_over(content)
    canon.push(Kept(content.kept))
    canon.guards.append((content.own_guards, content.outer_guards))


# ------------------------------------------------------------------------ what guards read


def _hash(value: Any) -> tuple[Any, ...]:
    return (hash(value),)


def _items(mapping: Mapping[Any, Any]) -> tuple[Any, ...]:
    return (*mapping, *mapping.values())


def _members(cls: type) -> tuple[Any, ...]:
    return _items(vars(cls))


def _content_and_parts(value: Any) -> tuple[Any, ...]:
    content, parts = kind_of(value).read(value)
    return *content, *[part for _, part in parts]


def _of_function(value: types.FunctionType) -> tuple[Any, ...]:
    named = _items(value.__kwdefaults__ or {})
    return value.__code__, value.__defaults__, *named, *_items(value.__dict__)


def _found(chains: tuple[Chain, ...], function: types.FunctionType) -> list[Any]:
    return [value_of(chain, function) for chain in chains]


# ------------------------------------------------------------------------ functions

_Content: TypeAlias = Any
"""A `ContentCanonicaliser`, where a table wants functions of any `Canonicaliser`."""


def _read_function(canon: _Content, value: types.FunctionType, path: str) -> None:
    is_dispatching = registry_of(value) is not None
    if is_installed(value) and is_importable(value) and not is_dispatching:
        canon.push(ById(value))
        return
    read = read_parts if is_dispatching else _read_function_parts
    canon.once(value, functools.partial(read, canon, value, path))


def _read_function_parts(canon: _Content, value: types.FunctionType, path: str) -> None:
    facts = facts_of(value.__code__)
    canon.guards_now.add_cells(value)
    read_parts(canon, value, path)
    if is_installed(value):
        return
    if facts.rebinds:
        reason = f"it assigns {facts.rebinds[0]!r} whenever it runs, so it never stays the same"
        canon.refuse(value, path, reason)
    if facts.sees_all:
        canon.push(ById(value.__globals__))
    chains = chains_within(value.__code__)
    canon.guards_now.add(_of_function, value)
    canon.outer_guards.add(functools.partial(_found, chains), value)
    for chain, found in zip(chains, _found(chains, value), strict=True):
        if found is MISSING:
            canon.push(MISSING)
        elif chain.root is not Root.CELL or chain.steps:  # a cell itself is read already
            canon.defer(found, f"{path}.__globals__[{chain.name!r}]", is_named=True)


def _read_callable(canon: _Content, value: Any, path: str) -> None:
    """Read a partial or a method of C: what it holds may be a list, too."""
    canon.depth += 1
    CANONICAL.get(type(value), read_parts)(canon, value, path)
    canon.depth -= 1


def _read_method(canon: _Content, value: types.MethodType | BoundMethod, path: str) -> None:
    canon.push(id(type(value)))
    canonicalise(canon, value.__func__, f"{path}.__func__")
    receiver: Any = value.__self__
    if is_itself(receiver) and not has_hidden_state(type(receiver)):
        _read_object(canon, receiver, f"{path}.__self__")
    else:
        canonicalise(canon, receiver, f"{path}.__self__")


# ------------------------------------------------------------------------ objects and classes


def _read_other(canon: _Content, value: Any, path: str) -> None:
    """Read a value of a type that is not in the table."""
    cls, kind = type(value), kind_of(value).name
    is_open = canon.depth and cls.__hash__ is None
    canon.kept.append(value)
    _read_classes(canon, value if isinstance(value, type) else cls, path)
    if isinstance(value, _THEMSELVES):
        canon.push(ById(value))
    elif kind in ("array", "jax.Array") and canon.depth:
        _read_array(canon, value, path)
    elif is_open and kind in _CONTAINERS:
        _read_container(canon, value, path)
    elif not (is_itself(value) or (is_open and kind == "object")):
        canon.read_as_ever(value, path)
    elif not canon.depth and (problem := findings.refused(path, value)):
        canon.findings.append(problem)
    elif is_importable(value):
        canon.push(ById(value))
        function = wrapped_by(value)  # by a cache, which may be cleared
        if function is not None and not is_installed(function):
            canon.defer(function, f"{path}.__wrapped__", is_named=True)
    elif has_hidden_state(cls):
        canon.refuse(value, path, f"a {cls.__name__} does not show all that it holds")
    elif is_open or callable(value) or not is_installed_module(cls.__module__):
        _read_object(canon, value, path)
    else:
        canon.push(ById(value))


_THEMSELVES: Final = (type, types.ModuleType, Enum, np.ufunc, *WEAK)
_CONTAINERS: Final = ("list", "dict", "set", "deque", "mapping", "buffer", "cell")


def _read_container(canon: _Content, value: Any, path: str) -> None:
    def read() -> None:
        canon.guards_now.add(_content_and_parts, value)
        read_parts(canon, value, path)

    canon.once(value, read)


def _read_array(canon: _Content, value: Any, path: str) -> None:
    if is_numpy := type(value) is np.ndarray:
        fits = not value.dtype.hasobject
    else:
        fits = isinstance(value, jax.Array) and not value.is_deleted()
        fits = fits and value.is_fully_addressable
    if fits and value.nbytes <= MOST_BYTES:
        (_read_container if is_numpy else read_parts)(canon, value, path)
    else:
        reason = "only arrays of at most 64 KiB, of numbers, all of them on this host, are compared"
        canon.refuse(value, path, reason)


def _names_and_values(value: Any) -> list[Any]:
    found = own_attributes(value)
    return [*found, *found.values()]


def _read_object(canon: _Content, value: Any, path: str) -> None:
    """Read an object by its class and its attributes."""
    cls = type(value)

    def read() -> None:
        content, parts = kind_of(value).read(value)
        canon.guards_now.add(_names_and_values, value)
        canon.push(id(cls), content)
        for step, part in parts:
            if callable(value):
                canonicalise(canon, part, path + step)
            else:
                canon.defer(part, path + step)

    canon.once(value, read)
    _read_classes(canon, cls, path)


def _read_classes(canon: _Content, cls: type, path: str) -> None:
    """Read what the code of a class and of its bases finds, and what they hold."""

    def read(base: type) -> None:
        canon.outer_guards.add(_members, base)
        for name, member in vars(base).items():
            if name not in _OF_EVERY_CLASS:
                canon.push(name)
                canon.defer(function_in(member), f"{path}.{base.__name__}.{name}", is_named=True)

    for base in own_bases(cls):
        canon.push(ById(base))
        canon.once(base, functools.partial(read, base))


_OF_EVERY_CLASS: Final = frozenset(
    {
        *("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__slots__"),
        *("__slotnames__", "__annotations_cache__", "__annotate_func__"),  # made when asked for
        "_value2member_map_",  # as are the combinations of an `enum.Flag`
    }
)


@functools.cache
def _content_readers() -> dict[type, CanonicalOf]:
    """Return `CANONICAL` with what differs by content."""
    return {
        **CANONICAL,
        types.FunctionType: _read_function,
        **dict.fromkeys((types.MethodType, BoundMethod), _read_method),
        **dict.fromkeys(
            (
                *(functools.partial, jax.tree_util.Partial),
                *(types.BuiltinFunctionType, types.MethodWrapperType),
            ),
            _read_callable,
        ),
        **dict.fromkeys(
            (types.MethodDescriptorType, types.WrapperDescriptorType, types.ModuleType),
            lambda canon, value, _: canon.push(ById(value)),
        ),
        types.MappingProxyType: _read_container,
        **dict.fromkeys((type, object), _read_other),
    }
