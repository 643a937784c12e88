"""An instance of another class, as like to one as can be."""

import dataclasses
import functools
from typing import Any

import jax


def decoy_of(instance: Any) -> Any:
    """Return an instance of a class of its own, with the children and statics of another one.

    Returns:
        None if the class is not registered with `jax.tree_util.register_dataclass`, the one
        kind of node whose class JAX does not compare.
    """
    if not dataclasses.is_dataclass(instance):
        return None
    children, statics = jax.tree_util.default_registry.flatten_one_level(instance)
    if not isinstance(statics, tuple):
        return None
    made: Any = _decoy_class(len(children), len(statics))
    return made(*children, *statics)


@functools.cache
def _decoy_class(children: int, statics: int) -> type:
    """Return a dataclass; cached, as what JAX registers stays for ever."""
    names = [f"child_{number}" for number in range(children)]
    static_names = [f"static_{number}" for number in range(statics)]
    made = dataclasses.make_dataclass("Other", [*names, *static_names])
    return jax.tree_util.register_dataclass(made, names, static_names)
