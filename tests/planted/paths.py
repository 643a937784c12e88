"""Faults in key paths."""

from typing import Any

from jax.tree_util import GetAttrKey, register_pytree_with_keys_class

from .children import NAMES, Body
from .exact import Statics


@register_pytree_with_keys_class
class NamesShifted(Body):
    """Each child has the name of the next one."""

    def keys(self) -> tuple[Any, ...]:
        return tuple(GetAttrKey(name) for name in (*NAMES[1:], NAMES[0]))


@register_pytree_with_keys_class
class NameTwice(Body):
    """Two children have one name."""

    def keys(self) -> tuple[Any, ...]:
        return tuple(GetAttrKey(name) for name in ("pos", "drag", "pos", "mass"))


@register_pytree_with_keys_class
class NameOfNothing(Body):
    """A child's name is no attribute."""

    def keys(self) -> tuple[Any, ...]:
        return tuple(GetAttrKey(name) for name in ("position", "drag", "vel", "mass"))


@register_pytree_with_keys_class
class OtherOrder(Body):
    """`flatten_with_keys` has the children in another order than `flatten`."""

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        pairs, aux = super().tree_flatten_with_keys()
        return pairs[::-1], aux


@register_pytree_with_keys_class
class OneLess(Body):
    """`flatten_with_keys` has one child less than `flatten`."""

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        pairs, aux = super().tree_flatten_with_keys()
        return pairs[:3], aux


@register_pytree_with_keys_class
class OtherAux(Body):
    """`flatten_with_keys` has other aux_data than `flatten`."""

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        pairs, _ = super().tree_flatten_with_keys()
        return pairs, Statics(name=self.name, keyed=True)
