"""What every instance can do: compare, hash, print, copy and travel."""

import copy
import dataclasses
from typing import Any, Final, cast

import jax
import numpy as np
import wadler_lindig as wl

from leafwise._codegen import KEY
from leafwise._findings import is_tracer
from leafwise._static_key import StaticKey, key_of
from leafwise._spec import ClassSpec
from leafwise.errors import (
    FieldNotSetError,
    FrozenInstanceError,
    TracerComparisonError,
    UndecoratedSubclassError,
)

_WIDTH: Final = 88


def set_attribute(self: Any, name: str, value: object) -> None:
    """Assign a field while the instance is being constructed; refuse otherwise."""
    _check_open(self, name, f"lw.replace(obj, {name}=...)")
    object.__setattr__(self, name, value)


def delete_attribute(self: Any, name: str) -> None:
    """Delete an attribute while the instance is being constructed; refuse otherwise."""
    _check_open(self, name, "a new instance without it")
    object.__delattr__(self, name)


def _check_open(self: Any, name: str, instead: str) -> None:
    cls = type(self)
    check_decorated(cls)
    if is_constructed(self):
        msg = (
            f"{cls.__name__}.{name}: a pytree class is frozen once constructed, since JAX "
            f"keeps programs for what it was\n  fix: make another instance: {instead}"
        )
        raise FrozenInstanceError(msg)
    if name not in cls.__dict__["__dataclass_fields__"] and not _is_settable(cls, name):
        msg = (
            f"{cls.__name__}.{name} is not a field, so JAX would lose it: {cls.__name__} "
            f"has {_names(cls)}\n  fix: declare it: `{name}: ...` in the class body "
            f"(`= lw.static_field(init=False)` if it is static)"
        )
        raise FrozenInstanceError(msg)


def _is_settable(cls: type, name: str) -> bool:
    return hasattr(type(getattr(cls, name, None)), "__set__") and name != KEY


def _names(cls: type) -> str:
    names = [field.name for field in dataclasses.fields(cast("Any", cls))]
    return ", ".join(names) or "no fields"


def is_constructed(self: object) -> bool:
    """Return whether the constructor of an instance has come to its end."""
    try:
        return object.__getattribute__(self, KEY) is not None
    except AttributeError:
        return False


MARK: Final = "__leafwise_pytree__"
"""Stands in the own ``__dict__`` of every decorated class."""


def is_decorated(cls: type) -> bool:
    """Return whether the class itself, not only a base, was decorated."""
    return MARK in cls.__dict__


def check_decorated(cls: type) -> None:
    """Refuse instances of an undecorated subclass.

    Raises:
        UndecoratedSubclassError: JAX would see an instance of `cls` as one opaque leaf.
    """
    if not is_decorated(cls):
        base = next(base for base in cls.__mro__ if is_decorated(base))
        msg = (
            f"{cls.__name__} is a subclass of the pytree class {base.__name__}, but is not "
            f"decorated itself: JAX would see its instances as opaque leaves\n"
            f"  fix: @lw.pytree\n       class {cls.__name__}({base.__name__}): ..."
        )
        raise UndecoratedSubclassError(msg)


def check_subclass(cls: type, _base: type) -> None:
    """Allow a decorated subclass to run its base's constructor."""
    check_decorated(cls)


def finish(spec: ClassSpec, self: Any) -> None:
    """End a construction: prepare what is left, validate statics, store the key.

    Raises:
        FieldNotSetError: A field has no value.
        StaticFieldError: A static value is no key.
    """
    set_field = object.__setattr__
    check_all_set(spec, self)
    for field in spec.fields:
        given = field.definition.init or field.has_default
        if field.prepares and (spec.has_own_init or not given):
            set_field(self, field.name, field.prepare(getattr(self, field.name)))
    store_key(spec, self)


def check_all_set(spec: ClassSpec, self: Any) -> None:
    """Refuse an instance with a field that has no value."""
    unset = [name for name in (f.name for f in spec.fields) if not _is_set(self, name)]
    if unset:
        name = spec.cls.__name__
        msg = (
            f"{name}.{unset[0]}: the field has no value at the end of construction"
            + (f" (nor have {', '.join(unset[1:])})" if unset[1:] else "")
            + f"\n  fix: assign self.{unset[0]} in __init__ or __post_init__, or give the "
            f"field a default"
        )
        raise FieldNotSetError(msg)


def _is_set(self: Any, name: str) -> bool:
    try:
        object.__getattribute__(self, name)
    except AttributeError:
        return False
    return True


def store_key(spec: ClassSpec, self: Any) -> StaticKey:
    """Find the key of an instance's statics and store both, as one thing."""
    values = tuple(getattr(self, name) for name in spec.static_names)
    key = key_of(spec.table, values)
    for name, value, kept in zip(spec.static_names, values, key.values, strict=True):
        if value is not kept:
            object.__setattr__(self, name, kept)
    object.__setattr__(self, KEY, key)
    return key


def rekey(spec: ClassSpec, self: Any) -> StaticKey:
    """Return the key of an instance whose stored key is missing or does not fit.

    It is missing while ``__post_init__`` runs, and does not fit after
    ``object.__setattr__`` on a static field.
    """
    check_all_set(spec, self)
    if is_constructed(self):
        return store_key(spec, self)
    return key_of(spec.table, tuple(getattr(self, name) for name in spec.static_names))


def rebuild(cls: type, values: dict[str, Any]) -> Any:
    """Return an instance with these field values; its constructor does not run.

    Raises:
        FieldNotSetError: `values` lacks a field of `cls`.
        StaticFieldError: A static value is no key.
    """
    from leafwise._pytree import spec_of  # noqa: PLC0415  # loaded with the class

    spec = spec_of(cls)
    self = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(self, name, value)
    check_all_set(spec, self)
    store_key(spec, self)
    return self


def field_values(self: Any) -> dict[str, Any]:
    """Return the values of all fields by name, none of them copied."""
    return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def reduce_instance(self: Any) -> tuple[Any, ...]:
    """Pickle by class and field values."""
    return rebuild, (type(self), field_values(self))


def copy_instance(self: Any) -> Any:
    """Return another instance with the same children and the same key."""
    return rebuild(type(self), field_values(self))


def deepcopy_instance(self: Any, memo: dict[int, Any]) -> Any:
    """Return an instance with copied children and the same statics."""
    from leafwise._pytree import spec_of  # noqa: PLC0415  # loaded with the class

    values = field_values(self)
    for name in spec_of(type(self)).dynamic_names:
        values[name] = copy.deepcopy(values[name], memo)
    return rebuild(type(self), values)


def equal(self: Any, other: object) -> bool:
    """Return whether class, statics, structure and leaves are the same.

    Leaves are the same if they are one object, or of equal dtype, shape and elements;
    NaN equals NaN.

    Raises:
        TracerComparisonError: Traced leaves that are not one object would have to be
            compared.
    """
    if self is other:
        return True
    if type(self) is not type(other):
        return NotImplemented
    mine, structure = jax.tree_util.tree_flatten_with_path(self)
    theirs, other_structure = jax.tree_util.tree_flatten(other)
    if structure != other_structure:
        return False
    pairs = [(path, a, b) for (path, a), b in zip(mine, theirs, strict=True) if a is not b]
    if any(_aval(a) != _aval(b) for _, a, b in pairs):
        return False
    for path, a, b in pairs:
        if is_tracer(a) or is_tracer(b):
            msg = (
                f"{type(self).__name__}{jax.tree_util.keystr(path)}: == would have to "
                f"compare traced values ({a} and {b}), which are not known yet\n"
                f"  fix: compare outside of the traced function, or compare leaves with "
                f"jax.numpy.array_equal"
            )
            raise TracerComparisonError(msg)
    return all(_same_value(a, b) for _, a, b in pairs)


def hash_instance(self: Any) -> int:
    """Return a hash from the class, the statics and each leaf's shape and dtype."""
    leaves, structure = jax.tree_util.tree_flatten(self)
    return hash((structure, getattr(self, KEY), tuple(map(_aval, leaves))))


def _aval(leaf: Any) -> tuple[object, ...]:
    """Return what must agree before elements are compared."""
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return (tuple(leaf.shape), str(leaf.dtype))
    return (type(leaf),)


def _same_value(a: Any, b: Any) -> bool:
    if hasattr(a, "dtype") and hasattr(a, "shape"):
        if isinstance(a, jax.ShapeDtypeStruct) or isinstance(b, jax.ShapeDtypeStruct):
            return bool(a == b)
        a, b = _as_numpy(a), _as_numpy(b)
        same = a == b
        if np.issubdtype(a.dtype, np.inexact) or a.dtype.kind == "V":
            same = same | ((a != a) & (b != b))  # noqa: PLR0124  # NaN
        return bool(np.all(same))
    return bool(a == b) or bool(a != a and b != b)  # noqa: PLR0124  # NaN


def _as_numpy(array: Any) -> np.ndarray[Any, Any]:
    if isinstance(array, jax.Array) and jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return np.asarray(array)


def represent(self: Any) -> str:
    """Return ``Params(x=f32[3,4], a=2)``: code, with arrays summarised."""
    return wl.pformat(self, width=_WIDTH, custom=_document, hide_defaults=False)


def _document(value: Any) -> wl.AbstractDoc | None:
    """Return how to print what wadler-lindig would print otherwise."""
    if MARK in type(value).__dict__ and type(value).__repr__ is not represent:
        return wl.TextDoc(repr(value))
    if is_tracer(value):
        return wl.array_summary(value.shape, str(value.dtype), "traced")
    if isinstance(value, jax.Array):
        return wl.array_summary(value.shape, str(value.dtype), None)
    if isinstance(value, jax.ShapeDtypeStruct):
        return wl.array_summary(value.shape, str(value.dtype), "struct")
    return None


def pformat(tree: Any, *, width: int = _WIDTH, full: bool = False) -> str:
    """Return a pytree as indented text.

    Args:
        tree: Any pytree.
        width: The columns to fit into, where possible.
        full: Whether to print the elements of arrays, instead of ``f32[3,4]``.

    Returns:
        The text, without a newline at its end.

    Example:
        >>> print(pformat({"w": jax.numpy.zeros((2, 3))}))
        {'w': f32[2,3]}
    """
    if full:
        return wl.pformat(tree, width=width, short_arrays=False, hide_defaults=False)
    return wl.pformat(tree, width=width, custom=_document, hide_defaults=False)
