"""Objects that stand for a value: for none, for one that compares by identity, for its text."""

from typing import Final


class _Missing:
    """The class of `MISSING`, of which there is one object in a process."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "(absent)"

    def __reduce__(self) -> str:
        return "MISSING"  # by name: the results of leafwise that hold it are copied and pickled


MISSING: Final = _Missing()
"""Stands for what is under no name, in a cell that is not assigned yet, or in one tree alone."""


class ById:
    """An object that compares by identity, kept alive so that this means something."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ById) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class Verbatim(str):
    """Text that stands for a value: its repr is itself, so that it is shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
