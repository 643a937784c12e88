"""The budgets of a test's markers, and the log of the fixture `leafwise_traces`."""

import contextlib
import difflib
import sys
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, NamedTuple

import pytest

from leafwise._jit.recorder import Event, unwatch_events, watch_events
from leafwise._jit.watch import Budget, Log, budget, watch
from leafwise.errors import RetraceError

Of = Callable[..., Any] | str | None
Most = int | None


class Limit(NamedTuple):
    nodeid: str
    allowed: dict[str, Most]
    of: Of
    marker: str


class UnknownNameError(AssertionError):
    """A marker misspells the name of a function."""


@contextlib.contextmanager
def budgets_of(
    marks: list[tuple[str, pytest.Mark]], on_error: Callable[[AssertionError], None]
) -> Generator[None, None, None]:
    """Enforce a test's budgets; if the test itself fails, its own error is reported."""
    running: list[tuple[Budget, list[Limit]]] = []
    for group in _groups(marks):
        allowed = {events: limit.allowed[events] for events, limit in group.items()}
        limits = [*{limit.marker: limit for limit in group.values()}.values()]
        running.append((leafwise_budget(**allowed, of=limits[0].of), limits))
    with watch() as log:
        for counter, _ in running:
            counter.__enter__()
        try:
            yield
        except BaseException:  # of the test
            for counter, _ in running:
                counter.__exit__(*sys.exc_info())
            raise
    error = _over(running) or _misspelt(log, [limit for _, limits in running for limit in limits])
    if error is not None:
        on_error(error)
        raise error


def _groups(marks: list[tuple[str, pytest.Mark]]) -> list[dict[str, Limit]]:
    """Group the limits by the functions they count; the closest marker wins for each event."""
    groups: dict[object, dict[str, Limit]] = {}
    for nodeid, mark in marks:
        limit = _limit_of(nodeid, mark)
        group = groups.setdefault(id(limit.of) if callable(limit.of) else limit.of, {})
        for events in limit.allowed:
            # The marker above another one, or on a parameter set, comes later.
            if group.setdefault(events, limit).nodeid == nodeid:
                group[events] = limit
    return [*groups.values()]


def _over(running: list[tuple[Budget, list[Limit]]]) -> RetraceError | None:
    """Stop counting, and return an error if a budget was exceeded."""
    messages: list[str] = []
    explanations: list[Any] = []
    for counter, limits in running:
        try:
            counter.__exit__(None, None, None)
        except RetraceError as error:
            messages += [error.message, *(f"  allowed by {limit.marker}" for limit in limits)]
            explanations += error.explanations
    return RetraceError("\n".join(messages), tuple(explanations)) if messages else None


def leafwise_budget(*, traces: Most = None, compiles: Most = None, of: Of = None) -> Budget:
    """Return the budget of a marker; JAX's own operations count only if it names them."""
    return budget(traces=traces, compiles=compiles, of=of, eager=callable(of))


def _limit_of(nodeid: str, mark: pytest.Mark) -> Limit:
    """Return the limit from a marker; raise TypeError if its arguments are wrong."""
    named = [f"{name}={_name_of(value)}" for name, value in mark.kwargs.items()]
    marker = f"@pytest.mark.{mark.name}({', '.join([*map(_name_of, mark.args), *named])})"
    allowed = dict(mark.kwargs)
    of = allowed.pop("of", None)
    try:
        leafwise_budget(*mark.args, **mark.kwargs)
        problem = "" if allowed else "neither traces= nor compiles= is given"
    except TypeError as error:
        problem = str(error)
    if problem:
        raise TypeError(f"{marker}: {problem}; write {mark.name}(traces=1, of='step')")
    return Limit(nodeid, allowed, of, f"{marker} on {nodeid}" if nodeid else marker)


def _name_of(value: object) -> str:
    return str(getattr(value, "__qualname__", None) or repr(value))


_TRACED: Final[set[str]] = set()
"""Names of functions that were traced in this process."""


def _misspelt(events: Iterable[Event], limits: list[Limit]) -> UnknownNameError | None:
    """Return an error if a marker's name is close to, but not, the name of a traced function."""
    # Other unknown names pass: a function with a cache hit, or that is not called, has no events.
    for event in events:
        qualified = getattr(event.fun, "__qualname__", None)
        _TRACED.update({event.name, qualified if isinstance(qualified, str) else event.name})
    problems: list[str] = []
    for limit in limits:
        name = limit.of
        if not isinstance(name, str) or name in _TRACED:
            continue
        near = difflib.get_close_matches(name, sorted(_TRACED), n=1, cutoff=0.8)
        if near and not any(name in vars(module) for module in [*sys.modules.values()]):
            problem = f"no function named {name!r} was traced; did you mean {near[0]!r}?"
            problems.append(f"{limit.marker}: {problem}")
    return UnknownNameError("\n".join(problems)) if problems else None


def watch_in(blocks: contextlib.ExitStack, log: Log) -> None:
    watch_events(log.add)
    blocks.callback(unwatch_events, log.add)


_MOST: Final = 50


def text_of(log: Log) -> str:
    lines = [str(log).split("\n")[0], *map(str, log.events[:_MOST])]
    lines += [f"... and {len(log) - _MOST} more"] * (len(log) > _MOST)
    return "\n".join(lines).replace("\n", "\n  ")
