"""Faults that keep what belongs to a trace, or to another instance."""

from collections.abc import Iterable
from typing import Any, ClassVar, Self

from leafwise.testing import Law

from .children import Body
from .exact import Statics
from .table import planted

SEEN: list[Any] = []
LAST: dict[str, Any] = {}


@planted(Law.NO_TRACER_LEAKS, like="jax#9283")
class KeepsInstances(Body):
    """Unflatten puts each instance in a list of the class."""

    INSTANCES: ClassVar[list[Any]] = []

    def after_unflatten(self) -> None:
        self.INSTANCES.append(self)


@planted(Law.NO_TRACER_LEAKS, like="tinygp#139")
class KeepsLeaves(Body):
    """Flatten puts a child in a list of the module."""

    def children(self) -> tuple[Any, ...]:
        SEEN.append(self.pos)
        return super().children()


@planted(Law.NO_TRACER_LEAKS, like="numpyro#1651")
class KeepsLast(Body):
    """Unflatten keeps the last child that it met in a dict of the module."""

    def after_unflatten(self) -> None:
        LAST[self.name] = self.pos


@planted(Law.NO_TRACER_LEAKS, like="jax#9283")
class SharedDict(Body):
    """All instances that unflatten makes share one dict of attributes."""

    SHARED: ClassVar[dict[str, Any]] = {}

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        self = object.__new__(cls)
        self.__dict__ = cls.SHARED
        self.pos, self.drag, self.vel, self.mass = children
        self.name = aux.values["name"]
        return self


class WithOrigin(Statics):
    """aux_data that remembers whose it is, and does not compare it."""

    def __init__(self, origin: Any, **values: Any) -> None:
        super().__init__(**values)
        self.origin = origin


@planted(Law.NO_TRACER_LEAKS, like="awkward#3405")
class InstanceInAux(Body):
    """aux_data holds the whole instance, arrays and all, uncompared."""

    def key(self) -> Any:
        return WithOrigin(self, name=self.name)
