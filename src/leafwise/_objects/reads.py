"""What a piece of code reads from outside itself: the records."""

import types
from enum import Enum
from typing import Any, NamedTuple


class Root(Enum):
    """Where a name is looked up."""

    GLOBAL = "global"
    FREE = "free"
    PARAMETER = "parameter"
    SUPER = "super"
    IMPORT = "import"
    """A module that the code imports: ``.settings`` is one of its own package."""


class Usage(Enum):
    """What is done with a value."""

    READ = "read"
    CALLED = "called"
    MUTATED = "mutated"
    """A method that changes a container is called, and what it returns is dropped."""
    WRITTEN = "written"
    IS = "is"
    """It is asked whether it is one object with another value, the only one in `Read.given`."""
    PRESENT = "present"
    """It is asked whether it is there: ``hasattr(config, 'rate')``, ``'rate' in config``."""
    RETURNED = "returned"
    SPREAD = "spread"
    """All of ``*args`` or ``**kwargs`` is passed on."""


class Item(NamedTuple):
    """The step of ``config['rate']``, where an attribute is a `str`."""

    key: Any


class Asked(Item):
    """The step of ``config.get('rate')`` and ``'rate' in config``: an item, if that is a dict.

    It stands behind the step ``get``, or behind the container.
    """

    __slots__ = ()


Step = str | Item


class Const(NamedTuple):
    """A constant on the stack; the code of an inner function stands for that function."""

    value: Any


class Given(NamedTuple):
    """What a call passes on; None is what was not read from outside."""

    args: tuple["Read | Const | None", ...] = ()
    kwargs: tuple[tuple[str, "Read | Const | None"], ...] = ()

    def reads(self) -> list["Read"]:
        """Return what of it was read from outside."""
        values = [*self.args, *(value for _, value in self.kwargs)]
        return [each for each in values if isinstance(each, Read)]


class Read(NamedTuple):
    """One place that code reads.

    Attributes:
        root: Where the name is looked up.
        name: The name.
        steps: The attributes and constant keys behind it, as the code spells them.
        line: The line; 0 if it is not known.
        usage: What is done with the value.
        given: What a call of it passes on; None if that is not known.
        within: The code of the inner function that reads it; None if that is the code itself.
    """

    root: Root
    name: str
    steps: tuple[Step, ...]
    line: int
    usage: Usage
    given: Given | None = None
    within: types.CodeType | None = None
