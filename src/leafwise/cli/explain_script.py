"""Running a script, unchanged, with `jax.jit` under watch, and reporting what JAX did."""

import contextlib
import functools
import importlib.util
import inspect
import platform
import runpy
import sys
import time
import traceback
import types
import zipfile
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax

from leafwise._captures.captures import captures
from leafwise._display import shape
from leafwise._jax.events import EventKind
from leafwise._jit import storm
from leafwise._jit.blocks import CaptureChecks, StaleAction, StaleCapture, enter_block, leave_block
from leafwise._jit.inner_traces import code_id
from leafwise._jit.jit import jit_with_log
from leafwise._jit.recorder import Event
from leafwise._jit.watch import watch
from leafwise._objects.call_site import short_file


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
        "functions": _functions(log.events),
        "events": [_event(event, start) for event in log.events],
        "warnings": [*storm.WARNINGS[already:], *_recreated(log.events)],
    }
    if block is not None:
        report["captures"] = _captures(log.events, block)
    return report, ended


# ------------------------------------------------------------------------ running


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


# ------------------------------------------------------------------------ records


def _functions(events: Sequence[Event]) -> list[shape.FunctionRecord]:
    """Sum up the events of each function, the most seconds first."""
    groups: dict[Any, list[Event]] = {}
    for event in events:
        place = _definition(event.fun)
        known = place if place[0] or event.fun is None else id(event.fun)
        key = None if event.eager else (event.name, known if event.fun is not None else None)
        groups.setdefault(key, []).append(event)
    # An event of which JAX gave only the name belongs to the one function of that name.
    for name, _ in [key for key in groups if key is not None and key[1] is None]:
        same = [key for key in groups if key is not None and key[0] == name and key[1]]
        if len(same) == 1:
            groups[same[0]] += groups.pop((name, None))
    functions = [_function(each) for each in groups.values()]
    return sorted(functions, key=_total_seconds, reverse=True)


def _total_seconds(function: shape.FunctionRecord) -> float:
    seconds = function["seconds"]
    return seconds["trace"] + seconds["lower"] + seconds["compile"]


def _function(events: Sequence[Event]) -> shape.FunctionRecord:
    first = events[0]
    fun = next((event.fun for event in events if event.fun is not None), None)
    file, line = ("", 0) if first.eager else _definition(fun)
    compiles = [event for event in events if event.kind is EventKind.COMPILE]
    hits = sum(event.cached for event in compiles)

    def count(kind: EventKind) -> int:
        return sum(event.kind is kind for event in events)

    def seconds(kind: EventKind) -> float:
        return sum(event.seconds for event in events if event.kind is kind)

    return {
        "name": "eager operations" if first.eager else first.name,
        "file": file,
        "line": line,
        "eager": first.eager,
        "traces": count(EventKind.TRACE),
        "lowerings": count(EventKind.LOWERING),
        "compiles": len(compiles) - hits,
        "cache_hits": hits,
        "seconds": {
            "trace": seconds(EventKind.TRACE),
            "lower": seconds(EventKind.LOWERING),
            "compile": seconds(EventKind.COMPILE),
        },
    }


_OFTEN: Final = 3


def _recreated(events: Sequence[Event]) -> list[str]:
    """Warn of functions that are recreated, a new one each call: JAX traces each of them."""
    traced: dict[tuple[str, str, int], set[int]] = {}
    for event in events:
        if event.kind is EventKind.TRACE and event.fun is not None and not event.eager:
            file, line = _definition(event.fun)
            if file:
                traced.setdefault((event.name, file, line), set()).add(id(event.fun))
    return [
        f"{name} ({file}:{line}) was recreated and jitted {len(ids)} times, and traced each time: "
        "define it, and call jax.jit, once, outside the loop"
        for (name, file, line), ids in traced.items()
        if len(ids) >= _OFTEN
    ]


def _definition(fun: Callable[..., Any] | None) -> tuple[str, int]:
    """Return the file and line where a function is defined, as far as there is one."""
    inner: Any = fun
    while isinstance(inner, functools.partial):
        inner = inner.func
    code = getattr(inspect.unwrap(inner), "__code__", None) if inner is not None else None
    if code is None:  # a callable object, such as a module, which may be a new one each call
        code = getattr(inspect.unwrap(type(inner).__call__), "__code__", None)
    # Of a function under `filter_jit` JAX sees what equinox makes of it.
    if code is None or inner.__module__ == "equinox._jit":
        return "", 0
    return short_file(code.co_filename), code.co_firstlineno


def _event(event: Event, start: float) -> shape.EventRecord:
    why: Any = event.explanation.as_dict() if event.explanation is not None else None
    site = event.site
    place: shape.SiteRecord | None = None
    if site is not None:
        file = short_file(site.file)
        place = {"file": file, "line": site.line, "function": site.function, "text": site.text}
    return {
        "kind": "cache hit" if event.cached else event.kind.value,
        "name": event.name,
        "eager": event.eager,
        "start": max(0.0, event.time - event.seconds - start),
        "seconds": event.seconds,
        "thread": event.thread,
        "site": place,
        "explanation": why,
    }


def _captures(events: Sequence[Event], block: CaptureChecks) -> list[shape.CapturesRecord]:
    """Return what each function captures, as it is at the end: those with stale calls first."""
    groups: dict[Any, list[Callable[..., Any]]] = {}
    for event in events:
        if event.fun is not None and not event.eager:
            funs = groups.setdefault((event.name, code_id(event.fun)), [])
            if all(each is not event.fun for each in funs):
                funs.append(event.fun)
    found: list[shape.CapturesRecord] = []
    for (name, owner), funs in groups.items():
        with contextlib.suppress(Exception):  # the user's own code, which has run already
            captured = captures(funs[-1]).as_dict()
            captured["function"] = name
            captured["stale"] = [_stale(each) for each in block.found_by(owner)]
            found.append(captured)
    return sorted(found, key=lambda each: not each.get("stale"))


def _stale(found: StaleCapture) -> shape.StaleCaptureRecord:
    file, _, line = found.line.rpartition(":")
    site = found.call
    return {
        "name": found.name,
        "reader": found.reader,
        "line": f"{short_file(file)}:{line}" if file else "",
        "before": found.before,
        "after": found.after,
        "call": f"{short_file(site.file)}:{site.line}" if site is not None else "line not known",
    }
