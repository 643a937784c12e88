"""Faults in what becomes of children: reordered, dropped, changed, or hidden."""

from collections.abc import Iterable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import GetAttrKey

from leafwise.testing import Law

from .exact import ByIdentity, Node, Statics
from .table import correct, planted

NAMES = ("pos", "drag", "vel", "mass")


@correct
class Body(Node):
    """A correct class: four children, one of which may be None, and a static."""

    CHILDREN = NAMES
    STATICS = ("name",)

    def __init__(
        self, pos: jax.Array, drag: jax.Array | None, vel: jax.Array, mass: float, name: str
    ) -> None:
        self.pos = pos
        self.drag = drag
        self.vel = vel
        self.mass = mass
        self.name = name

    @classmethod
    def read(cls, aux: Any) -> dict[str, Any]:
        return {"name": aux.values["name"]}


@planted(Law.ROUND_TRIP, "pos", "vel", like="jax#19547")
class Reordered(Body):
    """Two children come back in each other's place."""

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        vel, drag, pos, mass = children
        return super().tree_unflatten(aux, (pos, drag, vel, mass))


@planted(Law.ROUND_TRIP, "pos", "drag", "vel", "mass", like="jax#4085")
class SortedByName(Body):
    """Flatten sorts the children by name, unflatten takes them as declared."""

    def children(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in sorted(NAMES))

    def keys(self) -> tuple[Any, ...]:
        return tuple(GetAttrKey(name) for name in sorted(NAMES))


@planted(Law.ROUND_TRIP, "drag", "vel", "mass", like="numpyro#1778")
class NoneDropped(Body):
    """Flatten leaves a child out that is None, and the next one takes its place."""

    def children(self) -> tuple[Any, ...]:
        return tuple(child for child in super().children() if child is not None)

    def keys(self) -> tuple[Any, ...]:
        return tuple(GetAttrKey(name) for name in NAMES if getattr(self, name) is not None)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        given = tuple(children)
        return super().tree_unflatten(aux, (*given, None)[:4])


@planted(Law.ROUND_TRIP, "drag", like="numpyro#1778")
class NoneFilled(Body):
    """Unflatten puts zeros where a child is None."""

    def after_unflatten(self) -> None:
        if self.drag is None:
            self.drag = jnp.zeros(3)


@planted(Law.NO_HIDDEN_STATE, "pos", "vel", like="a copied line")
class ChildTwice(Body):
    """One child is flattened twice, another one not at all."""

    def children(self) -> tuple[Any, ...]:
        return self.pos, self.drag, self.pos, self.mass


@planted(Law.NO_HIDDEN_STATE, "mass", like="subclasses flattened as their base")
class NeverFlattened(Body):
    """A child is declared and stored, and stays out of flatten and unflatten."""

    CHILDREN = NAMES[:3]


@planted(Law.NO_HIDDEN_STATE, "mass", like="subclasses flattened as their base")
class ComesBackAsDefault(NeverFlattened):
    """A child is never flattened, and comes back as its default."""

    def after_unflatten(self) -> None:
        self.mass = 1.0


@planted(Law.TRANSFORMATIONS, like="jax#14033")
class CastToFloat(Body):
    """Flatten makes a float of a child, which a tracer refuses."""

    def children(self) -> tuple[Any, ...]:
        mass = self.mass
        if isinstance(mass, jax.Array):
            mass = float(mass)
        return self.pos, self.drag, self.vel, mass


@planted(Law.TRANSFORMATIONS, like="NumPy functions in flatten")
class CastToNumpy(Body):
    """Flatten makes a NumPy array of a child, which a tracer refuses."""

    def children(self) -> tuple[Any, ...]:
        return np.asarray(self.pos), self.drag, self.vel, self.mass


@planted(Law.ANY_LEAF, like="copies against aliasing")
class CopiedWithPlus(Body):
    """Flatten copies a child with `+ 0`, which not all leaves know."""

    def children(self) -> tuple[Any, ...]:
        return self.pos + 0, self.drag, self.vel, self.mass


@planted(Law.IDENTITY_MAP, "pos", like="jax#25486")
class CastAtUnflatten(Body):
    """Unflatten gives an array another dtype; it leaves placeholders alone."""

    def after_unflatten(self) -> None:
        if isinstance(self.pos, jax.Array):
            self.pos = self.pos.astype("float16")


@planted(Law.IDENTITY_MAP, "pos", like="kUPS#290")
class Renormalised(Body):
    """Unflatten divides an array by its sum; it leaves placeholders alone."""

    def after_unflatten(self) -> None:
        if isinstance(self.pos, jax.Array):
            self.pos = self.pos / (1 + jnp.abs(self.pos).sum())


@planted(Law.ANY_LEAF, like="kUPS#270")
class RefusesNone(Body):
    """Unflatten checks that a child has leaves, which None has not."""

    def after_unflatten(self) -> None:
        jax.tree_util.tree_leaves(self.pos)[0]


@planted(Law.ANY_LEAF, "pos", like="frozen parts of a model")
class StoppedGradient(Body):
    """Unflatten stops the gradient of a child that is traced."""

    def after_unflatten(self) -> None:
        if isinstance(self.pos, jax.core.Tracer):
            self.pos = jax.lax.stop_gradient(self.pos)


@planted(Law.ANY_LEAF, like="batch shapes as statics")
class ShapeInAux(Body):
    """aux_data has the shape of a child, which `vmap` and `scan` change."""

    def key(self) -> Any:
        return Statics(name=self.name, shape=getattr(self.pos, "shape", None))


@planted(Law.ANY_LEAF, like="jax#26053")
class NoneInAux(Body):
    """aux_data has which children are None, so that `in_axes` with a None is no prefix."""

    def key(self) -> Any:
        return Statics(name=self.name, present=[child is not None for child in self.children()])


@planted(Law.RECOMPILATION, "mass", like="Python numbers that are static")
class ValueInAux(Body):
    """aux_data has the value of a child where it is a Python number: each one retraces."""

    def key(self) -> Any:
        return Statics(name=self.name, mass=self.mass if isinstance(self.mass, float) else None)


@planted(Law.STATIC_VALUES, "vel", like="jax#14033")
class ChildHidden(Body):
    """An array is in the aux_data, compared by identity: no gradient, and stale."""

    CHILDREN = ("pos", "drag", "mass")

    def key(self) -> Any:
        return Statics(name=self.name, vel=ByIdentity(self.vel))

    @classmethod
    def read(cls, aux: Any) -> dict[str, Any]:
        return {"name": aux.values["name"], "vel": aux.values["vel"].value}
