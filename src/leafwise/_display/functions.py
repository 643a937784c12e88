"""What JAX did for each function in all."""

from collections.abc import Iterable
from typing import Any

from leafwise._display.shape import EventRecord, FunctionRecord
from leafwise._display.words import lost


def functions_of(events: Iterable[EventRecord]) -> list[FunctionRecord]:
    """Sum up the events of each function, or line outside them, the most seconds first."""
    groups: dict[Any, list[EventRecord]] = {}
    for event in events:
        line = _line(event) if event["eager"] else event.get("defined", "")
        groups.setdefault((None if event["eager"] else event["name"], line), []).append(event)
    for name in [name for name, where in groups if name is not None and not where]:
        named = [key for key in groups if key[0] == name and key[1]]
        if len(named) == 1:
            groups[named[0]] += groups.pop((name, ""))
    found = [_function(name, line, each) for (name, line), each in groups.items()]
    return sorted(found, key=lost, reverse=True)


def _line(event: EventRecord) -> str:
    site = event["site"]
    return f"{site['file']}:{site['line']}" if site is not None else ""


def _function(name: str | None, where: str, events: list[EventRecord]) -> FunctionRecord:
    # Where nothing is known of its definition, the line that called first stands for it.
    file, _, line = (where or _line(events[0])).rpartition(":")

    def of(*kinds: str) -> list[float]:
        return [event["seconds"] for event in events if event["kind"] in kinds]

    return {
        "name": "outside jit" if name is None else name,
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
