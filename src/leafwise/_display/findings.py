"""What JAX did again, a finding for each line and cause; and what it did for each function."""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from leafwise._display.shape import (
    EventRecord,
    ExplanationRecord,
    FindingReasonRecord,
    FindingRecord,
    FunctionRecord,
    ReasonRecord,
    Report,
    SiteRecord,
)
from leafwise._display.words import ANOTHER_FUNCTION, count, likeness, lost, paths_of, place

Interval: TypeAlias = tuple[float, float]


@dataclasses.dataclass(slots=True)
class Made:
    """One program: its trace, lowering and compile, as far as there were any."""

    events: list[EventRecord]

    @property
    def first(self) -> EventRecord:
        """Its first event, which has what all of them share."""
        return self.events[0]

    @property
    def explained(self) -> EventRecord:
        """The event with the explanation, if there is one."""
        return next((each for each in self.events if each["explanation"]), self.first)

    @property
    def explanation(self) -> ExplanationRecord | None:
        """Why it was made; None where that is not known."""
        return self.explained["explanation"]

    @property
    def is_compiled(self) -> bool:
        """Whether it was compiled, by XLA or by the cache on disk."""
        return self.events[-1]["kind"] in _COMPILES

    @property
    def is_repeat(self) -> bool:
        """Whether JAX made the like before; what is made of another function is another."""
        why = self.explanation
        if self.first.get("inner") or why is None or why["nearest"] is None:
            return False
        return not any(each["change"].startswith(ANOTHER_FUNCTION) for each in acted(why))

    @property
    def identity(self) -> tuple[str, str, str]:
        """The function, and what was made of it."""
        return self.first["name"], self.first.get("defined", ""), self.first.get("role", "")


_COMPILES: Final = ("compile", "cache hit")
_ORDER: Final = {"trace": 0, "lowering": 1, "compile": 2, "cache hit": 2}


def made(report: Report) -> list[Made]:
    """Return the programs of a report, in the order in which they were finished."""
    found: list[Made] = []
    last: dict[tuple[str, str, str], Made] = {}
    for event in sorted(report["events"], key=lambda event: interval(event)[1]):
        of = event["process"], event["thread"], event["name"]
        current = last.get(of)
        order = _ORDER[event["kind"]]
        if current is None or _ORDER[current.events[-1]["kind"]] >= order:
            current = last[of] = Made([])
            found.append(current)
        current.events.append(event)
    return found


@dataclasses.dataclass(slots=True)
class Finding:
    """Programs that JAX made again at one line, for one cause, or outside jitted functions."""

    site: SiteRecord | None
    is_outside: bool
    programs: list[Made] = dataclasses.field(default_factory=list["Made"])
    every: list[Made] = dataclasses.field(default_factory=list["Made"])

    @property
    def events(self) -> list[EventRecord]:
        """What JAX did for them."""
        return [event for each in self.programs for event in each.events]

    @property
    def seconds(self) -> float:
        """How long JAX was busy with them."""
        return covered(map(interval, self.events))

    @property
    def names(self) -> list[str]:
        """The functions or operations, each once."""
        return list(dict.fromkeys(each.first["name"] for each in self.programs))

    @property
    def retraces(self) -> int:
        """How many traces were made again."""
        return sum(each["kind"] == "trace" for each in self.events)

    @property
    def recompiles(self) -> int:
        """How many compiles were made again."""
        return sum(each["kind"] in _COMPILES for each in self.events)

    @property
    def what(self) -> str:
        """What JAX did, in a few words: ``step retraced 3 times``."""
        if self.is_outside:
            return self._what_outside()
        name, *_ = self.names
        sizes = self._sizes()
        if sizes and len(sizes) > 1:
            shown = ", ".join(sizes[:_MOST_SIZES]) + ", ..." * (len(sizes) > _MOST_SIZES)
            return f"{name} compiled for {len(sizes)} batch sizes under `vmap`: {shown}"
        verb = "retraced" if self.retraces else "recompiled"
        number = len(self.programs)
        times = "once" if number == 1 else f"{number:,} times"
        return f"{name} {verb} {times}{self._role()}"

    def _role(self) -> str:
        roles = {each.first.get("role", "").rpartition(" ")[2] for each in self.programs}
        return f", {_ROLES[role]}" if len(roles) == 1 and (role := roles.pop()) in _ROLES else ""

    def _sizes(self) -> list[str]:
        every = [acted(each.explanation) for each in self.programs]
        if not all(len(reasons) == 1 and is_batch(reasons[0]) for reasons in every):
            return []
        sizes = (each[name] for (each,) in every for name in ("before", "after"))
        return list(dict.fromkeys(sizes))

    def _what_outside(self) -> str:
        noun, verb = ("program", "compiled") if self.recompiles else ("trace", "made")
        if all(each["kind"] == "shape" for each in self._every_reason()):
            found = (each.explanation for each in self.programs)
            sizes = max(why["nearest"] or 0 for why in found if why is not None) + 2
            # Of several operations in a package what the line calls, if that is one function.
            text = self.site["text"] if self.site and self.via and self.names[1:] else ""
            called = re.fullmatch(r"[^(]*?([^\W\d][\w.]*)\([^(]*", text)
            name = called[1] if called else paths_of(self.names)
            return f"{name} {verb} for {sizes} sizes, outside `jit`"
        every, again = (
            [each for each in several if each.is_compiled is (noun == "program")]
            for several in (self.every, self.programs)
        )
        runs = {each.explained.get("run") for each in every}
        in_runs = f" in {len(runs)} runs" if len(runs) > 1 else ""
        what = f"{count(len(every), noun)} {verb} outside `jit`{in_runs}"
        return f"{what}, {len(again):,} of them again"

    @property
    def via(self) -> list[str]:
        """The lines of packages that called, where one stands between."""
        return list(dict.fromkeys(each["via"] for each in self.events if "via" in each))

    def reasons(self) -> list[FindingReasonRecord]:
        """Return why, one reason for all leaves that differ alike."""
        paths: dict[tuple[str, str, str], list[str]] = {}
        for each in self._every_reason():
            if each["path"]:
                of = each["path"], each["kind"], likeness(each["path"], each["fix"])
                paths.setdefault(of, []).append(each["change"])
        groups: dict[Any, list[str]] = {}
        for (path, kind, like), changes in paths.items():
            groups.setdefault((kind, like, *dict.fromkeys(changes)), []).append(path)
        if len(groups) > 1:  # what is known of the arguments says more
            groups = {like: paths for like, paths in groups.items() if like[0] != "cache"}
        return [
            {"path": paths_of(several), "kind": kind, "change": change, "more": len(rest)}
            for (kind, _, change, *rest), several in groups.items()
        ]

    def fixes(self) -> list[str]:
        """Return what to do, the fix of most programs first."""
        found = Counter(each["fix"] for each in self._every_reason() if each["fix"])
        unlike: dict[str, str] = {}
        for fix, _ in found.most_common():
            unlike.setdefault(likeness("", fix), fix)
        return list(unlike.values())

    def _every_reason(self) -> Iterator[ReasonRecord]:
        for each in self.programs:
            yield from acted(each.explanation)

    def record(self) -> FindingRecord:
        """Return it as plain values."""
        return {
            "place": place(self.site),
            "text": self.site["text"].strip() if self.site else "",
            "via": self.via,
            "functions": self.names,
            "outside": self.is_outside,
            "what": self.what,
            "retraces": self.retraces,
            "recompiles": self.recompiles,
            "seconds": self.seconds,
            "reasons": self.reasons(),
            "fixes": self.fixes(),
            "processes": sorted({each["process"] for each in self.events if each["process"]}),
        }


def is_batch(reason: Mapping[str, Any]) -> bool:
    """Return whether a reason is the size of a batch, which the words of a finding name."""
    return (reason["path"], reason["kind"]) == ("batch", "batch")


_MOST_SIZES: Final = 6
_ROLES: Final = {
    "vmap": "under `vmap`",
    "forward": "in a forward pass",
    "backward": "in a backward pass",
}


def acted(explanation: ExplanationRecord | None) -> list[ReasonRecord]:
    """Return the reasons that JAX acted upon, and then statics that only look equal."""
    if explanation is None:
        return []
    cheap = ("reuse", "dispatch")
    costly = [each for each in explanation["reasons"] if each["outcome"] not in cheap]
    return [*costly, *explanation["unsound"]]


def findings(report: Report, *, small: bool = False) -> list[Finding]:
    """Return what JAX made again, the longest first; or what of it is too small to be one."""
    found: dict[Any, Finding] = {}
    forward: dict[Any, Any] = {}
    key: Any
    recreated: dict[Any, list[Made]] = {}
    for each in made(report):
        first = each.first
        line = _line(first["site"])
        if first["eager"]:
            finding = found.setdefault((line, "outside"), Finding(first["site"], is_outside=True))
            finding.every.append(each)
            finding.programs += [each] if each.is_repeat else []
        elif each.is_repeat:
            key = _line_and_cause(each, forward)
            found.setdefault(key, Finding(first["site"], is_outside=False)).programs.append(each)
        elif "recreated" in each.explained:
            key = line, each.identity, first["process"]
            recreated.setdefault(key, []).append(each)
    for (line, identity, _), several in recreated.items():
        # A function that is jitted for two objects is not recreated all the time.
        if len(several) > 1 or several[0].explained.get("recreated") != "new":
            finding = Finding(several[0].first["site"], is_outside=False)
            found.setdefault((line, identity, "recreated"), finding).programs.extend(several)
    least = min(_SMALL, _SMALL * busy(report))
    again = [each for each in found.values() if each.programs and (each.seconds < least) is small]
    return sorted(again, key=lambda finding: -finding.seconds)


_SMALL: Final = 1e-3
"""Under a millisecond, and this part of JAX's time, there is nothing to save."""


def _line_and_cause(program: Made, forward: dict[Any, Any]) -> Any:
    """Return what the programs of one finding have in common."""
    causes = tuple((each["path"], each["kind"]) for each in acted(program.explanation))
    line, (name, defined, role) = _line(program.first["site"]), program.identity
    found = line, name, defined, role, causes
    if role.endswith("backward") and not causes:  # it is made for what the forward pass is
        return forward.get((line, name, defined), found)
    if role.endswith("forward"):
        forward[line, name, defined] = found
    return found


def once_each(report: Report, found: Iterable[Finding]) -> list[tuple[str, int, float]]:
    """Return lines outside jitted functions without a finding, their programs and seconds."""
    known = {(_line(each.site), name) for each in found if each.is_outside for name in each.names}
    lines: dict[str, list[Made]] = {}
    for each in made(report):
        at = _line(each.first["site"]), each.first["name"]
        if each.first["eager"] and each.is_compiled and at not in known:
            lines.setdefault(place(each.first["site"]), []).append(each)
    rows = [
        (line, len(each), covered(interval(event) for one in each for event in one.events))
        for line, each in lines.items()
    ]
    return sorted(rows, key=lambda row: -row[2])


def nothing_again(report: Report) -> bool:
    """Return whether no function was compiled twice in one role, and nothing else again."""
    compiled = [
        (each.first["process"], *each.identity)
        for each in made(report)
        if each.is_compiled and not each.first["eager"]
    ]
    return len(compiled) == len(set(compiled)) and not findings(report, small=True)


def seconds_of(found: Iterable[Finding]) -> float:
    """Return the time that went into repeats."""
    return covered(interval(event) for each in found for event in each.events)


def interval(event: EventRecord) -> Interval:
    """Return when an event began and when it ended."""
    return event["start"], event["start"] + event["seconds"]


def busy(report: Report) -> float:
    """Return for how many seconds JAX was tracing, lowering or compiling, each second once."""
    return covered(map(interval, report["events"]))


def covered(intervals: Iterable[Interval]) -> float:
    """Return the length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _line(site: SiteRecord | None) -> Any:
    return (site["file"], site["line"], site["text"]) if site else None


def functions_of(events: Iterable[EventRecord]) -> list[FunctionRecord]:
    """Sum up the events of each function, or line outside them, the most seconds first."""
    groups: dict[Any, list[EventRecord]] = {}
    for event in events:
        line = _calling_line(event) if event["eager"] else event.get("defined", "")
        groups.setdefault((None if event["eager"] else event["name"], line), []).append(event)
    for name in [name for name, where in groups if name is not None and not where]:
        named = [key for key in groups if key[0] == name and key[1]]
        if len(named) == 1:
            groups[named[0]] += groups.pop((name, ""))
    found = [_function(name, line, each) for (name, line), each in groups.items()]
    return sorted(found, key=lost, reverse=True)


def _calling_line(event: EventRecord) -> str:
    site = event["site"]
    return f"{site['file']}:{site['line']}" if site is not None else ""


def _function(name: str | None, where: str, events: list[EventRecord]) -> FunctionRecord:
    # Where nothing is known of its definition, the line that called first stands for it.
    file, _, line = (where or _calling_line(events[0])).rpartition(":")

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
