"""What is watched while one test runs: budgets, the log of `traces`, and captures."""

import contextlib
import difflib
import sys
from collections.abc import Callable, Generator, Iterable
from types import TracebackType
from typing import Any, Final, NamedTuple

import pytest

from leafwise._jit.blocks import CaptureChecks, checked_action, switch_block
from leafwise._jit.recorder import Event, unwatch_events, watch_events
from leafwise._jit.watch import Log, budget, watch
from leafwise._objects.text import got
from leafwise.errors import RetraceError

Of = Callable[..., Any] | str | None


class Allowance(NamedTuple):
    """What one marker allows."""

    events: str
    most: int
    of: Of
    marker: str


class Budgets:
    """The budgets of one test, while it runs."""

    def __init__(self, marks: list[tuple[str, pytest.Mark]]) -> None:
        closest: dict[tuple[str, object], tuple[str, Allowance]] = {}
        self.problem = ""
        for nodeid, mark in marks:
            try:
                allowance = allowance_of(nodeid, mark)
            except ValueError as error:
                self.problem = str(error)
                continue
            key = allowance.events, _identity(allowance.of)
            # A marker on top of another, or on a parameter set, comes behind it.
            if closest.setdefault(key, (nodeid, allowance))[0] == nodeid:
                closest[key] = nodeid, allowance
        self._groups: dict[object, list[Allowance]] = {}
        for (_, identity), (_, allowance) in closest.items():
            self._groups.setdefault(identity, []).append(allowance)
        self._running: list[tuple[budget, list[Allowance]]] = []
        self._watch = watch()
        self._log = Log(eager=True)

    def __enter__(self) -> None:
        self._log = self._watch.__enter__()
        for group in self._groups.values():
            counted: dict[str, Any] = {each.events: each.most for each in group}
            of = group[0].of
            # An operation of JAX itself counts if the marker names it.
            running = budget(**counted, of=of, eager=callable(of))
            running.__enter__()
            self._running.append((running, group))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop counting if the test failed: its own failure is reported, not a budget's."""
        if kind is not None:
            for running, _ in reversed(self._running):
                running.__exit__(kind, error, traceback)
            self._watch.__exit__()

    def settle(self) -> None:
        """Stop counting."""
        messages: list[str] = []
        explanations: list[Any] = []
        for running, group in reversed(self._running):
            try:
                running.__exit__(None, None, None)
            except RetraceError as error:
                lines = [f"  allowed by {each.marker}" for each in group]
                messages.insert(0, "\n".join([error.message, *lines]))
                explanations[:0] = error.explanations
        self._watch.__exit__()
        add_names(self._log.events)
        if messages:
            raise RetraceError("\n".join(messages), tuple(explanations))
        names = {each.of: each for group in self._groups.values() for each in group}
        problems = [
            f"{each.marker}: {problem}"
            for name, each in names.items()
            if isinstance(name, str) and (problem := unknown_name(name))
        ]
        if problems:
            raise UnknownNameError("\n".join(problems))


def allowance_of(nodeid: str, mark: pytest.Mark) -> Allowance:
    """Return what one marker allows."""
    named = [f"{name}={_name_of(value)}" for name, value in mark.kwargs.items()]
    given = ", ".join([*map(_name_of, mark.args), *named])
    marker = f"@pytest.mark.{mark.name}({given})"
    wanted = f"it takes a number and a function or its name: {mark.name}(1, of='step')"
    extra = [name for name in mark.kwargs if name not in ("n", "of")]
    if extra or len(mark.args) > 1 or ("n" in mark.kwargs) + len(mark.args) != 1:
        raise ValueError(f"{marker}: {wanted}")
    most: object = mark.args[0] if mark.args else mark.kwargs["n"]
    of: Any = mark.kwargs.get("of")
    if not isinstance(most, int) or isinstance(most, bool) or most < 0:
        raise ValueError(f"{marker}: n is a number of 0 or more, got {got(most)}")
    if not (of is None or (isinstance(of, str) and of.strip()) or callable(of)):
        raise ValueError(f"{marker}: of is a function or its name, got {got(of)}")
    marker += f" on {nodeid}" if nodeid else ""
    return Allowance(mark.name.removeprefix("max_"), most, of, marker)


def _identity(of: Of) -> object:
    return of if isinstance(of, str) or of is None else id(of)


def _name_of(value: object) -> str:
    return str(getattr(value, "__qualname__", None) or repr(value))


_TRACED: Final[set[str]] = set()
"""Names of functions that were traced in this process."""


def add_names(events: Iterable[Event]) -> None:
    for event in events:
        qualified = getattr(event.fun, "__qualname__", None)
        _TRACED.update({event.name, qualified if isinstance(qualified, str) else event.name})


def unknown_name(name: str) -> str:
    """Return the message for a name that is misspelt: one was traced that is nearly the same.

    A function that is warm, or is rightly not called, has no events, so that other names pass.
    """
    near = difflib.get_close_matches(name, sorted(_TRACED), n=1, cutoff=0.8)
    if name in _TRACED or not near or any(name in vars(each) for each in [*sys.modules.values()]):
        return ""
    return f"no function named {name!r} was traced; did you mean {near[0]!r}?"


class UnknownNameError(AssertionError):
    """A marker names a function that is written in another way."""


def new_log() -> Log:
    """Return a log that leaves out the operations of JAX itself."""
    return Log(eager=False)


def start(log: Log) -> None:
    watch_events(log.add)


def stop(log: Log) -> None:
    unwatch_events(log.add)


_MOST = 50


def text_of(log: Log) -> str:
    """Return a log as a section of a test's report."""
    lines = str(log).split("\n")
    text = [
        lines[0],
        *("  " + str(event).replace("\n", "\n  ") for event in log.events[:_MOST]),
    ]
    if len(log) > _MOST:
        text.append(f"  ... and {len(log) - _MOST} more")
    return "\n".join(text)


@contextlib.contextmanager
def checks_of(nodeid: str, mark: pytest.Mark) -> Generator[None, None, None]:
    """Check captures while a test runs, as the marker `check_captures` says.

    Captures that cannot be compared do not warn here: the test is not about them.
    """
    try:
        action = _action(*mark.args, **mark.kwargs)
    except (TypeError, ValueError) as error:
        wrong = str(error).replace("_action()", "it")
        given = [repr(each) for each in mark.args]
        given += [f"{name}={value!r}" for name, value in mark.kwargs.items()]
        pytest.fail(f"{nodeid}: check_captures({', '.join(given)}): {wrong}", pytrace=False)
    block = CaptureChecks(checked_action(action, "check_captures"))
    switch_block(block, is_on=True)
    try:
        yield
    finally:
        switch_block(block, is_on=False)


def _action(stale: str = "raise") -> str:
    return checked_action(stale, "the marker check_captures")
