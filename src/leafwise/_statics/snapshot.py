"""What can be reached through static values, and whether it changed.

A key compares a function, and an object without ``==``, by identity. A snapshot covers what
is inside: closures, defaults, partial arguments, receivers, attributes. It serves two ends:
a tracer hidden there is refused at construction, and `leafwise.debug.check_statics`
compares what is there now with what was there when the key was made.
"""

import functools
import struct
import types
from collections import deque
from collections.abc import Container, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, cast

import numpy as np
from jax.core import Tracer

from leafwise._objects.attributes import attributes, compares_by_identity
from leafwise._objects.methods import BoundMethod
from leafwise._objects.stand_ins import ById
from leafwise._objects.text import shorten
from leafwise._statics.findings import field_of

_MOST_ENTRIES: Final = 2_000
"""A walk through a large object graph stops here; what lies beyond is not checked."""

MOST_BYTES: Final = 1 << 16
"""Arrays up to this size are compared by content."""

_CLOSED: Final = frozenset({"jax", "jaxlib", "numpy", "builtins", "leafwise", "weakref"})
"""Objects of these packages' own classes are not entered."""

_VALUES: Final = (str, bytes, int, float, complex, bool, type(None), np.generic, np.dtype)


class Snapshot:
    """What was reached from one instance's static values.

    Attributes:
        entries: A token for each path; equal tokens mean "unchanged".
        tracers: The tracers that were met, with their paths.
    """

    __slots__ = ("_entered", "entries", "tracers")

    def __init__(self) -> None:
        self.entries: dict[str, tuple[object, ...]] = {}
        self.tracers: list[tuple[str, object]] = []
        self._entered: dict[int, object] = {}

    def add(self, value: Any, path: str) -> None:
        """Add what can be reached from `value`, which stands at `path`."""
        pending = deque([(path, value)])
        while pending and len(self.entries) < _MOST_ENTRIES:
            where, item = pending.popleft()
            if isinstance(item, Tracer):
                self.tracers.append((where, item))
            elif isinstance(item, _VALUES):
                self.entries[where] = _value_token(item)
            elif id(item) in self._entered:
                self.entries[where] = ("is", ById(item))
            else:
                self._entered[id(item)] = item
                self.entries[where] = _token(item)
                pending.extend(_parts(item, where))

    def change_since(
        self, before: "Snapshot", passed: Container[str] = ()
    ) -> tuple[str, str] | None:
        """Return the path and the description of the first difference, or None.

        Args:
            before: What was reached earlier.
            passed: The fields to pass over.
        """
        for path, token in before.entries.items():
            now = self.entries.get(path)
            if now != token and not (passed and field_of(path) in passed):
                return path, f"{path} was {_format_token(token)}, now {_format_token(now)}"
        return None


def _format_token(token: tuple[object, ...] | None) -> str:
    if token is None:
        return "gone"
    last = token[-1]
    return shorten(last.value if isinstance(last, ById) else last, 60)


def _value_token(value: object) -> tuple[object, ...]:
    if isinstance(value, float):
        return (type(value), struct.pack("d", value), float(value))
    if isinstance(value, np.generic):
        return (type(value), value.tobytes(), repr(value))
    return (type(value), value)


def _token(value: Any) -> tuple[object, ...]:
    """Return what an object is, apart from its parts."""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        if value.nbytes <= MOST_BYTES:
            return (str(value.dtype), value.shape, value.tobytes(), shorten(value, 60))
        return ("is", ById(value))
    if isinstance(value, types.FunctionType):
        return ("code", ById(value.__code__))
    if isinstance(value, AbstractSet):
        members = {ById(item) if not isinstance(item, _VALUES) else item for item in value}
        return (type(value), frozenset(members))
    if isinstance(value, Mapping):
        return (type(value), tuple(shorten(key, 40) for key in value))
    if isinstance(value, list | tuple | deque):
        return (type(value), f"{len(cast('list[Any]', value))} items")
    if isinstance(value, functools.partial | types.MethodType):
        return (type(value),)
    if _is_open(value):
        # An object with its own == may fill caches; one without may not grow at all.
        grows = not compares_by_identity(type(value))
        names = () if grows else tuple(name for name, _ in attributes(value))
        return (type(value), names)
    return ("is", ById(value))


def _parts(value: Any, path: str) -> list[tuple[str, Any]]:
    """Return the parts of an object, which are entered next."""
    if isinstance(value, types.FunctionType):
        return function_parts(value, path)
    if isinstance(value, types.MethodType | BoundMethod):
        return [(f"{path}.__func__", value.__func__), (f"{path}.__self__", value.__self__)]
    if isinstance(value, functools.partial):
        arguments = [(f"{path}.args[{i}]", item) for i, item in enumerate(value.args)]
        named = [(f"{path}.keywords[{k!r}]", item) for k, item in value.keywords.items()]
        return [(f"{path}.func", value.func), *arguments, *named]
    if isinstance(value, Mapping):
        pairs = value.items()
        return [(f"{path}[{shorten(key, 40)}]", item) for key, item in pairs]
    if isinstance(value, list | tuple | deque):
        return [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    if _is_open(value):
        return [(f"{path}.{name}", item) for name, item in attributes(value)]
    return []


def function_parts(value: types.FunctionType, path: str) -> list[tuple[str, Any]]:
    """Return the cells, defaults and attributes of a function, with their paths."""
    cells: list[tuple[str, Any]] = []
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        try:
            cells.append((f"{path}.__closure__[{name!r}]", cell.cell_contents))
        except ValueError:  # not bound yet
            cells.append((f"{path}.__closure__[{name!r}]", None))
    defaults = [
        (f"{path}.__defaults__[{index}]", item)
        for index, item in enumerate(value.__defaults__ or ())
    ]
    named = [
        (f"{path}.__kwdefaults__[{name!r}]", item)
        for name, item in (value.__kwdefaults__ or {}).items()
    ]
    own = [(f"{path}.{name}", item) for name, item in vars(value).items()]
    return cells + defaults + named + own


def _is_open(value: object) -> bool:
    """Return whether an object's attributes belong to user code."""
    if isinstance(value, type | types.ModuleType):
        return False
    package = type(value).__module__.partition(".")[0]
    return package not in _CLOSED and bool(attributes(value))
