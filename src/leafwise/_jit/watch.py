"""Watching what JAX does in a block, and budgets for it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator
from types import TracebackType
from typing import Any

from leafwise._jax.events import EventKind
from leafwise._jit.recorder import Event, unwatch_events, watch_events
from leafwise._objects.text import got
from leafwise._trees.equality import jax_equal
from leafwise.errors import RetraceError


class Log:
    """The events of a block, in order; it grows until the block ends.

    Attributes:
        events: All of them.
    """

    def __init__(self, *, eager: bool) -> None:
        """Start with none."""
        self.events: list[Event] = []
        self._eager = eager

    def add(self, event: Event) -> None:
        """Note an event, unless it is one that is not wanted."""
        if self._eager or not event.eager:
            self.events.append(event)

    def _of(self, kind: EventKind) -> list[Event]:
        return [event for event in list(self.events) if event.kind is kind]

    @property
    def traces(self) -> list[Event]:
        """The traces."""
        return self._of(EventKind.TRACE)

    @property
    def lowerings(self) -> list[Event]:
        """The lowerings."""
        return self._of(EventKind.LOWERING)

    @property
    def compiles(self) -> list[Event]:
        """The compiles, those that the persistent compilation cache answered included."""
        return self._of(EventKind.COMPILE)

    @property
    def cache_hits(self) -> list[Event]:
        """The compiles that the persistent compilation cache answered."""
        return [event for event in self.compiles if event.cached]

    @property
    def seconds(self) -> float:
        """How long all of it took."""
        return sum(event.seconds for event in list(self.events))

    def of(self, function: Callable[..., Any] | str) -> list[Event]:
        """Return the events of one function, or of all functions of one name."""
        return [event for event in list(self.events) if is_of(event, function)]

    def __len__(self) -> int:
        """Return how many events there are."""
        return len(self.events)

    def __iter__(self) -> Iterator[Event]:
        """Iterate over the events so far."""
        return iter(list(self.events))

    def __str__(self) -> str:
        """Return the counts, and a line for each event."""
        counts = ", ".join(count_of(len(self._of(kind)), kind) for kind in EventKind)
        lines = [f"{counts} ({len(self.cache_hits)} from the cache)", *map(str, self)]
        return "\n".join(lines).replace("\n", "\n  ")


def is_of(event: Event, function: Callable[..., Any] | str) -> bool:
    """Whether an event belongs to a function, or to a function of that name."""
    if isinstance(function, str):
        names = {event.name, getattr(_plain(event.fun), "__qualname__", event.name)}
        return function in names
    wanted = _plain(function)
    if event.fun is None:  # JAX said its name only
        return event.name == getattr(wanted, "__name__", None)
    return jax_equal(_plain(event.fun), wanted) is True  # whose `==` may raise


def _plain(function: Any) -> Any:
    """Return the function that was written, behind decorators and partials."""
    for _ in range(_DEEPEST):
        inner = getattr(function, "__wrapped__", getattr(function, "func", None))
        if inner is None:
            break
        function = inner
    return function


_DEEPEST = 100


class watch:  # noqa: N801  # a context manager, used like a function
    """Count the traces, lowerings and compiles of every jitted function, in a block.

    Counts all threads; each event names its own. Functions under `leafwise.jit` come with
    explanations. Blocks can be nested, and used on several threads at once.

    Args:
        eager: Whether operations of JAX itself count, such as ``jnp.ones(3)`` outside any
            jitted function.

    Example:
        >>> with watch() as log:
        ...     jax.jit(lambda x: x + 1)(1.0)  # doctest: +SKIP
        >>> len(log.traces), len(log.compiles)  # doctest: +SKIP
        (1, 1)
    """

    def __init__(self, *, eager: bool = True) -> None:
        """Get ready; nothing is counted before the block begins."""
        self._eager = eager
        self._logs: list[Log] = []

    def __enter__(self) -> Log:
        """Begin to count."""
        log = Log(eager=self._eager)
        self._logs.append(log)
        watch_events(log.add)
        return log

    def __exit__(self, *_: object) -> None:
        """Stop counting."""
        unwatch_events(self._logs.pop().add)


class budget(ContextDecorator):  # noqa: N801  # as above
    """Allow only so many traces, lowerings and compiles in a block, or in each call of a function.

    Args:
        traces: How many traces are allowed; None for any number.
        lowerings: How many lowerings.
        compiles: How many compiles, those that the persistent cache answers included: what
            is on disk does not decide whether a test passes.
        of: Count one function only: the jitted function, the function that was jitted, or
            the name. By default all of them count.
        strict: Whether to raise at once, in the call that is over the budget, rather than at
            the end of the block.
        eager: Whether operations of JAX itself count, such as ``jnp.ones(3)`` outside any
            jitted function.

    Raises:
        RetraceError: (on leaving, or at once) There were more; it names each event that is
            over the budget, the calling line, and for functions under `leafwise.jit` why.
        TypeError: A number is not an integer of 0 or more, or `of` is no function or name.

    Example:
        >>> with budget(traces=1, compiles=1, of="step"):
        ...     for batch in batches:
        ...         state = step(state, batch)  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        traces: int | None = None,
        lowerings: int | None = None,
        compiles: int | None = None,
        of: Callable[..., Any] | str | None = None,
        strict: bool = False,
        eager: bool = True,
    ) -> None:
        """Get ready; nothing is counted before the block begins."""
        self._allowed = {
            EventKind.TRACE: checked_number("budget(traces=...)", traces),
            EventKind.LOWERING: checked_number("budget(lowerings=...)", lowerings),
            EventKind.COMPILE: checked_number("budget(compiles=...)", compiles),
        }
        self._function = checked_function("budget", of)
        self._strict = strict
        self._eager = eager
        self._here = _EnteredBlocks()

    def __enter__(self) -> Log:
        """Begin to count."""
        log = Log(eager=self._eager)

        def count(event: Event) -> None:
            if self._function is None or is_of(event, self._function):
                log.add(event)
                # An exception from a lowering leaves JAX without the program it lowered, for
                # good; the compile comes next.
                if self._strict and event.kind is not EventKind.LOWERING:
                    self._settle(log)

        self._here.entered.append((log, count))
        watch_events(count)
        return log

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop counting, and raise if there was more than is allowed."""
        __tracebackhide__ = True
        log, count = self._here.entered.pop()
        unwatch_events(count)
        if error is None:
            self._settle(log)

    def _settle(self, log: Log) -> None:
        __tracebackhide__ = True
        over: list[Event] = []
        counts: list[str] = []
        for kind, allowed in self._allowed.items():
            events = [event for event in list(log.events) if event.kind is kind]
            if allowed is not None and len(events) > allowed:
                counts.append(f"{count_of(len(events), kind)}, {allowed} allowed")
                over += events[allowed:]
        if not over:
            return
        problem = f"over budget{whose(self._function)}: {'; '.join(counts)}"
        raise retrace_error(problem, over)


class _EnteredBlocks(threading.local):
    """The blocks of one budget that one thread is in."""

    def __init__(self) -> None:
        self.entered: list[tuple[Log, Callable[[Event], None]]] = []


_SHOWN = 20


def retrace_error(problem: str, events: list[Event]) -> RetraceError:
    """Return the error that tells of some events, with the explanations that they have."""
    lines = [problem, *(str(event).replace("\n", "\n  ") for event in events[:_SHOWN])]
    lines += [f"... and {len(events) - _SHOWN} more"] if len(events) > _SHOWN else []
    why = tuple(event.explanation for event in events if event.explanation is not None)
    return RetraceError("\n  ".join(lines), why)


def count_of(count: int, kind: EventKind) -> str:
    """Return ``1 trace``, ``2 traces``."""
    return f"{count} {kind}" if count == 1 else f"{count} {kind}s"


def whose(function: Callable[..., Any] | str | None) -> str:
    """Return `` of step``; nothing where all functions count."""
    return "" if function is None else f" of {getattr(function, '__qualname__', function)}"


def checked_number(what: str, number: int | None) -> int | None:
    """Return a number of 0 or more, or None.

    Raises:
        TypeError: It is something else.
    """
    given: object = number
    wrong = not isinstance(given, int) or isinstance(given, bool) or given < 0
    if given is not None and wrong:
        msg = f"{what} takes a number of 0 or more, or None, got {got(given)}"
        raise TypeError(msg)
    return number


def checked_function(
    who: str, function: Callable[..., Any] | str | None
) -> Callable[..., Any] | str | None:
    """Return a function, a name, or None.

    Raises:
        TypeError: It is something else.
    """
    given: object = function
    if not (given is None or isinstance(given, str) or callable(given)):
        msg = f"{who}(of=...) takes a function or a name, got {got(given)}"
        raise TypeError(msg)
    return function


def no_retrace(
    *, of: Callable[..., Any] | str | None = None, strict: bool = False, eager: bool = True
) -> budget:
    """Allow no trace, no lowering and no compile in a block: a budget of zero.

    Recompiles without a trace, of arrays that are committed to a device, are seen too.

    Args:
        of: As for `budget`.
        strict: As for `budget`.
        eager: As for `budget`.

    Raises:
        RetraceError: (on leaving, or at once) There was one.

    Example:
        >>> step(state, batch)  # doctest: +SKIP
        >>> with no_retrace(of=step):
        ...     step(state, next_batch)  # doctest: +SKIP
    """
    return budget(traces=0, lowerings=0, compiles=0, of=of, strict=strict, eager=eager)
