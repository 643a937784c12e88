"""The check of one captured value."""

from collections.abc import Callable
from typing import Any

from leafwise._captures.places import BoundIn, place_of
from leafwise._captures.reads import Current, Read


def check_of(value: Any) -> Callable[[Any], bool]:
    """Return a function that returns whether a value in its place is as it was."""
    names = {"it": value}
    current = Current([Read(place_of(BoundIn.GLOBAL, names, "it"))])
    is_unchanged = current.check(lambda: True, lambda: False)

    def check(now: Any) -> bool:
        names["it"] = now
        return bool(is_unchanged())

    return check
