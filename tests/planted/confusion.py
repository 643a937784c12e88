"""Faults that let instances of two classes pass for each other."""

import dataclasses

import jax
from jax.tree_util import register_dataclass

from leafwise.testing import Law

from .exact import Node
from .table import correct, planted


@correct
@dataclasses.dataclass(eq=False)
class Point(Node):
    """A correct class: JAX compares the class of a custom node."""

    CHILDREN = ("x", "y")
    STATICS = ("unit",)

    x: jax.Array
    y: float
    unit: int


@planted(Law.DISTINCT_CLASSES, like="jax: register_dataclass")
@dataclasses.dataclass
class Cartesian:
    """JAX's `register_dataclass`: it and another class with equal fields share treedefs."""

    x: jax.Array
    y: float
    unit: int = dataclasses.field(metadata={"static": True})


register_dataclass(Cartesian)


@planted(Law.STATIC_TYPES, "unit", like="jax#9273: register_dataclass")
@dataclasses.dataclass
class PlainNode(Cartesian):
    """JAX's `register_dataclass`: statics are compared by value alone."""


register_dataclass(PlainNode)
