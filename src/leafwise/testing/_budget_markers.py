"""What is watched while one test runs: its budgets, and the log of `leafwise_traces`."""

import contextlib
import difflib
import inspect
import sys
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, NamedTuple

import pytest

from leafwise._jit.recorder import Event, unwatch_events, watch_events
from leafwise._jit.watch import Budget, Log, budget, watch
from leafwise.errors import RetraceError

Of = Callable[..., Any] | str | None


class Allowance(NamedTuple):
    """What one marker allows."""

    events: str
    most: int
    of: Of
    marker: str


class UnknownNameError(AssertionError):
    """A marker names a function that is written in another way."""


@contextlib.contextmanager
def budgets_of(
    marks: list[tuple[str, pytest.Mark]], on_error: Callable[[AssertionError], None]
) -> Generator[None, None, None]:
    """Hold a test to its budgets; if it fails itself, that is what is reported."""
    running: list[tuple[Budget, list[Allowance]]] = []
    for group in _groups(marks):
        counted: dict[str, Any] = {allowance.events: allowance.most for allowance in group}
        of = group[0].of
        # An operation of JAX itself counts if the marker names it.
        running.append((budget(**counted, of=of, eager=callable(of)), group))
    with watch() as log:
        for counter, _ in running:
            counter.__enter__()
        try:
            yield
        except BaseException:
            for counter, _ in running:
                counter.__exit__(*sys.exc_info())
            raise
    error = _over(running) or _misspelt(log, [limit for _, group in running for limit in group])
    if error is not None:
        on_error(error)
        raise error


def _groups(marks: list[tuple[str, pytest.Mark]]) -> list[list[Allowance]]:
    """Return what holds, by what it counts: of each kind of event that of the closest marker."""
    groups: dict[object, dict[str, tuple[str, Allowance]]] = {}
    for nodeid, mark in marks:
        allowance = _allowance_of(nodeid, mark)
        of, events = allowance.of, allowance.events
        group = groups.setdefault(id(of) if callable(of) else of, {})
        # A marker on top of another, or on a parameter set, comes behind it.
        if group.setdefault(events, (nodeid, allowance))[0] == nodeid:
            group[events] = nodeid, allowance
    return [[allowance for _, allowance in group.values()] for group in groups.values()]


def _over(running: list[tuple[Budget, list[Allowance]]]) -> RetraceError | None:
    """Stop counting, and return what is over the budgets."""
    messages: list[str] = []
    explanations: list[Any] = []
    for counter, group in running:
        try:
            counter.__exit__(None, None, None)
        except RetraceError as error:
            messages += [error.message, *(f"  allowed by {limit.marker}" for limit in group)]
            explanations += error.explanations
    return RetraceError("\n".join(messages), tuple(explanations)) if messages else None


def _marker(n: int, *, of: Of = None) -> None: ...


def _allowance_of(nodeid: str, mark: pytest.Mark) -> Allowance:
    """Return what one marker allows; TypeError if it is written in another way."""
    named = [f"{name}={_name_of(value)}" for name, value in mark.kwargs.items()]
    marker = f"@pytest.mark.{mark.name}({', '.join([*map(_name_of, mark.args), *named])})"
    try:
        args: dict[str, Any] = inspect.signature(_marker).bind(*mark.args, **mark.kwargs).arguments
    except TypeError as error:
        raise TypeError(f"{marker}: {error}; write {mark.name}(1, of='step')") from None
    on = f" on {nodeid}" if nodeid else ""
    events = mark.name.removeprefix("max_")
    return Allowance(events, args["n"], args.get("of"), f"{marker}{on}")


def _name_of(value: object) -> str:
    return str(getattr(value, "__qualname__", None) or repr(value))


_TRACED: Final[set[str]] = set()
"""Names of functions that were traced in this process."""


def _misspelt(events: Iterable[Event], allowances: list[Allowance]) -> UnknownNameError | None:
    """Return an error for a name that is not, but nearly, that of a function that was traced.

    A function that is warm, or is rightly not called, has no events, so that other names pass.
    """
    for event in events:
        qualified = getattr(event.fun, "__qualname__", None)
        _TRACED.update({event.name, qualified if isinstance(qualified, str) else event.name})
    problems: list[str] = []
    for allowance in allowances:
        name = allowance.of
        if not isinstance(name, str) or name in _TRACED:
            continue
        near = difflib.get_close_matches(name, sorted(_TRACED), n=1, cutoff=0.8)
        if near and not any(name in vars(module) for module in [*sys.modules.values()]):
            problem = f"no function named {name!r} was traced; did you mean {near[0]!r}?"
            problems.append(f"{allowance.marker}: {problem}")
    return UnknownNameError("\n".join(problems)) if problems else None


@contextlib.contextmanager
def watching(log: Log) -> Generator[None, None, None]:
    """Add to a log what happens in a block."""
    watch_events(log.add)
    try:
        yield
    finally:
        unwatch_events(log.add)


_MOST = 50


def text_of(log: Log) -> str:
    """Return a log as a section of a test's report."""
    text = [str(log).split("\n")[0]]
    text += ["  " + str(event).replace("\n", "\n  ") for event in log.events[:_MOST]]
    if len(log) > _MOST:
        text.append(f"  ... and {len(log) - _MOST} more")
    return "\n".join(text)
