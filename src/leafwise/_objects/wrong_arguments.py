"""Arguments that a public function does not take: errors that name the right ones."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar, cast

from leafwise.errors import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])

_INSTEAD: Final = {"update": "; it takes one mapping\n  fix: put `{!r}: ...` into it"}
"""What is said of a name that is near no argument, by function."""


def unknown_argument(function: str, name: str, known: Iterable[str]) -> TypeError:
    """Return the error for a keyword argument that a function does not take."""
    instead = _INSTEAD.get(function, f"; it takes {', '.join(known)}")
    hint = did_you_mean(name, known) or instead.format(name)
    return TypeError(f"{function}() takes no argument {name!r}{hint}")


def named(function: F) -> F:
    """Return a function that names the right argument if it is called with a wrong one."""
    name, code = function.__name__, cast("Any", function).__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        for argument in kwargs:
            if argument not in parameters:
                raise unknown_argument(name, argument, parameters)
        if args and not code.co_argcount:
            value = getattr(args[0], "__name__", "") if len(args) == 1 else ""
            of = f"of={value if value.isidentifier() else '...'}"
            fix = f"\n  fix: `{of}` for a function to watch, `@lw.{name}(...)` as a decorator"
            fix *= "of" in parameters
            raise TypeError(f"{name}() takes its arguments by name{fix}")
        return function(*args, **kwargs)

    return cast("F", call)
