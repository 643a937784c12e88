"""`leafwise compare`: how two runs of a script differ, from their reports."""

import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from leafwise._findings.json import from_json
from leafwise._findings.records import EventRecord, ProcessRecord, ProgramRecord
from leafwise._findings.words import annotation, clean, count
from leafwise._jax.persistent_cache import differing_parts
from leafwise._processes.agreement import table_differences
from leafwise._programs.description import Record, differences
from leafwise._programs.program import first_differences, unpacked
from leafwise._statics.portable import dump, in_one_order
from leafwise.cli.recorded import VERSION

_SILENT: Final = (
    *("jax_log_", "jax_logging_", "jax_debug_log", "jax_explain_cache", "jax_dump_ir"),
    *("jax_traceback_", "jax_tracer_error", "jax_pprint", "jax_include_debug_info"),
)
"""Prefixes of options and environment variables that only change what JAX logs or prints."""

_CACHE: Final = (
    *("jax_compilation_cache", "jax_enable_compilation_cache", "jax_persistent_cache"),
    "jax_raise_persistent_cache",
)
"""Prefixes of options that change the contents of the persistent cache, but no program."""

_UNSET: Final = "(not set)"
_NOTHING: Final = "nothing"


class RunError(Exception):
    """A file is not a report, or not one that can be compared."""

    def __init__(self, problem: str, file: str) -> None:
        fix = f"leafwise explain --output-format json -o {file} SCRIPT"
        super().__init__(f"{problem}\n  fix: {fix}")


class RunDifference(NamedTuple):
    kind: str
    path: str
    before: str
    after: str

    def __str__(self) -> str:
        """Return it as text, such as ``version of jax: 0.7.0 -> 0.8.0``."""
        return f"{_WORDS.get(self.kind, '')}{self.path}: {self.before} -> {self.after}"


@dataclasses.dataclass(frozen=True)
class Comparison:
    first: str
    second: str
    programs: int
    differing: int
    causes: dict[RunDifference, list[ProgramRecord]]
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values that `json.dumps` accepts."""
        causes = [
            {**cause._asdict(), "programs": list(map(_label, programs))}
            for cause, programs in self.causes.items()
        ]
        return {"version": 1, **vars(self), "causes": causes}


@dataclasses.dataclass
class RecordedRun:
    """The parts of a report that are compared."""

    processes: list[ProcessRecord]
    programs: list[ProgramRecord]
    events: list[EventRecord]
    warnings: list[str]


def read_run(file: str) -> RecordedRun:
    try:
        record: Any = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, MemoryError) as error:  # missing, or truncated
        raise RunError(f"cannot read {file}: {error}", file) from error
    other = f"{file} is not a report of leafwise explain in layout {VERSION}"
    if not isinstance(record, dict) or record.get("version") != VERSION:
        raise RunError(other, file)
    if not record.get("programs"):
        raise RunError(f"{file} has no programs: none was compiled, or recorded", file)
    parts = {name: record.get(name) for name in RecordedRun.__annotations__}
    try:
        run: RecordedRun = from_json(RecordedRun, parts)
    except ValueError as error:
        raise RunError(f"{other}: {error}", file) from error
    if not {program.process for program in run.programs} <= {*range(len(run.processes))}:
        raise RunError(f"{other}: the process of a program is missing", file)
    return run


def compare(first: str, second: str) -> Comparison:
    runs = [read_run(file) for file in (first, second)]
    comparer = _Comparer(*runs)
    try:
        programs, differing = comparer.compare()
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # one was edited
        raise RunError(f"cannot compare {first} and {second}: {error!r}", second) from error
    for file, run in zip((first, second), runs, strict=True):
        for text in run.warnings:
            comparer.causes[RunDifference("warning", file, "", text)] = []
    notes = [f"{why}: {_listed(names)}" for why, names in comparer.notes.items()]
    return Comparison(first, second, programs, differing, comparer.causes, notes)


class _Comparer:
    def __init__(self, one: RecordedRun, other: RecordedRun) -> None:
        self._one, self._other = one, other
        of_run = list(_of_process(one.processes[0], other.processes[0]))
        settings = [cause for cause in of_run if cause.kind in {"environment", "config"}]
        self._of_cache = [cause for cause in settings if cause.path.lower().startswith(_CACHE)]
        self._of_run = [cause for cause in of_run if cause not in self._of_cache]
        self.causes = {cause: list[ProgramRecord]() for cause in self._of_run}
        self.notes: dict[str, list[str]] = {}

    def compare(self) -> tuple[int, int]:
        """Return how many programs the second run has, and how many of them differ."""
        pairs, alone = _matched(self._one.programs, self._other.programs)
        differing = 0
        for before, after in pairs:
            causes = list(self._of_pair(before, after))
            differing += bool(causes)
            for cause in causes:
                self.causes.setdefault(cause, []).append(after)
        for run, program in alone:
            differing += run
            texts = ("", self._why_another(program)) if run else ("compiled", "")
            cause = RunDifference("absent", program.name, *texts)
            self.causes.setdefault(cause, []).append(program)
        return len(self._other.programs), differing

    def _of_pair(self, before: ProgramRecord, after: ProgramRecord) -> Iterator[RunDifference]:
        """Yield why the second run compiled a different program, or missed the persistent cache."""
        programs = before.program, after.program
        inputs = list(_inputs(before, after))
        if None in programs:  # this version of JAX does not let us read programs
            is_other = bool(inputs)
            self._note("JAX did not show its operations, which were not compared", after)
        else:
            digests = [program.digest for program in programs if program is not None]
            is_other = len({*digests}) > 1 or any(cause.kind == "option" for cause in inputs)
        if is_other:
            yield from self._of_run
            decisive = [cause for cause in inputs if cause.kind not in {"order", "config"}]
            yield from (cause for cause in inputs if cause.kind != "order" or not decisive)
            versions = {cause.path for cause in self._of_run if cause.kind == "version"}
            if not (decisive or versions & {"jax", "jaxlib"}):  # or the operations add nothing
                yield from self._of_operations(before, after)
        elif before.key and after.key and before.key != after.key:
            yield from self._of_run
            parts = differing_parts(before.key_parts, after.key_parts)
            yield RunDifference("key", " and ".join(parts) or "an unknown part", "", "")
            if "the program" in parts:
                yield from self._history(before, after)
        elif after.cache != "hit" and {before.cache, after.cache} != {"off"}:
            if before.unwritten and after.cache != "off":
                why = f"missed, as the first run did not write it, {before.unwritten}"
                self._note(why, after)
            else:
                yield from self._of_cache
                yield RunDifference("missed", "the persistent cache", before.cache, after.cache)

    def _why_another(self, program: ProgramRecord) -> str:
        """Return "compiled", or "compiled again" with what differs from the previous program."""
        same = [other for other in self._other.programs if _function(other) == _function(program)]
        earlier = same[: same.index(program)]
        causes = _inputs(earlier[-1], program) if earlier else ()
        texts = list(map(str, causes))[:3]
        return f"compiled again, by {'; '.join(texts)}" if texts else "compiled"

    def _of_operations(
        self, before: ProgramRecord, after: ProgramRecord
    ) -> Iterator[RunDifference]:
        """Yield the first operations that differ, and the first trace before them that does."""
        if before.program is None or after.program is None:
            return
        one, other = unpacked(before.program), unpacked(after.program)
        if one is None or other is None:
            self._note("too large to compare its operations", after)
            yield RunDifference("operation", _label(after), "", "")
            return
        sides = zip(*first_differences(one, other), strict=True)
        texts = ("\n".join(str(line or _NOTHING) for line in side) for side in sides)
        yield RunDifference("operation", _label(after), *texts)
        for path, what in after.refused.items():
            self._note(f"{path} was not compared, as another process cannot read it: {what}", after)
        forms = [sorted(line.form for line in run.operations) for run in (one, other)]
        seed = self._one.processes[before.process].hash_seed
        if self._other.processes[after.process].hash_seed != seed and forms[0] == forms[1]:
            self._note(
                "the same operations in another order: if a loop over a set makes them, sort it, "
                "or start both runs with one PYTHONHASHSEED",
                after,
            )
        yield from self._history(before, after)

    def _history(self, before: ProgramRecord, after: ProgramRecord) -> Iterator[RunDifference]:
        """Yield the first trace before a program at which the two runs diverge."""
        traces = [
            [
                f"{event.name} ({event.defined or 'of JAX'})"
                for event in run.events
                if event.kind == "trace" and event.start < program.end
            ]
            for run, program in ((self._one, before), (self._other, after))
        ]
        pairs = itertools.zip_longest(*traces, fillvalue=_NOTHING)
        first = next((pair for pair in pairs if pair[0] != pair[1]), None)
        if first is not None:
            yield RunDifference("history", "traced before", *first)

    def _note(self, text: str, program: ProgramRecord) -> None:
        self.notes.setdefault(text, []).append(_label(program))


_ALIKE: Final[tuple[Callable[[ProgramRecord], Any], ...]] = (
    lambda record: record.program and record.program.digest,
    lambda record: (record.digest, dump(record.captures)),
    lambda record: record.digest,
    lambda _: "",
)
"""Within a function, programs for which the first of these agrees are paired first."""


def _matched(
    ones: list[ProgramRecord], others: list[ProgramRecord]
) -> tuple[list[tuple[ProgramRecord, ProgramRecord]], list[tuple[int, ProgramRecord]]]:
    """Return pairs of programs, in the order of the second run, and programs without a partner."""
    pairs: dict[int, ProgramRecord] = {}
    left = dict(enumerate(ones))
    for same in _ALIKE:
        waiting: dict[Any, list[int]] = {}
        for place, program in left.items():
            waiting.setdefault((_function(program), same(program)), []).append(place)
        for place, program in enumerate(others):
            key = _function(program), same(program)
            if place not in pairs and key[1] is not None and waiting.get(key):
                pairs[place] = left.pop(waiting[key].pop(0))
    alone = [(0, program) for program in left.values()]
    alone += [(1, program) for place, program in enumerate(others) if place not in pairs]
    return [(pairs[place], others[place]) for place in sorted(pairs)], alone


def _function(program: ProgramRecord) -> tuple[str, str]:
    # JAX moves its own functions between modules.
    return ("", program.name) if program.eager else (program.function, program.name)


def _label(program: ProgramRecord) -> str:
    site = program.site
    return f"{program.name} ({site.file}:{site.line})" if site else program.name


def _listed(names: Iterable[str]) -> str:
    once = list(dict.fromkeys(names))
    more = f" and {len(once) - 5} more" if len(once) > 5 else ""  # noqa: PLR2004  # as many fit
    return ", ".join(once[:5]) + more


def _of_process(one: ProcessRecord, other: ProcessRecord) -> Iterator[RunDifference]:
    """Yield the differences that all programs share."""
    # Not also the option that a variable sets.
    variables = one.environment.items() ^ other.environment.items()
    options = one.config.keys() & other.config.keys() - {name.lower() for name, _ in variables}
    tables: list[dict[str, Mapping[str, Any]]] = [
        {
            "version": process.versions,
            "environment": process.environment,
            "flags": {"command line": " ".join(process.flags)},
            "devices": {"devices": process.devices, "processes": process.processes},
            "config": {name: process.config[name] for name in options},
        }
        for process in (one, other)
    ]
    for kind, table in tables[0].items():
        yield from _of_tables(kind, table, tables[1][kind])


def _of_tables(
    kind: str, one: Mapping[str, Any], other: Mapping[str, Any]
) -> Iterator[RunDifference]:
    for change in sorted(table_differences(one, other, _UNSET)):
        if not change.path.lower().startswith(_SILENT):
            yield RunDifference(kind, *change)


def _inputs(one: ProgramRecord, other: ProgramRecord) -> Iterator[RunDifference]:
    """Yield the differences in arguments, captures and options between two programs."""
    yield from _of_records("argument", one.arguments, other.arguments)
    yield from _of_records("capture", one.captures, other.captures)
    yield from _of_tables("config", one.config, other.config)
    if one.program is not None and other.program is not None:
        options = one.program.options, other.program.options
        of_run = {"jax", "XLA_FLAGS"}  # which are compared for the whole run
        yield from (cause for cause in _of_tables("option", *options) if cause.path not in of_run)


def _of_records(kind: str, one: Record | None, other: Record | None) -> Iterator[RunDifference]:
    if one is None or other is None:
        return
    for path, *values in differences(one, other):
        sorted_ = [dump(in_one_order(run.get(path))) for run in (one, other)]
        texts = (_HASH.sub(r"\1...", text) for text in values)
        is_order = path in one and sorted_[0] == sorted_[1]
        yield RunDifference("order" if is_order else kind, path.removeprefix(", "), *texts)


_HASH: Final = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{32,}(?:\.\.\.)?")


def format_comparison(comparison: Comparison) -> str:
    """Return a comparison as text: each cause once, with the programs it affects."""
    programs = count(comparison.programs, "program", "programs")
    if not comparison.causes:
        text = f"nothing differs, in {programs}"
    elif not comparison.differing:
        text = f"the same {programs}, under other conditions"
    else:
        are = "is" if comparison.differing == 1 else "are"
        text = f"{comparison.differing} of {programs} {are} not as before"
    lines = [f"{comparison.first} -> {comparison.second}: {text}"]
    for cause, concerned in comparison.causes.items():
        lines += ["", *_cause_lines(cause, concerned, comparison.programs)]
    if comparison.notes:
        lines += ["", *(f"note: {note}" for note in comparison.notes)]
    return "\n".join(map(clean, lines))


def annotations_of(comparison: Comparison) -> str:
    """Return GitHub Actions annotations, one for each cause."""
    lines: list[str] = []
    for cause, programs in comparison.causes.items():
        text = "\n".join(_cause_lines(cause, programs, comparison.programs))
        site = programs[0].site if programs else None
        where = (site.file, site.line) if site else ("", 0)
        lines.append(annotation("warning", text, cause.kind, *where))
    return "\n".join(lines)


def _cause_lines(
    cause: RunDifference, concerned: list[ProgramRecord], programs: int
) -> Iterator[str]:
    kind, path, before, after = cause
    names = list(map(_label, concerned))
    listed = f"all {programs} programs" if len(names) == programs > 1 else _listed(names)
    match kind:
        case "absent":
            yield f"{path}: in the {'second' if after else 'first'} run only, {after or before}"
            yield f"  {len(names)} times: {listed}" if len(names) > 1 else f"  {listed}"
            return
        case "operation":
            yield f"{path}: arguments and captures agree, and the program differs"
            for pair in zip(before.splitlines(), after.splitlines(), strict=True):
                for run, line in zip(("first", "second"), pair, strict=True):
                    if line != _NOTHING:
                        yield f"  {run} run: {line}"
            return
        case "warning":
            yield f"{path}: {after}"
            return
        case "key":
            yield f"another key in the persistent cache, by {path}"
        case _:
            yield str(cause)
    yield f"  {listed}" if names else "  changes no program before XLA compiles it"


_WORDS: Final = {
    "version": "version of ",
    "environment": "environment variable ",
    "flags": "XLA flags, ",
    "config": "jax.config.",
    "argument": "argument ",
    "capture": "capture ",
    "order": "order of the set ",
    "option": "compile option ",
    "missed": "of equal programs, ",
}
