"""What JAX did again, and why: calls of one line with the same reasons are one repeat."""

import dataclasses
from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeAlias

from leafwise._display.shape import EventRecord, ExplanationRecord, Report, SiteRecord
from leafwise._display.words import is_repeat

Interval: TypeAlias = tuple[float, float]


@dataclasses.dataclass(frozen=True, slots=True)
class RepeatReason:
    """One reason of a repeat.

    Attributes:
        path: Where in the arguments.
        kind: What differs there.
        fixes: The fix of each call, in order of time.
        unsound: Whether JAX took the two values for equal.
        values: The values before and after, each pair once, in order of time.
    """

    path: str
    kind: str
    fixes: list[str]
    unsound: bool
    values: dict[tuple[str, str], None]

    @property
    def fix(self) -> str:
        """The fix of most calls; of several the latest."""
        counts = Counter(reversed(self.fixes))  # of equal counts the first wins
        return counts.most_common(1)[0][0]


@dataclasses.dataclass(slots=True)
class Repeat:
    """Calls on one line for which JAX did the same again, for the same reasons.

    Attributes:
        name: The function that was called.
        outcome: What JAX did again: ``retrace``, ``recompile``.
        site: The line.
        reasons: Why JAX did it again.
        events: The events that have the explanation.
        intervals: When JAX was busy with them, with the lowerings and compilations after a trace.
    """

    name: str
    outcome: str
    site: SiteRecord | None
    reasons: list[RepeatReason]
    events: list[EventRecord] = dataclasses.field(default_factory=list["EventRecord"])
    intervals: list[Interval] = dataclasses.field(default_factory=list["Interval"])

    @property
    def seconds(self) -> float:
        """How long JAX was busy with these calls."""
        return covered(self.intervals)


def reasons_of(explanation: ExplanationRecord) -> list[RepeatReason]:
    """Return the reasons of one explanation, and then the unsound ones.

    What costs only a dispatch entry is left out where the call costs more.
    """
    costs_more = explanation["outcome"] != "dispatch"
    every = [
        (reason, False)
        for reason in explanation["reasons"]
        if not (costs_more and reason["outcome"] == "dispatch")
    ]
    every += [(reason, True) for reason in explanation["unsound"]]
    return [
        RepeatReason(
            reason["path"],
            reason["kind"],
            [reason["fix"]],
            unsound,
            {(reason["before"], reason["after"]): None},
        )
        for reason, unsound in every
    ]


def repeats(report: Report) -> list[Repeat]:
    """Return what JAX did again, the longest first."""
    found: dict[Any, Repeat] = {}
    # By thread and function: whose lowerings and compilations come next; None for a first call.
    current: dict[tuple[str, str], Repeat | None] = {}
    for event in sorted(report["events"], key=lambda event: event["start"]):
        of = event["thread"], event["name"]
        explanation = event["explanation"]
        if explanation is not None and is_repeat(event):
            reasons = reasons_of(explanation)
            new = Repeat(event["name"], explanation["outcome"], event["site"], reasons)
            repeat = found.setdefault(_key(event, explanation, reasons), new)
            repeat.events.append(event)
            repeat.intervals.append(interval(event))
            if repeat is not new:
                for reason, other in zip(repeat.reasons, reasons, strict=True):
                    reason.values.update(other.values)
                    reason.fixes.extend(other.fixes)
            current[of] = repeat
        elif explanation is not None or event["kind"] == "trace":
            current[of] = None
        elif (owner := current.get(of)) is not None:
            owner.intervals.append(interval(event))
    return sorted(found.values(), key=lambda repeat: -repeat.seconds)


def first_calls(report: Report) -> int:
    """Return how many functions were called for the first time."""
    return sum(
        1
        for event in report["events"]
        if event["explanation"] is not None and event["explanation"]["nearest"] is None
    )


def interval(event: EventRecord) -> Interval:
    """Return when an event began and when it ended."""
    return event["start"], event["start"] + event["seconds"]


def busy(report: Report) -> float:
    """Return for how many seconds JAX was tracing, lowering or compiling.

    A trace inside another one, or beside one on another thread, counts once.
    """
    return covered(interval(event) for event in report["events"])


def covered(intervals: Iterable[Interval]) -> float:
    """Return the length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _key(
    event: EventRecord, explanation: ExplanationRecord, reasons: Iterable[RepeatReason]
) -> tuple[Any, ...]:
    site = event["site"]
    line = (site["file"], site["line"], site["text"]) if site else None
    differs = tuple((each.path, each.kind, each.unsound) for each in reasons)
    return event["name"], explanation["outcome"], line, differs
