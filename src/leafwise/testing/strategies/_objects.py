"""What is known of a class before any instance of it is there."""

import dataclasses
import enum
import inspect
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, Final

from hypothesis.strategies._internal import types as types_of_hypothesis

from leafwise._objects.code import is_importable


def origin_of(kind: Any) -> Any:
    """Return `list` for ``list[int]``, and anything else as it is."""
    return typing.get_origin(kind) or kind


def issubclass_of(kind: Any, *bases: type) -> bool:
    """Return whether an annotation names a subclass of one of these."""
    return isinstance(origin_of(kind), type) and issubclass(origin_of(kind), bases)


def entry_of(table: Mapping[Any, Any], kind: Any) -> Any:
    """Return what a table has for an annotation, which may have no hash; None if nothing."""
    try:
        return table.get(kind)
    except TypeError:
        return None


_KNOWN: Final[dict[Any, Any]] = vars(types_of_hypothesis)["_global_type_lookup"]  # no public way
_FROM_THE_START: Final = dict(_KNOWN)
"""What Hypothesis knew when this was loaded."""


def is_registered(kind: Any) -> bool:
    """Return whether Hypothesis knows a strategy for a type."""
    return entry_of(_KNOWN, kind) is not None


def is_user_registered(kind: Any) -> bool:
    """Return whether `register_type_strategy` was called for a type."""
    if not is_registered(kind):
        return False
    if kind in _FROM_THE_START:
        return _KNOWN[kind] is not _FROM_THE_START[kind]
    package = str(getattr(kind, "__module__", "")).partition(".")[0]
    return package not in {"numpy", *sys.stdlib_module_names}


def is_protocol(kind: Any) -> bool:
    """Return whether an annotation is a protocol."""
    origin = origin_of(kind)
    return isinstance(origin, type) and bool(origin.__dict__.get("_is_protocol", False))


def is_abstract(cls: Any) -> bool:
    """Return whether a class has no instances of its own."""
    marks = ("__abstractvars__", "__abstractclassvars__")  # of equinox
    has_mark = any(getattr(cls, mark, ()) for mark in marks)
    return inspect.isabstract(cls) or has_mark or is_protocol(cls)


def subclasses_of(cls: type) -> list[type]:
    """Return the classes derived from a class: those that can be imported, if there are any."""
    below: list[type] = []
    direct: list[type] = type.__subclasses__(cls)
    for subclass in direct:
        below += [subclass, *subclasses_of(subclass)]
    below = list(dict.fromkeys(below))
    return list(filter(is_importable, below)) or below


_PLAIN: Final[list[Any]] = [vars(object)["__init__"], object.__new__]


def is_made_in_python(kind: Any) -> bool:
    """Return whether a class has a constructor that says what it takes, or takes nothing."""
    origin: Any = origin_of(kind)
    if not isinstance(origin, type) or is_registered(origin) or issubclass(origin, enum.Enum):
        return False
    if origin.__module__.partition(".")[0] in {"builtins", "typing", "collections"}:
        return False
    makers: list[Any] = [getattr(origin, name) for name in ("__init__", "__new__")]
    written = any(isinstance(each, types.FunctionType) for each in makers)
    return written or makers == _PLAIN


def has_fields(kind: Any) -> bool:
    """Return whether a class declares fields, even if it is a mapping or a sequence."""
    origin = origin_of(kind)
    named = issubclass_of(kind, tuple) and hasattr(origin, "_fields")
    return isinstance(origin, type) and (named or dataclasses.is_dataclass(origin))
