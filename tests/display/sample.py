"""Reports to render."""

from typing import Any

from tests.kit.inside import (
    Advice,
    EventKindText,
    EventRecord,
    Explanation,
    Fix,
    FunctionRecord,
    Outcome,
    Reason,
    ReasonKind,
    Report,
    Seconds,
    SiteRecord,
    Verbatim,
    findings,
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
    return SiteRecord("churn.py", line, "main", text)


def reason(
    path: str = "state.opt.lr",
    *,
    kind: str = "static",
    outcome: str = "retrace",
    before: str = "0.1",
    after: str = "0.2",
    change: str = "",
    fix: str | Fix = "make it an array",
) -> Reason:
    advice = Advice(change, fix if isinstance(fix, Fix) else Fix(fix))
    values = Verbatim(before), Verbatim(after)
    return Reason(path, ReasonKind(kind), Outcome(outcome), *values, advice)


def explained(
    *reasons: Reason,
    outcome: str = "retrace",
    nearest: int | None = 0,
    unsound: tuple[Reason, ...] = (),
) -> Explanation:
    return Explanation(Outcome(outcome), reasons, unsound, nearest)


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
    return EventRecord(**base | more)


def call(start: float, why: Explanation | None, **more: Any) -> list[EventRecord]:
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
        "seconds": Seconds(0.25, 0.5, 1.5),
    }
    return FunctionRecord(**base | more)


def report(
    events: list[EventRecord] | None = None,
    functions: list[FunctionRecord] | None = None,
    **more: Any,
) -> Report:
    every = events or []
    names = dict.fromkeys(event.name for event in every if not event.eager)
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
        "findings": findings(every),
        "first": [],
    }
    return Report(**base | more)


def usual() -> Report:
    """Return a first call, and two retraces of one line with the same reason."""
    changed = [explained(reason(before=f"0.{n}", after=f"0.{n + 1}")) for n in (1, 2)]
    return report([*call(0.5, FIRST), *call(2, changed[0]), *call(4, changed[1])])
