"""Faults in attributes that are filled when they are first read, and in stored results."""

import functools
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jax.tree_util import GetAttrKey

from leafwise.testing import Law

from .exact import Node, Statics
from .table import correct, planted


@correct
class Gaussian(Node):
    """A correct class: what it caches is neither child nor static."""

    CHILDREN = ("loc", "scale")
    STATICS = ("dims",)

    def __init__(self, loc: jax.Array, scale: jax.Array, dims: int) -> None:
        self.loc = loc
        self.scale = scale
        self.dims = dims

    @functools.cached_property
    def precision(self) -> Any:
        """The inverse of the variance."""
        return 1 / jnp.square(self.scale)

    @functools.cached_property
    def volume(self) -> int:
        """What depends on a static alone."""
        return 2 * self.dims


@planted(Law.STABLE_TREEDEF, "volume", like="equinox#539")
class CachedInAux(Gaussian):
    """All attributes but the children are statics: what a cached property stored, too."""

    def key(self) -> Any:
        children = ("loc", "scale", "precision")
        return Statics(**{name: vars(self)[name] for name in vars(self) if name not in children})


@planted(Law.STABLE_TREEDEF, "precision", like="numpyro#1778, netket#835")
class CachedIsChild(Gaussian):
    """What a cached property stored becomes a child, and None where it has not yet."""

    def children(self) -> tuple[Any, ...]:
        return *super().children(), vars(self).get("precision")

    def keys(self) -> tuple[Any, ...]:
        return *super().keys(), GetAttrKey("precision")

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        loc, scale, precision = children
        self = super().tree_unflatten(aux, (loc, scale))
        if precision is not None:
            vars(self)["precision"] = precision
        return self


@planted(Law.STABLE_TREEDEF, "label", "_label", like="numpyro#1778")
class LazyInAux(Gaussian):
    """A property fills an attribute when it is first read, and that is a static."""

    _label: str | None = None

    @property
    def label(self) -> str:
        """The name, made when it is first wanted."""
        if self._label is None:
            self._label = f"gaussian of {self.dims}"
        return self._label

    def key(self) -> Any:
        return Statics(dims=self.dims, _label=self._label)


@planted(Law.STATIC_VALUES, like="stored results of flatten")
class FlattenedOnce(Gaussian):
    """Flatten stores its result on the class; another instance has that of the first."""

    stored: ClassVar[Any] = None

    def tree_flatten(self) -> tuple[Any, Any]:
        if self.stored is None:
            type(self).stored = super().tree_flatten()
        flat: tuple[Any, Any] = self.stored
        return flat


@planted(Law.STATIC_VALUES, "dims", like="stored keys")
class KeyStoredOnce(Gaussian):
    """aux_data is stored on the class; another instance has that of the first."""

    stored: ClassVar[Any] = None

    def key(self) -> Any:
        if self.stored is None:
            type(self).stored = super().key()
        return self.stored
