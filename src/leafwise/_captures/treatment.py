"""The leaves of a captured value, how JAX treats each, and its bytes."""

import collections
import functools
import types
from collections.abc import Iterator
from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from leafwise._jax.events import ignore_events
from leafwise._objects.attributes import (
    compares_by_identity,
    has_hidden_state,
    hides,
    is_tree,
)
from leafwise._objects.classes import is_a
from leafwise._objects.code import is_installed_module
from leafwise._objects.parts import kind_of
from leafwise._trees.nodes import open_node

_MOST_PARTS: Final = 20_000
"""So many parts of a value are collected."""

_DEEPEST: Final = 100
"""The nesting that is followed."""


class Treatment(StrEnum):
    """How JAX treats what a function captures."""

    LITERAL = "literal"
    """A number that is written into the program."""
    CONSTANT = "constant"
    """An array that is handed to the program as a hidden argument."""
    PYTREE = "pytree"
    """A container: each of its leaves is one of these."""
    FUNCTION = "function"
    """A function or class, which is called while JAX traces."""
    MODULE = "module"
    """A module."""
    STATIC = "static"
    """A Python object that only the trace sees: a `str`, a configuration."""


class CapturedLeaf(NamedTuple):
    """One leaf of a captured container or object.

    Attributes:
        path: Where it is, behind the name of the capture: ``['w']``, ``.layers[0].b``.
        treatment: How JAX treats it.
    """

    path: str
    treatment: Treatment


class LeafTreatments:
    """How JAX treats leaves: it is asked once for each kind of number or array."""

    def __init__(self) -> None:
        self._known: dict[Any, Treatment] = {}

    def of_leaf(self, value: Any) -> Treatment | None:
        """Return how a leaf is treated; None for what has parts of its own."""
        if hides(value):
            return Treatment.STATIC
        if is_a(value, types.ModuleType):
            return Treatment.MODULE
        if is_a(value, _REF):
            return Treatment.CONSTANT
        if is_a(value, _NUMBERS):
            return self._of_number(value)
        if is_a(value, _PLAIN):
            return Treatment.STATIC
        is_code = callable(value) and is_installed_module(type(value).__module__)
        is_code = is_code and not is_a(value, functools.partial)
        return Treatment.FUNCTION if is_code and not is_tree(value) else None

    def _of_number(self, value: Any) -> Treatment:
        fits = not is_a(value, int) or -_INT32 <= value < _INT32 or value
        dtype = getattr(value, "dtype", None)
        kind = type(value), fits, dtype, getattr(value, "ndim", 0) == 0
        if kind not in self._known:
            self._known[kind] = _ask_jax(value)
        return self._known[kind]


def _ask_jax(value: Any) -> Treatment:
    """Return what JAX makes of a number or an array that a function closes over."""
    if is_a(value, jax.Array) and not is_a(value, Tracer) and value.is_deleted():
        return Treatment.CONSTANT
    try:
        # A number may overflow as a float32; `catch_warnings` would be seen by other threads.
        with ignore_events(), np.errstate(all="ignore"):
            found = jax.make_jaxpr(functools.partial(_itself, value))().jaxpr.outvars[0]
    except Exception:  # noqa: BLE001  # JAX refuses it, so that only the trace can see it
        return Treatment.STATIC
    # By attribute, without `jax.extend.core`: importing that makes JAX retrace every program.
    return Treatment.LITERAL if hasattr(found, "val") else Treatment.CONSTANT


def _itself(value: Any) -> Any:
    return value


_INT32: Final = 1 << 31
_REF: Final[type] = getattr(jax, "Ref", type(None))
_NUMBERS: Final = (bool, int, float, complex, np.generic, np.ndarray, jax.Array)
_PLAIN: Final = (str, bytes, type(None), type(...), Enum, np.dtype, range, slice)


class Contents:
    """What is in a captured value.

    Attributes:
        leaves: The numbers, arrays, functions and modules in it, with their paths.
        arrays: The bytes of each array, by its identity.
        is_complete: Whether all of it was collected, so that a change of it can be seen.
    """

    def __init__(self, value: Any, treatments: LeafTreatments) -> None:
        self.leaves: list[CapturedLeaf] = []
        self.arrays: dict[int, int] = {}
        self.is_complete = True
        self._treatments = treatments
        self._room = _MOST_PARTS
        self._inside: set[int] = set()
        self._collect(value, "", static=False)

    def _collect(self, value: Any, path: str, *, static: bool) -> None:
        self._room -= 1
        if self._room < 0 or len(self._inside) > _DEEPEST:
            self.is_complete = False
            return
        treatment = self._treatments.of_leaf(value)
        if treatment is not None:
            self._add_leaf(value, path, treatment, static=static)
        elif id(value) not in self._inside:
            self._inside.add(id(value))
            for step, part, fixed in self._parts(value):
                self._collect(part, path + step, static=static or fixed)
                if self._room < 0:
                    break
            self._inside.discard(id(value))

    def _add_leaf(self, value: Any, path: str, treatment: Treatment, *, static: bool) -> None:
        if hides(value):
            self.is_complete = False
            return
        is_ref = is_a(value, _REF)
        if is_ref or is_a(value, jax.Array | np.ndarray):
            self.arrays[id(value)] = _bytes_of(value)
        if is_ref or (is_a(value, np.ndarray) and value.dtype.hasobject):
            self.is_complete = False
        if treatment is not Treatment.STATIC and not static:
            self.leaves.append(CapturedLeaf(path, treatment))

    def _parts(self, value: Any) -> Iterator[tuple[str, Any, bool]]:
        """Yield what is in a value: the step that leads there, and whether it is static."""
        node = _node(value)
        if node is not None:
            yield from ((step, each, False) for step, each in zip(*node[0], strict=False))
            yield from ((step, each, True) for step, each in zip(*node[1], strict=False))
            return
        kind: Any = type(value)
        try:
            parts = kind_of(value).parts(value)
        except Exception:  # noqa: BLE001  # of a mapping of the user's, which may raise anything
            self.is_complete = False
            return
        for step, each in parts:
            if not step.startswith(_OF_CODE):  # what it reads are captures of their own
                yield step, each, step.startswith(" key ")
        if has_hidden_state(kind) and compares_by_identity(kind):
            self.is_complete = False


def _bytes_of(array: Any) -> int:
    """Return the bytes of an array; 0 where it does not say."""
    try:
        aval = jax.typeof(array)
        return int(getattr(array, "nbytes", None) or getattr(aval, "size", 0) * aval.dtype.itemsize)
    except Exception:  # noqa: BLE001  # an array of objects, a tracer of a trace that ended
        return int(getattr(array, "nbytes", 0))


def _node(value: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]] | None:
    """Return children and statics of a registered pytree that is not a builtin container."""
    if type(value) in _BUILTIN:
        return None
    try:
        opened = open_node(value)
    except Exception:  # noqa: BLE001  # a flatten of the user's may raise anything
        return None
    if opened is None:
        return None
    node, children = opened
    return (node.steps, children), (node.names, node.values)


_OF_CODE: Final = (".__closure__", ".__defaults__", ".__kwdefaults__", ".__func__", ".__self__")
_BUILTIN: Final = frozenset({dict, list, tuple, set, frozenset, collections.deque})


def treatment_of(value: Any, contents: Contents, treatments: LeafTreatments) -> Treatment:
    """Return how JAX treats a captured value as a whole."""
    found = treatments.of_leaf(value)
    if found is not None:
        return found
    in_programs = any(leaf.treatment in _IN_PROGRAMS for leaf in contents.leaves)
    if in_programs and is_tree(value):
        return Treatment.PYTREE
    return Treatment.FUNCTION if callable(value) else Treatment.STATIC


_IN_PROGRAMS: Final = frozenset({Treatment.LITERAL, Treatment.CONSTANT})
