"""What JAX did again, and why: calls of one line with the same reasons are one repeat."""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias, TypeVar

from leafwise._display.shape import CauseRecord, EventRecord, ExplanationRecord, Report, SiteRecord
from leafwise._display.words import (
    count,
    cut,
    duration,
    is_inner_trace,
    is_repeat,
    likeness,
    paths_of,
    place,
)

_T = TypeVar("_T")
Interval: TypeAlias = tuple[float, float]


@dataclasses.dataclass(frozen=True, slots=True)
class RepeatReason:
    """One reason of a repeat.

    Attributes:
        path: Where in the arguments.
        kind: What differs there.
        fixes: The fix of each call, in order of time.
        unsound: Whether JAX took the two values for equal.
        pairs: The values before and after, each pair once, in order of time, with its fix.
    """

    path: str
    kind: str
    fixes: list[str]
    unsound: bool
    pairs: dict[tuple[str, str], str]

    @property
    def values(self) -> list[tuple[str, str]]:
        """The values before and after, those that the fix is for first."""
        fix = self.fix
        return sorted(self.pairs, key=lambda pair: self.pairs[pair] != fix)

    @property
    def fix(self) -> str:
        """The fix of most calls; of several the latest."""
        counts = Counter(reversed(self.fixes))  # of equal counts the first wins
        return counts.most_common(1)[0][0]

    @property
    def cause(self) -> str:
        """The reason in a few words: ``a new lambda each call``."""
        for start, words in _CAUSES.items():
            if self.fix.startswith(start):
                return words.format(self.fix.removeprefix(start).partition(":")[0].strip())
        if self.path == self.kind:  # the argument of `jnp.ones`
            return f"another {self.kind}"
        return _KINDS.get(self.kind, f"{self.kind} of {{}}").format(self.path)


_CAUSES: Final = {
    "fresh ": "a new {}",
    "A boolean mask": "a boolean mask",
    "Each number of elements": "a result of another size each call",
}
_KINDS: Final = {
    "static": "another value of {}",
    "shape": "another shape of {}",
    "dtype": "another dtype of {}",
    "structure": "another structure of {}",
}


@dataclasses.dataclass(slots=True)
class Repeat:
    """Calls on one line for which JAX did the same again, for the same reasons.

    Attributes:
        outcome: What JAX did again: ``retrace``, ``recompile``.
        eager: Whether that was outside any jitted function.
        site: The line.
        reasons: Why JAX did it again.
        names: The functions or operations that were called, each once.
        events: The events that have the explanation.
        intervals: When JAX was busy with them, with the lowerings and compilations after a trace.
    """

    outcome: str
    eager: bool
    site: SiteRecord | None
    reasons: list[RepeatReason]
    names: dict[str, None] = dataclasses.field(default_factory=dict[str, None])
    events: list[EventRecord] = dataclasses.field(default_factory=list["EventRecord"])
    intervals: list[Interval] = dataclasses.field(default_factory=list["Interval"])

    @property
    def name(self) -> str:
        """What was called."""
        first = next(iter(self.names), "")
        return first if len(self.names) < 2 else f"{first} and {len(self.names) - 1} more"  # noqa: PLR2004  # one

    @property
    def what(self) -> str:
        """What JAX did again, as words behind the name."""
        lines = dict.fromkeys(each["caller"] for each in self.events if "caller" in each)
        caller = f", called from {next(iter(lines))}" if lines else ""
        more = f" and {count(len(lines) - 1, 'more line')}" if len(lines) > 1 else ""
        return f"{', outside jit' if self.eager else ''}{caller}{more}"

    @property
    def seconds(self) -> float:
        """How long JAX was busy with these calls."""
        return covered(self.intervals)

    def add(self, event: EventRecord, reasons: list[RepeatReason]) -> None:
        """Add a call."""
        self.names[event["name"]] = None
        self.events.append(event)
        self.intervals.append(interval(event))
        known = {(each.path, each.kind, each.unsound): each for each in self.reasons}
        for other in reasons:
            reason = known.get((other.path, other.kind, other.unsound))
            if reason is None:
                self.reasons.append(other)
            elif reason is not other:
                reason.pairs.update(other.pairs)
                reason.fixes.extend(other.fixes)

    @property
    def cause(self) -> str:
        """Why, in a few words."""
        causes = dict.fromkeys(reason.cause for reason in self.joined())
        first = next(iter(causes), "no reason found")
        return f"{first} and {len(causes) - 1} more" if len(causes) > 1 else first

    def joined(self) -> list[RepeatReason]:
        """Return the reasons, one for all leaves that differ alike."""
        return joined(self.reasons)


def joined(reasons: Iterable[RepeatReason]) -> list[RepeatReason]:
    """Return reasons, one for all leaves that differ alike."""
    found: dict[tuple[str, bool, str], list[RepeatReason]] = {}
    for each in reasons:
        found.setdefault((each.kind, each.unsound, likeness(each.path, each.fix)), []).append(each)
    return [_join(several) for several in found.values()]


def _join(several: list[RepeatReason]) -> RepeatReason:
    first = several[0]
    if len(several) == 1:
        return first
    path = paths_of(each.path for each in several)
    found = RepeatReason(path, first.kind, first.fixes, first.unsound, dict(first.pairs))
    for each in several[1:]:
        for pair, fix in each.pairs.items():
            found.pairs.setdefault(pair, fix)
    return found


def reasons_of(explanation: ExplanationRecord) -> list[RepeatReason]:
    """Return the reasons of one explanation, and then the unsound ones.

    What costs only a dispatch entry is left out where the call costs more.
    """
    costs_more = explanation["outcome"] != "dispatch"
    every = [
        (reason, False)
        for reason in explanation["reasons"]
        if not (costs_more and (reason["outcome"] == "dispatch" or is_inner_trace(reason)))
    ]
    every += [(reason, True) for reason in explanation["unsound"]]
    return [
        RepeatReason(
            reason["path"],
            reason["kind"],
            [reason["fix"]],
            unsound,
            {(reason["before"], reason["after"]): reason["fix"]},
        )
        for reason, unsound in every
    ]


def repeats(report: Report) -> list[Repeat]:
    """Return what JAX did again, the longest first."""
    found: dict[Any, Repeat] = {}
    # By thread and function: whose lowerings and compilations come next; None for a first call.
    current: dict[tuple[str, str], Repeat | None] = {}
    defined: set[tuple[str, str, str]] = set()
    for event in sorted(report["events"], key=lambda event: event["start"]):
        of = event["thread"], event["name"]
        explanation = event["explanation"]
        if explanation is not None and (is_repeat(event) or _is_recreated(event, defined)):
            again = is_repeat(event)
            reasons = reasons_of(explanation) if again else [_recreated(event)]
            key = _key(event, explanation, reasons)
            new = Repeat(explanation["outcome"], event["eager"], event["site"], reasons)
            repeat = current[of] = found.setdefault(key, new)
            repeat.add(event, reasons)
        elif explanation is not None or event["kind"] == "trace":
            current[of] = None
        elif (owner := current.get(of)) is not None:
            owner.intervals.append(interval(event))
    # A function that is jitted for two objects is not recreated all the time.
    chosen = [
        each
        for each in found.values()
        if len(each.events) > _is_of_recreated(each) and not _is_of_few_shapes(each)
    ]
    return sorted(chosen, key=lambda repeat: -repeat.seconds)


def _is_of_few_shapes(repeat: Repeat) -> bool:
    """Return whether an operation met each of a few shapes, as where parameters are made.

    There is nothing to be saved: a jitted function around it would compile as much. Leaves of
    several shapes may have several dtypes, too.
    """
    fixes = [fix for each in repeat.reasons if each.kind not in _OF_DTYPES for fix in each.fixes]
    by_shape = bool(fixes) and all(fix.startswith(_SHAPE) for fix in fixes)
    most = max(Counter(event["name"] for event in repeat.events).values())
    return repeat.eager and by_shape and most < _FEW_SHAPES


_SHAPE: Final = "Each shape has a program"
_FEW_SHAPES: Final = 5
_OF_DTYPES: Final = ("dtype", "weak type", "kind")

_RECREATED: Final = "function"


def _is_of_recreated(repeat: Repeat) -> bool:
    return [each.kind for each in repeat.reasons] == [_RECREATED]


def _is_recreated(event: EventRecord, defined: set[tuple[str, str, str]]) -> bool:
    """Return whether this is the first call of a function whose like was called before."""
    where = event.get("defined", "")
    if event["eager"] or not where:
        return False
    process = event["thread"].partition(" of process ")[2]  # each has functions of its own
    known = (event["name"], where, process) in defined
    defined.add((event["name"], where, process))
    first = event["explanation"] is not None and event["explanation"]["nearest"] is None
    return known and first


def _recreated(event: EventRecord) -> RepeatReason:
    kind = "lambda" if event["name"] == "<lambda>" else "function"
    fix = f"fresh {kind} each call: define it, and call `jax.jit`, once, outside the loop."
    if change := event.get("changed", ""):
        fix = f"fresh {kind} each call, with another value in it: {change}. "
        fix += "Pass that as an argument; then define it, and call `jax.jit`, once."
    return RepeatReason(event["name"], _RECREATED, [fix], unsound=False, pairs={})


def folded(report: Report, again: list[Repeat]) -> tuple[list[Repeat], list[Repeat]]:
    """Return the repeats to show, and those too short for it: under 1 % each, and few in all."""
    return split_small(again, lambda repeat: repeat.seconds, busy(report))


def split_small(
    ranked: list[_T], seconds: Callable[[_T], float], total: float
) -> tuple[list[_T], list[_T]]:
    """Split off the end of a list, which begins with the most seconds: what takes under 1 %."""
    kept, left = len(ranked), _FOLDED * total
    while kept and seconds(ranked[kept - 1]) < min(SMALL * total, left):
        kept -= 1
        left -= seconds(ranked[kept])
    return ranked[:kept], ranked[kept:]


_FOLDED: Final = 0.1
"""The share of JAX's time that is folded at most."""
SMALL: Final = 0.01
"""The share of JAX's time below which something has no row of its own."""
_MOST_CAUSES: Final = 3


def causes_of(report: Report) -> list[CauseRecord]:
    """Return what could be saved: why JAX did something again, the longest first."""
    return [
        {
            "place": place(each.site),
            "cause": each.cause,
            "outcome": each.outcome,
            "times": len(each.events),
            "seconds": each.seconds,
            "fixes": list(dict.fromkeys(fix for reason in each.joined() for fix in _fixes(reason))),
        }
        for each in repeats(report)
    ]


def _fixes(reason: RepeatReason) -> Iterator[str]:
    """Yield the fixes of a reason, the one that is shown first, and then others than that."""
    known: set[str] = set()
    for fix in (reason.fix, *reason.fixes):
        words = re.sub(r" in it: .*?\. ", " in it. ", likeness(reason.path, fix))
        if words not in known:
            known.add(words)
            yield fix


def headline(report: Report, again: list[Repeat]) -> str:
    """Return what could be saved, and the causes that took longest, each with its line."""
    if not again:
        return "nothing was retraced or recompiled"
    took = duration(covered(part for repeat in again for part in repeat.intervals))
    calls = sum(len(repeat.events) for repeat in again)
    times = count(calls, "retrace or recompile", "retraces and recompiles")
    parts = [
        f"{place(each.site)} {cut(each.cause, 120)}, "
        f"{count(len(each.events), cut(each.outcome, 80))}, {duration(each.seconds)}"
        for each in folded(report, again)[0][:_MOST_CAUSES]
    ]
    causes = f"; top causes: {'; '.join(parts)}" if parts else ""
    return f"{took} of {duration(report['seconds'])} could be saved: {times}{causes}"


def first_calls(report: Report, again: list[Repeat]) -> int:
    """Return how many jitted functions were called for the first time, recreated ones once."""
    first = sum(
        1
        for event in report["events"]
        if event["explanation"] is not None and not is_repeat(event) and not event["eager"]
    )
    return first - sum(len(each.events) for each in again if _is_of_recreated(each))


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
) -> tuple[Any, ...] | None:
    site = event["site"]
    line = (site["file"], site["line"], site["text"]) if site else None
    differs = tuple((each.path, each.kind, each.unsound) for each in reasons)
    if event["eager"]:  # a line runs several operations
        return line
    return event["name"], explanation["outcome"], line, differs
