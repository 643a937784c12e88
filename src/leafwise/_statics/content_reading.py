"""The state of reading one static value by content.

Functions, lists and whatever else can change in place are numbered as they are met, and a
number stands where one is met again. So cycles end, and sharing is part of the form.
"""

import collections
import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from leafwise._objects.attributes import (
    attributes,
    attributes_flat,
    builtin_base,
    compares_by_identity,
    has_hidden_state,
    record_fields,
)
from leafwise._objects.code import is_installed_module
from leafwise._objects.stand_ins import ById
from leafwise._statics.form import Canonicaliser, CanonicalOf, canonicalise
from leafwise._statics.guards import Guards, PartsReader, items

_AGAIN: Final = object()
"""Stands in a form before the number of what was met before."""

_MOST_NUMBERED: Final = 5_000
"""Beyond so many functions and containers, what code finds by name is no longer entered."""


class Kept:
    """The objects whose ids stand in a form, kept alive with it; all are equal."""

    __slots__ = ("values",)

    def __init__(self, values: list[Any]) -> None:
        """Keep the objects."""
        self.values = values

    def __eq__(self, other: object) -> bool:
        """Return whether it is one, too."""
        return isinstance(other, Kept)

    def __hash__(self) -> int:
        """Return one hash for all."""
        return hash(Kept)


class ContentCanonicaliser(Canonicaliser):
    """One static value, read by content.

    Attributes:
        deep: How many functions, cells and the like are around what is being read.
        kept: Objects whose ids may stand in the form.
        owned: What the value itself is made of and could change.
        around: What its code finds by name, and objects with an ``==`` of their own.
        noting: The one of these two where to note what could change.
    """

    __slots__ = (
        "_inside",
        "_later",
        "_numbers",
        "_places",
        "around",
        "deep",
        "kept",
        "noting",
        "owned",
    )

    def __init__(self, readers: Mapping[type, CanonicalOf]) -> None:
        """Start empty."""
        super().__init__(readers)
        self._numbers: dict[int, int] = {}
        self._places: dict[int, int] = {}
        self.deep = 0
        self.kept: list[Any] = []
        self.owned = Guards()
        self.around = Guards()
        self.noting = self.owned
        self._inside: list[tuple[Any, str]] = []
        self._later: list[tuple[Any, str]] = []

    def node(self, value: Any, read_parts: Callable[[], None]) -> None:
        """Read the parts of something that can change, or give its number if it has one."""
        number = self._numbers.get(id(value))
        if number is not None:
            self.push(_AGAIN, number)
            return
        self._numbers[id(value)] = len(self._numbers)
        self.kept.append(value)
        self.deep += 1
        try:
            read_parts()
        finally:
            self.deep -= 1

    def inside(self, value: Any, path: str, read_parts: Callable[[], None]) -> None:  # noqa: ARG002  # as the base
        """Read the parts of a value that cannot change, which may lead back to it."""
        place = self._places.get(id(value))
        if place is not None:
            self.push(_AGAIN, ~place)
            return
        self._places[id(value)] = len(self._places)
        self.kept.append(value)
        try:
            read_parts()
        finally:
            del self._places[id(value)]

    def watched(self, value: Any, path: str, read_parts: Callable[[], None]) -> None:
        """Read a value that changes only by force, and note what it is."""
        self.deep += isinstance(value, functools.partial)
        self.inside(value, path, read_parts)
        self.deep -= isinstance(value, functools.partial)
        if _speaks_for_itself(value):
            self.push(hash(value))
            self.noting.add(_hash, value)
        elif not isinstance(value, tuple) or type(value).__dictoffset__:
            self.around.add(_state, value)

    def apart(self, read_parts: Callable[[], None]) -> tuple[Any, ...]:
        """Return the form of a member of a set, numbered by itself: sets have no order."""
        before = self._numbers, self._inside, self._later
        self._numbers, self._inside, self._later = {}, [], []

        def read_all() -> None:
            read_parts()
            self.finish()

        try:
            return super().apart(read_all)
        finally:
            self._numbers, self._inside, self._later = before

    def look_inside(self, value: Any, path: str) -> None:
        """Read what an object holds that may be beyond comparison, once its owner is read."""
        (self._inside if self.noting is self.owned else self._later).append((value, path))

    def look_around(self, value: Any, path: str) -> None:
        """Read what code finds under a name, once the value itself has been read."""
        self._later.append((value, path))

    def finish(self) -> None:
        """Read what was left for later, and what that leads to."""
        noting = self.noting
        self.deep += 1
        for value, path in self._inside:  # which grows meanwhile
            self._read_leniently(value, path)
        self.noting = self.around
        for value, path in self._later:  # which grows meanwhile
            self._read_leniently(value, path)
        self.deep -= 1
        self.noting = noting

    def _read_leniently(self, value: Any, path: str) -> None:
        """Read a value; if it cannot be compared it is itself."""
        start, problems, numbered = len(self._out), len(self._found), len(self._numbers)
        if numbered < _MOST_NUMBERED:
            canonicalise(self, value, path)
            if len(self._found) == problems:
                return
        del self._out[start:], self._found[problems:]
        for number in list(self._numbers)[numbered:]:
            del self._numbers[number]
        self.read_as_itself(value, path)

    def read_as_itself(self, value: Any, path: str) -> None:
        """Read a value that is equal to itself alone, with what it holds now."""
        self.push(ById(value))
        found = _parts_of(value)
        if found is None:
            return
        look, parts = found

        def read_parts() -> None:
            self.noting.add(look, value)
            for name, item in parts:
                self.push(name)
                self.look_inside(item, f"{path}.{name}")

        self.node(value, read_parts)


def _parts_of(value: Any) -> tuple[PartsReader, list[tuple[str, Any]]] | None:
    """Return what looks quickly at what a value holds, and that, if it can be seen."""
    kind: Any = type(value)
    if isinstance(value, dict):
        return items, [("items", part) for part in items(cast("Any", value))]
    if isinstance(value, list | tuple | set | frozenset | collections.deque):
        return tuple, [("items", part) for part in cast("Any", value)]
    shown = kind.__hash__ is None or not is_installed_module(kind.__module__)
    if not shown or has_hidden_state(kind):
        return None
    return attributes_of(value), attributes(value)


def attributes_of(value: Any) -> PartsReader:
    """Return what tells quickly whether the attributes of an object are as they were."""
    has_slots = any(vars(base).get("__slots__") for base in type(value).__mro__)
    return attributes_flat if has_slots or not type(value).__dictoffset__ else _items_of_dict


def _items_of_dict(value: Any) -> tuple[Any, ...]:
    return items(value.__dict__)


def _speaks_for_itself(value: Any) -> bool:
    """Return whether an object is compared by an ``==`` of its own."""
    kind = type(value)
    known = isinstance(value, functools.partial) or compares_by_identity(kind)
    return not known and record_fields(kind) is None and builtin_base(kind) is None


def _hash(value: Any) -> tuple[Any, ...]:
    return (hash(value),)


def _state(value: Any) -> tuple[Any, ...]:
    """Return what a value is made of that changes only by force."""
    if isinstance(value, functools.partial):
        parts = (value.func, value.args, *items(value.keywords))
        return (*parts, *items(value.__dict__))
    return attributes_flat(value)
