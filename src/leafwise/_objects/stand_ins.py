"""Stand-ins for a missing value, for a value compared by identity, and for a value's text."""

from typing import Final


class _Missing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "(absent)"

    def __reduce__(self) -> str:
        return "MISSING"  # by name, since results that hold it are copied and pickled


MISSING: Final = _Missing()
"""Stands for a missing attribute, an unassigned cell, or a value that only one tree has."""


class ById:
    """A value compared by identity, and kept alive so that its id stays unique."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ById) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class Verbatim(str):
    """Text that stands for a value; its repr is the text itself, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
