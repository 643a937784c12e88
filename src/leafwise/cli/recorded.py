"""The report on a script, made from the records of its processes. Does not import JAX."""

import json
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict, cast

import leafwise_explain
from leafwise._findings.findings import expected_repeats, findings, functions_of
from leafwise._findings.first_compiles import first_findings
from leafwise._findings.json import RecordError, from_json
from leafwise._findings.records import (
    AuditRecord,
    CallRecord,
    CallsRecord,
    CapturesRecord,
    EventRecord,
    ProcessRecord,
    ProgramRecord,
    StaleCaptureRecord,
    WrongRecord,
    shortened,
)
from leafwise._findings.report import Report

VERSION: Final = 1
"""The version of the JSON layout; it changes when a key is removed or changes its meaning."""


class Record(TypedDict, total=False):
    """What one line has of these."""

    jax: str
    python: str
    began: float
    command: str
    event: EventRecord
    compiling: EventRecord
    captures: CapturesRecord
    stale: StaleCaptureRecord
    owner: int
    wrong: WrongRecord
    audited: AuditRecord
    call: CallRecord
    calls: list[CallsRecord]
    runs: dict[str, int]
    process: ProcessRecord
    program: ProgramRecord
    left_out: dict[str, str]
    fault: str
    ended: float
    error: str
    docs: str | None


class Process(NamedTuple):
    """What one process recorded."""

    pid: int
    records: list[Record]
    name: str = ""  # its rank or process id
    cut: int = 0  # how many lines were not written to their end

    def every(self, key: str) -> Iterable[Any]:
        records = cast("list[dict[str, Any]]", self.records)
        return (record[key] for record in records if key in record)


def files_in(folder: Path) -> Iterator[Path]:
    return folder.glob("rank*-[0-9]*.jsonl")


def missing(folder: Path, processes: Sequence[Process]) -> list[str]:
    """Return a line on how many records could not be written, or not to their end; or none."""
    cut = sum(process.cut for process in processes)
    try:
        number = cut + (folder / leafwise_explain.LOST).stat().st_size
    except OSError:  # it was removed, or could not be changed
        return ["it is not known how many records are missing"]
    are = "record is" if number == 1 else "records are"
    why = "the disk was full, too many files were open, or a process was killed"
    return [f"{number:,} {are} missing: {why}"] if number else []


def read(folder: Path) -> list[Process]:
    """Return what the processes recorded; a `RecordError` names file and line of what is wrong."""
    processes: list[Process] = []
    files = sorted(files_in(folder), key=lambda file: (file.stat().st_ctime, file.name))
    ranks = Counter(file.stem.rpartition("-")[0] for file in files)
    for file in files:
        rank, _, pid = file.stem.rpartition("-")
        if not file.is_file() or not pid.isdecimal():
            raise RecordError(f"{file}: wanted a file of records, with a number after its last -")
        records, cut = list[Record](), 0
        for number, line in enumerate(file.read_bytes().splitlines(), 1):
            try:
                records += [from_json(Record, json.loads(line))] if line else []
            except (RecordError, RecursionError) as error:
                raise RecordError(f"{file}:{number}: {error}") from error
            except ValueError:  # the process was killed, or the disk was full
                cut += 1
        name = f"rank {rank[4:]}" if ranks[rank] == 1 and rank != "rank" else f"process {pid}"
        processes.append(Process(int(pid), records, name, cut))
    return processes


def make_report(
    processes: Sequence[Process], main: Process | None, program: str, began: float, end: float = 0.0
) -> Report:
    """Return the report on a script, without its duration and how it ended."""
    events: list[EventRecord] = []
    for process in processes:
        name = "" if process is main else process.name
        of_process = [*process.every("event"), *unfinished(process, end)]
        for event in of_process:
            event.start, event.process = max(0.0, event.start - began), name
        events += of_process
    events.sort(key=lambda event: event.start)
    versions = [version for process in processes for version in process.every("jax")]
    pythons = [version for process in processes for version in process.every("python")]
    lost = [record for process in processes for record in process.every("left_out")]
    costs = [record for process in processes for record in process.every("call")]
    of_processes, programs = _programs(processes, began)
    calls = [one for process in processes for several in process.every("calls") for one in several]
    runs = Counter[str]()
    for process in processes:
        for of_process in process.every("runs"):
            runs.update({shortened(line): number for line, number in of_process.items()})
    return Report(
        version=VERSION,
        leafwise=metadata.version("leafwise"),
        jax=versions[0] if versions else metadata.version("jax"),
        python=pythons[0] if pythons else platform.python_version(),
        program=program,
        seconds=0.0,
        exit=0,
        ended="",
        functions=functions_of(events),
        events=events,
        warnings=[
            f"not recorded, of {process.name or 'this process'}: {text}"
            for process in processes
            for text in process.every("fault")
        ],
        findings=findings(events),
        expected=expected_repeats(events),
        first=first_findings(events, calls, runs),
        calls=list({(cost.function, cost.site): cost for cost in costs}.values()),
        left_out={name: part for record in lost for name, part in record.items()},
        audit=_audit(processes),
        captures=_captures(processes),
        processes=of_processes,
        programs=programs,
    )


def unfinished(process: Process, end: float) -> Iterator[EventRecord]:
    """Yield the compiles of a process that were in progress at its end, or at a time."""
    pending: dict[str, EventRecord] = {}
    for record in process.records:
        if "compiling" in record:
            pending[record["compiling"].thread] = record["compiling"]
        elif "event" in record and record["event"].kind in ("compile", "cache hit"):
            pending.pop(record["event"].thread, None)
        elif "ended" in record:
            pending.clear()
    for compiling in pending.values():
        compiling.seconds = max(0.0, end - compiling.start)
        yield compiling


def _programs(
    processes: Sequence[Process], began: float
) -> tuple[list[ProcessRecord], list[ProgramRecord]]:
    """Return the shared facts of each process, and all programs in order of time."""
    of_processes: list[ProcessRecord] = []
    programs: list[ProgramRecord] = []
    for process in processes:
        of_processes += process.every("process")
        for program in process.every("program"):
            program.process, program.end = len(of_processes) - 1, program.end - began
            programs.append(program)
    return of_processes, sorted(programs, key=lambda program: program.end)


def _audit(processes: Sequence[Process]) -> AuditRecord | None:
    """Return the findings of the audit: each call site and value once, with its count."""
    wrong = Counter[tuple[str, str]]()
    for process in processes:
        last = {(record.call, record.what): record.times for record in process.every("wrong")}
        wrong.update(last)
    totals = [record for process in processes for record in process.every("audited")]
    if not (wrong or totals):
        return None
    calls = sum(record.calls for record in totals)
    seconds = float(sum(record.seconds for record in totals))
    found = [
        WrongRecord(call or "line not known", what, times) for (call, what), times in wrong.items()
    ]
    return AuditRecord(calls, seconds, found)


def _captures(processes: Sequence[Process]) -> list[CapturesRecord]:
    """Return the captures of each function's last trace, functions with stale calls first."""
    last: dict[tuple[str, int, int], CapturesRecord] = {}
    stale_calls: dict[tuple[int, int], list[StaleCaptureRecord]] = {}
    for process in processes:
        for record in process.records:
            of = process.pid, record.get("owner", 0)
            if "captures" in record:
                captured = record["captures"]
                captured.stale = stale_calls.setdefault(of, [])
                last[captured.function, *of] = captured
            elif "stale" in record:
                stale = record["stale"]
                stale.call = stale.call or "line not known"
                stale_calls.setdefault(of, []).append(stale)
    return sorted(last.values(), key=lambda captured: not captured.stale)
