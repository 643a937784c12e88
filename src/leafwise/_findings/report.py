"""The report of `leafwise explain`: what its JSON holds."""

import dataclasses
from collections.abc import Iterator
from typing import Final

from leafwise._findings.findings import (
    MOST_FINDINGS,
    Finding,
    ProgramEvents,
    busy,
    programs_of,
    seconds_of,
)
from leafwise._findings.first_compiles import MOST_FIRST, FirstFinding
from leafwise._findings.records import (
    AuditRecord,
    CallRecord,
    CapturesRecord,
    EventRecord,
    ExpectedRecord,
    FunctionRecord,
    ProcessRecord,
    ProgramRecord,
    place,
)
from leafwise._findings.words import duration


@dataclasses.dataclass
class TogetherRecord:
    """The number of findings with a fix that helped, and the run with all these fixes."""

    findings: int
    before: int
    after: int
    seconds: float
    left: list[Finding]  # new in that run: the remaining causes of a finding
    verdict: str
    written: bool = False  # by `--write`, which leaves it if the verdict is by counts alone


@dataclasses.dataclass
class Report:
    """What JAX did while a script ran."""

    version: int  # of the JSON layout
    leafwise: str
    jax: str
    python: str
    program: str
    seconds: float
    exit: int
    ended: str
    functions: list[FunctionRecord]
    events: list[EventRecord]
    warnings: list[str]
    findings: list[Finding]
    first: list[FirstFinding]
    calls: list[CallRecord] = dataclasses.field(default_factory=list[CallRecord])
    expected: ExpectedRecord | None = None
    # What JAX did not expose, each with what the report lacks because of it.
    left_out: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    together: TogetherRecord | None = None
    untried: int = 0  # the findings for which `--try` had no edit, or no run left
    recorded: int = 0  # the processes in a folder
    second_run: float | None = None  # the seconds of one with all programs in JAX's cache on disk
    audit: AuditRecord | None = None
    docs: str = ""  # the page on the JAX error that ended the script
    captures: list[CapturesRecord] = dataclasses.field(default_factory=list[CapturesRecord])
    processes: list[ProcessRecord] = dataclasses.field(default_factory=list[ProcessRecord])
    programs: list[ProgramRecord] = dataclasses.field(default_factory=list[ProgramRecord])
    jax_seconds: float = dataclasses.field(init=False)
    explained_seconds: float = dataclasses.field(init=False)  # of the findings that have a cause

    def __post_init__(self) -> None:
        known = [finding for finding in self.shown() if finding.site and finding.has_cause]
        self.jax_seconds = busy(self.events)
        self.explained_seconds = seconds_of(known)

    def shown(self) -> list[Finding]:
        """Return the findings that the text has in full."""
        return [*self.findings[:MOST_FINDINGS], *self.first[:MOST_FIRST]]


def once_each(report: Report) -> list[tuple[str, int, float]]:
    """Return line, programs and seconds for code outside jitted functions without a finding."""
    every = (*report.findings, *report.first)
    outside = [finding for finding in every if finding.is_outside]
    programs = [program for finding in outside for program in finding.programs]
    known = {(program.first.site, program.first.name) for program in programs}
    lines: dict[str, list[ProgramEvents]] = {}
    for program in programs_of(report.events):
        at = program.first.site, program.first.name
        of_others = program.explained.culprit or program.first.expected
        is_plain = program.is_compiled and not of_others
        if program.first.eager and is_plain and at not in known:
            lines.setdefault(place(program.first.site), []).append(program)
    rows = [
        (line, len(programs), busy(event for program in programs for event in program.events))
        for line, programs in lines.items()
    ]
    return sorted(rows, key=lambda row: -row[2])


def cache_off_lines(report: Report) -> Iterator[str]:
    """Yield a line on what JAX's cache on disk would save the next run, if it is off."""
    variables = cache_variables(report)
    if variables is not None:
        names = " and ".join([CACHE_FOLDER, *(f"{name}={value}" for name, value in variables)])
        what = duration(busy(_uncached(report)))
        text = f"with {names} the next run reads from disk what took XLA {what}"
        if report.second_run is not None:
            text += f"; tried: {duration(report.seconds)} -> {duration(report.second_run)}"
        yield text


CACHE_FOLDER: Final = "JAX_COMPILATION_CACHE_DIR"


def cache_variables(report: Report) -> list[tuple[str, str]] | None:
    """Return the variables to set besides `CACHE_FOLDER`, or None if a cache would save little."""
    compiles = _uncached(report)
    spent = busy(compiles)
    if spent < max(_LEAST_SAVED, _LEAST_PART * report.seconds):
        return None
    quick = sum(event.seconds for event in compiles if event.seconds < _NOT_WRITTEN)
    return [("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")] if quick * 2 > spent else []


def _uncached(report: Report) -> list[EventRecord]:
    compiles = (event for event in report.events if event.kind == "compile")
    return [event for event in compiles if not (event.miss or event.unfinished)]


_LEAST_SAVED: Final = 2.0
_LEAST_PART: Final = 0.1
_NOT_WRITTEN: Final = 1.0
"""By default, JAX does not cache programs that compile in fewer seconds."""
