"""Why first compiles were long: a finding for each line and kind."""

from typing import Any, Final

from leafwise._findings.findings import (
    LEAST,
    Finding,
    ProgramEvents,
    busy,
    findings,
    programs_of,
)
from leafwise._findings.reasons import Fix
from leafwise._findings.records import (
    CallsRecord,
    EventRecord,
    FirstCompile,
    Origin,
    SiteRecord,
    TriedRecord,
)
from leafwise._findings.start_ups import Counted, passes
from leafwise._findings.words import count, duration, paths_of, size

MOST_FIRST: Final = 5
_LEAST_PLAIN: Final = 5.0  # the same, in seconds, for a program without a fix,
_LEAST_SHARE: Final = 0.1  # or this share of JAX's seconds


class FirstFinding(Finding):
    """The programs whose first compile was long, for one cause at one line."""

    def __init__(
        self,
        site: SiteRecord | None,
        programs: list[ProgramEvents],
        origins: list[Origin],
        fixes: list[Fix] | None = None,  # for a pass outside `jit`
    ) -> None:
        super().__init__(site, programs, None if fixes is None else programs)
        self.origins, self._fixes = origins, fixes
        self.via = [origin.via for origin in self.origins[:1] if origin.via]  # it has the loop
        self.largest = max(programs, key=lambda program: busy(program.events))
        # Whether the process ended before its compile.
        self.is_unfinished = self.largest.events[-1].unfinished

    @property
    def headline(self) -> str:
        """What was compiled, how long it took, and where its operations come from."""
        spent, names = duration(self.seconds), paths_of(self.names)
        if self.is_outside:
            programs = count(len(self.programs), "program")
            return f"{programs} compiled once each outside `jit`, {spent}"
        nbytes = sum(origin.nbytes for origin in self.origins)
        is_folded = any(origin.is_folded for origin in self.origins)
        if nbytes and not (is_folded or self.is_unfinished):
            # Nothing shows what these cost: XLA may only copy them.
            return f"{names} holds {size(nbytes)} of constants"
        several, largest = len(self.names) > 1, self.largest
        took = f"the first compile{'s' * several} of {names} took {spent}"
        if self.is_unfinished:
            seconds = self._seconds("compile")
            after = f" after {duration(seconds)}" if seconds else ""
            took = f"XLA had not finished {names}{after}"
        first = largest.events[-1].first or FirstCompile(0, [])
        return f"{took}: {first.words(self.origins, largest.first.name if several else '')}"

    @property
    def has_cause(self) -> bool:
        """Whether it says more than which lines the operations are from.

        It does if at least half come from functions of packages that it names. What constants cost
        is not known, unless XLA folds them.
        """
        known = {"", *self.names}
        named = [one.share for one in self.origins if one.path.rpartition(" > ")[2] not in known]
        causes = [
            one for one in self.origins if one.kind != "line" and (one.share or one.is_folded)
        ]
        return bool(causes or self._fixes) or sum(named) >= 0.5  # noqa: PLR2004

    def effect(self, tried: TriedRecord) -> str:
        after = duration(max(0.0, self.seconds - tried.saved))
        return f"{duration(self.seconds)} -> {after} in first compiles"

    def fixes(self) -> list[Fix]:
        """Return the fixes that were measured to help."""
        fixes = [origin.fix for origin in self.origins]
        return [fix for fix in self._fixes or fixes if fix]

    def _seconds(self, *kinds: str) -> float:
        return sum(event.seconds for event in self.events if event.kind in kinds)

    def _measures(self) -> dict[str, Any]:
        kind = "outside" if self.is_outside else "line"
        origin, first = (*self.origins, Origin(kind, self.site))[0], self.largest.events[-1].first
        return {
            "kind": origin.kind,
            "programs": len(self.programs),
            "what": self.headline,
            "seconds": {
                "trace": self._seconds("trace"),
                "lower": self._seconds("lowering"),
                "compile": self._seconds("compile", "cache hit"),
            },
            "operations": first.total if first is not None else None,
            "share": origin.share,
            "runs": origin.runs,
            "bytes": origin.nbytes,
            "unfinished": self.is_unfinished,
        }


def first_findings(
    events: list[EventRecord],
    calls: list[CallsRecord] | None = None,
    runs: dict[str, int] | None = None,
) -> list[FirstFinding]:
    """Return the findings on long first compiles, the longest first.

    `runs` has how often lines, and functions, ran again after their first compile.
    """
    resized = [finding for finding in findings(events) if finding.is_resized]
    again = {id(event) for finding in resized for event in finding.events}
    known = {id(program.first) for finding in resized for program in finding.every}
    groups: dict[Any, tuple[list[ProgramEvents], list[Origin]]] = {}
    outside: dict[str, list[ProgramEvents]] = {}
    plain = min(_LEAST_PLAIN, max(LEAST, _LEAST_SHARE * busy(events)))
    for program in programs_of(events):
        first, last = program.first, program.events[-1]
        if program.is_repeat or first.recreated or id(first) in again:
            continue  # counted in the findings on repeats
        has_levels = first.eager and last.kind == "compile" and last.levels
        if last.first is not None and (program.spent >= LEAST or last.unfinished):
            for origins in last.first.grouped():
                origin = (*origins, Origin("line", first.site))[0]
                is_long = program.spent >= plain and not has_levels
                if origin.fix or is_long or last.unfinished:
                    key = origin.site, origin.via, origin.kind
                    groups.setdefault(key, ([], origins))[0].append(program)
                    has_levels = False
        if has_levels and not (id(first) in known or first.expected):
            outside.setdefault(first.process, []).append(program)
    every = [FirstFinding(site, *several) for (site, *_), several in groups.items()]
    jitted = [event.levels for event in events if event.levels and not event.eager]
    counted = Counted(jitted, calls or [], runs or {})
    for programs in outside.values():
        for site, of_pass, fix in passes(programs, counted, LEAST):
            every += [FirstFinding(site, of_pass, [], [fix])]
    return sorted(every, key=lambda finding: -finding.seconds)


def first_seconds(events: list[EventRecord]) -> float:
    programs = programs_of(events)
    first = [program for program in programs if program.is_compiled and not program.is_repeat]
    return busy(event for program in first for event in program.events)
