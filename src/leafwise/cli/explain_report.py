"""A report on a script, from the records that its processes left. Needs no JAX."""

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from leafwise._display import shape
from leafwise._objects.call_site import short_file

Record: TypeAlias = dict[str, Any]


class Process(NamedTuple):
    """What one process recorded.

    Attributes:
        pid: Its number.
        records: The records, in order.
    """

    pid: int
    records: list[Record]

    def every(self, key: str) -> Iterable[Any]:
        """Yield each record of a kind."""
        return (each[key] for each in self.records if key in each)


def read(folder: Path) -> list[Process]:
    """Return what the processes recorded that wrote to a folder."""
    found: list[Process] = []
    for file in folder.glob("*.jsonl"):
        records: list[Record] = []
        for line in file.read_bytes().splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:  # the process was killed as it wrote
                break
        found.append(Process(int(file.stem), records))
    return found


def make_report(
    processes: Sequence[Process], main: int, version: str, program: str, began: float
) -> shape.Report:
    """Return the report on a script, which has neither its duration nor its end yet.

    Args:
        processes: What its processes recorded.
        main: The number of the process of the script itself.
        version: The version of leafwise.
        program: The command line of the script.
        began: When it began, as `time.time` says it.
    """
    events = [
        _of_process(event, process.pid, main)
        for process in processes
        for event in process.every("event")
    ]
    events.sort(key=lambda event: event["start"])
    versions = [each for process in processes for each in process.records if "jax" in each]
    warnings = [text for process in processes for text in process.every("warning")]
    report: shape.Report = {
        "leafwise": version,
        "jax": versions[0]["jax"] if versions else _installed("jax"),
        "python": versions[0]["python"] if versions else platform.python_version(),
        "program": program,
        "seconds": 0.0,
        "exit": "0",
        "functions": functions(events),
        "events": [_event(event, began) for event in events],
        "warnings": [*dict.fromkeys(warnings), *recreated(events), *_unwatched(processes)],
    }
    if captured := _captures(processes):
        report["captures"] = captured
    return report


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _of_process(event: Record, pid: int, main: int) -> Record:
    """Return an event whose paths are short, and whose thread and function say the process."""
    site = event["site"]
    thread = event["thread"] if pid == main else f"{event['thread']} of process {pid}"
    return {
        **event,
        "thread": thread,
        "site": site and {**site, "file": short_file(site["file"])},
        "file": event["file"] and short_file(event["file"]),
        "fun": None if event["fun"] is None else (pid, event["fun"]),
    }


def _event(event: Mapping[str, Any], began: float) -> shape.EventRecord:
    return {
        "kind": event["kind"],
        "name": event["name"],
        "eager": event["eager"],
        "start": max(0.0, event["start"] - began),
        "seconds": event["seconds"],
        "thread": event["thread"],
        "site": event["site"],
        "explanation": event["explanation"],
    }


def functions(events: Iterable[Record]) -> list[shape.FunctionRecord]:
    """Sum up the events of each function, the most seconds first."""
    groups: dict[Any, list[Record]] = {}
    for event in events:
        known = (event["file"], event["line"]) if event["file"] else event["fun"]
        key = None if event["eager"] else (event["name"], known)
        groups.setdefault(key, []).append(event)
    # An event of which JAX gave only the name belongs to the one function of that name.
    for name, _ in [key for key in groups if key is not None and key[1] is None]:
        same = [key for key in groups if key is not None and key[0] == name and key[1]]
        if len(same) == 1:
            groups[same[0]] += groups.pop((name, None))
    found = [_function(each) for each in groups.values()]
    return sorted(found, key=_total_seconds, reverse=True)


def _total_seconds(function: shape.FunctionRecord) -> float:
    seconds = function["seconds"]
    return seconds["trace"] + seconds["lower"] + seconds["compile"]


def _function(events: Sequence[Record]) -> shape.FunctionRecord:
    first = events[0]
    known = next((event for event in events if event["fun"] is not None), first)

    def count(kind: str) -> int:
        return sum(event["kind"] == kind for event in events)

    def seconds(*kinds: str) -> float:
        return float(sum(event["seconds"] for event in events if event["kind"] in kinds))

    return {
        "name": "eager operations" if first["eager"] else first["name"],
        "file": known["file"],
        "line": known["line"],
        "eager": first["eager"],
        "traces": count("trace"),
        "lowerings": count("lowering"),
        "compiles": count("compile"),
        "cache_hits": count("cache hit"),
        "seconds": {
            "trace": seconds("trace"),
            "lower": seconds("lowering"),
            "compile": seconds("compile", "cache hit"),
        },
    }


_OFTEN: Final = 3


def recreated(events: Iterable[Record]) -> list[str]:
    """Warn of functions that are recreated, a new one each call: JAX traces each of them."""
    traced: dict[tuple[str, str, int, int], set[int]] = {}
    for event in events:
        if event["kind"] == "trace" and event["fun"] is not None and event["file"]:
            process, number = event["fun"]  # each process has functions of its own
            place = event["name"], event["file"], event["line"], process
            traced.setdefault(place, set()).add(number)
    return [
        f"{name} ({file}:{line}) was recreated and jitted {len(funs)} times, and traced each time: "
        "define it, and call jax.jit, once, outside the loop"
        for (name, file, line, _), funs in traced.items()
        if len(funs) >= _OFTEN
    ]


def _unwatched(processes: Sequence[Process]) -> list[str]:
    """Warn of processes that are not in the report, and of what went wrong in others."""
    known = {process.pid for process in processes}
    found: list[str] = []
    for process in processes:
        for record in process.records:
            if "unwatched" in record:
                found.append(f"not watched: {' '.join(record['unwatched'])}")
            elif "started" in record and record["started"] not in known:
                command = " ".join(record["command"])
                found.append(f"not watched: process {record['started']}, {command}")
            elif "fault" in record:
                found.append(f"not recorded, of process {process.pid}: {record['fault']}")
    return list(dict.fromkeys(found))


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
