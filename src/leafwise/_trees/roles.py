"""Which attributes of any pytree class are static or dynamic; copies with one changed."""

import copy
import dataclasses
import enum
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from leafwise._classes.annotations import signature_of
from leafwise._classes.foreign import key_in, seal
from leafwise._classes.instance import field_values, rebuild
from leafwise._classes.refusals import native_base
from leafwise._classes.registry import declared_names, field_names, registered_names, spec_of
from leafwise._classes.spec import FieldSpec, is_decorated
from leafwise._jax import compat
from leafwise._objects.attributes import dict_of, own_attributes, stored_attributes
from leafwise._objects.classes import per_class
from leafwise._objects.interrupts import or_default
from leafwise._statics.key import KEY


class _Sentinel(enum.Enum):
    """A stand-in for a leaf; as an enum member, it survives a flatten that copies its leaves."""

    LEAF = "leaf"


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
    registered = registered_names(cls)
    if registered is not None:
        return [*registered[1], *registered[0]]
    return [name for name in own_attributes(instance) if name != KEY]


def undeclared(instance: Any) -> list[str]:
    """Return the attributes of a dataclass that are not fields, e.g. set in `__post_init__`."""
    cls: Any = type(instance)
    if not dataclasses.is_dataclass(cls):
        return []
    known = {KEY, *cls.__dataclass_fields__}
    return [name for name in stored_attributes(instance) if name not in known]


def field_names_of(instance: Any) -> FieldNames:
    """Return the names of the static and of the dynamic attributes of an instance."""
    cls = type(instance)
    known = field_names(cls)
    if known is not None:
        return FieldNames(*known)
    # Another library flattens it: an attribute is dynamic if an object in its place is a leaf.
    names = [name for name in field_order(instance) if _is_held(instance, name)]
    held = [getattr(instance, name) for name in names]
    dynamic = tuple(name for name in names if _is_dynamic(instance, name, held))
    rest = (name for name in names if name not in dynamic)
    if declared_names(cls) is None:
        parameters = _parameters(cls)
        rest = (name for name in rest if name in parameters or is_kept(instance, name))
    return FieldNames(tuple(rest), dynamic)


@per_class
def _parameters(cls: Any) -> frozenset[str]:
    """Return the parameter names of a constructor; an attribute with such a name is not a cache."""
    try:
        return frozenset(signature_of(cls).parameters)
    except (TypeError, ValueError):
        return frozenset()


@or_default(default=True)  # the user's own code
def is_kept(instance: Any, name: str) -> bool:
    """Return whether aux_data has an attribute: unflatten restores it, or the aux_data changes."""
    if is_decorated(type(instance)):
        return name in field_names_of(instance).static
    registry = jax.tree_util.default_registry
    changed = exchange(instance, name, _Sentinel.LEAF)
    level = jax.tree_util.tree_flatten(changed, is_leaf=lambda part: part is not changed)
    again: Any = jax.tree_util.tree_unflatten(level[1], level[0])
    if getattr(again, name, None) is _Sentinel.LEAF:
        return True
    levels: list[Any] = [registry.flatten_one_level(node) for node in (instance, changed)]
    return bool(levels[0][1] != levels[1][1])


@or_default(default=True)  # the user's own code
def _is_held(instance: Any, name: str) -> bool:
    """Return whether an instance has an attribute itself: equinox ignores defaults of a class."""
    if not hasattr(instance, name):
        return False
    if name in getattr(instance, "__dict__", {}):
        return True
    given = exchange(instance, name, getattr(instance, name))
    structures: list[Any] = [jax.tree_util.tree_structure(each) for each in (instance, given)]
    return bool(structures[0] == structures[1])


def _is_dynamic(instance: Any, name: str, held: list[Any]) -> bool:
    mine = getattr(instance, name)
    # Stop at other attributes, which may be large; but None can stand for a static.
    others = {id(value) for value in held if value is not mine and value is not None}

    def leaves_of(tree: Any) -> list[Any]:
        return jax.tree_util.tree_leaves(tree, is_leaf=lambda part: id(part) in others)

    try:
        leaves = leaves_of(exchange(instance, name, _Sentinel.LEAF))
    except Exception:  # noqa: BLE001  # a flatten that computes, or has a bug
        return _is_converted(instance, name)
    times = sum(leaf is _Sentinel.LEAF for leaf in leaves)
    if not times:
        return False
    try:
        own, whole = (len(leaves_of(tree)) for tree in (mine, instance))
    except Exception:  # noqa: BLE001  # the instance cannot be flattened, though its field can
        return True
    # Distrax decides by the value: Python numbers are static, arrays and `object()` are not.
    return len(leaves) == whole + times * (1 - own)


_NUMBER: Final = np.float64(1536)
"""A value that few instances contain, and that every dtype of 16 bits or more can hold."""


@or_default(default=False)  # the user's own code
def _is_converted(instance: Any, name: str) -> bool:
    """Return whether a number put for each leaf of an attribute only changes the leaves."""

    def count(leaves: list[Any]) -> int:
        return sum(np.shape(leaf) == () and bool(leaf == _NUMBER) for leaf in leaves)

    flatten: Any = jax.tree_util.tree_flatten
    held, structure = flatten(getattr(instance, name))
    changed = exchange(instance, name, structure.unflatten([_NUMBER] * len(held)))
    (mine, before), (its, after) = flatten(instance), flatten(changed)
    return bool(before == after) and count(its) > count(mine)


def exchange(base: Any, name: str, value: Any) -> Any:
    """Return a copy with one attribute changed, without running the constructor.

    Fields that the constructor computes from this one stay as they are, since a retrace must
    be due to this field alone.
    """
    cls = type(base)
    if is_decorated(cls):
        return rebuild(cls, field_values(base) | {name: value})
    if isinstance(base, tuple):
        instance: Any = base
        return instance._replace(**{name: value})
    instance = duplicate(base)
    object.__setattr__(instance, name, value)
    if key_in(instance) is not None:
        seal(instance)
    return instance


def duplicate(base: Any) -> Any:
    """Return a copy with the same attributes, without running code of its class."""
    cls = type(base)
    if native_base(cls) is not object:  # a dict, say, with contents outside attributes
        return copy.copy(base)
    instance = object.__new__(cls)
    in_dict = dict_of(base)
    for name, value in own_attributes(base).items():
        if name in in_dict:
            instance.__dict__[name] = value
        elif name != KEY:
            object.__setattr__(instance, name, value)
    return instance


def prepared_by(cls: Any, name: str) -> FieldSpec | None:
    """Return the field if only its own converter and validator determine the stored value."""
    if not is_decorated(cls):
        return None
    spec = spec_of(cls)
    if spec.has_own_init or hasattr(cls, "__post_init__"):
        return None
    return next((field for field in spec.fields if field.name == name), None)
