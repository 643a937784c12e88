"""The statics of one instance, with the class that they belong to."""

from collections.abc import Callable, Container
from typing import Any, Protocol

from leafwise._statics import findings
from leafwise._statics.reading import Reading, read
from leafwise._statics.snapshot import Snapshot
from leafwise.errors import static_field_error


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


def content_names(owner: StaticOwner) -> Container[str]:
    """Return the static fields that are compared by content."""
    names: Container[str] = getattr(owner, "content_names", ())
    return names


def read_statics(owner: StaticOwner, values: tuple[Any, ...]) -> Reading:
    """Read and validate the statics of one instance."""
    reading = Reading()
    reading.push(id(owner.cls))
    by_content = content_names(owner)
    for name, value in zip(owner.static_names, values, strict=True):
        path = f"{owner.cls.__name__}.{name}"
        if name in by_content:
            from leafwise._statics.content import read_by_content  # noqa: PLC0415  # few ask for it

            read_by_content(reading, value, path)
        else:
            read(reading, value, path)
    reading.raise_findings()
    return reading


def take_snapshot(owner: StaticOwner, values: tuple[Any, ...]) -> Snapshot:
    """Look at all that can be reached through the statics of one instance."""
    snapshot = Snapshot()
    for name, value in zip(owner.static_names, values, strict=True):
        snapshot.look(value, f"{owner.cls.__name__}.{name}")
    return snapshot


def refuse_tracers(snapshot: Snapshot) -> None:
    """Refuse statics through which a tracer can be reached.

    Raises:
        TracerInStaticError: One can be; all are named.
    """
    if snapshot.tracers:
        found = [findings.traced(path, value) for path, value in snapshot.tracers]
        kinds, each = zip(*found, strict=True)
        raise static_field_error(kinds, each)
