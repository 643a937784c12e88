"""How JAX treats what a function captures, and how it can be passed instead."""

import functools
import keyword
import re
import types
from collections.abc import Sequence
from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from leafwise._findings.reasons import Passing, how_to_pass
from leafwise._objects.attributes import (
    compares_by_identity,
    hides_attributes,
    is_callable,
    is_tree,
)
from leafwise._objects.classes import is_a
from leafwise._objects.interrupts import or_default
from leafwise._objects.parts import kind_of
from leafwise._objects.source.code import is_installed_module
from leafwise._objects.stand_ins import MISSING
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
        path: Its path, after the name of the capture: ``['w']``, ``.layers[0].b``.
        treatment: How JAX treats it.
    """

    path: str
    treatment: Treatment


def treatment_of_leaf(value: Any) -> Treatment | None:
    """Return how JAX treats a leaf; None for a value with parts of its own."""
    if hides_attributes(type(value)):
        return Treatment.STATIC
    if is_a(value, types.ModuleType):
        return Treatment.MODULE
    if is_a(value, (*_NUMBERS, jax.Ref)):
        try:
            jax.typeof(value)
        except (TypeError, ValueError, OverflowError):  # JAX refuses it: only the trace can see it
            return Treatment.STATIC
        is_literal = not is_a(value, (jax.Array, jax.Ref)) and np.ndim(value) == 0
        return Treatment.LITERAL if is_literal else Treatment.CONSTANT
    if is_a(value, _PLAIN):
        return Treatment.STATIC
    is_code = callable(value) and is_installed_module(type(value).__module__)
    is_code = is_code and not is_a(value, functools.partial) and not is_tree(value)
    return Treatment.FUNCTION if is_code else None


_NUMBERS: Final = (int, float, complex, np.generic, np.ndarray, jax.Array)
_PLAIN: Final = (str, bytes, type(None), type(...), Enum, np.dtype, range, slice)


def contents_of(value: Any) -> list[tuple[CapturedLeaf, Any]]:
    """Return the leaves of a captured value with their values, without the static ones."""
    leaves: list[tuple[CapturedLeaf, Any]] = []
    todo: list[tuple[str, Any, frozenset[int]]] = [("", value, frozenset())]
    for _ in range(20_000):
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


@or_default(())  # user code may raise anything
def parts_of(value: Any) -> Sequence[tuple[str, Any]]:
    """Return the parts of a value, each with the step that leads to it."""
    opened = None if type(value) is dict else open_node(value)  # JAX sorts the keys of a dict
    if opened is not None:
        return list(zip(opened[0].steps, opened[1], strict=True))
    parts = kind_of(value).parts(value)
    return [pair for pair in parts if not pair[0].startswith(_NOT_DATA)]


_NOT_DATA: Final = (" key ", ".__func__", ".__self__")  # what a method reads is captured separately


class Way(StrEnum):
    """How a value can be passed to a jitted function instead of being captured."""

    ARGUMENT = "argument"
    STATIC = "static"
    PYTREE = "pytree"  # its class has to become a pytree class first


@or_default(Way.PYTREE)  # it has no hash, or user code raises
def way_of(value: Any) -> Way:
    kind: Any = type(value)
    leaves = [] if hides_attributes(kind) else jax.tree.leaves(value)
    if value is MISSING or (leaves and how_to_pass(*leaves) is not Passing.STATIC):
        return Way.ARGUMENT
    is_function = is_callable(value) and hasattr(value, "__name__")
    if is_function or is_a(value, Enum | type | None) or not compares_by_identity(kind):
        hash(value)
        return Way.STATIC
    return Way.PYTREE


def lines_of(way: Way, function: str, name: str) -> tuple[str, str]:
    """Return the two fixes for a capture as text."""
    variable = parameter_of(name)
    argument = f"argument `{variable}` of `{function}`"
    params = f"a pytree class: `@lw.pytree class Params: {variable}"
    match way:
        case Way.ARGUMENT:
            return (
                f"pass it as an {argument}",
                f"make it a field of {params}: jax.Array`, and pass `params`",
            )
        case Way.STATIC:
            return (
                f'pass it as a static {argument}, with `static_argnames="{variable}"`',
                f"make it a static field of {params}: Any = lw.static_field()`, and pass `params`",
            )
        case Way.PYTREE:
            return (
                f"pass the numbers and arrays read from it as arguments of `{function}`",
                f"make it an instance of a pytree class (`@lw.pytree`, with `lw.static_field()` "
                f"for what is not an array), and pass it as an {argument}",
            )


def parameter_of(name: str) -> str:
    """Return a parameter name for a capture: ``config['rate']`` is ``rate``."""
    words: list[str] = re.findall(r"[^\W\d]\w*", name.partition(" (")[0])
    fit = [word for word in words if not word.startswith("__") and not keyword.iskeyword(word)]
    return fit[-1] if fit else "value"
