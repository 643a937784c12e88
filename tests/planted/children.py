"""Faults in what becomes of children: reordered, dropped, changed, or hidden."""

from collections.abc import Iterable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import GetAttrKey, register_pytree_with_keys_class

from .exact import Statics

NAMES = ("pos", "drag", "vel", "mass")


@register_pytree_with_keys_class
class Body:
    """A correct class: four children, one of which may be None, and a static."""

    def __init__(
        self, pos: jax.Array, drag: jax.Array | None, vel: jax.Array, mass: float, name: str
    ) -> None:
        self.pos = pos
        self.drag = drag
        self.vel = vel
        self.mass = mass
        self.name = name

    def key(self) -> Any:
        """Return the aux_data."""
        return Statics(name=self.name)

    def children(self) -> tuple[Any, ...]:
        """Return the children in order."""
        return self.pos, self.drag, self.vel, self.mass

    def tree_flatten(self) -> tuple[Any, Any]:
        return self.children(), self.key()

    def keys(self) -> tuple[Any, ...]:
        """Return the children's key paths."""
        return tuple(GetAttrKey(name) for name in NAMES)

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        return tuple(zip(self.keys(), self.children(), strict=True)), self.key()

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        self = object.__new__(cls)
        self.pos, self.drag, self.vel, self.mass = children
        self.name = aux.values["name"]
        return self


# ----------------------------------------------------------------------- order and number


@register_pytree_with_keys_class
class Reordered(Body):
    """Two children come back in each other's place."""

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        vel, drag, pos, mass = children
        return super().tree_unflatten(aux, (pos, drag, vel, mass))


@register_pytree_with_keys_class
class SortedByName(Body):
    """Flatten sorts the children by name, unflatten takes them as declared."""

    def children(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in sorted(NAMES))

    def keys(self) -> tuple[Any, ...]:
        return tuple(GetAttrKey(name) for name in sorted(NAMES))


@register_pytree_with_keys_class
class NoneDropped(Body):
    """Flatten leaves a child out that is None, and the next one takes its place."""

    def tree_flatten(self) -> tuple[Any, Any]:
        return tuple(child for child in self.children() if child is not None), self.key()

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        pairs = zip(self.keys(), self.children(), strict=True)
        return tuple(pair for pair in pairs if pair[1] is not None), self.key()

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        given = tuple(children)
        return super().tree_unflatten(aux, (*given, None)[:4])


@register_pytree_with_keys_class
class NoneFilled(Body):
    """Unflatten puts zeros where a child is None."""

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        self = super().tree_unflatten(aux, children)
        if self.drag is None:
            self.drag = jnp.zeros(3)
        return self


@register_pytree_with_keys_class
class ChildTwice(Body):
    """One child is flattened twice, another one not at all."""

    def children(self) -> tuple[Any, ...]:
        return self.pos, self.drag, self.pos, self.mass


@register_pytree_with_keys_class
class NeverFlattened(Body):
    """A child is declared and stored, and stays out of flatten and unflatten."""

    def children(self) -> tuple[Any, ...]:
        return self.pos, self.drag, self.vel

    def keys(self) -> tuple[Any, ...]:
        return tuple(GetAttrKey(name) for name in NAMES[:3])

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        self = object.__new__(cls)
        self.pos, self.drag, self.vel = children
        self.name = aux.values["name"]
        return self


@register_pytree_with_keys_class
class ComesBackAsDefault(NeverFlattened):
    """A child is never flattened, and comes back as its default."""

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        self = super().tree_unflatten(aux, children)
        self.mass = 1.0
        return self


# ------------------------------------------------------------------------------ changed


@register_pytree_with_keys_class
class CastToFloat(Body):
    """Flatten makes a float of a child, which a tracer refuses."""

    def children(self) -> tuple[Any, ...]:
        mass = self.mass
        if isinstance(mass, jax.Array):
            mass = float(mass)
        return self.pos, self.drag, self.vel, mass


@register_pytree_with_keys_class
class CastToNumpy(Body):
    """Flatten makes a NumPy array of a child, which a tracer refuses."""

    def children(self) -> tuple[Any, ...]:
        return np.asarray(self.pos), self.drag, self.vel, self.mass


@register_pytree_with_keys_class
class CopiedWithPlus(Body):
    """Flatten copies a child with `+ 0`, which not all leaves know."""

    def children(self) -> tuple[Any, ...]:
        return self.pos + 0, self.drag, self.vel, self.mass


@register_pytree_with_keys_class
class CastAtUnflatten(Body):
    """Unflatten gives an array another dtype; it leaves placeholders alone."""

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        self = super().tree_unflatten(aux, children)
        if isinstance(self.pos, jax.Array):
            self.pos = self.pos.astype("float16")
        return self


@register_pytree_with_keys_class
class Renormalised(Body):
    """Unflatten divides an array by its sum; it leaves placeholders alone."""

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        self = super().tree_unflatten(aux, children)
        if isinstance(self.pos, jax.Array):
            self.pos = self.pos / (1 + jnp.abs(self.pos).sum())
        return self


@register_pytree_with_keys_class
class RefusesNone(Body):
    """Unflatten checks that a child has leaves, which None has not."""

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        self = super().tree_unflatten(aux, children)
        jax.tree_util.tree_leaves(self.pos)[0]
        return self


@register_pytree_with_keys_class
class StoppedGradient(Body):
    """Unflatten stops the gradient of a child that is traced."""

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        self = super().tree_unflatten(aux, children)
        if isinstance(self.pos, jax.core.Tracer):
            self.pos = jax.lax.stop_gradient(self.pos)
        return self


# ------------------------------------------------------------------------------- hidden


@register_pytree_with_keys_class
class ShapeInAux(Body):
    """aux_data has the shape of a child, which `vmap` and `scan` change."""

    def key(self) -> Any:
        return Statics(name=self.name, shape=getattr(self.pos, "shape", None))


@register_pytree_with_keys_class
class ValueInAux(Body):
    """aux_data has the value of a child where it is a Python number: each one retraces."""

    def key(self) -> Any:
        return Statics(name=self.name, mass=self.mass if isinstance(self.mass, float) else None)


class HeldArray:
    """An array in aux_data, compared by identity."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HeldArray) and self.array is other.array

    def __hash__(self) -> int:
        return id(self.array)


@register_pytree_with_keys_class
class ChildHidden(Body):
    """An array is in the aux_data, compared by identity: no gradient, and stale."""

    def children(self) -> tuple[Any, ...]:
        return self.pos, self.drag, self.mass

    def keys(self) -> tuple[Any, ...]:
        return GetAttrKey("pos"), GetAttrKey("drag"), GetAttrKey("mass")

    def key(self) -> Any:
        return Statics(name=self.name, vel=HeldArray(self.vel))

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        pos, drag, mass = children
        return super().tree_unflatten(aux, (pos, drag, aux.values["vel"].array, mass))
