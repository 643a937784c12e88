"""The differences, by name, between two objects of a class, or two functions of a definition."""

import contextlib
import functools
import re
import types
from typing import Any, Final

import numpy as np

from leafwise._findings.reasons import Change, Passing, how_to_pass
from leafwise._objects.classes import is_a, is_alias, read
from leafwise._objects.source.code import contents
from leafwise._objects.text import shorten_both
from leafwise._statics.account import BY_CONTENT, differences
from leafwise._trees.equality import is_distinct


def is_function(value: Any) -> bool:
    """Return whether a value is a function or wraps one, as a jitted function does."""
    if is_a(value, types.FunctionType | types.MethodType | functools.partial):
        return True
    is_class = is_a(value, type) or is_alias(value)
    return callable(value) and not is_class and hasattr(value, "__name__")


def definition_of(value: Any, depth: int = 5) -> Any:
    """Return a value that all functions of one definition share, or None if unknown."""
    if is_a(value, functools.partial):
        return definition_of(value.func, depth)
    code = getattr(value, "__code__", None)
    if code is None:
        inner = getattr(value, "__wrapped__", None) if depth else None
        known = None if inner is None else definition_of(inner, depth - 1)
        return known or (value if hasattr(value, "__name__") else None)
    found: list[Any] = [code.co_filename, code, owner_of(value)]
    is_of_jax = str(getattr(value, "__globals__", {}).get("__name__")).startswith("jax.")
    for inner in map(contents, (getattr(value, "__closure__", None) or ()) if depth else ()):
        if is_function(inner):
            found.append(definition_of(inner, depth - 1))
        elif is_of_jax and is_a(inner, int | str | tuple):
            found.append(repr(inner))
    return tuple(found)


def owner_of(method: Any) -> str:
    """Return the name of the class that a method is bound to, which says what it calls, or ""."""
    owner = getattr(method, "__self__", None)
    cls: Any = owner if is_a(owner, type) else type(owner)
    return "" if owner is None else f"{cls.__module__}.{cls.__qualname__}"


def are_recreated(one: Any, other: Any) -> bool:
    known = definition_of(one) if is_function(one) and is_function(other) else None
    return known is not None and known == definition_of(other)


def changed_parts(
    one: Any, other: Any, name: str = "", reads: "frozenset[str] | None" = None
) -> list[Change]:
    """Return the values that differ between two functions or objects, by their names in code."""
    changes: dict[str, Change] = {}
    with contextlib.suppress(Exception):  # code of the values' own classes
        for path, mine, its in differences(one, other, BY_CONTENT):
            first = re.match(r"(?:\.__self__)?\.(?!__|(?:func|args|keywords)\b)(\w+)", path)
            if reads is not None and first is not None and first[1] not in reads:
                continue  # its code does not read the attribute
            # Before what only a function of another definition has, or just JAX's record of it.
            at = re.split(_OF_A_FUNCTION, path, maxsplit=1)[0]
            parts = mine[at], its[at]
            texts = None if are_recreated(*parts) else _changed_texts(*parts)
            if texts is not None and at:
                variable, holder = _variable_at(mine, at, name)
                optimizer = mine.get(at.partition(".__")[0].rpartition(".")[0])
                how = how_to_pass(*parts)
                if type(optimizer).__module__.startswith("optax."):
                    how = Passing.HYPERPARAMETER
                change = Change(variable, *texts, holder=holder, how=how)
                changes.setdefault(str(change), change)
    return list(changes.values())[:4]


_OF_A_FUNCTION: Final = re.compile(r"\.(?:__(?:call|doc|name|qualname|module)__|_jit_info)\b")


def _changed_texts(one: Any, other: Any) -> tuple[str, str] | None:
    """Return two different values as text, empty if it shows no difference, or None if unknown."""
    before, after = shorten_both(one, other, 40)
    if before != after and " at 0x" not in after:
        return before, after
    if hasattr(other, "shape"):
        with contextlib.suppress(TypeError, RuntimeError):  # a PRNG key, or data elsewhere
            if np.array_equal(one, other):
                return None
        return before, f"another {after}"
    return ("", "") if is_distinct(one, other, "content") else None


_HELD: Final = r"\.(__closure__|__kwdefaults__|keywords|__defaults__|args)\[(.+?)\]"


def _variable_at(values: dict[str, Any], path: str, name: str) -> tuple[str, str]:
    """Return the variable at a path as the code spells it, and the function that holds it."""
    held = re.fullmatch(rf"(.*){_HELD}(.*)", path)
    if held is None:
        return _spelled(name + path), ""
    inner, how, variable, rest = held.groups()
    if variable.isdigit():  # by the name of the parameter
        function, number = values[inner], int(variable)
        code = read(read(function, "func", function), "__code__", None)
        parameters = () if code is None else code.co_varnames[: code.co_argcount]
        if how == "__defaults__":
            parameters = parameters[-len(function.__defaults__) :]
        variable = parameters[number] if number < len(parameters) else f"args[{number}]"
    holder = _spelled(name + re.split(_HELD, path)[0])
    return variable.strip("'") + rest, holder if name or holder.startswith("self") else ""


def _spelled(way: str) -> str:
    way = re.sub(r"\.(__wrapped__|_fun)\b", "", way).lstrip(".")
    return re.sub(r"^(\w*\.)?__self__\b", "self", way)
