"""One-line descriptions of values, for messages and for the repr of a key."""

import dataclasses
import functools
import math
import struct
import sys
import types
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, cast

import jax
import numpy as np

from leafwise._freeze import FrozenMapping, StaticArray

_LONG: Final = 20
"""Containers of more items are cut, and a digest tells them apart."""

_PLAIN: Final = frozenset({int, bool, str, bytes, complex, type(None), type(...)})
_NAN_BITS: Final = struct.pack("d", math.nan)


def shorten(value: object, width: int = 80) -> str:
    """Return ``repr(value)`` cut to `width`, whatever that repr does."""
    try:
        text = " ".join(repr(value).split())
    except Exception as error:  # noqa: BLE001  # a message must come out
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= width else text[: width - 3] + "..."


def describe_array(value: Any) -> str:
    """Return ``f32[3,4]``-like words for an array or a tracer."""
    shape = ",".join(map(str, getattr(value, "shape", ())))
    return f"{getattr(value, 'dtype', 'array')}[{shape}]"


def got(value: object) -> str:
    """Return a value and its type, for the "got" line of a message."""
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    name = f"{module}{kind.__qualname__}"
    if isinstance(value, jax.Array | np.ndarray):
        return f"{describe_array(value)} ({name})"
    return f"{shorten(value)} ({name})"


def describe(value: Any, digest: int = 0) -> str:
    """Return a description such that two keys that differ seldom look alike.

    Args:
        value: A static value.
        digest: The hash of the key it belongs to, shown where the text is cut.
    """
    kind = type(value)
    if kind in _PLAIN:
        return _cut(repr(value), digest)
    if kind is float:
        bits = struct.pack("d", value)
        if value == value or bits == _NAN_BITS:  # noqa: PLR0124  # NaN
            return repr(value)
        return f"nan(bits 0x{bits[::-1].hex()})"
    if isinstance(value, type):
        return _named(value, f"{value.__module__}.{value.__qualname__}")
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}" + _redefined(type(value))
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType):
        return _named(value, f"<function {value.__qualname__}>")
    if isinstance(value, types.ModuleType):
        return f"<module {value.__name__}>"
    if isinstance(value, types.MethodType):
        name = getattr(value.__func__, "__name__", shorten(value.__func__))
        return f"{describe(value.__self__, digest)}.{name}"
    if isinstance(value, np.generic | np.dtype | StaticArray | range):
        return _cut(shorten(cast("object", value), 200), digest)
    items = _items(value, digest)
    if items is not None:
        return items
    text = shorten(value)
    identity = kind.__eq__ is object.__eq__
    suffix = f" (compared by identity, at 0x{id(value):x})" if identity else ""
    return text + _redefined(kind) + suffix


def _items(value: Any, digest: int) -> str | None:
    """Describe a container by its items, or return None."""
    kind = type(value)
    name = kind.__qualname__ + _redefined(kind)
    if isinstance(value, tuple):
        parts = [describe(item, digest) for item in cast("tuple[Any, ...]", value)[:_LONG]]
        if kind is not tuple:
            fields = getattr(value, "_fields", None)
            if fields is not None:
                pairs = zip(fields, parts, strict=False)
                parts = [f"{field}={part}" for field, part in pairs]
            return f"{name}({_joined(parts, len(value), digest)})"
        return f"({_joined(parts, len(value), digest)}{',' if len(value) == 1 else ''})"
    if isinstance(value, frozenset):
        members = sorted(describe(item, digest) for item in cast("frozenset[Any]", value))
        return f"{name}({{{_joined(members[:_LONG], len(members), digest)}}})"
    if isinstance(value, functools.partial):
        call = [describe(value.func, digest)]
        call += [describe(item, digest) for item in value.args]
        call += [f"{key}={describe(item, digest)}" for key, item in value.keywords.items()]
        return f"{name}({_joined(call[:_LONG], len(call), digest)})"
    if isinstance(value, slice):
        return f"slice({value.start!r}, {value.stop!r}, {value.step!r})"
    if isinstance(value, Mapping):
        pairs = list(cast("Mapping[Any, Any]", value).items())
        shown = [f"{describe(k, digest)}: {describe(v, digest)}" for k, v in pairs[:_LONG]]
        name = "" if kind is FrozenMapping else name
        return f"{name}{{{_joined(shown, len(pairs), digest)}}}"
    if dataclasses.is_dataclass(value):
        shown = [
            f"{field.name}={describe(getattr(value, field.name, '<not set>'), digest)}"
            for field in dataclasses.fields(value)
        ]
        return f"{name}({_joined(shown, len(shown), digest)})"
    for base in (str, int, float, complex, bytes):
        if isinstance(value, base) and kind.__repr__ is base.__repr__:
            return f"{name}({base.__repr__(value)})"
    return None


def _joined(parts: list[str], total: int, digest: int) -> str:
    if total > len(parts):
        parts = [*parts[: _LONG // 2], f"... {total - _LONG // 2} more, #{digest:08x}"]
    return ", ".join(parts)


def _cut(text: str, digest: int) -> str:
    limit = 200
    return text if len(text) <= limit else f"{text[:limit]}... #{digest:08x}"


def _named(value: Any, text: str) -> str:
    """Add the address to a function or class that its name does not lead to."""
    found: Any = sys.modules.get(value.__module__ or "")
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is value or isinstance(value, types.BuiltinFunctionType):
        return text
    return f"{text} (compared by identity, at 0x{id(value):x})"


def _redefined(kind: type) -> str:
    """Say of a class that its name now leads to another one."""
    found: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and found is not kind:
        return f"<redefined, at 0x{id(kind):x}>"
    return ""
