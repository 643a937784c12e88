"""Faults that let instances of two classes pass for each other."""

import dataclasses
from collections.abc import Iterable
from typing import Any, Self

import jax
from jax.tree_util import GetAttrKey, register_dataclass

from leafwise.testing import Law

from .exact import Statics
from .table import correct, planted


@correct
@dataclasses.dataclass(eq=False)
class Point:
    """A correct class: JAX compares the class of a custom node."""

    x: jax.Array
    y: float
    unit: int

    def tree_flatten(self) -> tuple[Any, Any]:
        return (self.x, self.y), Statics(unit=self.unit)

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        pairs = (GetAttrKey("x"), self.x), (GetAttrKey("y"), self.y)
        return pairs, Statics(unit=self.unit)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        self = object.__new__(cls)
        self.x, self.y = children
        self.unit = aux.values["unit"]
        return self


@planted(Law.DISTINCT_CLASSES, like="jax: register_dataclass")
@dataclasses.dataclass
class Cartesian:
    """JAX's `register_dataclass`: it and another class with equal fields share treedefs."""

    x: jax.Array
    y: float
    unit: int = dataclasses.field(metadata={"static": True})


@dataclasses.dataclass
class Polar:
    """The other class."""

    r: jax.Array
    phi: float
    unit: int = dataclasses.field(metadata={"static": True})


register_dataclass(Cartesian)
register_dataclass(Polar)


@planted(Law.STATIC_TYPES, "unit", like="jax#9273: register_dataclass")
@dataclasses.dataclass
class PlainNode:
    """JAX's `register_dataclass`: statics are compared by value alone."""

    x: jax.Array
    y: float
    unit: int = dataclasses.field(metadata={"static": True})


register_dataclass(PlainNode)
