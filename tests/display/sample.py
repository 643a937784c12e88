"""Reports to render."""

from typing import Any, cast

from leafwise._display.shape import (
    EventKindText,
    EventRecord,
    ExplanationRecord,
    FunctionRecord,
    ReasonRecord,
    Report,
    SiteRecord,
)

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    'it\'s "quoted" & <b>bold</b> &amp; </pre></style></svg>',
    "[red]not markup[/red] [/] :boom:",
    "two\nlines\tand\x1b[31mcolour\x00",
    "\ud800 half \u202e turned \U0001f600 ünïcode",
    "",
)


def site(line: int = 40, text: str = "state = train_step(state, batch)") -> SiteRecord:
    return {"file": "churn.py", "line": line, "function": "main", "text": text}


def reason(path: str = "state.opt.lr", **changed: str) -> ReasonRecord:
    base: ReasonRecord = {
        "path": path,
        "kind": "static",
        "outcome": "retrace",
        "before": "0.1",
        "after": "0.2",
        "change": "",
        "fix": "make it an array",
    }
    found = base | changed
    found["change"] = found["change"] or f"{found['before']} -> {found['after']}"
    return cast("ReasonRecord", found)


def explained(
    *reasons: ReasonRecord,
    outcome: str = "retrace",
    nearest: int | None = 0,
    unsound: tuple[ReasonRecord, ...] = (),
) -> ExplanationRecord:
    return {
        "outcome": outcome,
        "nearest": nearest,
        "reasons": list(reasons),
        "unsound": list(unsound),
    }


FIRST = explained(nearest=None)


def event(
    kind: EventKindText = "trace", start: float = 0.0, seconds: float = 0.1, **more: Any
) -> EventRecord:
    base: dict[str, Any] = {
        "kind": kind,
        "name": "train_step",
        "eager": False,
        "start": start,
        "seconds": seconds,
        "process": "",
        "thread": "MainThread",
        "site": site(),
        "explanation": None,
    }
    return cast("EventRecord", base | more)


def call(start: float, why: ExplanationRecord | None, **more: Any) -> list[EventRecord]:
    """Return what one call that traces leads to: 0.6 s in all."""
    return [
        event("trace", start, 0.1, explanation=why, **more),
        event("lowering", start + 0.1, 0.2, **more),
        event("compile", start + 0.3, 0.3, **more),
    ]


def function(name: str = "train_step", *, eager: bool = False, **more: Any) -> FunctionRecord:
    base: dict[str, Any] = {
        "name": name,
        "file": "churn.py",
        "line": 12,
        "eager": eager,
        "traces": 3,
        "lowerings": 4,
        "compiles": 4,
        "cache_hits": 0,
        "seconds": {"trace": 0.25, "lower": 0.5, "compile": 1.5},
    }
    return cast("FunctionRecord", base | more)


def report(
    events: list[EventRecord] | None = None,
    functions: list[FunctionRecord] | None = None,
    **more: Any,
) -> Report:
    every = events or []
    names = dict.fromkeys(each["name"] for each in every if not each["eager"])
    base: dict[str, Any] = {
        "version": 1,
        "leafwise": "0.1.0",
        "jax": "0.12.0.1",
        "python": "3.12.1",
        "program": "examples/churn.py --fast",
        "seconds": 10.0,
        "exit": 0,
        "ended": "",
        "functions": [function(name) for name in names] if functions is None else functions,
        "events": every,
        "warnings": [],
    }
    return cast("Report", base | more)


def usual() -> Report:
    """Return a first call, and two retraces of one line with the same reason."""
    changed = [explained(reason(before=f"0.{n}", after=f"0.{n + 1}")) for n in (1, 2)]
    return report([*call(0.5, FIRST), *call(2, changed[0]), *call(4, changed[1])])
