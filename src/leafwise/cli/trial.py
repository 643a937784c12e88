"""Trying fixes: rerun the script with each edit, and compare its output and what JAX does."""

import argparse
import ast
import contextlib
import functools
import itertools
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from leafwise._findings.findings import Finding, busy, findings, seconds_of
from leafwise._findings.first_compiles import MOST_FIRST, FirstFinding
from leafwise._findings.reasons import Act
from leafwise._findings.records import TriedRecord, WrongRecord
from leafwise._findings.report import CACHE_FOLDER, Report, TogetherRecord, cache_variables
from leafwise._findings.words import COMPARED, CONFIRMED, ROUNDED, SAME, STALE, UNKNOWN, count
from leafwise._objects.files import NewFile, write_files
from leafwise._objects.locks import cached_property
from leafwise.cli.edits import (
    Code,
    Replacement,
    applied,
    code_of,
    diff,
    edits_for,
    shown,
    uncommitted,
)
from leafwise.cli.explain_script import Script, run

_LONGEST: Final = 3
"""An edit fails if the script takes this many times as long; the check may take twice more."""

_INTERRUPTED: Final = ("interrupted", "SIGTERM", "SIGHUP", "SIGQUIT")
_Edited: TypeAlias = tuple[list[Replacement], list[Finding]]


def problem(script: Script, options: argparse.Namespace) -> str:
    """Return why a script cannot be rerun; empty if it can."""
    if script.is_records:
        return f"--try runs a script, and {script.name} is a folder of records"
    file = Path(script.name)
    if script.is_module or not file.is_file():
        return ""
    code = code_of(str(file.absolute()))
    every = [] if code is None else code.nodes
    nodes = (node for node in every if isinstance(node, ast.Name | ast.Attribute))
    if not {"input", "sys.stdin"}.isdisjoint(map(ast.unparse, nodes)):
        return f"--try runs a script more than once, and {script.name} reads standard input"
    return uncommitted([script.name]) if options.write and not options.force else ""


def run_and_try(
    script: Script, wanted: dict[str, Any], options: argparse.Namespace
) -> tuple[Report, int]:
    """Run a script, try fixes, print or apply the patch; return the report and an exit code."""
    trials = Trials(script, {**wanted, "programs": True})
    # Standard output is reserved for the patch.
    output = (sys.stderr if options.diff else sys.stdout).buffer
    output.write(trials.printed)
    output.flush()
    is_interrupted = trials.report.ended in _INTERRUPTED
    files = {} if is_interrupted else trials.try_fixes(options.max_tries, writes=options.write)
    if trials.signal:  # then nothing is written
        return trials.report, 128 + trials.signal
    if options.diff:
        sys.stdout.buffer.write(diff(files))
    if options.write:
        problem = "" if options.force else uncommitted(code.path for code in files)
        if problem := problem or write_patch(files):
            sys.stderr.write(f"leafwise explain: nothing was written: {problem}\n")
            return trials.report, 2
        for code in files:
            sys.stderr.write(f"leafwise explain: {os.path.relpath(code.path)} was changed\n")
        if trials.report.together is not None:
            trials.report.together.written = bool(files)
    return trials.report, trials.report.exit


def write_patch(files: Mapping[Code, bytes]) -> str:
    """Write files with their new texts, all or none; return why none was, or nothing."""
    texts = {code: code.file_with(text).encode(code.encoding) for code, text in files.items()}
    try:
        write_files(*(NewFile(code.path, text, code.data) for code, text in texts.items()))
    except OSError as error:
        return f"{os.path.relpath(error.filename)}: {error.strerror}"
    return ""


class Trials:
    """A script's first run, and the reruns with edits."""

    def __init__(self, script: Script, wanted: dict[str, Any]) -> None:
        self._script, self.signal = script, 0
        self.report, self.printed = self._run(wanted)

    def try_fixes(self, most: int, *, writes: bool) -> dict[Code, bytes]:
        """Try the costliest findings that have an edit, update the report; return the new files."""
        with warnings.catch_warnings(action="ignore"):  # the first run has shown them
            every: dict[Any, _Edited] = {}
            for finding in (*self.report.findings, *self.report.first[:MOST_FIRST]):
                edits = self._edits(*finding.needed, finding)
                every.setdefault(frozenset(applied(edits).items()), (edits, []))[1].append(finding)
        without = every.pop(frozenset(), ([], []))
        chosen, beyond = list(every.values())[:most], list(every.values())[most:]
        self.report.untried = sum(len(findings) for _, findings in (without, *beyond))
        variables = cache_variables(self.report)
        if chosen or variables is not None:
            number = len(chosen) + (len(chosen) > 1) + 2 * (variables is not None)
            runs = count(number, "time")
            text = f"--try runs {self._script.text} again, {runs}, and once more to confirm"
            sys.stderr.write(f"leafwise explain: {text}\n")
        confirmed: list[tuple[list[_Edited], TriedRecord, Report]] = []  # the most effective first
        with contextlib.suppress(KeyboardInterrupt):
            for edited in chosen:
                tried, report = self._tried(edited)
                for finding in edited[1]:
                    finding.tried = tried
                if tried.verdict in CONFIRMED:
                    confirmed.append(([edited], tried, report))
            is_compared = any(tried.verdict in COMPARED for _, tried, _ in confirmed)
            accepted = COMPARED if writes and is_compared else CONFIRMED
            confirmed = [each for each in confirmed if each[1].verdict in accepted]
            if len(confirmed) > 1:
                kept = [edited for several, *_ in confirmed for edited in several]
                tried, report = self._tried(*kept)
                confirmed[:0] = [(kept, tried, report)] if tried.verdict in accepted else []
            if variables is not None:
                self.report.second_run = self._second_run(dict(variables))
        if not confirmed:
            return {}
        kept, tried, report = confirmed[0]
        known = list(map(_cause, self.report.findings))
        left = [finding for finding in report.findings if _cause(finding) not in known]
        counts = sum(len(findings) for _, findings in kept), tried.before, tried.after
        self.report.together = TogetherRecord(*counts, tried.seconds, left, tried.verdict)
        if writes and tried.verdict not in COMPARED:
            return {}
        return applied(edit for edits, _ in kept for edit in edits)

    def _edits(self, *several: Finding) -> list[Replacement]:
        """Return the edits for some findings; none if one of them has none."""
        name = self._script.name
        every = [[] if self._varies(finding) else edits_for(finding, name) for finding in several]
        return list(itertools.chain(*every)) if all(every) else []

    def _varies(self, finding: Finding) -> bool:
        """Return whether functions to be moved had other programs for equal arguments."""
        # Then they read something that changes: a setting, a large array, a random number.
        of = {
            (program.first.name, program.first.site)
            for program in finding.programs
            if any(reason.fix.act is Act.DEFINE_ONCE for reason in program.reasons)
        }
        known: dict[Any, str] = {}  # the digest of the program, by that of its arguments
        for record in self.report.programs:
            lowered = record.program
            if lowered is not None and (record.name, record.site) in of:
                key = lowered.name, record.digest
                if known.setdefault(key, lowered.digest) != lowered.digest:
                    return True
        return False

    def _tried(self, *every: _Edited) -> tuple[TriedRecord, Report]:
        """Run the script with the edits of some findings, and compare it with the first run."""
        files = applied(edit for edits, _ in every for edit in edits)
        report, printed = self._try(files)
        tried = [finding for _, several in every for finding in several]
        needed = applied(self._edits(*(other for finding in tried for other in finding.needed)))
        seconds = report.seconds - (0.0 if report.audit is None else report.audit.seconds)
        is_same, wrong = printed == self.printed, self._wrong(report)
        if seconds > _LONGEST * self.report.seconds:
            verdict = "took too long"
        elif report.exit != self.report.exit:
            verdict = "changed the exit code"
        elif report.ended != self.report.ended:
            verdict = "changed the error"
        elif report.warnings:
            verdict = report.warnings[0]
        elif wrong:
            verdict = STALE
        elif not (is_same or _agree(printed, self.printed) or self._rerun[1] != self.printed):
            verdict = "changed the output"
        elif not (_helped(self.report, report, tried) and _helped(self._rerun[0], report, tried)):
            verdict = "did not help"
        elif self._rerun[0].exit != self.report.exit:
            verdict = "was not confirmed by a run without it"
        elif not printed or (not is_same and self._rerun[1] != self.printed):
            verdict = UNKNOWN
        else:
            verdict = SAME if is_same else ROUNDED
        quicker = max(0.0, busy(self.report.events) - busy(report.events))
        before = seconds_of([*self.report.findings, *tried])
        saved = min(quicker, max(0.0, before - seconds_of(report.findings)))
        counts = _again(self.report), _again(report)
        return TriedRecord(verdict, shown(files, needed), *counts, saved, seconds, wrong), report

    def _wrong(self, report: Report) -> list[WrongRecord]:
        """Return the answers for old values that the runs without edits do not give."""
        wrong = [] if report.audit is None else report.audit.found
        known = self._rerun[0].audit if wrong else None
        times = {} if known is None else {answer.what: answer.times for answer in known.found}
        return [answer for answer in wrong if answer.times > times.get(answer.what, 0)]

    def _second_run(self, variables: dict[str, str]) -> float:
        with tempfile.TemporaryDirectory(prefix="leafwise-", ignore_cleanup_errors=True) as folder:
            environment = variables | {CACHE_FOLDER: folder}
            self._try({}, environment=environment, audit=False)
            return self._try({}, environment=environment, audit=False)[0].seconds

    @cached_property
    def _rerun(self) -> tuple[Report, bytes]:
        """A second run without edits, with the check of its answers, and what it printed."""
        return self._try({})

    def _try(self, files: dict[Code, bytes], **more: Any) -> tuple[Report, bytes]:
        """Run the script with changed files and hide its errors, which the first run has shown."""
        pairs = files.items()
        changed = {os.path.realpath(code.path): code.file_with(text) for code, text in pairs}
        options = {
            "changed": changed,
            "limit": 3 * _LONGEST * self.report.seconds,
            "audit": True,
            "exact": True,
        }
        report, printed = self._run(options | more, stderr=subprocess.DEVNULL)
        if report.ended in _INTERRUPTED:
            self.signal = getattr(signal, report.ended, signal.SIGINT)
            raise KeyboardInterrupt
        return report, printed

    def _run(self, options: dict[str, Any], **streams: Any) -> tuple[Report, bytes]:
        with tempfile.TemporaryFile() as output:
            streams |= {"stdin": subprocess.DEVNULL, "stdout": output}
            report, _ = run(self._script, options, **streams)
            output.seek(0)
            return report, output.read()


def _agree(one: bytes, other: bytes) -> bool:
    """Return whether two outputs agree up to the last digits of the largest number of a line."""
    lines = one.splitlines(), other.splitlines()
    return len(lines[0]) == len(lines[1]) and all(map(_are_close, *lines))


def _are_close(before: bytes, after: bytes) -> bool:
    lines = before, after
    numbers = [list(map(float, _NUMBER.findall(line))) for line in lines]
    words = [_NUMBER.sub(b"0.", line).split() for line in lines]
    largest = max(map(abs, numbers[0]), default=0.0)
    is_close = functools.partial(math.isclose, rel_tol=1e-5, abs_tol=1e-7 * largest)
    return words[0] == words[1] and all(map(is_close, *numbers))


_NUMBER: Final = re.compile(rb"-?\d+\.\d*(?:e[-+]?\d+)?")


def _cause(finding: Finding) -> tuple[str, list[tuple[str, str]]]:
    return finding.what, [(reason.path, reason.change) for reason, _ in finding.reasons()]


def _helped(unedited: Report, edited: Report, tried: list[Finding]) -> bool:
    """Return whether there are fewer repeats or, of first compiles alone, less to compile."""
    if all(isinstance(finding, FirstFinding) for finding in tried):
        quicker = busy(unedited.events) - busy(edited.events)
        return 2 * quicker >= sum(finding.seconds for finding in tried)
    return _again(edited) < _again(unedited)


def _again(report: Report) -> int:
    every = (*report.findings, *findings(report.events, small=True))
    return sum(len(finding.programs) for finding in every)
