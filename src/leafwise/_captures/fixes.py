"""How a captured value can be passed instead: the fix depends on its type."""

import contextlib
import keyword
import re
from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from leafwise._objects.attributes import compares_by_identity, hides, is_callable
from leafwise._objects.classes import is_a
from leafwise._objects.stand_ins import MISSING


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


_NUMBERS: Final = (int, float, complex, np.generic, np.ndarray, jax.Array)


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
