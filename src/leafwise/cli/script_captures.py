"""What the functions of a script capture, and which of their calls were stale."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from leafwise._captures.captures import captures
from leafwise._display import shape
from leafwise._jit.blocks import CaptureChecks, StaleCapture
from leafwise._jit.inner_traces import owner_of
from leafwise._jit.recorder import Event
from leafwise._objects.call_site import short_file


def captures_of(events: Sequence[Event], block: CaptureChecks) -> list[shape.Captured]:
    """Return what each function captures, as it is at the end: those with stale calls first."""
    groups: dict[Any, list[Callable[..., Any]]] = {}
    for event in events:
        if event.fun is not None and not event.eager:
            funs = groups.setdefault((event.name, owner_of(event.fun)), [])
            if all(each is not event.fun for each in funs):
                funs.append(event.fun)
    found: list[shape.Captured] = []
    for (name, owner), funs in groups.items():
        with contextlib.suppress(Exception):  # the user's own code, which has run already
            captured = captures(funs[-1]).as_dict()
            captured["function"] = name
            captured["stale"] = [_stale(each) for each in block.stale_of(owner)]
            found.append(captured)
    return sorted(found, key=lambda each: not each.get("stale"))


def _stale(found: StaleCapture) -> shape.StaleCall:
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
