"""The parameters that a function marks with `leafwise.Static`, and the keys of their values.

JAX compares static arguments by ``==`` and their outermost type, so that ``(1,)`` and ``(True,)``
would share a program. It gets the key of a value in the value's place.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from leafwise._classes.annotations import annotated_static, function_scopes
from leafwise._classes.registry import is_checking
from leafwise._compare.signature import ArgumentOwner, StaticArguments, value_of
from leafwise._objects.attributes import in_class
from leafwise._statics.findings import of_argument
from leafwise._statics.key import KeyTable, StaticKey, key_of, verify
from leafwise.errors import DefinitionError, StaticFieldError, static_field_error


class Marked(NamedTuple):
    """A parameter of a function that its annotation marks."""

    name: str
    place: int | None
    by_name: bool


@dataclasses.dataclass(frozen=True, slots=True)
class StaticParameters:
    """The marked parameters of one function."""

    function: str
    marked: tuple[Marked, ...]

    @property
    def arguments(self) -> StaticArguments:
        """Their positions and names, as `jax.jit` takes them."""
        places = (each.place for each in self.marked if each.place is not None)
        return StaticArguments(
            tuple(places), tuple(sorted(n.name for n in self.marked if n.by_name))
        )

    def key(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return the arguments of a call with keys in the place of marked values."""
        keyed, named = list(args), dict(kwargs)
        for name, place, by_name in self.marked:
            if place is not None and place < len(keyed):
                keyed[place] = _key(_table(self.function, name), keyed[place])
            elif by_name and name in named:
                named[name] = _key(_table(self.function, name), named[name])
        return keyed, named

    def values(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return the arguments of a call with the values in the place of their keys."""
        return list(map(value_of, args)), {name: value_of(each) for name, each in kwargs.items()}

    def calling(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls another one with keys in the place of marked values."""
        key = self.key

        def keyed(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            given, named = key(args, kwargs)
            return call(*given, **named)

        return keyed


@functools.cache
def _table(function: str, name: str) -> KeyTable:
    """Return the keys of the values of a parameter; functions of one name share them."""
    owner = type(function, (), {})
    table = KeyTable(owner)
    table.set_owner(ArgumentOwner(owner, (name,)))
    return table


def _key(table: KeyTable, value: Any) -> StaticKey:
    if isinstance(value, StaticKey) and value.owner is table.owner:
        return value
    try:
        key = key_of(table, (value,))
    except StaticFieldError as error:
        found = [of_argument(each) for each in error.findings]
        raise static_field_error([type(error)], found) from None
    if is_checking():
        verify(key)
    return key


def static_parameters(
    fun: Callable[..., Any], name: str, given: StaticArguments, depth: int
) -> StaticParameters | None:
    """Return the parameters of a function that its signature marks, or None."""
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):  # some builtins have none
        return None
    scopes = function_scopes(getattr(_annotated(fun), "__globals__", {}), depth + 1)
    marked: list[Marked] = []
    for place, each in enumerate(parameters):
        is_known = each.name in given.names or place in given.numbers
        if not annotated_static(f"{name}({each.name})", each.annotation, scopes, known=is_known):
            continue
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            raise DefinitionError(
                f"{name}({each}): JAX takes a static argument by its own position or name\n"
                f"  fix: a parameter of its own for each, or one tuple: "
                f"`{each.name}: lw.Static[tuple[...]]`"
            )
        positional = None if each.kind is each.KEYWORD_ONLY else place
        marked.append(Marked(each.name, positional, each.kind is not each.POSITIONAL_ONLY))
    return StaticParameters(name, tuple(marked)) if marked else None


def is_annotated(fun: Callable[..., Any]) -> bool:
    """Return whether a function has annotations at all: a signature takes longer."""
    return bool(getattr(_annotated(fun), "__annotations__", None))


def _annotated(fun: Any) -> Any:
    """Return the function whose signature `inspect` reads."""
    while isinstance(fun, functools.partial):
        fun = fun.func
    if isinstance(fun, type):
        fun = vars(fun).get("__init__", fun)
    if not hasattr(fun, "__globals__") and not hasattr(fun, "__wrapped__"):
        fun = getattr(fun, "__func__", in_class(type(fun), "__call__"))
    return inspect.unwrap(fun)
