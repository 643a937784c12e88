"""What code reads: the way from a name to a value, while it is followed and as it is found."""

import dataclasses
from enum import Enum
from typing import Any, NamedTuple, cast


class Root(Enum):
    """Where a name is looked up."""

    GLOBAL = "global"
    FREE = "free"
    PARAMETER = "parameter"
    SUPER = "super"


class Usage(Enum):
    """What is done with a value."""

    READ = "read"
    CALLED = "called"
    MUTATED = "mutated"
    """A method that changes a container is called, and what it returns is dropped."""
    WRITTEN = "written"


class Item(NamedTuple):
    """The step of ``config['rate']``, where an attribute is a `str`."""

    key: Any


class Asked(Item):
    """The step of ``config.get('rate')`` and ``'rate' in config``: an item, if that is a dict.

    It stands behind the step ``get``, or behind the container.
    """

    __slots__ = ()


Step = str | Item


@dataclasses.dataclass(frozen=True, slots=True)
class Read:
    """One place that code reads.

    Attributes:
        root: Where the name is looked up.
        name: The name.
        steps: The attributes and constant keys behind it, as the code spells them.
        line: The line; 0 if it is not known.
        usage: What is done with the value.
    """

    root: Root
    name: str
    steps: tuple[Step, ...]
    line: int
    usage: Usage


@dataclasses.dataclass(frozen=True, slots=True)
class Ref:
    """A value on the stack that was read from outside.

    Attributes:
        order: How many values were loaded before it.
        ended: Whether it is only a part of that, by a key that is not known.
        changed: Whether it is the outcome of ``+=``.
    """

    root: Root
    name: str
    steps: tuple[Step, ...]
    line: int
    order: int
    ended: bool = False
    changed: bool = False

    def then(self, step: Step | None) -> "Ref":
        """Return what is one step further on; None is a key that is not known."""
        if self.ended or step is None:
            return dataclasses.replace(self, ended=True)
        return dataclasses.replace(self, steps=(*self.steps, step))

    def is_place(self, other: object) -> bool:
        """Whether it is what another one reads."""
        mine = (self.root, self.name, self.steps)
        return isinstance(other, Ref) and mine == (other.root, other.name, other.steps)


class Const(NamedTuple):
    """A constant on the stack."""

    value: Any


def item(key: object, kind: type[Item] = Item) -> Item | None:
    """Return the step to what has a key, if that is known."""
    known = isinstance(key, Const) and isinstance(key.value, str | int)
    return kind(cast("Const", key).value) if known else None
