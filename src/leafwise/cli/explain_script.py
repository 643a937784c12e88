"""Running a script, as `python` would, in a process of its own, and reporting on it.

This process waits for the script, reads the records of its processes, and writes the report. It
does not import JAX. However the script ends, its records are kept.
"""

import argparse
import contextlib
import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import leafwise_explain
from leafwise._findings.first_compiles import FirstFinding, first_findings
from leafwise._findings.records import EventRecord, place
from leafwise._findings.report import Report
from leafwise.cli import notebook, recorded, signals


class Script:
    """A script, a notebook or a module, with its arguments; or a folder of records."""

    def __init__(self, name: str, arguments: Sequence[str], *, is_module: bool) -> None:
        self.name, self.is_module = name, is_module
        self.is_records = not is_module and any(recorded.files_in(Path(name)))
        self.is_notebook = not is_module and name.endswith(".ipynb")
        words = [*["-m"] * is_module, name, *arguments]
        self.text = " ".join(words)
        # The arguments after ``python``.
        self.command = ["-m", notebook.__name__, *words] if self.is_notebook else words


_STARTS: Final = "leafwise-explain.pth"
"""The file in ``site-packages`` that starts recording when Python starts."""


def problem(target: Script, options: argparse.Namespace) -> str | None:
    """Return why a target cannot be run, or None."""
    if target.is_records:
        names = [name for name in ("captures", "audit", "progress") if getattr(options, name)]
        names += ["fail-on stale"] if options.fail_on == "stale" else []
        return f"--{names[0]} needs a run: {target.name} is a folder of records" if names else None
    if not any(Path(folder, _STARTS).exists() for folder in sys.path):
        return f"this Python does not find {_STARTS}: pip install leafwise"
    if target.is_module:
        package = target.name.partition(".")[0]  # running it may decide where its submodules are
        here = str(Path.cwd())
        sys.path.insert(0, here)
        try:
            spec = importlib.util.find_spec(package)
        except ValueError:  # of `__main__`
            spec = None
        finally:
            sys.path.remove(here)
        return None if spec is not None else f"there is no module {target.name}"
    file = Path(target.name)
    if file.is_dir() and not (file / "__main__.py").exists():
        return f"there is no __main__.py in {target.name}"
    if not file.exists():
        return f"there is no file {target.name}"
    return notebook.problem(file) if target.is_notebook else None


def run(target: Script, options: Mapping[str, Any], **streams: Any) -> tuple[Report, int]:
    """Run a script, and record every `jax.jit`; return the report and the script's exit code."""
    if target.is_records:
        return read(Path(target.name)), 0
    with tempfile.TemporaryDirectory(prefix="leafwise-", ignore_cleanup_errors=True) as private:
        (folder := Path(private, "records")).mkdir()
        Path(folder, leafwise_explain.LOST).touch()
        passed = {leafwise_explain.FOLDER: str(folder), **options}
        runner: list[str] = []
        if changed := passed.pop("changed", None):  # by --try
            file = passed[leafwise_explain.CHANGED] = f"{private}/changed.json"
            Path(file).write_text(json.dumps(changed), encoding="utf-8")
            if not target.is_notebook and os.path.realpath(target.name) in changed:
                runner = ["-m", leafwise_explain.__name__]  # Python itself would read the file
        command = [sys.executable, *_options(), *runner, *target.command]
        began = time.time()
        environment = {**os.environ, **options.get("environment", {})}
        environment[leafwise_explain.VARIABLE] = str(folder)
        environment[leafwise_explain.OPTIONS] = json.dumps(passed)
        progress = CompileProgress(folder, is_shown=options.get("progress", False))
        pid, code = _run(command, options.get("limit"), progress, env=environment, **streams)
        ended = time.time()
        with contextlib.suppress(OSError):  # children that go on no longer find it
            folder = folder.rename(Path(private, "ended"))
        processes = recorded.read(folder)
        missing = recorded.missing(folder, processes)
    main = next((process for process in processes if process.pid == pid), None)
    report = recorded.make_report(processes, main, target.text, began, ended)
    report.seconds = ended - began
    report.warnings += missing or ([] if processes else ["no process that was seen imported JAX"])
    errors = [] if main is None else list(main.every("error"))
    report.exit, report.ended = (code if code >= 0 else 128 - code), _reason(code, errors)
    if progress.signal and not errors:  # also if the script handled it
        report.ended = _reason(-progress.signal, ())
    if code == 1 and main is not None and errors:
        *_, report.docs = main.every("docs")
    return report, report.exit


def read(folder: Path) -> Report:
    """Return the report from a folder of records, which ``LEAFWISE_EXPLAIN`` named."""
    processes = recorded.read(folder)
    began = min((start for process in processes for start in process.every("began")), default=0.0)
    programs = dict.fromkeys(line for process in processes for line in process.every("command"))
    main = processes[0] if len(processes) == 1 else None
    report = recorded.make_report(processes, main, "; ".join(programs), began)
    ends = [event.interval[1] for event in report.events]
    ends += [ended - began for process in processes for ended in process.every("ended")]
    report.seconds = max(ends, default=0.0)
    report.recorded = len(processes)
    report.warnings += recorded.missing(folder, processes)
    errors = [error for process in processes for error in process.every("error")]
    report.ended = next(iter(errors), "")
    report.docs = next((page for process in processes for page in process.every("docs")), "")
    return report


def _reason(code: int, errors: Sequence[str]) -> str:
    if code < 0:
        return "interrupted" if -code == signal.SIGINT else signal.Signals(-code).name
    return errors[-1] if code == 1 and errors else f"exit code {code}" if code else ""


def _options() -> list[str]:
    """Return the options of this interpreter, except those that isolate it."""
    flags: list[str] = vars(subprocess)["_args_from_interpreter_flags"]()  # as in multiprocessing
    for name, setting in vars(sys)["_xoptions"].items():
        flags += ["-X", name if setting is True else f"{name}={setting}"]
    unbuffered = ["-u"] if getattr(sys.stdout, "write_through", False) else []
    return [*(flag for flag in flags if flag not in {"-I", "-E", "-s", "-S", "-P"}), *unbuffered]


class CompileProgress:
    """Prints what XLA is compiling if that takes long; the script runs no Python code meanwhile."""

    def __init__(self, folder: Path, *, is_shown: bool) -> None:
        self._folder = folder
        self.ended, self.signal = threading.Event(), 0
        if is_shown:
            threading.Thread(target=self._show, daemon=True).start()

    def compiles(self) -> list[FirstFinding]:
        """Return a finding for each large compile that is in progress."""
        events: list[EventRecord] = []
        with contextlib.suppress(OSError, ValueError):  # the report will say what is wrong
            for process in recorded.read(self._folder):
                events += recorded.unfinished(process, time.time())
        return first_findings(events)

    def _show(self) -> None:
        """Write a line after ten seconds in one compile, and again after a minute."""
        due = _PATIENCE
        while not self.ended.wait(1.0):
            # No record is written during a compile.
            times = [file.stat().st_mtime for file in recorded.files_in(self._folder)]
            seconds = time.time() - max(times, default=math.inf)
            due = due if seconds >= _PATIENCE else _PATIENCE
            findings, due = (self.compiles(), seconds + _LATER) if seconds >= due else ((), due)
            for finding in findings:
                text = f"{place(finding.site)}: {finding.headline}"
                sys.stderr.write(f"leafwise explain: {text}\n")

    def interrupt(self) -> bool:
        """Print what XLA is compiling, after Ctrl-C; return whether it is compiling."""
        compiles = self.compiles()
        for finding in compiles:
            lines = [f"{place(finding.site)}  {finding.text}", finding.headline]
            lines += [f"fix: {fix}" for fix in finding.fixes()]
            sys.stderr.write("\n" + "\n  ".join(lines) + "\n")
        if compiles:
            sys.stderr.write("XLA cannot be interrupted: Ctrl-C again ends the program\n")
        return bool(compiles)


_PATIENCE: Final = 10.0
_LATER: Final = 60.0
"""Seconds in one compile before the first line about it, and between further ones."""

_FOR_THE_SCRIPT: Final = ("SIGUSR1", "SIGUSR2")  # they ask for a checkpoint, say, not for the end


def _run(
    command: list[str], limit: float | None, progress: CompileProgress, **options: Any
) -> tuple[int, int]:
    """Run a command; return its process id and exit code."""
    # The terminal sends Ctrl-C to both processes; other signals are passed on. During a compile,
    # Python code cannot handle Ctrl-C: then the second one ends the command.
    process: subprocess.Popen[bytes] | None = None
    early = list[int]()
    is_warned = is_ended = False

    def handle(number: int, _: object) -> None:
        nonlocal is_warned, is_ended
        if process is None:
            early.append(number)
            return
        if number not in map(vars(signal).get, _FOR_THE_SCRIPT):
            progress.signal = number
        if number != signal.SIGINT:
            process.send_signal(number)
        else:
            was_warned, is_warned = is_warned, True  # it may be pressed again meanwhile
            if was_warned and progress.compiles():
                is_ended = True
                process.terminate()
            else:
                is_warned = progress.interrupt()

    try:
        with signals.handled(handle, "SIGINT", *_FOR_THE_SCRIPT):
            # Descriptors that this process has inherited are for the script.
            process = started = subprocess.Popen[bytes](command, close_fds=False, **options)
            for number in early:
                started.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = started.wait(limit)
                return started.pid, -signal.SIGINT if is_ended and code == -signal.SIGTERM else code
            started.kill()
            return started.pid, started.wait()
    finally:
        progress.ended.set()
