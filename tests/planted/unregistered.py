"""A class that its own module does not register."""

from collections.abc import Iterable
from typing import Any, Self

import jax
from jax.tree_util import GetAttrKey

from .exact import Statics


class RegisteredElsewhere:
    """Another module registers the class, and a new process does not import that one."""

    def __init__(self, w: jax.Array, depth: int, act: str = "tanh") -> None:
        self.w = w
        self.depth = depth
        self.act = act

    def tree_flatten(self) -> tuple[Any, Any]:
        return (self.w,), Statics(depth=self.depth, act=self.act)

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        return ((GetAttrKey("w"), self.w),), Statics(depth=self.depth, act=self.act)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Self:
        self = object.__new__(cls)
        (self.w,) = children
        vars(self).update(aux.values)
        return self
