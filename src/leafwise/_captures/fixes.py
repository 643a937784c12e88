"""How a captured value can be passed instead: the fix depends on its type."""

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
    PYTREE = "pytree"
    """Its class has to become a pytree class first."""


class Fix(NamedTuple):
    """How a value may get to a jitted function.

    Attributes:
        way: As what.
        annotation: The annotation of a field that holds it.
    """

    way: Way = Way.ARGUMENT
    annotation: str = "jax.Array"


_NUMBERS: Final = (int, float, complex, np.generic, np.ndarray, jax.Array)


def fix_of(value: Any) -> Fix:
    """Return how a value can be passed."""
    kind: Any = type(value)
    if value is MISSING or (issubclass(kind, _NUMBERS) and not issubclass(kind, bool | Enum)):
        return Fix()
    if issubclass(kind, type):
        return Fix(Way.STATIC, "type")
    try:
        way = Way.PYTREE if hides(value) else _way_of(value)
    except Exception:  # noqa: BLE001  # the user's own code
        way = Way.PYTREE
    named = way is Way.STATIC and is_callable(value)
    return Fix(way, "Callable[..., Any]" if named else kind.__name__)


def _way_of(value: Any) -> Way:
    if is_a(value, bool | str | bytes | Enum) or value is None:
        return Way.STATIC
    leaves = jax.tree.leaves(value)
    is_leaf = len(leaves) == 1 and leaves[0] is value
    if not is_leaf and all(fix_of(leaf).way is Way.ARGUMENT for leaf in leaves):
        return Way.ARGUMENT
    hash(value)
    named = is_callable(value) and not _has_own_class(value)
    return Way.PYTREE if compares_by_identity(type(value)) and not named else Way.STATIC


def _has_own_class(value: Any) -> bool:
    """Return whether something callable is an object of a class that holds what it likes."""
    return not hasattr(value, "__name__") and not hasattr(value, "__wrapped__")


def lines_of(fix: Fix, function: str, name: str, *, is_attribute: bool) -> tuple[str, str]:
    """Return the two fixes of a capture, as text.

    Args:
        fix: How its value can be passed.
        function: The name of the jitted function.
        name: The capture, as the code spells it.
        is_attribute: Whether it is an attribute of the object whose method the function is.
    """
    variable = parameter_of(name)
    field = f"{variable}: {fix.annotation}"
    if fix.way is Way.PYTREE:
        return (
            f"pass the numbers and arrays that are read of it as arguments: `{function}(..., ...)`",
            f"make it an object of a pytree class (`@lw.pytree`, with `lw.static_field()` for what "
            f"is not an array), and pass that as an argument: `{function}(..., {variable})`",
        )
    is_static = fix.way is Way.STATIC
    if is_static:
        field += " = lw.static_field()"
        first = (
            f"pass it as a static argument: `{function}(..., {variable})`, with "
            f'`lw.jit(..., static_argnames="{variable}")`'
        )
    else:
        first = f"pass it as an argument: `{function}(..., {variable})`"
    second = f"make it a {'static ' if is_static else ''}field of a pytree class"
    if is_attribute:
        return first, f"{second} that is an argument: `@lw.pytree`, `{field}`"
    return first, f"{second}: `@lw.pytree class Params: {field}`, and pass `params`"


def parameter_of(name: str) -> str:
    """Return a name for a capture as a parameter: ``c.sub[0]`` is ``sub_0``."""
    words: list[str] = re.findall(r"\w+", name.partition(" (")[0])
    last = ""
    for word in reversed(words):
        if word.startswith("__"):
            continue
        last = f"{word}_{last}" if last else word
        if last.isidentifier() and not keyword.iskeyword(last):
            return last
    return "value"
