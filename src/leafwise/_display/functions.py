"""What JAX did for each function in all."""

from collections.abc import Iterable
from typing import Any

from leafwise._display.shape import EventRecord, FunctionRecord
from leafwise._display.words import is_repeat, lost


def functions_of(events: Iterable[EventRecord]) -> list[FunctionRecord]:
    """Sum up the events of each function, the most seconds first.

    A function is known by its name and by where it is defined; where JAX says its name only, by
    that. Operations outside any jitted function have a record for each line that repeats them.
    """
    every = list(events)
    again = {_line(event) for event in every if event["eager"] and is_repeat(event)}
    groups: dict[Any, list[EventRecord]] = {}
    for event in every:
        line = _line(event) if _line(event) in again else ""
        eager = event["eager"]
        key = (None, line) if eager else (event["name"], event.get("defined", ""))
        groups.setdefault(key, []).append(event)
    for name, where in list(groups):
        named = [key for key in groups if name is not None and key[0] == name and key[1]]
        if not where and len(named) == 1:
            groups[named[0]] += groups.pop((name, where))
    found = [_function(key, each) for key, each in groups.items()]
    return sorted(found, key=lost, reverse=True)


def _line(event: EventRecord) -> str:
    site = event["site"]
    return f"{site['file']}:{site['line']}" if site is not None else ""


def _function(key: tuple[str | None, str], events: list[EventRecord]) -> FunctionRecord:
    name, where = key
    file, _, line = where.rpartition(":")

    def of(*kinds: str) -> list[float]:
        return [event["seconds"] for event in events if event["kind"] in kinds]

    return {
        "name": "eager operations" if name is None else name,
        "file": file,
        "line": int(line) if line else 0,
        "eager": name is None,
        "traces": len(of("trace")),
        "lowerings": len(of("lowering")),
        "compiles": len(of("compile")),
        "cache_hits": len(of("cache hit")),
        "seconds": {
            "trace": sum(of("trace")),
            "lower": sum(of("lowering")),
            "compile": sum(of("compile", "cache hit")),
        },
    }
