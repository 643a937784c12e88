"""What a value is made of: its own attributes, and the fields that are all there is to it."""

import dataclasses
import datetime
import decimal
import functools
import inspect
import struct
from typing import Any, Final, cast

import jax

from leafwise._objects.class_map import ClassMap


def compares_by_identity(kind: Any) -> bool:
    """Return whether instances of a class have no ``==`` of their own."""
    return kind.__eq__ is object.__eq__


def attributes(value: Any) -> list[tuple[str, Any]]:
    """Return the names and values that an object holds itself, in ``__dict__`` or slots."""
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{kind.__name__.lstrip('_')}{name}"  # noqa: PLW2901  # mangled
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found.setdefault(name, getattr(value, name))
    # What a cached_property has stored was there before, only not yet asked for.
    stated = [pair for pair in found.items() if not _is_cached(type(value), pair[0])]
    return sorted(stated, key=lambda pair: str(pair[0]))


def attributes_flat(value: Any) -> tuple[Any, ...]:
    """Return the names and values that an object holds itself, one after another."""
    return tuple(item for pair in attributes(value) for item in pair)


def is_itself(value: Any) -> bool:
    """Return whether a value has neither ``==`` nor a hash of its own, as most objects."""
    kind: Any = type(value)
    return compares_by_identity(kind) and kind.__hash__ is object.__hash__


def has_hidden_state(kind: type) -> bool:
    """Return whether instances hold more than attributes: what is written in C may."""
    slots = [cls.__dict__.get("__slots__", ()) for cls in kind.__mro__]
    names = [name for each in slots for name in ((each,) if isinstance(each, str) else each)]
    own = sum(name not in ("__dict__", "__weakref__") for name in names)
    own += (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    size = object.__basicsize__ + own * struct.calcsize("P")
    return kind.__itemsize__ != 0 or kind.__basicsize__ > size


def _is_cached(kind: type, name: object) -> bool:
    found = getattr(kind, name, None) if isinstance(name, str) else None
    return isinstance(found, functools.cached_property)


_BASES: Final = (
    *(str, bytes, int, float, complex, tuple, frozenset),
    *(datetime.datetime, datetime.date, datetime.time, decimal.Decimal),
)


def builtin_base(kind: type) -> type | None:
    """Return the builtin whose ``==`` a subclass has kept, if it has."""
    for base in _BASES:
        if issubclass(kind, base) and kind.__eq__ is base.__eq__:
            return base
    return None


_RECORD_FIELDS: Final[ClassMap[tuple[tuple[str, ...] | None]]] = ClassMap()


def record_fields(kind: type) -> tuple[str, ...] | None:
    """Return the fields of a frozen dataclass (or attrs class) that are all there is to it.

    That is one whose ``==`` was generated, or one that is a pytree, whose fields JAX
    sees anyway. A dataclass with ``unsafe_hash`` promises as much of the fields that it
    compares. Others speak for themselves through their own ``==``.
    """
    return _RECORD_FIELDS.setdefault(kind, lambda: (_find_record_fields(kind),))[0]


def _find_record_fields(kind: type) -> tuple[str, ...] | None:
    if dataclasses.is_dataclass(kind):
        params = cast("Any", kind).__dataclass_params__
        generated = _code_name(kind.__eq__) == _GENERATED_EQ
        if params.frozen and (generated or jax.tree_util.is_tree_node(kind)):
            return tuple(field.name for field in dataclasses.fields(kind))
        if params.unsafe_hash and generated:  # a module of flax.linen
            return tuple(field.name for field in dataclasses.fields(kind) if field.compare)
        return None
    attributes_of = getattr(kind, "__attrs_attrs__", None)
    if attributes_of is None or not _code_file(kind.__eq__).startswith(_ATTRS):
        return None
    frozen = getattr(kind.__setattr__, "__name__", "") == "_frozen_setattrs"
    return tuple(attribute.name for attribute in attributes_of) if frozen else None


def has_generated_init(kind: Any) -> bool:
    """Return whether the constructor of a dataclass or attrs class was generated for it.

    Wrappers that follow `functools.wraps` are looked through: chex and equinox have some.
    """
    init = inspect.unwrap(kind.__init__)
    if dataclasses.is_dataclass(kind):
        return cast("Any", kind).__dataclass_params__.init and _code_name(init) == _GENERATED_INIT
    return _code_file(init).startswith(_ATTRS)


def _code_file(function: Any) -> str:
    return getattr(getattr(function, "__code__", None), "co_filename", "")


_ATTRS: Final = "<attrs gen"


def _code_name(function: Any) -> str | None:
    return getattr(getattr(function, "__code__", None), "co_qualname", None)


@dataclasses.dataclass(frozen=True)
class _Probe:
    x: int


_GENERATED_EQ: Final = _code_name(_Probe.__eq__)
"""How this Python names the code of an ``__eq__`` that dataclasses made."""

_GENERATED_INIT: Final = _code_name(cast("Any", _Probe).__init__)
"""The same, of a constructor."""
