"""Faults of subclasses: what a base class registered does not fit them."""

import dataclasses
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import jax
from jax.tree_util import register_pytree_with_keys_class

from leafwise.testing import Law

from .exact import Node, Statics
from .table import correct, planted


@register_pytree_with_keys_class
@dataclasses.dataclass(eq=False)
class Shape(Node):
    """A correct class, made to be inherited from: each subclass lists its fields."""

    CHILDREN = ("center",)
    STATICS = ("name",)

    center: jax.Array
    name: str = dataclasses.field(metadata={"static": True})


@correct
@dataclasses.dataclass(eq=False)
class Ball(Shape):
    """A correct subclass: a child and a static more."""

    CHILDREN = ("center", "radius")
    STATICS = ("name", "sides")

    radius: jax.Array
    sides: int = dataclasses.field(metadata={"static": True})


@planted(Law.NO_HIDDEN_STATE, "sides", like="subclasses flattened as their base")
class NewStaticLost(Ball):
    """The subclass's own static is not in the list that it inherits."""

    STATICS = Shape.STATICS


@planted(Law.NO_HIDDEN_STATE, "radius", like="subclasses flattened as their base")
class NewChildLost(Ball):
    """The subclass's own child is not in the list that it inherits."""

    CHILDREN = Shape.CHILDREN


@planted(Law.TREEDEF_EQUALITY, "radius", like="jax#24204")
class LeafTurnedStatic(Ball):
    """The subclass lists an array of its own among the statics."""

    CHILDREN = ("center",)
    STATICS = ("name", "sides", "radius")

    def key(self) -> Any:
        return tuple((name, getattr(self, name)) for name in self.STATICS)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        return super().tree_unflatten(Statics(**dict(aux)), children)


@planted(Law.NO_HIDDEN_STATE, "name", like="a subclass that overrides only a static's default")
class StaticTurnedLeaf(Ball):
    """The subclass lists a text of its base among the children."""

    CHILDREN = ("center", "radius", "name")
    STATICS = ("sides",)


@planted(Law.ROUND_TRIP, like="an unflatten that names its class")
class BaseComesBack(Ball):
    """Unflatten makes an instance of the base class."""

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        center, radius = children
        made: Any = Ball.tree_unflatten(aux, (center, radius))
        return made


@planted(Law.NO_HIDDEN_STATE, "sides", like="a field and a class variable of one name")
class ClassAsked(Ball):
    """A default of the class stands in for the instance's static."""

    sides: ClassVar[int] = 3

    def key(self) -> Any:
        return Statics(name=self.name, sides=type(self).sides)
