"""Which attributes of any pytree class are static or dynamic; copies with one changed."""

import copy
import enum
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from leafwise._classes.annotations import signature_of
from leafwise._classes.foreign import key_in, seal
from leafwise._classes.instance import field_values, rebuild
from leafwise._classes.refusals import native_base
from leafwise._classes.registry import declared_names, field_names, registered_names
from leafwise._classes.spec import is_decorated
from leafwise._jax import compat
from leafwise._objects.attributes import dict_of, own_attributes, stored_attributes
from leafwise._objects.classes import per_class
from leafwise._objects.interrupts import or_default
from leafwise._statics.key import KEY
from leafwise._trees.combine import unflatten_one


class FieldNames(NamedTuple):
    """The names of the static and dynamic attributes.

    For a class that declares no fields, an attribute is static if the constructor takes it or
    if it is in the aux_data; any other attribute is a cache.
    """

    static: tuple[str, ...]
    dynamic: tuple[str, ...]


def field_order(instance: Any) -> list[str]:
    """Return the names of an instance's declared attributes, or of all it has, in order."""
    cls = type(instance)
    declared = declared_names(cls)
    if declared is not None:
        aside = {KEY, *compat.dropped_fields(cls)}
        return [name for name in declared if name not in aside]
    if isinstance(instance, enum.Enum):
        return []  # the attributes of a member are Python's own
    if registered := registered_names(cls):
        return [*registered[1], *registered[0]]
    return [name for name in own_attributes(instance) if name != KEY]


def undeclared(instance: Any) -> list[str]:
    """Return the attributes of a dataclass that are not fields, e.g. set in `__post_init__`."""
    fields = getattr(type(instance), "__dataclass_fields__", None)
    stored = {} if fields is None else stored_attributes(instance)
    return [name for name in stored if name != KEY and name not in (fields or ())]


def field_names_of(instance: Any) -> FieldNames:
    """Return the names of the static and of the dynamic attributes of an instance.

    If another library flattens it, an attribute is dynamic if it is seen to be a child; all others
    are static, those too about which its own code says nothing.
    """
    cls = type(instance)
    if known := field_names(cls):
        return FieldNames(*known)
    names = [name for name in field_order(instance) if is_held(instance, name) is not False]
    dynamic = tuple(name for name in names if is_child(instance, name))
    rest = (name for name in names if name not in dynamic)
    if declared_names(cls) is None:
        parameters = _parameters(cls)
        rest = (n for n in rest if n in parameters or is_kept(instance, n) is not False)
    return FieldNames(tuple(rest), dynamic)


@per_class
@or_default(frozenset[str]())  # a class written in C has no signature
def _parameters(cls: Any) -> frozenset[str]:
    """Return the parameter names of a constructor; an attribute with such a name is not a cache."""
    return frozenset(signature_of(cls).parameters)


# Experiments: another value is put in the place of an attribute, and flatten shows what it is. None
# says that the class's own code raised, so that nothing is known; the caller decides.

_NUMBER: Final = np.float32(1536)
"""A value that few instances contain, and that every dtype of 16 bits or more can hold."""


@or_default(default=False)  # a tracer, or a user's `==`
def _is_number(leaf: Any) -> bool:
    return np.shape(leaf) == () and bool(leaf == _NUMBER)  # a flatten may copy or convert it


@or_default(None)
def is_held(instance: Any, name: str) -> bool | None:
    """Return whether an instance has an attribute itself: equinox ignores defaults of a class."""
    if not hasattr(instance, name):
        return False
    if name in own_attributes(instance):
        return True
    changed = exchange(instance, name, getattr(instance, name))
    structures: list[Any] = [jax.tree_util.tree_structure(tree) for tree in (instance, changed)]
    return bool(structures[0] == structures[1])


def is_child(instance: Any, name: str) -> bool | None:
    """Return whether an attribute is a child of an instance, or has the children in it."""
    # `return (self.w,), None`; `return (*self.layers,), None`, where only items can be exchanged
    answer = _is_child(instance, name)
    return _is_child(instance, name, by_item=True) if answer is None else answer


@or_default(None)
def _is_child(instance: Any, name: str, *, by_item: bool = False) -> bool | None:
    held = getattr(instance, name)
    # Stop at other attributes, which may be large; but None can stand for a static.
    rest = [item for key, item in own_attributes(instance).items() if key != name]
    aside = {id(item) for item in rest if item is not held and item is not None}

    def leaves_of(tree: Any) -> list[Any]:
        return jax.tree_util.tree_leaves(tree, is_leaf=lambda part: id(part) in aside)

    new: Any = _NUMBER
    if by_item:
        structure: Any = jax.tree.structure(held)
        new = structure.unflatten([_NUMBER] * structure.num_leaves)
    before, after = leaves_of(instance), leaves_of(exchange(instance, name, new))
    times = sum(map(_is_number, after)) - sum(map(_is_number, before))
    if times < 1:
        return False
    old_size, new_size = len(leaves_of(held)), len(leaves_of(new))
    # Distrax decides by the value: Python numbers are static, arrays are not.
    return len(after) == len(before) + times * (new_size - old_size) / new_size


@or_default(None)
def is_kept(instance: Any, name: str) -> bool | None:
    """Return whether aux_data has an attribute: unflatten restores it, or the aux_data changes."""
    if is_decorated(type(instance)):
        return name in field_names_of(instance).static
    changed = exchange(instance, name, _NUMBER)
    registry = jax.tree_util.default_registry
    (_, before), (children, after) = map(registry.flatten_one_level, (instance, changed))
    restored = getattr(unflatten_one(changed, children), name, None)
    return _is_number(restored) or bool(before != after)


def exchange(base: Any, name: str, value: Any) -> Any:
    """Return a copy with one attribute changed, without running code of its class."""
    # Fields that the constructor computes from this one stay as they are, since a retrace must
    # be due to this field alone.
    cls = type(base)
    if is_decorated(cls):
        return rebuild(cls, field_values(base) | {name: value})
    if isinstance(base, tuple):
        instance: Any = base
        return instance._replace(**{name: value})
    if native_base(cls) is not object:  # a dict, say, with contents outside attributes
        instance = copy.copy(base)
    else:
        instance, own = object.__new__(cls), own_attributes(base)
        dict_of(instance).update(dict_of(base))
        for key in own.keys() - dict_of(base).keys() - {KEY}:  # in slots
            object.__setattr__(instance, key, own[key])
    object.__setattr__(instance, name, value)
    if key_in(instance) is not None:
        seal(instance)
    return instance
