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
        fixes: What to do about it, in order of time.
        unsound: Whether JAX took the two values for equal.
        values: What it was and what it is now, once each, in order of time.
    """

    path: str
    kind: str
    fixes: list[str]
    unsound: bool
    values: dict[tuple[str, str], None]

    @property
    def fix(self) -> str:
        """What to do about it: what was said most often, and of these the latest."""
        counts = Counter(reversed(self.fixes))  # the first of equals wins
        return counts.most_common(1)[0][0]


@dataclasses.dataclass(slots=True)
class Repeat:
    """Calls from one line for which JAX did the same again, for the same reasons.

    Attributes:
        name: The function that was called.
        outcome: What JAX did again: ``retrace``, ``recompile``.
        site: The line.
        changes: The reasons.
        events: The events that have the explanation.
        intervals: When JAX was busy with them, what followed a trace included.
    """

    name: str
    outcome: str
    site: SiteRecord | None
    changes: list[RepeatReason]
    events: list[EventRecord] = dataclasses.field(default_factory=list["EventRecord"])
    intervals: list[Interval] = dataclasses.field(default_factory=list["Interval"])

    @property
    def seconds(self) -> float:
        """How long JAX was busy with these calls."""
        return covered(self.intervals)


def changes(explanation: ExplanationRecord) -> list[RepeatReason]:
    """Return the reasons of one explanation, and then the unsound ones.

    What costs a dispatch entry only is left out where more is at stake.
    """
    graver = explanation["outcome"] != "dispatch"
    every = [
        (reason, False)
        for reason in explanation["reasons"]
        if not (graver and reason["outcome"] == "dispatch")
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
    """Return what JAX did again, what took longest first."""
    found: dict[Any, Repeat] = {}
    # Whose lowerings and compilations come next. None: those of a first call.
    current: dict[tuple[str, str], Repeat | None] = {}
    for event in sorted(report["events"], key=lambda event: event["start"]):
        of = event["thread"], event["name"]
        explanation = event["explanation"]
        if explanation is not None and is_repeat(event):
            repeat = found.setdefault(_key(event, explanation), _repeat(event, explanation))
            _add(repeat, event, explanation)
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


def _key(event: EventRecord, explanation: ExplanationRecord) -> tuple[Any, ...]:
    site = event["site"]
    line = (site["file"], site["line"], site["text"]) if site else None
    looks = tuple((each.path, each.kind, each.unsound) for each in changes(explanation))
    return event["name"], explanation["outcome"], line, looks


def _repeat(event: EventRecord, explanation: ExplanationRecord) -> Repeat:
    return Repeat(event["name"], explanation["outcome"], event["site"], changes(explanation))


def _add(repeat: Repeat, event: EventRecord, explanation: ExplanationRecord) -> None:
    repeat.events.append(event)
    repeat.intervals.append(interval(event))
    if len(repeat.events) == 1:  # whose changes these are
        return
    for change, other in zip(repeat.changes, changes(explanation), strict=True):
        change.values.update(other.values)
        change.fixes.extend(other.fixes)
