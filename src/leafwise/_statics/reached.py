"""What can be reached through static values, and whether it has changed.

A key compares functions, and objects without ``==``, by identity. This module reads what is inside:
closures, defaults, partial arguments, receivers, attributes. It has two uses: a tracer hidden there
is rejected at construction, and `leafwise.debug.check_statics` compares what is there now with what
was there when the key was made.
"""

from collections import Counter, deque
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from leafwise._objects.attributes import (
    MACHINERY,
    WEAK,
    compares_by_identity,
    functions_in,
    is_callable,
    is_of_package,
    own_attributes,
    stored_attributes,
)
from leafwise._objects.classes import module_of
from leafwise._objects.interrupts import reraise_interrupt
from leafwise._objects.parts import Kind, Part, kind_of
from leafwise._objects.stand_ins import ById, Verbatim
from leafwise._objects.text import shorten, shorten_both
from leafwise._statics import findings
from leafwise._statics.findings import field_of
from leafwise.errors import StaticFieldError, StaticFinding

MOST_BYTES: Final = 1 << 16
"""Arrays up to this size are compared by content."""

_CLOSED: Final = MACHINERY | {"jax", "jaxlib", "numpy", "builtins", "leafwise", "weakref"}
"""Instances of these packages' classes are not entered, except for functions that they wrap."""


class Entry(NamedTuple):
    """What was at one path: a token, equal if nothing has changed, and the value for messages."""

    token: object
    shown: object


def reached(values: Iterable[Part]) -> dict[str, Entry]:
    """Return what can be reached from values, by path, in breadth-first order.

    In a large object graph, only the first `_MOST_ENTRIES` are checked.

    Raises:
        StaticFieldError: A tracer can be reached.
    """
    pending = deque(values)
    entries: dict[str, Entry] = {}
    met: dict[int, Any] = {}
    problems: list[StaticFinding] = []
    while pending and len(entries) < _MOST_ENTRIES:
        path, value = pending.popleft()
        if issubclass(type(value), Tracer):
            problems.append(findings.traced(path, value))
            continue
        kind = kind_of(value)
        if _is_plain(value, kind):
            entries[path] = Entry(_token(value, kind), value)
        elif id(value) in met:
            entries[path] = Entry(ById(value), value)
        else:
            met[id(value)] = value
            entries[path], parts = _look_at(value, kind)
            pending.extend([(path + step, part) for step, part in parts])
    if problems:
        raise StaticFieldError(*problems)
    return entries


_MOST_ENTRIES: Final = 2_000


def change_between(
    before: Mapping[str, Entry], now: Mapping[str, Entry], passed: Container[str] = ()
) -> tuple[str, str] | None:
    """Return the path and description of the first difference outside `passed` fields, or None."""
    for path, was in before.items():
        found = now.get(path, _GONE)
        if found.token != was.token and not (passed and field_of(path) in passed):
            texts = shorten_both(was.shown, found.shown, 60)
            return path, f"{path} was {texts[0]}, now {texts[1]}"
    return None


_GONE: Final = Entry(None, Verbatim("gone"))


def _is_plain(value: Any, kind: Kind) -> bool:
    return kind.name == "plain" and not type(value).__dictoffset__


def _token(value: Any, kind: Kind) -> object:
    return ById(type(value)), kind.content(value)


def _identity(value: Any) -> object:
    kind = kind_of(value)
    return _token(value, kind) if _is_plain(value, kind) else ById(value)


def _entry(value: Any, kind: Kind, content: tuple[Any, ...], parts: list[Part]) -> Entry:
    """Return the entry of an object, apart from its parts."""
    token = ById(type(value)), content
    if kind.name in ("set", "frozenset"):
        members = Counter(_identity(part) for _, part in parts)
        return Entry((token, frozenset(members.items())), Verbatim(shorten(value, 60)))
    if kind.name in ("dict", "mapping"):
        keys = tuple([part for _, part in parts[: content[0]]])
        return Entry((token, tuple(map(_identity, keys))), keys)
    if kind.name in ("list", "tuple", "deque"):
        return Entry(token, Verbatim(f"{content[0]} items"))
    if kind.name == "object" and not compares_by_identity(type(value)):
        # It may fill caches; an object without its own == may not gain any attribute.
        return Entry(ById(type(value)), value)
    is_open = kind.name in ("array", "buffer", "void")
    return Entry(token, Verbatim(shorten(value, 60)) if is_open else value)


def _look_at(value: Any, kind: Kind) -> tuple[Entry, list[Part]]:
    """Return the entry of an object, and the parts of it to be entered."""
    itself = Entry(ById(value), value)
    try:
        if _is_closed(value, kind):
            return itself, _functions_in(value)
        content, parts = kind.read(value)
        return _entry(value, kind, content, parts), parts
    except Exception as error:  # noqa: BLE001  # raised by its own code, which keys do not call
        reraise_interrupt(error)
        return itself, []


def _is_closed(value: Any, kind: Kind) -> bool:
    cls = type(value)
    if issubclass(cls, np.ndarray | jax.Array):
        return kind.name != "array" or value.nbytes > MOST_BYTES
    if kind.name == "buffer":
        return memoryview(value).nbytes > MOST_BYTES
    if kind.name != "object":
        return kind.name in ("identity", "reference")
    is_package = module_of(cls).partition(".")[0] in _CLOSED
    return is_package or issubclass(cls, WEAK) or not stored_attributes(value)


def _functions_in(value: Any) -> list[Part]:
    """Return the functions that `jax.jit`, `jax.custom_vjp` and the like have wrapped."""
    if not is_callable(value) or is_of_package(value):
        return []
    names = {id(item): name for name, item in reversed(own_attributes(value).items())}
    return [(f".{names.get(id(each), '__wrapped__')}", each) for each in functions_in(value)]
