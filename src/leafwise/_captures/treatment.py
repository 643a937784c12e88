"""How JAX treats what a function captures: a value as a whole, and each leaf in it."""

import functools
import types
from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from leafwise._objects.attributes import hides, is_tree
from leafwise._objects.classes import is_a
from leafwise._objects.code import is_installed_module
from leafwise._objects.parts import kind_of
from leafwise._trees.nodes import open_node


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


def treatment_of_leaf(value: Any) -> Treatment | None:
    """Return how JAX treats a leaf; None for what has parts of its own."""
    if hides(value):
        return Treatment.STATIC
    if is_a(value, types.ModuleType):
        return Treatment.MODULE
    if is_a(value, _NUMBERS):
        try:
            jax.typeof(value)
        except Exception:  # noqa: BLE001  # JAX refuses it, so that only the trace can see it
            return Treatment.STATIC
        is_literal = np.ndim(value) == 0 and not is_a(value, _JAX_ARRAYS)
        return Treatment.LITERAL if is_literal else Treatment.CONSTANT
    if is_a(value, _PLAIN):
        return Treatment.STATIC
    is_code = callable(value) and is_installed_module(type(value).__module__)
    is_code = is_code and not is_a(value, functools.partial) and not is_tree(value)
    return Treatment.FUNCTION if is_code else None


_JAX_ARRAYS: Final = (jax.Array, jax.Ref)
_NUMBERS: Final = (int, float, complex, np.generic, np.ndarray, *_JAX_ARRAYS)
_PLAIN: Final = (str, bytes, type(None), type(...), Enum, np.dtype, range, slice)


def contents_of(value: Any) -> list[tuple[CapturedLeaf, Any]]:
    """Return the leaves in a captured value with their values, without what only Python sees."""
    leaves: list[tuple[CapturedLeaf, Any]] = []
    todo: list[tuple[str, Any, frozenset[int]]] = [("", value, frozenset())]
    for _ in range(_MOST_PARTS):
        if not todo:
            break
        path, part, around = todo.pop()
        treatment = treatment_of_leaf(part)
        if treatment is None and id(part) not in around:
            inner = around | {id(part)}
            todo += [(path + step, each, inner) for step, each in reversed(parts_of(part))]
        elif treatment is not None and treatment is not Treatment.STATIC:
            leaves.append((CapturedLeaf(path, treatment), part))
    return leaves


_MOST_PARTS: Final = 20_000


def parts_of(value: Any) -> list[tuple[str, Any]]:
    """Return what is in a value, each with the step that leads there."""
    try:
        opened = None if type(value) is dict else open_node(value)  # JAX sorts the keys of a dict
        if opened is not None:
            return list(zip(opened[0].steps, opened[1], strict=True))
        parts = kind_of(value).parts(value)
    except Exception:  # noqa: BLE001  # code of the user's, which may raise anything
        return []
    return [pair for pair in parts if not pair[0].startswith(_NOT_DATA)]


_NOT_DATA: Final = (" key ", ".__func__", ".__self__")  # what a method reads is captured by itself
