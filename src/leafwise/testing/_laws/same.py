"""Comparing two instances: whether they are the same, and where they differ."""

import copy
import dataclasses
import functools
import inspect
import pickle
from collections.abc import Iterator
from typing import Any

import jax

from leafwise._objects.interrupts import or_default
from leafwise._trees.equality import first_difference, is_distinct
from leafwise._trees.roles import FieldNames, field_order
from leafwise.testing._format import format_leaf, format_typed, short_repr
from leafwise.testing.strategies._leaves import same_leaf, seems_equal


def difference(
    one: Any, other: Any, names: FieldNames, only: tuple[str, ...] | None = None
) -> tuple[str, str, str] | None:
    """Return where `other` differs from an instance: path, what it has, and what was expected."""
    if type(one) is not type(other):
        kind = type(other)
        return "", f"a {kind.__module__}.{kind.__qualname__}", f"a {type(one).__qualname__}"
    for name in (*names.static, *names.dynamic):
        if only is not None and name not in only:
            continue
        if not hasattr(other, name):
            return name, "the attribute is gone", short_repr(getattr(one, name))
        values = getattr(one, name), getattr(other, name)
        if name in names.static and not same_static(*values):
            return _static_difference(name, *values)
        if name in names.dynamic and (change := _dynamic_difference(*values)) is not None:
            return f"{name}{change[0]}", *change[1:]
    return None


def _static_difference(name: str, before: Any, after: Any) -> tuple[str, str, str]:
    """Return where two statics differ; if their texts are equal, the part inside that differs."""
    if format_typed(after) == format_typed(before):
        name, before, after = first_difference(before, after, name, by="content")
    got, wanted = format_typed(after), format_typed(before)
    return name, f"another {got}, which is not equal" if got == wanted else got, wanted


def _dynamic_difference(before: Any, after: Any) -> tuple[str, str, str] | None:
    if type(before) is not type(after) and not hasattr(before, "dtype"):
        got, wanted = (f"{short_repr(part)} ({type(part).__name__})" for part in (after, before))
        return "", got, wanted
    pairs, leaves = jax.tree_util.tree_leaves_with_path(before), jax.tree_util.tree_leaves(after)
    if len(pairs) != len(leaves):
        return "", f"{len(leaves)} leaves", f"{len(pairs)} leaves"
    for (path, leaf), other in zip(pairs, leaves, strict=True):
        if not same_leaf(leaf, other):
            got, wanted = format_leaf(other), format_leaf(leaf)
            got += ", other elements" * (got == wanted)
            return jax.tree_util.keystr(path), got, wanted
    return None


def same_static(one: Any, other: Any) -> bool:
    """Return whether two statics have the same type and value, as far as can be known."""
    distinct = is_distinct(one, other)
    if distinct:  # a constructor may create a function each time
        distinct = is_distinct(one, other, "content") is not False
    if type(one) is not type(other):
        return distinct is False
    if distinct is None:
        return seems_equal(one, other)
    if distinct and type(one) is dict:  # JAX sorts the keys of a dict itself
        keys, others = frozenset(one), frozenset(other)
        return not is_distinct(keys, others) and all(same_static(one[k], other[k]) for k in keys)
    # Without `__eq__` an object does not show what it contains: its copy is not to blame.
    kind: Any = type(one)
    is_function = callable(one) and not inspect.isfunction(kind.__call__)
    return not distinct or (kind.__eq__ is object.__eq__ and not is_function)


def state_of(instance: Any) -> dict[str, Any]:
    return {n: getattr(instance, n) for n in field_order(instance) if hasattr(instance, n)}


def recreated(value: Any) -> Any:
    """Return an equal value that is a different object if possible, even for floats and texts."""
    again = or_default(None)(lambda: pickle.loads(pickle.dumps(value)))()  # noqa: S301  # from here
    return or_default(value)(copy.deepcopy)(value) if again is None else again


def getters(instance: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and getter of whatever is computed on reading: properties, repr."""
    for cls in type(instance).__mro__:
        for name, member in vars(cls).items():
            if isinstance(member, property | functools.cached_property):
                yield name, functools.partial(getattr, instance, name)
    yield "repr", functools.partial(repr, instance)
    yield "hash", functools.partial(hash, instance)


def lookalike_of(instance: Any) -> Any:
    if not dataclasses.is_dataclass(instance):
        return None
    children, statics = jax.tree_util.default_registry.flatten_one_level(instance)
    if not isinstance(statics, tuple):
        return None
    return _lookalike_class(len(children), len(statics))(*children, *statics)


@functools.cache
def _lookalike_class(children: int, statics: int) -> Any:
    """Return a pytree dataclass; cached, since JAX never drops a registered class."""
    names = [f"child_{number}" for number in range(children)]
    static_names = [f"static_{number}" for number in range(statics)]
    cls = dataclasses.make_dataclass("Other", [*names, *static_names])
    return jax.tree_util.register_dataclass(cls, names, static_names)
