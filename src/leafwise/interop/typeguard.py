"""typeguard for functions that have no source: constructors, and what jaxtyping makes."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from leafwise.interop._extra import import_extra

__all__ = ["typechecked"]

typeguard: Any = import_extra("typeguard")

P = ParamSpec("P")
R = TypeVar("R")


def typechecked(fun: Callable[P, R], /) -> Callable[P, R]:
    """Check arguments and result of a function against its annotations, at each call.

    typeguard 4 rewrites the source of a function. The constructor of a dataclass has none,
    and typeguard cannot read the strings in jaxtyping's annotations, so that
    ``@jaxtyped(typechecker=typeguard.typechecked)`` checks nothing. This does the same with
    `typeguard.check_type`: ``@jaxtyped(typechecker=typechecked)`` above ``@lw.pytree``.

    Args:
        fun: The function. For the methods of a class, decorate each of them.

    Returns:
        A function that raises a `typeguard.TypeCheckError` before it is called with, or when
        it returns, what its annotations do not allow.

    Raises:
        TypeError: `fun` is a class.

    Examples:
        >>> @typechecked
        ... def half(x: int) -> float:
        ...     return x / 2
        >>> half(3)
        1.5
    """
    if isinstance(fun, type):
        raise TypeError(
            f"typechecked decorates functions, got the class {fun.__name__}\n"
            f"  fix: @jaxtyped(typechecker=typechecked) above the class, which decorates its "
            f"constructor"
        )
    signature = _signature(fun)
    empty = inspect.Parameter.empty
    typed = {
        each.name: each for each in signature.parameters.values() if each.annotation is not empty
    }

    @functools.wraps(fun)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if name in typed:
                for each in _values(typed[name].kind, value):
                    _check(each, typed[name].annotation, f"argument {name!r}", fun)
        result = fun(*args, **kwargs)
        if signature.return_annotation is not empty:
            _check(result, signature.return_annotation, "result", fun)
        return result

    return checked


def _signature(fun: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(fun, eval_str=True)
    except Exception:  # noqa: BLE001  # a string can hold any code; typeguard warns of a name
        return inspect.signature(fun)


def _values(kind: Any, value: Any) -> tuple[Any, ...]:
    """Return what an annotation speaks of: ``*args: int`` of each argument."""
    if kind is inspect.Parameter.VAR_POSITIONAL:
        return tuple(value)
    return tuple(value.values()) if kind is inspect.Parameter.VAR_KEYWORD else (value,)


def _check(value: Any, annotation: Any, what: str, fun: Callable[..., Any]) -> None:
    try:
        typeguard.check_type(value, annotation)
    except typeguard.TypeCheckError as error:
        error.add_note(f"{what} of {getattr(fun, '__qualname__', repr(fun))}")
        raise
