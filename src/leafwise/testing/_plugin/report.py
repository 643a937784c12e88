"""The report of a run: what all its processes traced and compiled, as a table and as JSON."""

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

from leafwise._display.findings import covered
from leafwise._jax.events import EventKind
from leafwise._jit.recorder import Event, unwatch_events, watch_events

_COLUMNS: Final = {
    EventKind.TRACE: "traces",
    EventKind.LOWERING: "lowerings",
    EventKind.COMPILE: "compiles",
}
_COUNTS: Final = (*_COLUMNS.values(), "cache_hits", "seconds")
_ZEROS: Final[dict[str, Any]] = {**dict.fromkeys(_COUNTS, 0), "seconds": 0.0}


class Row(NamedTuple):
    """One event, as a worker of pytest-xdist sends it."""

    name: str
    file: str
    line: int
    eager: bool
    nodeid: str
    kind: str
    cached: bool
    start: float
    end: float


class Recorder:
    """Records events from its construction on."""

    def __init__(self, root: Path) -> None:
        self.nodeid: str | None = ""  # the test that runs; None: its events do not count
        self.rows: list[Row] = []
        self._root = root
        watch_events(self._add)

    def finish(self) -> list[tuple[Any, ...]]:
        """Stop recording, and return what was recorded as plain values."""
        unwatch_events(self._add)
        return [tuple(row) for row in self.rows]

    def _add(self, event: Event) -> None:
        if self.nodeid is None:
            return
        name = "(operations of JAX itself)" if event.eager else event.name
        file, line = ("", 0) if event.eager else self._place(event.fun)
        where = name, file, line, event.eager, self.nodeid
        kind, start = _COLUMNS[event.kind], event.time - event.seconds
        self.rows.append(Row(*where, kind, event.cached, start, event.time))

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


def report_of(sent: Sequence[Sequence[tuple[Any, ...]]]) -> dict[str, Any]:
    """Return the sums of the events of all processes, as plain values."""
    parts = [[Row(*each) for each in part] for part in sent]
    places: dict[str, set[tuple[str, int]]] = {}
    for row in (row for part in parts for row in part):
        places.setdefault(row.name, set()).update({(row.file, row.line)} if row.file else ())
    functions: dict[object, dict[str, Any]] = {}
    tests: dict[str, dict[str, Any]] = {}
    seconds = 0.0
    for part in parts:
        intervals: dict[str, list[tuple[float, float]]] = {}
        for row in part:
            file, line = row.file, row.line
            if not file and len(places[row.name]) == 1:
                # Some JAX events have a name only: they belong to the one function of that name.
                ((file, line),) = places[row.name]
            key = {"name": row.name, "file": file, "line": line, "eager": row.eager}
            function = functions.setdefault(tuple(key.values()), {**key, **_ZEROS})
            test = tests.setdefault(row.nodeid, {"nodeid": row.nodeid, **_ZEROS})
            for each in (function, test):
                each[row.kind] += 1
                each["cache_hits"] += row.cached
            function["seconds"] += row.end - row.start
            intervals.setdefault(row.nodeid, []).append((row.start, row.end))
        for nodeid, several in intervals.items():
            tests[nodeid]["seconds"] += covered(several)  # a trace inside another counts once
        seconds += covered(each for several in intervals.values() for each in several)
    tests.pop("", None)  # what was outside any test
    return {
        "leafwise": metadata.version("leafwise"),
        "jax": metadata.version("jax"),
        "seconds": seconds,
        "functions": sorted(functions.values(), key=_rank),
        "tests": sorted(tests.values(), key=_rank),
    }


def _rank(row: dict[str, Any]) -> tuple[Any, ...]:
    return -row["compiles"], -row["seconds"], row.get("nodeid") or row["name"]


def lines_of(report: dict[str, Any], most: int | None) -> Iterable[str]:
    """Yield the lines of a report: a table of the functions, and one of the tests."""
    if not report["functions"]:
        yield "nothing"
        return
    for title in ("function", "test"):
        rows = report[f"{title}s"]
        if rows:
            heads = [name.replace("_", " ").rjust(_WIDTHS[name]) for name in _COUNTS]
            yield "  ".join([*heads, title])
            yield from map(_line, rows[:most])
            if most is not None and len(rows) > most:
                yield f"... and {len(rows) - most} more, with -v"
            yield ""
    yield f"JAX was busy for {report['seconds']:.2f} seconds"


_WIDTHS: Final = dict(zip(_COUNTS, (6, 9, 8, 10, 8), strict=True))


def _line(row: dict[str, Any]) -> str:
    counts = [str(row[name]).rjust(_WIDTHS[name]) for name in _COUNTS[:-1]]
    seconds = f"{row['seconds']:.3f}".rjust(_WIDTHS["seconds"])
    place = f" ({row['file']}:{row['line']})" if row.get("file") else ""
    return "  ".join([*counts, seconds, f"{row.get('nodeid') or row['name']}{place}"])
