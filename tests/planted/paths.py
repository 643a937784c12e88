"""Faults in key paths."""

from typing import Any

from jax.tree_util import GetAttrKey

from leafwise.testing import Law

from .children import NAMES, Body
from .exact import Statics
from .table import planted


@planted(Law.KEY_PATHS, "pos", "drag", "vel", "mass", like="torch#116786")
class NamesShifted(Body):
    """Each child has the name of the next one."""

    def keys(self) -> tuple[Any, ...]:
        return tuple(GetAttrKey(name) for name in (*NAMES[1:], NAMES[0]))


@planted(Law.KEY_PATHS, "vel", "pos", like="a copied line")
class NameTwice(Body):
    """Two children have one name."""

    def keys(self) -> tuple[Any, ...]:
        return tuple(GetAttrKey(name) for name in ("pos", "drag", "pos", "mass"))


@planted(Law.KEY_PATHS, "pos", "position", like="renamed attributes")
class NameOfNothing(Body):
    """A child's name is no attribute."""

    def keys(self) -> tuple[Any, ...]:
        return tuple(GetAttrKey(name) for name in ("position", "drag", "vel", "mass"))


@planted(Law.KEY_PATHS, like="torch#117656")
class OtherOrder(Body):
    """`flatten_with_keys` has the children in another order than `flatten`."""

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        pairs, aux = super().tree_flatten_with_keys()
        return pairs[::-1], aux


@planted(Law.KEY_PATHS, like="jax#15071")
class OneLess(Body):
    """`flatten_with_keys` has one child less than `flatten`."""

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        pairs, aux = super().tree_flatten_with_keys()
        return pairs[:3], aux


@planted(Law.KEY_PATHS, like="jax#15071")
class OtherAux(Body):
    """`flatten_with_keys` has other aux_data than `flatten`."""

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        pairs, _ = super().tree_flatten_with_keys()
        return pairs, Statics(name=self.name, keyed=True)
