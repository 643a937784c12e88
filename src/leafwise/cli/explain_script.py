"""Running a script, as `python` would, in a process of its own; the report comes afterwards.

This process keeps what the script's processes recorded, waits, and writes the report. It loads no
JAX, and the script has no part in any of that: however it ends, its records are there.
"""

import contextlib
import importlib.util
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from leafwise._display import shape
from leafwise.cli import explain_report, notebook, startup


class Script(NamedTuple):
    """A script, a notebook or a module, with its arguments.

    Attributes:
        name: The path of the script or notebook, or the name of the module.
        arguments: What it finds in ``sys.argv`` behind its own name.
        is_module: Whether it is a module.
    """

    name: str
    arguments: Sequence[str]
    is_module: bool

    @property
    def is_notebook(self) -> bool:
        """Whether it is a notebook."""
        return not self.is_module and self.name.endswith(".ipynb")

    @property
    def command(self) -> list[str]:
        """The command line behind ``python``."""
        runner = ["-m", notebook.__name__] if self.is_notebook else ["-m"] * self.is_module
        return [*runner, self.name, *self.arguments]

    def __str__(self) -> str:
        """Return the command line."""
        return " ".join([*["-m"] * self.is_module, self.name, *self.arguments])


def problem(target: Script) -> str | None:
    """Return why a target cannot be run, if that is known beforehand."""
    if target.is_module:
        package = target.name.partition(".")[0]  # what is below it is found once that has run
        here = str(Path.cwd())
        sys.path.insert(0, here)
        try:
            found = importlib.util.find_spec(package)
        except ValueError as error:  # an empty name
            return f"there is no module {target.name!r}: {error}"
        finally:
            sys.path.remove(here)
        return None if found is not None else f"there is no module {target.name}"
    file = Path(target.name)
    if file.is_dir() and not (file / "__main__.py").exists():
        return f"there is no __main__.py in {target.name}"
    if not file.exists():
        return f"there is no file {target.name}"
    return notebook.problem(file) if target.is_notebook else None


def run(target: Script, version: str, options: Mapping[str, Any]) -> tuple[shape.Report, int]:
    """Run a script, and record every `jax.jit`.

    Args:
        target: What to run.
        version: The version of leafwise, for the report.
        options: What the processes of the script find in ``options.json``.

    Returns:
        The report, and how the script ended: its exit code, or the number of the signal that
        ended it, negative.
    """
    with tempfile.TemporaryDirectory(prefix="leafwise-", ignore_cleanup_errors=True) as folder:
        package = Path(startup.__file__).parent.parent
        text = startup.SITE.format(file=startup.__file__, folder=folder, package=str(package))
        Path(folder, "sitecustomize.py").write_text(text, encoding="utf-8")
        Path(folder, "options.json").write_text(json.dumps(options), encoding="utf-8")
        # How this interpreter is kept to itself is not meant for the script.
        given = [each for each in startup.options_of(sys.orig_argv) if each[0][1] not in "IEsSPi"]
        command = [sys.executable, *itertools.chain(*given), *target.command]
        began = time.time()
        pid, code = _run(command, startup.watched(os.environ, folder))
        seconds = time.time() - began
        processes = explain_report.read(Path(folder))
    report = explain_report.make_report(processes, pid, version, str(target), began)
    errors = [
        each for process in processes if process.pid == pid for each in process.every("error")
    ]
    report["seconds"] = seconds
    report["exit"], report["ended"] = (code if code >= 0 else 128 - code), _reason(code, errors)
    if all(process.pid != pid for process in processes):
        text = "not watched: the script's own process, whose Python did not read PYTHONPATH"
        report["warnings"].append(text)
    return report, code


def _reason(code: int, errors: Sequence[str]) -> str:
    if code < 0:
        return "interrupted" if -code == signal.SIGINT else signal.Signals(-code).name
    return errors[-1] if code == 1 and errors else f"exit code {code}" if code else ""


# ------------------------------------------------------------------------ the process

_NAMES: Final = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")
_SIGNALS: Final = {each for each in signal.Signals if each.name in _NAMES}
"""The signals that somebody may send to this process, and means the script."""


def _run(command: list[str], environment: Mapping[str, str]) -> tuple[int, int]:
    """Run a command, and pass on signals; return its process number and how it ended."""
    if not hasattr(os, "posix_spawn"):  # Windows
        process = subprocess.Popen(command, env=environment)  # noqa: S603  # as the user said it
        while True:
            with contextlib.suppress(KeyboardInterrupt):  # the script has it, too
                return process.pid, process.wait()
    ignored = {each for each in _SIGNALS if signal.getsignal(each) == signal.SIG_IGN}
    waiting = {*(_SIGNALS - ignored), signal.SIGCHLD}
    before = signal.signal(signal.SIGCHLD, _wake)  # else some systems drop it
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, waiting)
    try:
        with _group_signals(waiting) as came_to_group:
            pid = os.posix_spawn(
                command[0],
                command,
                environment,
                setsigmask=mask,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # which Python ignores
            )
            while True:
                ended, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
                if ended and os.WIFSTOPPED(status):  # so that a shell has the terminal
                    os.kill(os.getpid(), signal.SIGSTOP)
                    os.kill(pid, signal.SIGCONT)
                elif ended:
                    return pid, os.waitstatus_to_exitcode(status)
                else:
                    number = signal.sigwait(waiting)
                    if number != signal.SIGCHLD and not came_to_group(number):
                        os.kill(pid, number)
    finally:
        while pending := signal.sigpending() & waiting:
            signal.sigwait(pending)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGCHLD, before)


def _wake(*_: object) -> None:
    """Handle a signal, so that it is neither ignored nor the end of this process."""


@contextlib.contextmanager
def _group_signals(waiting: set[signal.Signals]) -> Generator[Callable[[int], bool], None, None]:
    """Yield what tells whether a signal came to the whole process group: Ctrl-C does.

    The script has it then, and must not get it twice. A process in the same group that does
    nothing else says which signals it gets; it ends with this one.
    """
    if "jax" in sys.modules or threading.active_count() > 1:  # this process is not to be forked
        yield lambda _: False
        return
    reading, writing = os.pipe()
    waited_for, kept = os.pipe()
    watcher = os.fork()
    if not watcher:
        try:
            os.close(kept)
            os.set_blocking(writing, False)
            signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
            for each in _SIGNALS:
                signal.signal(each, _wake)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, waiting)
            os.read(waited_for, 1)
        finally:
            os._exit(0)
    os.close(writing)
    os.close(waited_for)
    seen: set[int] = set()

    def came(number: int) -> bool:
        while number not in seen and select.select([reading], [], [], _SECONDS)[0]:
            seen.update(os.read(reading, 64))
        is_known = number in seen
        seen.discard(number)
        return is_known

    try:
        yield came
    finally:
        os.close(kept)
        os.waitpid(watcher, 0)
        os.close(reading)


_SECONDS: Final = 0.2
"""How long it is waited for a signal to reach another process."""


def end_as(code: int) -> int:
    """End this process by the signal that ended the script; return an exit code otherwise."""
    if code >= 0:
        return code
    import resource  # noqa: PLC0415  # not on Windows, where no signal ends a process

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler to reset
        signal.signal(-code, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
    os.kill(os.getpid(), -code)
    return 128 - code
