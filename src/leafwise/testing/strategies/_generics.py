"""What the type variables of a generic class stand for."""

import typing
from collections.abc import Mapping
from typing import Any, TypeVar

Bindings = Mapping[Any, Any]


def substitute(kind: Any, bindings: Bindings) -> Any:
    """Return an annotation with type variables replaced by what they stand for."""
    if isinstance(kind, TypeVar):
        return bindings.get(kind, kind)
    parameters = getattr(kind, "__parameters__", ())
    if not bindings or not parameters or isinstance(kind, type):
        return kind
    try:
        return kind[tuple(bindings.get(each, each) for each in parameters)]
    except TypeError:  # a variable of another kind: *Ts, **P
        return kind


def alias_value(kind: Any) -> Any:
    """Return what a name made by a ``type`` statement stands for."""
    origin: Any = typing.get_origin(kind)
    if origin is None:
        return kind.__value__
    given = zip(origin.__type_params__, typing.get_args(kind), strict=False)
    return substitute(origin.__value__, dict(given))


def bindings_of(kind: Any) -> dict[Any, Bindings]:
    """Return what type variables stand for in each class that ``Box[int]`` derives from."""
    found: dict[Any, Bindings] = {}

    def visit(cls: Any, arguments: tuple[Any, ...]) -> None:
        parameters = getattr(cls, "__parameters__", ())
        fits = len(parameters) == len(arguments)
        bindings = dict(zip(parameters, arguments, strict=True)) if fits else {}
        found.setdefault(cls, bindings)
        for base in cls.__dict__.get("__orig_bases__", cls.__bases__):
            origin = typing.get_origin(base) or base
            if isinstance(origin, type) and origin is not object:
                inner = [substitute(each, bindings) for each in typing.get_args(base)]
                visit(origin, tuple(inner))

    visit(typing.get_origin(kind) or kind, typing.get_args(kind))
    return found
