"""Running a script, unchanged, with `jax.jit` under watch, and reporting what JAX did."""

import contextlib
import functools
import importlib.util
import platform
import runpy
import sys
import time
import traceback
import types
import zipfile
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from leafwise._display import shape
from leafwise._jit import storm
from leafwise._jit.blocks import CaptureChecks, StaleAction, enter_block, leave_block
from leafwise._jit.jit import jit_with_log
from leafwise._jit.watch import watch
from leafwise.cli import explain_records as records


class Script(NamedTuple):
    """A script or a module, with its arguments.

    Attributes:
        name: The path of the script, or the name of the module.
        arguments: What it finds in ``sys.argv`` behind its own name.
        is_module: Whether it is a module.
    """

    name: str
    arguments: Sequence[str]
    is_module: bool

    def __str__(self) -> str:
        """Return the command line."""
        return " ".join([*(["-m"] if self.is_module else []), self.name, *self.arguments])


class Ended(NamedTuple):
    """How a script ended.

    Attributes:
        code: Its exit code.
        reason: The code, or the error, as text.
    """

    code: int
    reason: str


def problem(target: Script) -> str | None:
    """Return why a target cannot be run, if that is known beforehand."""
    if not target.is_module:
        file = Path(target.name)
        if file.is_dir() and not (file / "__main__.py").exists():
            return f"there is no __main__.py in {target.name}"
        return None if file.exists() else f"there is no file {target.name}"
    try:
        with _path_of(target):
            found = importlib.util.find_spec(target.name)
    except (ImportError, ValueError) as error:
        return f"cannot find the module {target.name}: {error}"
    return None if found is not None else f"there is no module {target.name}"


def run(target: Script, version: str, *, captures: bool = False) -> tuple[shape.Report, Ended]:
    """Run a script, with every `jax.jit` under watch.

    Args:
        target: What to run.
        version: The version of leafwise, for the report.
        captures: Whether to check what its jitted functions capture, and to list it.

    Returns:
        The report, and how the script ended; it never raises what the script raised.
    """
    already = len(storm.WARNINGS)
    start = time.time()
    block = CaptureChecks(StaleAction.IGNORE, warns_of_hidden=False) if captures else None
    with watch() as log, _jit_replaced(block):
        ended = _run(target)
    seconds = time.time() - start
    report: shape.Report = {
        "leafwise": version,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "program": str(target),
        "seconds": seconds,
        "exit": ended.reason,
        "functions": records.functions(log.events),
        "events": [records.event_record(event, start) for event in log.events],
        "warnings": [*storm.WARNINGS[already:], *records.recreated(log.events)],
    }
    if block is not None:
        report["captures"] = records.captures_records(log.events, block)
    return report, ended


@contextlib.contextmanager
def _jit_replaced(block: CaptureChecks | None) -> Generator[None, None, None]:
    """Let `jax.jit` be `leafwise.jit`, until the block ends, and check captures if wanted."""
    stale = None if block is None else StaleAction.IGNORE
    original: Callable[..., Any] = jax.jit

    @functools.wraps(original)
    def watched(*args: Any, **options: Any) -> Any:
        match args:
            case ():
                return functools.partial(watched, **options)
            case (fun,) if callable(fun):
                return jit_with_log(fun, options, stale)
            case _:
                return original(*args, **options)

    namespace: Any = jax
    namespace.jit = watched
    if block is not None:
        enter_block(block)
    try:
        yield
    finally:
        namespace.jit = original
        if block is not None:
            leave_block(block)


@contextlib.contextmanager
def _path_of(target: Script) -> Generator[None, None, None]:
    """Let imports look where they do for a script, until the block ends."""
    old = sys.path[:]
    folder = Path.cwd() if target.is_module else Path(target.name).parent.resolve()
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = old


def _run(target: Script) -> Ended:
    """Run the script as Python would."""
    old = sys.argv
    sys.argv = [target.name, *target.arguments]
    try:
        with _path_of(target):
            if target.is_module:
                runpy.run_module(target.name, run_name="__main__", alter_sys=True)
            else:
                _run_file(Path(target.name).absolute())
    except SystemExit as error:
        return _exit(error)
    except KeyboardInterrupt:
        return Ended(130, "interrupted")
    except BaseException as error:  # noqa: BLE001  # there is a report whatever it raised
        _print_error(error)
        return Ended(1, f"{type(error).__name__}: {error}")
    finally:
        sys.argv = old
        with contextlib.suppress(Exception):
            sys.stdout.flush()
    return Ended(0, "0")


def _run_file(file: Path) -> None:
    """Run a script.

    Not by `runpy` where it is a plain file: that would set ``sys.argv[0]`` itself, or leave the
    path in ``__file__`` relative.
    """
    if file.is_dir() or zipfile.is_zipfile(file):
        runpy.run_path(str(file), run_name="__main__")
        return
    main, old = types.ModuleType("__main__"), sys.modules["__main__"]
    main.__file__ = str(file)
    code = compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
    sys.modules["__main__"] = main
    try:
        exec(code, main.__dict__)  # noqa: S102  # it is what the command is for
    finally:
        sys.modules["__main__"] = old


def _exit(error: SystemExit) -> Ended:
    """Return what Python makes of a `SystemExit`, printing its text as Python does."""
    code = error.code
    if code is None:
        return Ended(0, "0")
    if isinstance(code, int):
        return Ended(code, str(code))
    sys.stderr.write(f"{code}\n")
    return Ended(1, str(code))


def _print_error(error: BaseException) -> None:
    """Print an error as Python does, without the frames that run the script."""
    frames = error.__traceback__
    while frames is not None and _is_ours(frames.tb_frame.f_globals.get("__name__", "")):
        frames = frames.tb_next
    traceback.print_exception(error.with_traceback(frames))


def _is_ours(module: str) -> bool:
    return module in ("runpy", __name__) or module.startswith("importlib")
