"""Trying fixes: the script runs again with each edit, and what it and JAX do is compared."""

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, Final, NamedTuple

from leafwise._display.findings import Finding, findings
from leafwise._display.shape import FindingRecord, Report, TriedRecord
from leafwise._display.words import CONFIRMED, SAME, VARIES, count
from leafwise._objects.locks import cached_property
from leafwise.cli.edits import edits_for
from leafwise.cli.explain_script import Script, Trial, run
from leafwise.cli.patch import Edit, Files, applied, diff, shown, uncommitted

_LONGEST: Final = 3
"""A run is ended after so many times the seconds of the first."""


def problem(script: Script, options: argparse.Namespace) -> str:
    """Return why a script cannot be run again and again, if that is known beforehand."""
    if script.is_records or script.is_notebook:
        return f"--try runs a script or a module, and not {script.name}"
    file = Path(script.name)
    if script.is_module or not file.is_file():
        return ""
    if _INPUT.search(file.read_text(encoding="utf-8", errors="replace")):
        return f"--try runs a script more than once, and {script.name} reads standard input"
    return uncommitted([str(file)]) if options.write and not options.force else ""


_INPUT: Final = re.compile(r"(?<![\w.])input\(|\bsys\.stdin\b")


def run_and_try(
    script: Script, version: str, wanted: dict[str, Any], options: argparse.Namespace
) -> tuple[Report, int]:
    """Run a script and try fixes, print or apply the patch; return the report and an exit code."""
    trials = Trials(script, version, wanted)
    # Standard output is for the patch.
    output = (sys.stderr if options.diff else sys.stdout).buffer
    output.write(trials.printed)
    output.flush()
    files = {} if is_interrupted(trials.report) else trials.try_fixes(options.tries or 5)
    if options.diff:
        sys.stdout.buffer.write(diff(files))
    if options.write:
        paths = [code.path for code in files]
        if not options.force and (problem := uncommitted(paths)):
            sys.stderr.write(f"leafwise explain: nothing was written: {problem}\n")
            return trials.report, 2
        for code, data in files.items():
            Path(code.path).write_bytes(data)
    return trials.report, trials.report["exit"]


class _Fix(NamedTuple):
    """The edits for a finding, and its record in the report."""

    finding: Finding
    record: FindingRecord
    edits: list[Edit]


class Trials:
    """A script's first run, and its runs with edits."""

    def __init__(self, script: Script, version: str, wanted: dict[str, Any]) -> None:
        self._script, self._version = script, version
        self.report, self.printed = self._run(wanted, Trial({}, None, {}))

    def try_fixes(self, most: int) -> Files:
        """Try the costliest findings with an edit, note it in the report; return the new files."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the user's code, which has shown them
            both = zip(findings(self.report), self.report.get("findings", []), strict=True)
            fixes = [_Fix(each, record, edits_for(each)) for each, record in both]
        chosen = [each for each in fixes if each.edits][:most]
        if chosen:
            runs = count(len(chosen) + (len(chosen) > 1), "time")
            text = f"--try runs {self._script} again, {runs}, and once more if its output differs"
            sys.stderr.write(f"leafwise explain: {text}\n")
        kept: list[_Fix] = []
        records: list[TriedRecord] = []
        together: TriedRecord | None = None
        with contextlib.suppress(KeyboardInterrupt):
            for each in chosen:
                tried = each.record["tried"] = self._tried([each])
                if tried["verdict"] in CONFIRMED:
                    kept.append(each)
                    records.append(tried)
            together = self._tried(kept) if len(kept) > 1 else None
        if together is None or together["verdict"] not in CONFIRMED:
            del kept[1:]  # the costliest alone
            together = next(iter(records), None)
        if together is not None:
            self.report["together"] = {"findings": len(kept), "seconds": together["seconds"]}
        return applied(edit for each in kept for edit in each.edits)

    def _tried(self, fixes: list[_Fix]) -> TriedRecord:
        """Run the script with the edits of some findings, and compare."""
        files = applied(edit for each in fixes for edit in each.edits)
        report, printed = self._try(files)
        before = sum(len(each.finding.programs) for each in fixes)
        after = max(0, before - _again(self.report) + _again(report))
        verdict = SAME if printed == self.printed else VARIES
        if report["seconds"] > _LONGEST * self.report["seconds"]:
            verdict = "took too long"
        elif report["exit"] != self.report["exit"]:
            verdict = "changed the exit code"
        elif verdict == VARIES and not self._output_varies:
            verdict = "changed the output"
        elif after >= before:
            verdict = "did not help"
        return {
            "verdict": verdict,
            "edit": shown(files),
            "before": before,
            "after": after,
            "saved": sum(each.finding.seconds for each in fixes) * (1 - after / before),
            "seconds": report["seconds"],
        }

    @cached_property
    def _output_varies(self) -> bool:
        """Whether two runs without an edit print different things."""
        return self._try({})[1] != self.printed

    def _try(self, files: Files) -> tuple[Report, bytes]:
        """Run the script with other files; its errors were shown by the first run."""
        changed = {code.path: data for code, data in files.items()}
        limit = _LONGEST * self.report["seconds"]
        report, printed = self._run({}, Trial(changed, limit, {"stderr": subprocess.DEVNULL}))
        if is_interrupted(report):
            raise KeyboardInterrupt
        return report, printed

    def _run(self, wanted: dict[str, Any], trial: Trial) -> tuple[Report, bytes]:
        with tempfile.TemporaryFile() as output:
            streams = {**trial.streams, "stdin": subprocess.DEVNULL, "stdout": output}
            report, _ = run(self._script, self._version, wanted, trial._replace(streams=streams))
            output.seek(0)
            return report, output.read()


def is_interrupted(report: Report) -> bool:
    """Return whether Ctrl-C or SIGTERM ended a run."""
    return report["ended"] in ("interrupted", "SIGTERM")


def _again(report: Report) -> int:
    """Return how many programs JAX made again."""
    every = (*findings(report), *findings(report, small=True))
    return sum(len(each.programs) for each in every)
