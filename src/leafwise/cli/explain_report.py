"""A report on a script, from the records that its processes left. Needs no JAX."""

import json
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from leafwise._display import shape
from leafwise._display.findings import findings, functions_of
from leafwise._objects.call_site import short_file

Record: TypeAlias = dict[str, Any]


VERSION: Final = 1
"""Of the layout of the report as JSON: another one once a key is gone or means something else."""


class Process(NamedTuple):
    """What one process recorded."""

    pid: int
    records: list[Record]
    name: str = ""  # by its rank or its number

    def every(self, key: str) -> Iterable[Any]:
        """Yield each record of a kind."""
        return (each[key] for each in self.records if key in each)


def files_in(folder: Path) -> Iterator[Path]:
    """Return the files of records in a folder."""
    return folder.glob("rank*-[0-9]*.jsonl")


def read(folder: Path) -> list[Process]:
    """Return what the processes recorded that wrote to a folder."""
    found: list[Process] = []
    files = sorted(files_in(folder), key=lambda file: (file.stat().st_ctime, file.name))
    ranks = Counter(file.stem.partition("-")[0] for file in files)
    for file in files:
        records: list[Record] = []
        for line in file.read_bytes().splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:  # the process was killed as it wrote
                break
        rank, _, pid = file.stem.partition("-")
        name = f"rank {rank[4:]}" if ranks[rank] == 1 else f"process {pid}"
        found.append(Process(int(pid), records, name if rank != "rank" else f"process {pid}"))
    return found


def make_report(
    processes: Sequence[Process], main: Process | None, version: str, program: str, began: float
) -> shape.Report:
    """Return the report on a script, which has neither its duration nor its end yet."""
    events = [
        _event(event, "" if process is main else process.name, began)
        for process in processes
        for event in process.every("event")
    ]
    events.sort(key=lambda event: event["start"])
    versions = [each for process in processes for each in process.records if "jax" in each]
    report: shape.Report = {
        "version": VERSION,
        "leafwise": version,
        "jax": versions[0]["jax"] if versions else metadata.version("jax"),
        "python": versions[0]["python"] if versions else platform.python_version(),
        "program": program,
        "seconds": 0.0,
        "exit": 0,
        "ended": "",
        "functions": functions_of(events),
        "events": events,
        "warnings": _faults(processes),
    }
    for process in processes:
        for lost in process.every("left_out"):
            report["left_out"] = {**report.get("left_out", {}), **lost}
    report["findings"] = [each.record() for each in findings(report)]
    if any("program" in record for process in processes for record in process.records):
        report["processes"], report["programs"] = _programs(processes, began)
    if audited := _audit(processes):
        report["audit"] = audited
    if captured := _captures(processes):
        report["captures"] = captured
    return report


def _event(event: Mapping[str, Any], process: str, began: float) -> shape.EventRecord:
    """Return an event whose paths are short, and which says the process."""
    site = event["site"]
    found: Any = {name: event[name] for name in (*_EVENT, *_MAYBE) if name in event}
    found["start"] = max(0.0, event["start"] - began)
    found["process"] = process
    found["site"] = site and {**site, "file": short_file(site["file"])}
    found["defined"] = _short(f"{event['file']}:{event['line']}")
    if "via" in event:
        found["via"] = _short(event["via"])
    record: shape.EventRecord = found
    return record


_EVENT: Final = ("kind", "name", "eager", "seconds", "thread", "explanation")
_MAYBE: Final = ("role", "run", "recreated", "inner", "miss", "call")


def _programs(
    processes: Sequence[Process], began: float
) -> tuple[list[shape.ProcessRecord], list[shape.ProgramRecord]]:
    """Return what counts for all programs of each process, and the programs in order of time."""
    of_processes: list[shape.ProcessRecord] = []
    programs: list[shape.ProgramRecord] = []
    for process in processes:
        of_processes += process.every("process")
        for each in process.every("program"):
            each["process"], each["end"] = len(of_processes) - 1, each["end"] - began
            if each["site"]:
                each["site"]["file"] = short_file(each["site"]["file"])
            programs.append(each)
    return of_processes, sorted(programs, key=lambda each: each["end"])


def _faults(processes: Sequence[Process]) -> list[str]:
    """Return what went wrong in the recording of processes."""
    found = [(process, each) for process in processes for each in process.every("fault")]
    return [f"not recorded, of {process.name or 'this process'}: {each}" for process, each in found]


def _audit(processes: Sequence[Process]) -> shape.AuditRecord | None:
    """Return what the audit found: each call site and value once, with how often."""
    wrong = Counter[tuple[str, str]]()
    for process in processes:
        last = {(found["call"], found["what"]): found["times"] for found in process.every("wrong")}
        for (call, what), times in last.items():
            wrong[_short(call) or "line not known", what] += times
    totals = [each for process in processes for each in process.every("audited")]
    if not (wrong or totals):
        return None
    return {
        "calls": sum(each["calls"] for each in totals),
        "seconds": float(sum(each["seconds"] for each in totals)),
        "found": [
            {"call": call, "what": what, "times": times} for (call, what), times in wrong.items()
        ],
    }


def _captures(processes: Sequence[Process]) -> list[shape.CapturesRecord]:
    """Return what each function captured when last traced: those with stale calls first."""
    last: dict[tuple[str, int, int], shape.CapturesRecord] = {}
    found_stale: dict[tuple[int, int], list[shape.StaleCaptureRecord]] = {}
    for process in processes:
        for record in process.records:
            if "captures" in record:
                function = record["captures"]
                of = process.pid, record["owner"]
                function["stale"] = found_stale.setdefault(of, [])
                last[function["function"], *of] = function
            elif "stale" in record:
                stale: shape.StaleCaptureRecord = record["stale"]
                stale["line"] = _short(stale["line"])
                stale["call"] = _short(stale["call"]) or "line not known"
                found_stale.setdefault((process.pid, record["owner"]), []).append(stale)
    return sorted(last.values(), key=lambda each: not each.get("stale"))


def _short(place: str) -> str:
    file, _, line = place.rpartition(":")
    return f"{short_file(file)}:{line}" if file else ""
