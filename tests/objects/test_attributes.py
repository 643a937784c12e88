"""The attributes of objects, found without running code of the user's."""

import functools

from leafwise._objects.attributes import (
    attributes,
    own_attributes,
    slots_of,
    stored_attributes,
)


class Plain:
    """An object with a `__dict__` and a cache."""

    def __init__(self) -> None:
        self.b, self.a = 2, 1

    @functools.cached_property
    def cached(self) -> int:
        """A value that is stored when it is first asked for."""
        return 3


class Slotted:
    """An object with slots, of which one is private and one stays empty."""

    __slots__ = ("__private", "empty", "shown")

    def __init__(self) -> None:
        self.__private = 1
        self.shown = 2


def test_slots_have_their_mangled_names() -> None:
    """Each way to read attributes finds a private slot by the name that Python uses."""
    names = ("_Slotted__private", "empty", "shown")
    assert set(slots_of(Slotted)) == set(names)
    filled = {"_Slotted__private": 1, "shown": 2}
    assert own_attributes(Slotted()) == dict(attributes(Slotted())) == filled


def test_caches_are_not_stored_attributes() -> None:
    """A value that a cached property has stored is among the own attributes alone."""
    value = Plain()
    assert value.cached == 3
    assert list(own_attributes(value)) == ["b", "a", "cached"]
    assert stored_attributes(value) == dict(attributes(value)) == {"a": 1, "b": 2}
