"""Named functions, the same objects in every draw."""

import functools
from typing import Any, Final

import jax
import jax.numpy as jnp


def nothing() -> float:
    return 0.0


def one() -> float:
    return 1.0


def first(*arguments: Any, **_named: Any) -> Any:
    return arguments[0]


def last(*arguments: Any, **_named: Any) -> Any:
    return arguments[-1]


FUNCTIONS: Final = (jnp.tanh, jnp.sin, jnp.cos)
"""Functions of one argument."""

BY_ARITY: Final[dict[int, tuple[Any, ...]]] = {
    0: (nothing, one),
    1: FUNCTIONS,
    2: (jnp.add, jnp.multiply, jnp.maximum),
}
"""Functions by the number of their arguments."""

OF_MANY: Final = (first, last)
"""Functions of any number of arguments, at least one."""

PARTIALS: Final = (functools.partial(jnp.add, 1), functools.partial(jnp.sum, axis=0))
"""Functions with some arguments given."""

_PARTIAL: Final[Any] = jax.tree_util.Partial

TREE_PARTIALS: Final = (_PARTIAL(jnp.tanh), _PARTIAL(jnp.add, 1.0))
"""Partials that are nodes of a pytree."""
