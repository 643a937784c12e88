"""How often each function was traced and compiled in a run of pytest, and by which tests."""

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leafwise._display.findings import Interval, covered
from leafwise._jax.events import EventKind
from leafwise._jit.recorder import Event, unwatch_events, watch_events

_COLUMNS = {
    EventKind.TRACE: "traces",
    EventKind.LOWERING: "lowerings",
    EventKind.COMPILE: "compiles",
}


class Recorder:
    """Counts events from its construction on."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._functions: dict[tuple[str, str, int, bool], dict[str, Any]] = {}
        self._tests: dict[str, dict[str, Any]] = {}
        self._test: dict[str, Any] | None = None
        self._intervals: list[Interval] = []
        self._seconds = 0.0
        self._counts = True
        watch_events(self._add)

    def begin(self, nodeid: str, *, counts: bool) -> None:
        """Begin a test, without counting if it is not the user's."""
        self._add_seconds()
        self._counts = counts
        self._test = None
        if counts:
            self._test = self._tests.setdefault(nodeid, {"nodeid": nodeid, **_zeros()})

    def end(self) -> None:
        """End the test that was begun last."""
        self._add_seconds()
        self._test, self._counts = None, True

    def finish(self) -> dict[str, Any]:
        """Stop counting, and return what was counted as plain values."""
        unwatch_events(self._add)
        self._add_seconds()
        tests = [row for row in self._tests.values() if row["seconds"]]
        return {
            "functions": list(self._functions.values()),
            "tests": tests,
            "seconds": self._seconds,
        }

    def _add_seconds(self) -> None:
        """Add the seconds that JAX was busy: a trace inside another counts once."""
        intervals, self._intervals = self._intervals, []
        seconds = covered(intervals)
        self._seconds += seconds
        if self._test is not None:
            self._test["seconds"] += seconds

    def _add(self, event: Event) -> None:
        if not self._counts:
            return
        file, line = ("", 0) if event.eager else self._place(event.fun)
        name = "(operations of JAX itself)" if event.eager else event.name
        key = name, file, line, event.eager
        row = self._functions.get(key)
        if row is None:
            known = {"name": name, "file": file, "line": line, "eager": event.eager}
            row = self._functions.setdefault(key, {**known, **_zeros()})
        row["seconds"] += event.seconds
        self._intervals.append((event.time - event.seconds, event.time))
        for each in (row, self._test):
            if each is not None:
                each[_COLUMNS[event.kind]] += 1
                each["cache_hits"] += event.cached

    def _place(self, fun: Callable[..., Any] | None) -> tuple[str, int]:
        """Return file and line of a function, as far as they are known."""
        plain: Any = fun
        while isinstance(plain, functools.partial):
            plain = plain.func
        code = getattr(inspect.unwrap(plain), "__code__", None) if plain is not None else None
        if code is None:
            return "", 0
        file: str = code.co_filename
        relative = os.path.relpath(file, self._root) if Path(file).is_absolute() else file
        return file if relative.startswith(os.pardir) else relative, code.co_firstlineno


def _zeros() -> dict[str, Any]:
    return {"traces": 0, "lowerings": 0, "compiles": 0, "cache_hits": 0, "seconds": 0.0}
