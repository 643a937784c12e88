"""The statics of one instance, with the class that they belong to."""

from collections.abc import Callable
from typing import Any, Protocol

from leafwise._reading import Reading
from leafwise._snapshot import Snapshot
from leafwise._statics import read


class StaticOwner(Protocol):
    """What a key needs to know about the class it belongs to."""

    @property
    def cls(self) -> type:
        """The class."""
        ...

    @property
    def static_names(self) -> tuple[str, ...]:
        """Its static fields, in order."""
        ...

    @property
    def note(self) -> str:
        """Words that tell this class from others of its name; usually empty."""
        ...

    @property
    def spread(self) -> Callable[[tuple[Any, ...]], object] | None:
        """What picks the extra child of an instance by its statics, if it has one."""
        ...


def read_statics(owner: StaticOwner, values: tuple[Any, ...]) -> Reading:
    """Read and validate the statics of one instance."""
    reading = Reading()
    reading.push(id(owner.cls))
    for name, value in zip(owner.static_names, values, strict=True):
        read(reading, value, f"{owner.cls.__name__}.{name}")
    reading.raise_findings()
    return reading


def take_snapshot(owner: StaticOwner, values: tuple[Any, ...]) -> Snapshot:
    """Look at all that can be reached through the statics of one instance."""
    snapshot = Snapshot()
    for name, value in zip(owner.static_names, values, strict=True):
        snapshot.look(value, f"{owner.cls.__name__}.{name}")
    return snapshot
