"""The state of reading one static value by content.

Functions, lists and whatever else can change in place are numbered as they are met, and a
number stands where one is met again. So cycles end, and sharing is part of the form.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from leafwise._guards import Guards
from leafwise._introspect import attributes_flat, compares_by_identity
from leafwise._reading import Reader, Reading, read

_AGAIN: Final = object()
"""Stands in a form before the number of what was met before."""

_MOST_NUMBERED: Final = 5_000
"""Beyond so many functions and containers, what code finds by name is no longer entered."""


class Is:
    """An object that compares by identity, kept alive so that this means something."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        """Keep the object."""
        self.value = value

    def __eq__(self, other: object) -> bool:
        """Return whether both are of one object."""
        return isinstance(other, Is) and self.value is other.value

    def __hash__(self) -> int:
        """Return a hash by identity."""
        return id(self.value)


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


class ContentReading(Reading):
    """One static value, read by content.

    Attributes:
        deep: How many functions, cells and the like are around what is being read.
        kept: Objects whose ids may stand in the form.
        owned: What the value itself is made of and could change.
        around: What its code finds by name, and objects with an ``==`` of their own.
        lenient: Whether what cannot be compared is taken for itself, not refused.
    """

    __slots__ = ("_later", "_numbers", "_places", "around", "deep", "kept", "lenient", "owned")

    def __init__(self, readers: Mapping[type, Reader]) -> None:
        """Start empty."""
        super().__init__(readers)
        self._numbers: dict[int, int] = {}
        self._places: dict[int, int] = {}
        self.deep = 0
        self.kept: list[Any] = []
        self.owned = Guards()
        self.around = Guards()
        self.lenient = False
        self._later: list[tuple[Any, str]] = []

    @property
    def noting(self) -> Guards:
        """Where to note what could change."""
        return self.around if self.lenient else self.owned

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
        self.around.add(_state, value)

    def apart(self, read_parts: Callable[[], None]) -> tuple[Any, ...]:
        """Return the form of a member of a set, numbered by itself: sets have no order."""
        before = self._numbers, self._later
        self._numbers, self._later = {}, []

        def read_all() -> None:
            read_parts()
            self.finish()

        try:
            return super().apart(read_all)
        finally:
            self._numbers, self._later = before

    def look_around(self, value: Any, path: str) -> None:
        """Read what code finds under a name, once the value itself has been read."""
        self._later.append((value, path))

    def finish(self) -> None:
        """Read what was left for later, and what that leads to."""
        self.deep += 1
        for value, path in self._later:  # which grows meanwhile
            self._read_leniently(value, path)
        self.deep -= 1

    def _read_leniently(self, value: Any, path: str) -> None:
        """Read a value; if it cannot be compared it is itself."""
        start, problems, numbered = len(self._out), len(self._found), len(self._numbers)
        before, self.lenient = self.lenient, True
        try:
            if numbered < _MOST_NUMBERED:
                read(self, value, path)
                if len(self._found) == problems:
                    return
        finally:
            self.lenient = before
        del self._out[start:], self._found[problems:]
        for number in list(self._numbers)[numbered:]:
            del self._numbers[number]
        self.push(Is(value))


def _state(value: Any) -> tuple[Any, ...]:
    """Return what a value is made of that changes only by force."""
    if isinstance(value, functools.partial):
        return value.func, value.args, *value.keywords, *value.keywords.values()
    if not compares_by_identity(type(value)):
        return (hash(value),)
    return attributes_flat(value)
