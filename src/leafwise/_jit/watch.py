"""Counts of JAX's traces, lowerings and compiles in a block, and budgets for them."""

import functools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn

from leafwise._findings.findings import in_programs
from leafwise._findings.words import count
from leafwise._jax.events import EventKind
from leafwise._jit.recorder import Event, unwatch_events, watch_events
from leafwise._objects.source.code import Block
from leafwise._objects.text import got
from leafwise._objects.wrong_arguments import named
from leafwise._trees.equality import jax_equal
from leafwise.errors import RetraceError

_COUNTED: Final = ("traces", "lowerings", "compiles")
"""What a log counts, by the names of its properties and of the arguments of a budget."""


class Log:
    """The events of a block, in order; it grows until the block ends.

    Attributes:
        events: All of them.
    """

    def __init__(self, *, eager: bool) -> None:
        self.events: list[Event] = []
        self._eager = eager

    def add(self, event: Event) -> None:
        """Add an event, unless it is an operation of JAX itself and those are left out."""
        if self._eager or not event.eager:
            self.events.append(event)

    def _of_kind(self, kind: EventKind) -> list[Event]:
        return [event for event in self if event.kind is kind]

    @property
    def traces(self) -> list[Event]:
        """The traces."""
        return self._of_kind(EventKind.TRACE)

    @property
    def lowerings(self) -> list[Event]:
        """The lowerings."""
        return self._of_kind(EventKind.LOWERING)

    @property
    def compiles(self) -> list[Event]:
        """The compiles, including those that the persistent compilation cache answered."""
        return self._of_kind(EventKind.COMPILE)

    @property
    def cache_hits(self) -> list[Event]:
        """The compiles that the persistent compilation cache answered."""
        return [event for event in self.compiles if event.cached]

    @property
    def cache_misses(self) -> list[Event]:
        """The compiles that the cache did not answer; `Event.miss` says why. Empty if it is off."""
        return [event for event in self.compiles if event.miss]

    @property
    def seconds(self) -> float:
        """The total time of all events."""
        return sum(event.seconds for event in self)

    def of(self, function: Callable[..., Any] | str) -> list[Event]:
        """Return the events of one function, or of all functions with one name."""
        return [event for event in self if is_of(event, function)]

    def __len__(self) -> int:
        """Return how many events there are."""
        return len(self.events)

    def __iter__(self) -> Iterator[Event]:
        """Iterate over the events so far."""
        return iter(list(self.events))  # a copy: other threads add to it

    def __str__(self) -> str:
        """Return the counts, and a line for each event."""
        counts = ", ".join(_format_count(self, name) for name in _COUNTED)
        hits, misses = len(self.cache_hits), len(self.cache_misses)
        if hits or misses:
            counts += f" (persistent cache: {count(hits, 'hit')}, {misses} missed)"
        return "\n".join([counts, *map(str, self)]).replace("\n", "\n  ")


def _format_count(log: Log, name: str) -> str:
    return count(len(getattr(log, name)), name.removesuffix("s"))


def is_of(event: Event, function: Callable[..., Any] | str) -> bool:
    """Return whether an event belongs to a function, or to a function with that name."""
    if isinstance(function, str):
        names = {event.name, getattr(unwrapped(event.fun), "__qualname__", event.name)}
        return function in names
    wanted = unwrapped(function)
    if event.fun is None:  # JAX reported its name only
        return event.name == getattr(wanted, "__name__", None)
    return jax_equal(unwrapped(event.fun), wanted) is True  # the user's `==` may raise


def unwrapped(function: Any) -> Any:
    """Return the function as written, without its decorators and partials."""
    for _ in range(100):  # `__wrapped__` may lead back to its start
        inner = getattr(function, "__wrapped__", getattr(function, "func", None))
        if inner is None:
            break
        function = inner
    return function


class Watch:
    """A block whose events are counted, made by `watch`; entering it returns the `Log`."""

    def __init__(self, *, eager: bool) -> None:
        self._eager = eager
        # By thread, as several may be in the block at once.
        self._entered = defaultdict[int, list[tuple[Log, Callable[[Event], None]]]](list)

    def __enter__(self) -> Log:
        """Begin to count."""
        log = Log(eager=self._eager)
        add = functools.partial(self._add, log)
        self._entered[threading.get_ident()].append((log, add))
        watch_events(add)
        return log

    if not TYPE_CHECKING:  # checkers report the attribute

        def __getattr__(self, name: str) -> NoReturn:
            """Raise; what is counted are attributes of the `Log`."""
            what = f"{type(self).__name__!r} object has no attribute {name!r}"
            if hasattr(Log, name) or name == "events":
                what += f": enter it, `with ... as log:`, and read `log.{name}`"
            raise AttributeError(what)

    def _add(self, log: Log, event: Event) -> None:
        log.add(event)

    def __exit__(self, *_: object) -> None:
        """Stop counting."""
        self._leave()

    def _leave(self) -> Log:
        log, add = self._entered[threading.get_ident()].pop()
        unwatch_events(add)
        return log


@named
def watch(*, eager: bool = True) -> Watch:
    """Count the traces, lowerings and compiles of every jitted function, in a block.

    It covers all threads; each event names its own. Functions under `leafwise.jit` come with
    explanations. Blocks can be nested, and used on several threads at once.

    Args:
        eager: Whether operations of JAX itself count, such as ``jnp.ones(3)`` outside any
            jitted function.

    Examples:
        >>> with watch() as log:
        ...     jax.jit(lambda x: x + 1)(1.0)  # doctest: +SKIP
        >>> len(log.traces), len(log.compiles)  # doctest: +SKIP
        (1, 1)
    """
    return Watch(eager=eager)


class Budget(Watch, Block):
    """A block, or the calls of a function, with limits on what JAX does in it; made by `budget`."""

    _code = "budget(...)"

    def __init__(
        self,
        allowed: dict[str, int],
        function: Callable[..., Any] | str | None,
        *,
        exact: bool,
        raise_at_once: bool,
        eager: bool,
    ) -> None:
        super().__init__(eager=eager)
        self._allowed = allowed
        self._function = function
        self._exact = exact
        self._raises_at_once = raise_at_once

    def _add(self, log: Log, event: Event) -> None:
        if self._function is None or is_of(event, self._function):
            log.add(event)
            # An exception from a lowering leaves JAX without the program it lowered, for good;
            # the compile comes next.
            if self._raises_at_once and event.kind is not EventKind.LOWERING:
                self._raise_if_over(log)

    def __exit__(self, *error: object) -> None:
        """Stop counting, and raise if there was more than is allowed."""
        __tracebackhide__ = True
        log = self._leave()
        if error[0] is None:
            self._raise_if_over(log, ended=True)

    def _raise_if_over(self, log: Log, *, ended: bool = False) -> None:
        __tracebackhide__ = True
        shown: list[Event] = []
        counts: list[str] = []
        problem = "under budget"
        for name, allowed in self._allowed.items():
            events: list[Event] = getattr(log, name)
            if len(events) > allowed:
                problem = "over budget"
            elif len(events) == allowed or not (self._exact and ended):
                continue
            wanted = f"exactly {allowed} expected" if self._exact else f"{allowed} allowed"
            counts.append(f"{_format_count(log, name)}, {wanted}")
            shown += events if self._exact else events[allowed:]
        if not counts:
            return
        function = self._function
        if function is not None:
            problem += f" of {getattr(function, '__qualname__', function)}"
        problem += f": {'; '.join(counts)}"
        over = set(map(id, shown))
        every: list[list[Event]] = in_programs(
            sorted(log, key=lambda event: event.time),
            lambda event: (event.thread_id, event.name, event.eager, event.site),
        )
        calls = [call for call in every if not over.isdisjoint(map(id, call))]
        calls.sort(key=lambda call: call[0].eager)  # operations of JAX itself come last
        lines = [problem, *(_format_call(call, over) for call in calls[:_MOST_SHOWN])]
        if len(calls) > _MOST_SHOWN:
            lines.append(f"... and {len(calls) - _MOST_SHOWN} more")
        reasons = [event.explanation for call in calls for event in call]
        why = {id(reason): reason for reason in reasons if reason is not None}
        if not why and any(not event.eager and event.program is None for event in shown):
            lines.append("for the reason, use `lw.jit` instead of `jax.jit`, or `leafwise explain`")
        raise RetraceError("\n  ".join(lines), tuple(why.values()))


_MOST_SHOWN: Final = 20


def _format_call(call: list[Event], shown: set[int]) -> str:
    first = call[0]
    *most, last = [event.kind.value for event in call if id(event) in shown]
    line = f"{', '.join(most)} and {last}" if most else last
    line += f" of {first.name}"
    line += f" from {first.site}" if first.site is not None else ""
    why = next((event.explanation for event in call if event.explanation is not None), None)
    return line if why is None else f"{line}: {why}".replace("\n", "\n  ")


@named
def budget(
    *,
    traces: int | None = None,
    lowerings: int | None = None,
    compiles: int | None = None,
    of: Callable[..., Any] | str | None = None,
    exact: bool = False,
    raise_at_once: bool = False,
    eager: bool = True,
) -> Budget:
    """Limit the traces, lowerings and compiles in a block, or in each call of a function.

    Args:
        traces: How many traces are allowed; None for any number.
        lowerings: How many lowerings.
        compiles: How many compiles, including those that the persistent cache answers, so that a
            test does not depend on what is on disk.
        of: Count one function only: the jitted function, the function that was jitted, or
            the name. By default, all functions count.
        exact: Whether fewer are an error, too, at the end of the block.
        raise_at_once: Whether to raise in the call that goes over the budget, rather than at the
            end of the block.
        eager: Whether operations of JAX itself count, such as ``jnp.ones(3)`` outside any
            jitted function.

    Raises:
        RetraceError: (on leaving, or at once) There were more, or fewer with `exact`; it names each
            event that is over the budget, the calling line, and the reason for functions under
            `leafwise.jit`.
        TypeError: A number is not an integer of 0 or more, `exact` has no number to compare
            with, or `of` is not a function or a name; or (as a decorator) a generator or a
            coroutine function is decorated, which would run outside the block.

    Examples:
        >>> with budget(traces=1, compiles=1, of="step"):
        ...     for batch in batches:
        ...         state = step(state, batch)  # doctest: +SKIP
    """
    numbers: dict[str, Any] = dict(zip(_COUNTED, (traces, lowerings, compiles), strict=True))
    allowed = {name: number for name, number in numbers.items() if number is not None}
    for name, number in allowed.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise TypeError(
                f"budget({name}=...) takes a number of 0 or more, or None, got {got(number)}"
            )
    if exact and not allowed:
        raise TypeError(
            "budget(exact=True) has no number to compare with\n"
            "  fix: give one, as in budget(traces=1, exact=True)"
        )
    given: object = of
    if not (given is None or isinstance(given, str) or callable(given)):
        raise TypeError(f"budget(of=...) takes a function or a name, got {got(given)}")
    return Budget(allowed, of, exact=exact, raise_at_once=raise_at_once, eager=eager)


@named
def no_retrace(
    *, of: Callable[..., Any] | str | None = None, raise_at_once: bool = False, eager: bool = True
) -> Budget:
    """Allow no trace, no lowering and no compile in a block: a budget of zero.

    Recompiles without a trace, such as those for committed arrays, count, too.

    Args:
        of: As for `budget`.
        raise_at_once: As for `budget`.
        eager: As for `budget`.

    Raises:
        RetraceError: (on leaving, or at once) There was one.

    Examples:
        >>> step(state, batch)  # doctest: +SKIP
        >>> with no_retrace(of=step):
        ...     step(state, next_batch)  # doctest: +SKIP
    """
    return budget(
        traces=0, lowerings=0, compiles=0, of=of, raise_at_once=raise_at_once, eager=eager
    )
