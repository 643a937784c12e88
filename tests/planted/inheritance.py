"""Faults of subclasses: what a base class registered does not fit them."""

import dataclasses
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import jax
from jax.tree_util import GetAttrKey, register_pytree_with_keys_class

from leafwise.testing import Law

from .exact import Statics
from .table import correct, planted


@register_pytree_with_keys_class
@dataclasses.dataclass(eq=False)
class Shape:
    """A correct class, made to be inherited from: each subclass lists its fields."""

    DYNAMIC: ClassVar[tuple[str, ...]] = ("center",)
    STATIC: ClassVar[tuple[str, ...]] = ("name",)

    center: jax.Array
    name: str = dataclasses.field(metadata={"static": True})

    def key(self) -> Any:
        """Return the aux_data."""
        return Statics(**{name: getattr(self, name) for name in self.STATIC})

    def tree_flatten(self) -> tuple[Any, Any]:
        return tuple(getattr(self, name) for name in self.DYNAMIC), self.key()

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        pairs = tuple((GetAttrKey(name), getattr(self, name)) for name in self.DYNAMIC)
        return pairs, self.key()

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        self = object.__new__(cls)
        vars(self).update(zip(cls.DYNAMIC, children, strict=True))
        vars(self).update(aux.values)
        return self


@correct
@dataclasses.dataclass(eq=False)
class Ball(Shape):
    """A correct subclass: a child and a static more."""

    DYNAMIC: ClassVar[tuple[str, ...]] = ("center", "radius")
    STATIC: ClassVar[tuple[str, ...]] = ("name", "sides")

    radius: jax.Array
    sides: int = dataclasses.field(metadata={"static": True})


@planted(Law.NO_HIDDEN_STATE, "sides", like="subclasses flattened as their base")
class NewStaticLost(Ball):
    """The subclass's own static is not in the list that it inherits."""

    STATIC = Shape.STATIC


@planted(Law.NO_HIDDEN_STATE, "radius", like="subclasses flattened as their base")
class NewChildLost(Ball):
    """The subclass's own child is not in the list that it inherits."""

    DYNAMIC = Shape.DYNAMIC


@planted(Law.TREEDEF_EQUALITY, "radius", like="jax#24204")
class LeafTurnedStatic(Ball):
    """The subclass lists an array of its own among the statics."""

    DYNAMIC = ("center",)
    STATIC = ("name", "sides", "radius")

    def key(self) -> Any:
        return tuple((name, getattr(self, name)) for name in self.STATIC)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        return super().tree_unflatten(Statics(**dict(aux)), children)


@planted(Law.NO_HIDDEN_STATE, "name", like="a subclass that overrides only a static's default")
class StaticTurnedLeaf(Ball):
    """The subclass lists a text of its base among the children."""

    DYNAMIC = ("center", "radius", "name")
    STATIC = ("sides",)


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
