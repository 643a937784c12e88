"""The events of JAX, with what leafwise adds: the function, the calling line, and the reason."""

import contextlib
import dataclasses
import inspect
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import jax

from leafwise._compare.signature import StaticArguments, record
from leafwise._findings.reasons import Explanation, Outcome
from leafwise._jax.compat import shows_no_reasons
from leafwise._jax.events import LOCK, EventKind, RawEvent, notify, subscribe, unsubscribe
from leafwise._jax.persistent_cache import listen_for_parts, parts_before
from leafwise._jax.stack import Work, current_work, fails, outer_call
from leafwise._jit.callee import Callee, function_behind, jitted_name
from leafwise._jit.clears import note_clears
from leafwise._jit.jitted_call import given_in
from leafwise._jit.outside import OutsideLog, is_of_jax
from leafwise._jit.programs import ProgramEntry, ProgramLog
from leafwise._objects.source.call_site import (
    Site,
    is_users_file,
    sites_of,
    stop_counting,
    user_frame,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Event:
    """One trace, lowering or compile.

    Attributes:
        kind: Which of them.
        name: The name of the jitted function.
        seconds: How long it took.
        time: When it ended, in seconds, as `time.time` returns it.
        thread: The name of the thread it happened on.
        thread_id: The id of that thread, as `threading.get_ident` returns it.
        site: The innermost line of the user's own files that led to it; without one, as in a thread
            or under ``-m``, the outermost line. None if there is no line at all.
        via: The line of a package that made the call, if one is in between.
        eager: Whether it is an operation of JAX itself, called outside any jitted function.
        is_inner: Whether it is part of the trace of another function.
        cached: Whether the persistent compilation cache answered a compile.
        miss: Why it did not; empty if it did, if the cache is off, and for other events.
        unwritten: Why JAX did not write the program to that cache after a miss.
        explanation: Why it happened, for the first event of a program under `leafwise.jit`, or
            of an operation outside any jitted function.
        run: The run of its line in which an operation outside jitted functions was compiled; None
            where runs are not counted.
        fun: The jitted function as it was written; None where it could not be seen.
        key_parts: The hashes of the parts of its key in the persistent cache, by JAX's names.
        program: The entry of the program in the log of its function; None where there is no log.
    """

    kind: EventKind
    name: str
    seconds: float
    time: float
    thread: str
    thread_id: int
    site: Site | None
    via: Site | None
    eager: bool
    is_inner: bool
    cached: bool
    miss: str
    explanation: Explanation | None
    run: int | None
    fun: Callable[..., Any] | None = dataclasses.field(repr=False)
    key_parts: Mapping[str, str] = dataclasses.field(repr=False)
    program: ProgramEntry | None = dataclasses.field(repr=False)
    unwritten: str = ""

    def __str__(self) -> str:
        """Return a line with what happened and where, and the explanation."""
        line = f"{self.kind} of {self.name}"
        line += f" from {self.site}" if self.site is not None else ""
        if self.cached or self.miss:
            line += f" (persistent cache: {self.miss or 'hit'})"
        return f"{line}: {self.explanation}" if self.explanation is not None else line


Watcher = Callable[[Event], None]

_watchers: tuple[Watcher, ...] = ()
_outside: OutsideLog = OutsideLog()
_has_logs = False
_followed: weakref.WeakKeyDictionary[Any, dict[Any, ProgramLog]] | None = None
"""The logs of functions that are not under `leafwise.jit`, while `leafwise explain` runs."""

_by_source: Final[weakref.WeakValueDictionary[str, ProgramLog]] = weakref.WeakValueDictionary()
"""The log of the function that was lowered last, by JAX's name for its source."""

_ahead: Final = weakref.WeakKeyDictionary[Any, weakref.ref[ProgramEntry]]()
"""The programs that were lowered ahead of time, by their modules, which are theirs alone."""


class _Current(NamedTuple):
    """The program that JAX made last on a thread, which the next event may be about."""

    args: int  # the id of the arguments of its call
    log: ProgramLog
    program: ProgramEntry

    def continues(self, args: Any, work: Work, *, lowers: bool) -> bool:
        """Return whether JAX goes on with it, in work for a call with these arguments."""
        # `lower` calls `trace` with a tuple of its own.
        is_same_call = self.args == id(args) or not work.is_known or work.is_ahead
        is_done = self.program.lower_seconds if lowers else self.program.compile_seconds
        return is_same_call and not is_done


class _InProgress(threading.local):
    def __init__(self) -> None:
        self.ran: list[tuple[ProgramLog, ProgramEntry]] = []
        self.current: _Current | None = None
        self.lowered: Event | None = None


_HERE: Final = _InProgress()


def watch_events(watcher: Watcher) -> None:
    """Call `watcher` with every event, on the thread where it happens, from now on."""
    global _watchers, _outside  # noqa: PLW0603  # replaced, never changed: other threads read them
    with LOCK:
        subscribe(_on_event)
        if not _watchers:
            _outside = OutsideLog()
            listen_for_parts(on=True)
        _watchers = (*_watchers, watcher)


def unwatch_events(watcher: Watcher) -> None:
    """Stop calling `watcher`, after reporting what has already happened on this thread."""
    global _watchers  # noqa: PLW0603  # replaced, never changed: other threads walk over it
    _report_nested()
    with LOCK:
        left = tuple(known for known in _watchers if known != watcher)
        if _watchers and not left:
            listen_for_parts(on=False)
            stop_counting()
        _watchers = left
        if not (left or _has_logs):
            unsubscribe(_on_event)


def follow_functions(*, on: bool) -> None:
    """Start or stop logging the programs of every function that is jitted."""
    global _followed  # noqa: PLW0603  # one for the process
    _followed = weakref.WeakKeyDictionary() if on else None
    note_clears(on=on)


def listen_for_logs() -> None:
    """Listen to JAX from now on, for functions with a log of their programs."""
    global _has_logs  # noqa: PLW0603  # one for the process
    with LOCK:
        _has_logs = True
        subscribe(_on_event)


def body_ran(log: ProgramLog, program: ProgramEntry) -> None:
    """Add a program whose body has run, in a trace."""
    _HERE.ran.append((log, program))
    log.add(program)


def _on_event(raw: RawEvent) -> None:
    lowered, _HERE.lowered = _HERE.lowered, None
    if raw.kind is EventKind.COMPILE and lowered is not None and lowered.name == raw.name:
        _report_nested()
        if lowered.program is not None:
            lowered.program.compile_seconds, _HERE.current = raw.seconds, None
        notify(_watchers, dataclasses.replace(lowered, explanation=None, **_facts_of(raw)))
        return
    # A frame that refers to itself would keep all frames around it alive, with their variables.
    work = current_work(inspect.currentframe(), lowers=raw.kind is not EventKind.TRACE)
    if work.call is not None and work.call.mapping is not None:  # JAX has a name of its own
        raw = raw._replace(name=jitted_name(work.call.fun))
    log = _log_of(work, raw)
    if raw.kind is EventKind.TRACE:
        log, program = _traced(raw, work, log)
        is_first = program is not None
    else:
        program, is_first = _lowered_or_compiled(raw, work, log)
    _report_nested()
    event = _event(raw, work, log, program, is_first=is_first)
    runs = raw.kind is EventKind.LOWERING and (work.call is None or work.call.runs)
    if runs and work.inputs is not None and not fails(inspect.currentframe()):
        _HERE.lowered = event
    notify(_watchers, event)


def _log_of(work: Work, raw: RawEvent) -> ProgramLog | None:
    if not work.is_known:  # after a trace that of its function, if nothing came between
        current = None if raw.kind is EventKind.TRACE else _HERE.current
        return current.log if current is not None and current.log.name == raw.name else None
    if work.call is None:
        return _by_source.get(work.source)
    fun: Any = work.call.fun
    if work.call.is_for_shapes:
        return None
    is_mapped = work.call.mapping is not None  # its arguments have one more axis
    program_log: object = None if is_mapped else getattr(fun, "program_log", None)
    if not isinstance(program_log, ProgramLog) and _followed is not None and not is_of_jax(fun):
        statics = StaticArguments(*work.call.statics)
        with contextlib.suppress(TypeError):  # no weak references
            logs, key = _followed.setdefault(fun, {}), (statics, is_mapped)
            if key not in logs:
                logs[key] = ProgramLog(Callee(jitted_name(fun), weakref.ref(fun), statics))
            program_log = logs[key]
    if not isinstance(program_log, ProgramLog):
        return None
    if work.source and not is_mapped:  # then it is JAX's own
        _by_source[work.source] = program_log
    return program_log


def _traced(
    raw: RawEvent, work: Work, log: ProgramLog | None
) -> tuple[ProgramLog | None, ProgramEntry | None]:
    """Find the program whose trace JAX reports: the last body that ran, if it is of this log."""
    call, program = work.call, None
    last = _HERE.ran[-1][0] if _HERE.ran else None
    if last is not None and (last is log or (log is None and last.name == raw.name)):
        log, program = _HERE.ran.pop()
    elif log and call and _followed is not None and not fails(inspect.currentframe()):
        program = log.new_program(Outcome.RETRACE, call, call.args, call.kwargs, work)
        log.add(program)
    if log is not None and program is not None:
        program.trace_seconds = raw.seconds
        log.note_results(program, work)
        is_followed = call is not None or not work.is_known
        _HERE.current = _Current(id(call and call.args), log, program) if is_followed else None
    return log, program


def _lowered_or_compiled(
    raw: RawEvent, work: Work, log: ProgramLog | None
) -> tuple[ProgramEntry | None, bool]:
    """Find the program that JAX lowers or compiles, and whether this is its first event."""
    if log is None:
        find = None if work.module is None else _ahead.get(work.module)
        if find is not None and (program := find()) is not None:
            program.compile_seconds = raw.seconds
        return None, False
    call, lowering = work.call, raw.kind is EventKind.LOWERING
    args, kwargs = ((), {}) if call is None else (call.args, call.kwargs)
    current, first = _HERE.current, False
    if work.role and _HERE.ran and _HERE.ran[-1][0] is log:  # traced under a transformation
        current = _Current(id(args), *_HERE.ran[-1])
    if current and current.log is log and current.continues(args, work, lowers=lowering):
        program = current.program
        program.role, program.lowered = work.role, work.lowered
    elif not work.is_known:
        return None, False
    else:
        program, first = log.new_program(Outcome.RECOMPILE, call, args, kwargs, work), True
        log.add(program)
    _HERE.current = _Current(id(args), log, program)
    if lowering:
        program.lower_seconds = raw.seconds
        if work.is_ahead and work.module is not None:
            _ahead[work.module] = weakref.ref(program)
    else:
        program.compile_seconds, _HERE.current = raw.seconds, None
    return program, first


def _report_nested() -> None:
    """Report traces inside other traces, for which JAX sends no events, if it shows them."""
    ran, _HERE.ran = _HERE.ran, []
    for log, program in () if shows_no_reasons() else ran:
        log.note_results(program, Work())
        raw = RawEvent(EventKind.TRACE, log.name, program.trace_seconds)
        event = _event(raw, Work(is_inside=program.is_inner), log, program, is_first=True)
        notify(_watchers, dataclasses.replace(event, site=program.site, via=None))


def _event(
    raw: RawEvent,
    work: Work,
    log: ProgramLog | None,
    program: ProgramEntry | None,
    *,
    is_first: bool,
) -> Event:
    call, thread = work.call, threading.current_thread()
    fun: Any = log.callee.find() if log is not None else None
    if call is not None:
        fun = function_behind(call.fun if fun is None else fun, call.args)
    start = outer_call(call.frame if call is not None else inspect.currentframe())
    site, via = sites_of(start)
    code = getattr(inspect.unwrap(fun), "__code__", None)
    if code is not None and is_users_file(code.co_filename):
        via = None  # the package only wraps `jax.jit`
    if is_first and log is not None and program is not None and call:
        if via is not None:
            log.note_package(program, given_in(user_frame(start)))
        if call.mapping is not None:
            log.note_mapped(program, call)
    why, run = None if program is None or not is_first else program.explanation, None
    eager = log is None and _is_eager(raw.name, fun, work)
    is_last = raw.kind is EventKind.LOWERING or (call is not None and not call.runs)
    if eager and is_last and _watchers and work.is_known and not work.is_inside:
        with contextlib.suppress(Exception):  # the user's own code; the call must go on
            why, run = _outside.explain(raw.name, work, inspect.currentframe())
    return Event(
        name=raw.name,
        thread=thread.name,
        thread_id=thread.ident or 0,
        site=site,
        via=via,
        eager=eager,
        is_inner=work.is_inside,
        explanation=why,
        run=run,
        fun=fun,
        program=program,
        **_facts_of(raw),
    )


def _facts_of(raw: RawEvent) -> dict[str, Any]:
    cache, why = raw.cache, raw.cache.unwritten or ""
    facts = {"kind": raw.kind, "seconds": raw.seconds, "time": time.time(), "cached": cache.hit}
    return facts | {"miss": _miss(raw), "key_parts": cache.parts, "unwritten": why}


def _miss(raw: RawEvent) -> str:
    """Return why the persistent cache missed a compile, compared with an equal call before it."""
    work = current_work(inspect.currentframe(), lowers=True) if raw.cache.parts else Work()
    before: Mapping[str, str] = {}
    if work.call is not None and not (work.role or work.is_inside):
        with contextlib.suppress(Exception):  # the user's own code; the call must go on
            inputs = record(work.call.args, work.call.kwargs, StaticArguments(*work.call.statics))
            before = parts_before(work.call.fun, inputs, raw.cache.parts)
    return raw.cache.reason(before)


def _is_eager(name: str, fun: Callable[..., Any] | None, work: Work) -> bool:
    """Return whether a function is an operation of JAX itself, or is traced only for its shapes."""
    if fun is not None:
        call = work.call
        if is_of_jax(fun) or call is None or call.is_for_shapes:
            return True
        _USERS.add(name)
        return False
    # Under a transformation: by the file of its source, and without it by the name.
    if work.source:
        return work.source.partition(" at ")[2].startswith(_FOLDER)
    plain = name.strip("_")
    modules = (jax.numpy, jax.lax, jax.nn, jax.random)
    return name not in _USERS and any(hasattr(module, plain) for module in modules)


_FOLDER: Final = os.path.join(os.path.dirname(jax.__file__), "")  # noqa: PTH118, PTH120  # a text
_USERS: Final[set[str]] = set()
"""The names of functions that are not JAX's own: JAX reports some events by name only."""
