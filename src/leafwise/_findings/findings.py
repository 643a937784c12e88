"""Repeated JAX work, as a finding for each line and cause; totals for each function."""

import copy
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from leafwise._findings.reasons import Act, Fix, Reason, ReasonKind, grouped
from leafwise._findings.records import (
    EventRecord,
    ExpectedRecord,
    FunctionRecord,
    Seconds,
    SiteRecord,
    TriedRecord,
    line_of,
    place,
)
from leafwise._findings.words import count, duration, paths_of


class ProgramEvents:
    """The events of one program: its trace, lowering and compile, if they happened."""

    def __init__(self, events: list[EventRecord]) -> None:
        self.events = events
        self.first = events[0]  # with the facts that all its events share
        self.explained = next((event for event in events if event.explanation), self.first)
        self.explanation = why = self.explained.explanation
        self.reasons: list[Reason] = [] if why is None else why.acted
        self.is_compiled = events[-1].kind in _COMPILES
        self.identity = self.first.name, self.first.defined, self.first.role
        # Whether JAX had made a program of this function before, and not by intention.
        is_intended = any(reason.fix.act is Act.NOTHING for reason in self.reasons)
        was_made = not self.first.inner and why is not None and why.nearest is not None
        self.is_repeat = was_made and not is_intended
        self.causes: list[Any] = list(map(_cause, self.reasons))
        self.seconds = busy(events)
        # Of CPU where that is known: other processes do not make a program long.
        self.spent = sum(event.seconds if event.cpu is None else event.cpu for event in events)

    def limited_to(self, causes: set[Any]) -> "ProgramEvents":
        """Return it with the reasons of some causes."""
        limited = copy.copy(self)
        limited.reasons = [reason for reason in self.reasons if _cause(reason) in causes]
        return limited


def _cause(reason: Reason) -> tuple[str, ReasonKind]:
    return reason.path, reason.kind


_COMPILES: Final = ("compile", "cache hit")
_ORDER: Final = {"trace": 0, "lowering": 1, "compile": 2, "cache hit": 2}


def programs_of(events: Iterable[EventRecord]) -> list[ProgramEvents]:
    """Group events by program, in the order in which they finished."""
    ordered = sorted(events, key=lambda event: event.interval[1])
    groups = in_programs(ordered, lambda event: (event.process, event.thread, event.name))
    return [ProgramEvents(group) for group in groups]


def in_programs(events: Iterable[Any], key: Callable[[Any], Any]) -> list[list[Any]]:
    """Group events in order of time: a program is traced, lowered and compiled once."""
    programs: list[list[Any]] = []
    latest: dict[Any, list[Any]] = {}
    for event in events:
        program = latest.get(key(event))
        if program is None or _ORDER[program[-1].kind] >= _ORDER[event.kind]:
            program = latest[key(event)] = []
            programs.append(program)
        program.append(event)
    return programs


class Finding:
    """The programs that JAX repeated at one line for one cause, or outside jitted functions."""

    def __init__(
        self,
        site: SiteRecord | None,
        programs: list[ProgramEvents],
        every: list[ProgramEvents] | None = None,  # of a line outside them, repeats or not
    ) -> None:
        self.site, self.programs, self.every = site, programs, every or []
        # The findings of the other causes that its programs have; these are to be fixed first.
        self.needed: list[Finding] = []
        self.is_outside = every is not None
        self.tried: TriedRecord | None = None
        self.text = site.text.strip() if site else ""
        self.events = [event for program in programs for event in program.events]
        self.seconds = self.weight = busy(self.events)
        self.retraces = sum(event.kind == "trace" for event in self.events)
        self.recompiles = sum(event.kind in _COMPILES for event in self.events)
        # The names of the processes, if several were recorded.
        self.processes = sorted({event.process for event in self.events if event.process})
        # The lines in packages that called JAX for the user's line.
        self.via = list(dict.fromkeys(event.via for event in self.events if event.via))
        # The names of the functions, then of operations outside `jit`.
        ordered = sorted(programs, key=lambda program: program.first.eager)
        self.names = list(dict.fromkeys(program.first.name for program in ordered))
        self.every_reason = [reason for program in programs for reason in program.reasons]
        kinds = {reason.kind for reason in self.every_reason}
        self.is_resized = self.is_outside and kinds == {ReasonKind.SHAPE}

    @property
    def what(self) -> str:
        """What JAX did, in a few words: ``step retraced 3 times``."""
        if self.is_outside:
            return self._what_outside()
        name = paths_of(self.names)
        sizes = self._batch_sizes()
        if len(sizes) > 1:
            shown = ", ".join(sizes[:_MOST_SIZES]) + ", ..." * (len(sizes) > _MOST_SIZES)
            return f"{name} compiled for {len(sizes)} batch sizes under `vmap`: {shown}"
        verb = "retraced" if self.retraces else "recompiled"
        number = len(self.programs)
        times = "once" if number == 1 else f"{number:,} times"
        roles = {_ROLES.get(program.first.role.rpartition(" ")[2], "") for program in self.programs}
        role = roles.pop() if len(roles) == 1 else ""
        return f"{name} {verb} {times}{role}"

    @property
    def headline(self) -> str:
        return f"{self.what}, {duration(self.seconds)}"

    @property
    def has_cause(self) -> bool:
        return bool(self.reasons() or self.fixes())

    def effect(self, tried: TriedRecord) -> str:
        saved = duration(tried.saved)
        return f"{count(tried.before, 'repeat')} in all -> {tried.after:,}, {saved} saved"

    def _batch_sizes(self) -> list[str]:
        """Return the batch sizes, if the programs differ in nothing else."""
        reasons = self.every_reason
        if len(reasons) != len(self.programs) or not all(map(is_batch, reasons)):
            return []
        sizes = [size for reason in reasons for size in (reason.before, reason.after)]
        return list(dict.fromkeys(sizes))

    def _what_outside(self) -> str:
        noun, verb = ("program", "compiled") if self.recompiles else ("trace", "made")
        if self.is_resized:
            explanations = (program.explanation for program in self.programs)
            sizes = max(why.nearest or 0 for why in explanations if why is not None) + 2
            name = count(len(self.every), "program") if self.names[1:] else self.names[0]
            return f"{name} {verb} for {sizes} sizes, outside `jit`"
        every, again = (
            [program for program in several if program.is_compiled is (noun == "program")]
            for several in (self.every, self.programs)
        )
        runs = {program.explained.run for program in every}
        in_runs = f" in {len(runs)} runs" if len(runs) > 1 else ""
        what = f"{count(len(every), noun)} {verb} outside `jit`{in_runs}"
        return f"{what}, {len(again):,} of them again"

    def reasons(self) -> list[tuple[Reason, int]]:
        """Return the reasons, one for all leaves that differ alike, and how many more changes."""
        reasons = [reason for reason in self.every_reason if reason.path]
        leaves = grouped(reasons, lambda reason: (reason.path, reason.kind, reason.fix.alike))
        changes = [
            [alike[0] for alike in grouped(of_leaf, lambda reason: reason.change).values()]
            for of_leaf in leaves.values()
        ]
        groups = grouped(
            changes, lambda of: (of[0].kind, of[0].fix.alike, *(reason.change for reason in of))
        )
        if len(groups) > 1:  # a difference in the arguments is more informative
            groups = {of: same for of, same in groups.items() if of[0] is not ReasonKind.CACHE}
        return [
            (first._replace(path=paths_of(leaf[0].path for leaf in same)), len(more))
            for same in groups.values()
            for first, *more in same[:1]
        ]

    def fixes(self) -> list[Fix]:
        """Return the fixes, those that apply to most programs first."""
        every = ([reason.fix for reason in program.reasons] for program in self.programs)
        fixes = Counter(fix for several in every for fix in dict.fromkeys(several) if fix)
        unlike: dict[Any, Fix] = {}
        for fix, _ in fixes.most_common():
            known = unlike.setdefault(fix.alike, fix)
            if fix.act is Act.CONVERT and known is not fix:  # `a` and `b` of one call
                words, names = f"{known.words}; likewise `{{}}`", (*known.names, *fix.names)
                unlike[fix.alike] = known._replace(words=words, names=names)
        return list(unlike.values())

    @property
    def also(self) -> str:
        """What else has to be fixed, in words; empty if nothing has."""
        reasons = [reason for finding in self.needed for reason, _ in finding.reasons()]
        names = [f"{reason.path} ({reason.kind})" for reason in reasons]
        return f"and {paths_of(names)}: fix that first" if names else ""

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, which `json.dumps` takes."""
        return {
            "place": place(self.site),
            "text": self.text,
            "via": self.via,
            "functions": self.names,
            **self._measures(),
            **({"also": self.also} if self.needed else {}),
            "fixes": list(map(str, self.fixes())),
            "processes": self.processes,
            **({} if self.tried is None else {"tried": dataclasses.asdict(self.tried)}),
        }

    def _measures(self) -> dict[str, Any]:
        return {
            "outside": self.is_outside,
            "what": self.what,
            "retraces": self.retraces,
            "recompiles": self.recompiles,
            "seconds": self.seconds,
            "reasons": [
                {"path": reason.path, "kind": reason.kind, "change": reason.change, "more": more}
                for reason, more in self.reasons()
            ],
        }


def is_batch(reason: Reason) -> bool:
    """Return whether a reason is the batch size, which the headline of a finding shows."""
    return reason.kind is ReasonKind.BATCH and reason.path == "batch"


MOST_FINDINGS: Final = 20
LEAST: Final = 1.0
"""A program that takes this many seconds, from trace to compile, is worth a finding."""

_MOST_SIZES: Final = 6
_ROLES: Final = {
    "vmap": ", under `vmap`",
    "pmap": ", under `pmap`",
    "forward": ", in a forward pass",
    "backward": ", in a backward pass",
}


def findings(
    events: list[EventRecord], *, small: bool = False, expected: bool = False
) -> list[Finding]:
    """Return the findings on repeats, the longest first, or only those too `small` to report.

    With `expected`, those at lines marked ``# leafwise: expected``.
    """
    again: dict[Any, list[ProgramEvents]] = {}  # by line, function and role
    whole: dict[Any, list[ProgramEvents]] = {}  # by line, with one cause
    outside: dict[SiteRecord | None, list[ProgramEvents]] = {}
    recreated: dict[Any, list[ProgramEvents]] = {}
    forward: dict[Any, Any] = {}
    for program in programs_of(events):
        first, line = program.first, program.first.site
        if bool(first.expected) is not expected:
            continue
        if (culprit := program.explained.culprit) is not None:
            whole.setdefault((culprit, "culprit"), []).append(program)
        elif first.eager:
            outside.setdefault(line, []).append(program)
        elif program.is_repeat:
            again.setdefault(_line_and_role(program, forward), []).append(program)
        elif program.explained.recreated:
            recreated.setdefault((line, program.identity, first.process), []).append(program)
    for (line, identity, _), programs in recreated.items():
        # A function that is jitted for two objects, or sizes, is not recreated again and again.
        is_resized = any(reason.kind is ReasonKind.SHAPE for reason in programs[0].reasons)
        is_long = programs[0].spent >= LEAST and not is_resized
        if len(programs) > 1 or is_long or programs[0].explained.recreated != "new":
            whole.setdefault((line, identity), []).extend(programs)
    every = [Finding(line, programs) for (line, _), programs in whole.items()]
    every += [row for (line, *_), programs in again.items() for row in _by_cause(line, programs)]
    every += _sizes_joined(outside)
    least = min(_SMALL, _SMALL * busy(events))
    shown = [row for row in every if row.programs and (row.weight < least) is small]
    return sorted(shown, key=lambda finding: -finding.weight)


def _by_cause(site: SiteRecord | None, programs: list[ProgramEvents]) -> list[Finding]:
    """Return a finding for each cause: fixed in this order, each saves what it shows.

    JAX repeats a program until all its causes are fixed, so it counts for the last of them.
    """
    numbers: dict[Any, list[int]] = {}
    for number, program in enumerate(programs):
        for cause in dict.fromkeys(program.causes):
            numbers.setdefault(cause, []).append(number)
    joint = {cause: tuple(several) for cause, several in numbers.items()}  # those alike are one
    left = [(frozenset(map(joint.__getitem__, each.causes)), each) for each in programs]
    rows: list[tuple[frozenset[Any], Finding]] = []
    while left:
        groups = grouped(left, lambda pair: pair[0])
        spent = {causes: -sum(each.seconds for _, each in groups[causes]) for causes in groups}
        chosen = min(groups, key=lambda causes: (len(causes), spent[causes]))
        several = [program for _, program in groups[chosen]]
        every = {joint[cause] for program in several for cause in program.causes}
        own = {cause for cause, alike in joint.items() if alike in chosen}
        finding = Finding(site, [program.limited_to(own) for program in several])
        finding.needed = [earlier for causes, earlier in rows if not causes.isdisjoint(every)]
        rows.append((chosen, finding))
        left = [(causes - chosen, program) for causes, program in left if causes != chosen]
    for _, finding in reversed(rows):
        for earlier in finding.needed:
            earlier.weight = max(earlier.weight, finding.weight)
    return [finding for _, finding in rows]


def expected_repeats(events: list[EventRecord]) -> ExpectedRecord | None:
    """Return how much was repeated at lines that are marked as expected, if anything was."""
    rows = [row for small in (False, True) for row in findings(events, small=small, expected=True)]
    programs = [program for row in rows for program in row.programs]
    lines = list(dict.fromkeys(program.first.expected for program in programs))
    return ExpectedRecord(len(programs), lines, seconds_of(rows)) if rows else None


def _sizes_joined(outside: dict[SiteRecord | None, list[ProgramEvents]]) -> Iterator[Finding]:
    """Yield the findings outside `jit`: of many sizes, all programs after a line's first run."""
    rows = [
        Finding(line, [program for program in programs if program.is_repeat], programs)
        for line, programs in outside.items()
    ]
    yield from (row for row in rows if not row.is_resized)
    resized = {row.site: row for row in rows if row.is_resized}
    every = {line: row.every for line, row in resized.items()}
    # The programs of a line that another such line calls count as those of the calling line.
    for line, row in resized.items():
        callers = [caller for caller in row.programs[0].explained.callers if caller != line]
        if outer := [caller for caller in callers if caller in every]:
            every[outer[-1]] = [*every[outer[-1]], *every.pop(line)]
    for line, programs in every.items():
        first = min(program.explained.run or 0 for program in programs)
        runs = ((program, program.explained.run or 0) for program in programs)
        again = [program for program, run in runs if program.is_repeat or run > first]
        yield Finding(line, again, programs)


_SMALL: Final = 1e-3
"""Repeats below a millisecond, and below this share of JAX's time, are too small to report."""


def _line_and_role(program: ProgramEvents, forward: dict[Any, Any]) -> Any:
    """Return the key that the programs of one finding share, but for the causes."""
    first = program.first
    function = first.site, first.name, first.defined
    key = *function, first.role
    if first.role.endswith("backward") and not program.causes:
        # It has the cause of its forward pass.
        key, program.causes = forward.get(function, (key, program.causes))
    if first.role.endswith("forward"):
        forward[function] = key, program.causes
    return key


def nothing_again(events: list[EventRecord]) -> bool:
    """Return whether no function was compiled twice in the same role, and nothing repeated."""
    compiled = [
        (program.first.process, *program.identity)
        for program in programs_of(events)
        if program.is_compiled and not program.first.eager
    ]
    return len(compiled) == len(set(compiled)) and not findings(events, small=True)


def seconds_of(group: Iterable[Finding]) -> float:
    return busy([event for finding in group for event in finding.events])


def busy(events: Iterable[EventRecord]) -> float:
    """Return the seconds that JAX spent tracing, lowering or compiling, without overlaps."""
    return covered(event.interval for event in events)


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def functions_of(events: Iterable[EventRecord]) -> list[FunctionRecord]:
    """Return the totals of each function, or of a line outside them, the longest first."""
    groups = grouped(
        events, lambda it: (None, line_of(it.site)) if it.eager else (it.name, it.defined)
    )
    for name in [name for name, where in groups if name is not None and not where]:
        named = [key for key in groups if key[0] == name and key[1]]
        if len(named) == 1:
            groups[named[0]] += groups.pop((name, ""))
    functions = [_function(name, line, several) for (name, line), several in groups.items()]
    return sorted(functions, key=lambda function: -function.total)


def _function(name: str | None, where: str, events: list[EventRecord]) -> FunctionRecord:
    # If its definition is not known, use the line that called it first.
    file, _, line = (where or line_of(events[0].site)).rpartition(":")
    traces, lowerings, compiles, hits = (
        [event.seconds for event in events if event.kind == kind] for kind in _ORDER
    )
    return FunctionRecord(
        name="outside jit" if name is None else name,
        file=file,
        line=int(line) if line else 0,
        eager=name is None,
        traces=len(traces),
        lowerings=len(lowerings),
        compiles=len(compiles),
        cache_hits=len(hits),
        seconds=Seconds(sum(traces), sum(lowerings), sum(compiles + hits)),
    )
