"""Assertions on how often JAX traces and compiles, for tests."""

from collections.abc import Callable
from contextlib import ContextDecorator
from types import TracebackType
from typing import Any, Self

from leafwise._jax.events import EventKind
from leafwise._jit.watch import (
    Log,
    budget,
    checked_function,
    checked_number,
    count_of,
    no_retrace,
    retrace_error,
    watch,
    whose,
)

Function = Callable[..., Any] | str


class _Exactly(ContextDecorator):
    """A block, or a function, in which JAX does something an exact number of times."""

    def __init__(self, kind: EventKind, number: int, of: Function | None) -> None:
        self._number = number
        self._kind = kind
        self._function = of
        self._entered: list[tuple[watch, Log]] = []

    def _recreate_cm(self) -> Self:
        """Return what a decorated function enters: each call counts for itself."""
        return type(self)(self._kind, self._number, self._function)

    def __enter__(self) -> Log:
        """Begin to count; the log shows what was seen so far."""
        block = watch(eager=False)
        log = block.__enter__()
        self._entered.append((block, log))
        return log

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop counting, and raise if it was another number."""
        __tracebackhide__ = True
        block, log = self._entered.pop()
        block.__exit__(kind, error, traceback)
        if error is not None:
            return
        events = log.events if self._function is None else log.of(self._function)
        seen = [event for event in events if event.kind is self._kind]
        if len(seen) == self._number:
            return
        problem = f"{count_of(len(seen), self._kind)}{whose(self._function)}, {self._number} wanted"
        raise retrace_error(problem, seen)


def _exactly(who: str, kind: EventKind, number: int, of: Function | None) -> _Exactly:
    """Return the block, if the number is one.

    Raises:
        TypeError: `number` is no number of 0 or more, or `of` is no function or name.
    """
    given: Any = number
    if given is None:  # which stands for any number in a budget
        msg = f"{who} takes a number of 0 or more, got None"
        raise TypeError(msg)
    checked_number(who, number)
    return _Exactly(kind, number, checked_function(who, of))


def assert_traces(number: int, *, of: Function | None = None) -> _Exactly:
    """Assert that JAX traces exactly so often, in a block or in each call of a function.

    Operations of JAX itself that are called outside any jitted function do not count.

    Args:
        number: How often.
        of: Count one function only: the jitted function, the plain one, or its name.

    Raises:
        RetraceError: (on leaving) It was another number; it names each trace, the line that
            called, and for functions under `leafwise.jit` why.
        TypeError: `number` is no number of 0 or more, or `of` is no function or name.

    Example:
        >>> with assert_traces(1):
        ...     step(params, x)
        ...     step(params, 2 * x)  # doctest: +SKIP
    """
    return _exactly("assert_traces", EventKind.TRACE, number, of)


def assert_compiles(number: int, *, of: Function | None = None) -> _Exactly:
    """Assert that JAX compiles exactly so often, in a block or in each call of a function.

    Compiles that the persistent cache answers count. Operations of JAX itself that are called
    outside any jitted function do not.

    Args:
        number: How often.
        of: Count one function only: the jitted function, the plain one, or its name.

    Raises:
        RetraceError: (on leaving) It was another number.
        TypeError: `number` is no number of 0 or more, or `of` is no function or name.

    Example:
        >>> @assert_compiles(2)
        ... def test_two_shapes():
        ...     step(params, jnp.ones(3))
        ...     step(params, jnp.ones(4))  # doctest: +SKIP
    """
    return _exactly("assert_compiles", EventKind.COMPILE, number, of)


def assert_no_retrace(*, of: Function | None = None) -> budget:
    """Assert that JAX neither traces, lowers nor compiles, in a block or in a function.

    As `leafwise.no_retrace`, without the operations of JAX itself that are called outside
    any jitted function.

    Args:
        of: Count one function only: the jitted function, the plain one, or its name.

    Raises:
        RetraceError: (on leaving) It did; it says what, from where, and why.
        TypeError: `of` is no function or name.

    Example:
        >>> step(params, x)  # doctest: +SKIP
        >>> with assert_no_retrace():
        ...     step(replace(params, lr=0.2), x)  # doctest: +SKIP
    """
    return no_retrace(of=of, eager=False)
