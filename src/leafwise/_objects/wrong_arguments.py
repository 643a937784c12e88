"""Arguments that a public function does not take: errors that name the right ones."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar, cast

from leafwise.errors import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])

_INSTEAD: Final = {"update": "; it takes one mapping by path\n  fix: `{{{!r}: ...}}`"}
"""What is said of a name that is near no argument, by function."""


def unknown_argument(function: str, name: str, known: Iterable[str]) -> TypeError:
    """Return the error for a keyword argument that a function does not take."""
    instead = _INSTEAD.get(function, f"; it takes {', '.join(known)}")
    hint = did_you_mean(name, known) or instead.format(name)
    return TypeError(f"{function}() takes no argument {name!r}{hint}")


def named(function: F) -> F:
    """Return a function that names the right argument if it is called with a wrong one."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            was_entered = cast("Any", error.__traceback__).tb_next is not None
            clearer = None if was_entered else _error_of(function, args, kwargs)
            if clearer is None:
                raise
            raise clearer from None

    return cast("F", call)


def _error_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError | None:
    parameters, name = inspect.signature(function).parameters, function.__name__
    unknown = [each for each in kwargs if each not in parameters]
    if unknown:
        return unknown_argument(name, unknown[0], parameters)
    if args and next(iter(parameters.values())).kind is inspect.Parameter.KEYWORD_ONLY:
        value = getattr(args[0], "__name__", "...")
        return TypeError(
            f"{name}() takes its arguments by name"
            + f"\n  fix: `lw.{name}(of={value})`" * ("of" in parameters and value.isidentifier())
        )
    return None
