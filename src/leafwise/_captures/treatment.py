"""How JAX treats what a function captures, and how it can be passed instead."""

import contextlib
import functools
import keyword
import re
import types
from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from leafwise._objects.attributes import compares_by_identity, hides, is_callable, is_tree
from leafwise._objects.classes import is_a
from leafwise._objects.code import is_installed_module
from leafwise._objects.parts import kind_of
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
    if is_a(value, (*_NUMBERS, jax.Ref)):
        try:
            jax.typeof(value)
        except Exception:  # noqa: BLE001  # JAX refuses it, so that only the trace can see it
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


class Way(StrEnum):
    """How a value gets to a jitted function, other than as a capture."""

    ARGUMENT = "argument"
    STATIC = "static"
    PYTREE = "pytree"  # its class has to become a pytree class first


class Fix(NamedTuple):
    """How a value may get to a jitted function, and the annotation of a field that holds it."""

    way: Way = Way.ARGUMENT
    annotation: str = "jax.Array"


def fix_of(value: Any) -> Fix:
    """Return how a value can be passed."""
    kind: Any = type(value)
    if value is MISSING or _is_number(value):
        return Fix()
    if issubclass(kind, type):
        return Fix(Way.STATIC, "type")
    way, annotation = Way.PYTREE, kind.__name__
    with contextlib.suppress(Exception):  # it has no hash, or code of the user's raises
        leaves = [] if hides(value) else jax.tree.leaves(value)
        is_function = is_callable(value) and hasattr(value, "__name__")
        if leaves and all(map(_is_number, leaves)):
            way = Way.ARGUMENT
        elif is_function or is_a(value, Enum | None) or not compares_by_identity(kind):
            hash(value)
            way, annotation = Way.STATIC, "Callable[..., Any]" if is_function else annotation
    return Fix(way, annotation)


def _is_number(value: Any) -> bool:
    return is_a(value, _NUMBERS) and not is_a(value, bool | Enum)


def lines_of(fix: Fix, function: str, name: str, *, is_attribute: bool) -> tuple[str, str]:
    """Return the two fixes of a capture as text; of an attribute of the object of a method, too."""
    variable, is_static = parameter_of(name), fix.way is Way.STATIC
    call = f"`{function}(..., {variable})`"
    if fix.way is Way.PYTREE:
        return (
            f"pass the numbers and arrays that are read of it as arguments: `{function}(..., ...)`",
            f"make it an object of a pytree class (`@lw.pytree`, with `lw.static_field()` for what "
            f"is not an array), and pass that as an argument: {call}",
        )
    field = f"{variable}: {fix.annotation}{' = lw.static_field()' if is_static else ''}"
    with_names = f', with `lw.jit(..., static_argnames="{variable}")`' if is_static else ""
    kind = "static " if is_static else ""
    first = f"pass it as {'a static' if is_static else 'an'} argument: {call}{with_names}"
    second = f"make it a {kind}field of a pytree class"
    if is_attribute:
        return first, f"{second} that is an argument: `@lw.pytree`, `{field}`"
    return first, f"{second}: `@lw.pytree class Params: {field}`, and pass `params`"


def parameter_of(name: str) -> str:
    """Return a name for a capture as a parameter: ``config['rate']`` is ``rate``."""
    words: list[str] = re.findall(r"[^\W\d]\w*", name.partition(" (")[0])
    fit = [word for word in words if not word.startswith("__") and not keyword.iskeyword(word)]
    return fit[-1] if fit else "value"
