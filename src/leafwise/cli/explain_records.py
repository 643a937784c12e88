"""The records of a report on a script: values of the standard library, from events of JAX."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

from leafwise._captures.captures import captures
from leafwise._display import shape
from leafwise._jax.events import EventKind
from leafwise._jit.blocks import CaptureChecks, StaleCapture
from leafwise._jit.inner_traces import code_id
from leafwise._jit.recorder import Event
from leafwise._objects.call_site import short_file


def functions(events: Sequence[Event]) -> list[shape.FunctionRecord]:
    """Sum up the events of each function, the most seconds first."""
    groups: dict[Any, list[Event]] = {}
    for event in events:
        place = _definition(event.fun)
        known = place if place[0] or event.fun is None else id(event.fun)
        key = None if event.eager else (event.name, known if event.fun is not None else None)
        groups.setdefault(key, []).append(event)
    # An event of which JAX gave only the name belongs to the one function of that name.
    for name, _ in [key for key in groups if key is not None and key[1] is None]:
        same = [key for key in groups if key is not None and key[0] == name and key[1]]
        if len(same) == 1:
            groups[same[0]] += groups.pop((name, None))
    functions = [_function(each) for each in groups.values()]
    return sorted(functions, key=_total_seconds, reverse=True)


def _total_seconds(function: shape.FunctionRecord) -> float:
    seconds = function["seconds"]
    return seconds["trace"] + seconds["lower"] + seconds["compile"]


def _function(events: Sequence[Event]) -> shape.FunctionRecord:
    first = events[0]
    fun = next((event.fun for event in events if event.fun is not None), None)
    file, line = ("", 0) if first.eager else _definition(fun)
    compiles = [event for event in events if event.kind is EventKind.COMPILE]
    hits = sum(event.cached for event in compiles)

    def count(kind: EventKind) -> int:
        return sum(event.kind is kind for event in events)

    def seconds(kind: EventKind) -> float:
        return sum(event.seconds for event in events if event.kind is kind)

    return {
        "name": "eager operations" if first.eager else first.name,
        "file": file,
        "line": line,
        "eager": first.eager,
        "traces": count(EventKind.TRACE),
        "lowerings": count(EventKind.LOWERING),
        "compiles": len(compiles) - hits,
        "cache_hits": hits,
        "seconds": {
            "trace": seconds(EventKind.TRACE),
            "lower": seconds(EventKind.LOWERING),
            "compile": seconds(EventKind.COMPILE),
        },
    }


_OFTEN: Final = 3


def recreated(events: Sequence[Event]) -> list[str]:
    """Warn of functions that are recreated, a new one each call: JAX traces each of them."""
    traced: dict[tuple[str, str, int], set[int]] = {}
    for event in events:
        if event.kind is EventKind.TRACE and event.fun is not None and not event.eager:
            file, line = _definition(event.fun)
            if file:
                traced.setdefault((event.name, file, line), set()).add(id(event.fun))
    return [
        f"{name} ({file}:{line}) was recreated and jitted {len(ids)} times, and traced each time: "
        "define it, and call jax.jit, once, outside the loop"
        for (name, file, line), ids in traced.items()
        if len(ids) >= _OFTEN
    ]


def _definition(fun: Callable[..., Any] | None) -> tuple[str, int]:
    """Return the file and line where a function is defined, as far as there is one."""
    inner: Any = fun
    while isinstance(inner, functools.partial):
        inner = inner.func
    code = getattr(inspect.unwrap(inner), "__code__", None) if inner is not None else None
    if code is None:  # a callable object, such as a module, which may be a new one each call
        code = getattr(inspect.unwrap(type(inner).__call__), "__code__", None)
    # Of a function under `filter_jit` JAX sees what equinox makes of it.
    if code is None or inner.__module__ == "equinox._jit":
        return "", 0
    return short_file(code.co_filename), code.co_firstlineno


def event_record(event: Event, start: float) -> shape.EventRecord:
    why: Any = event.explanation.as_dict() if event.explanation is not None else None
    site = event.site
    place: shape.SiteRecord | None = None
    if site is not None:
        file = short_file(site.file)
        place = {"file": file, "line": site.line, "function": site.function, "text": site.text}
    return {
        "kind": "cache hit" if event.cached else event.kind.value,
        "name": event.name,
        "eager": event.eager,
        "start": max(0.0, event.time - event.seconds - start),
        "seconds": event.seconds,
        "thread": event.thread,
        "site": place,
        "explanation": why,
    }


def captures_records(events: Sequence[Event], block: CaptureChecks) -> list[shape.CapturesRecord]:
    """Return what each function captures, as it is at the end: those with stale calls first."""
    groups: dict[Any, list[Callable[..., Any]]] = {}
    for event in events:
        if event.fun is not None and not event.eager:
            funs = groups.setdefault((event.name, code_id(event.fun)), [])
            if all(each is not event.fun for each in funs):
                funs.append(event.fun)
    found: list[shape.CapturesRecord] = []
    for (name, owner), funs in groups.items():
        with contextlib.suppress(Exception):  # the user's own code, which has run already
            captured = captures(funs[-1]).as_dict()
            captured["function"] = name
            captured["stale"] = [_stale(each) for each in block.found_by(owner)]
            found.append(captured)
    return sorted(found, key=lambda each: not each.get("stale"))


def _stale(found: StaleCapture) -> shape.StaleCaptureRecord:
    file, _, line = found.line.rpartition(":")
    site = found.call
    return {
        "name": found.name,
        "reader": found.reader,
        "line": f"{short_file(file)}:{line}" if file else "",
        "before": found.before,
        "after": found.after,
        "call": f"{short_file(site.file)}:{site.line}" if site is not None else "line not known",
    }
