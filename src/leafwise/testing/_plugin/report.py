"""The report of a run: what all its processes traced and compiled, as a table and as JSON."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from leafwise._display.findings import covered, functions_of, interval
from leafwise._display.words import lost
from leafwise._jit.callee import definition
from leafwise._jit.recorder import Event, unwatch_events, watch_events

_COUNTS: Final = ("traces", "lowerings", "compiles", "cache_hits", "seconds")


class Recorder:
    """Records events from its construction on, as values that pytest-xdist can send."""

    def __init__(self, root: Path) -> None:
        self.nodeid: str | None = ""  # the test that runs; None: its events do not count
        self._root = root
        self._events: list[dict[str, Any]] = []
        watch_events(self._add)

    def finish(self) -> list[dict[str, Any]]:
        """Stop recording, and return what was recorded."""
        unwatch_events(self._add)
        return self._events

    def _add(self, event: Event) -> None:
        if self.nodeid is None:
            return
        file, line = ("", 0) if event.eager else definition(event.fun)
        relative = os.path.relpath(file, self._root) if Path(file).is_absolute() else file
        file = file if relative.startswith(os.pardir) else relative
        self._events.append(
            {
                "kind": "cache hit" if event.cached else event.kind.value,
                "name": event.name,
                "eager": event.eager,
                "start": event.time - event.seconds,
                "seconds": event.seconds,
                "site": None,
                "defined": f"{file}:{line}" if file else "",
                "nodeid": self.nodeid,
            }
        )


def report_of(parts: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return the sums of the events of all processes, as plain values."""
    every = [event for part in parts for event in part]
    tests: dict[str, list[Any]] = {}
    for event in every:
        tests.setdefault(event["nodeid"], []).append(event)
    tests.pop("", None)  # what was outside any test
    of_functions = [
        {**each, "compiles": each["compiles"] + each["cache_hits"], "seconds": lost(each)}
        for each in functions_of(every)
    ]
    return {
        "leafwise": metadata.version("leafwise"),
        "jax": metadata.version("jax"),
        "seconds": sum(covered(map(interval, part)) for part in parts),
        "functions": sorted(of_functions, key=_rank),
        "tests": sorted((_of_test(*each) for each in tests.items()), key=_rank),
    }


def _of_test(nodeid: str, events: list[Any]) -> dict[str, Any]:
    kinds = Counter(event["kind"] for event in events)
    return {
        "nodeid": nodeid,
        "traces": kinds["trace"],
        "lowerings": kinds["lowering"],
        "compiles": kinds["compile"] + kinds["cache hit"],
        "cache_hits": kinds["cache hit"],
        "seconds": covered(map(interval, events)),  # a trace inside another counts once
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
