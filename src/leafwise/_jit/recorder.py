"""The events of JAX with what leafwise knows of them: of which function, from where, and why."""

import dataclasses
import functools
import inspect
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import jax

from leafwise._compare.explain import Explanation
from leafwise._compare.reasons import Outcome
from leafwise._jax.compat import RunningCall, running_calls, source_of_running_jaxpr
from leafwise._jax.events import LOCK, EventKind, RawEvent, notify, subscribe, unsubscribe
from leafwise._jax.persistent_cache import listen_for_parts
from leafwise._jit.callee import function_behind
from leafwise._jit.eager import EagerLog
from leafwise._jit.programs import Program, ProgramLog
from leafwise._objects.call_site import Site, caller_of, site_of
from leafwise._objects.locks import Cleanup


@dataclasses.dataclass(frozen=True, eq=False)
class Event:
    """One trace, lowering or compile.

    Attributes:
        kind: Which of them.
        name: The name of the jitted function.
        seconds: How long it took.
        time: When it ended, in seconds, as `time.time` says it.
        thread: The name of the thread it happened on.
        thread_id: The identity of that thread, as `threading.get_ident` says it.
        site: The line of the user's code that called; None if there is none.
        caller: If that is a line of an installed package, the user's own line that led there.
        eager: Whether it is an operation of JAX itself, called outside any jitted function.
        cached: Whether the persistent compilation cache answered a compile.
        miss: Why it did not; empty if it did, if it is off, and for what is not a compile.
        explanation: Why it happened, for the first event of a program under `leafwise.jit`, or
            of an operation outside any jitted function.
        fun: The jitted function as it was written; None where it could not be seen.
        key_parts: The hashes of the parts of its key in the persistent cache, by JAX's names.
        program: The record of the program under `leafwise.jit` that it belongs to.
    """

    kind: EventKind
    name: str
    seconds: float
    time: float
    thread: str
    thread_id: int
    site: Site | None
    caller: Site | None
    eager: bool
    cached: bool
    miss: str
    explanation: Explanation | None
    fun: Callable[..., Any] | None = dataclasses.field(repr=False)
    key_parts: Mapping[str, str] = dataclasses.field(repr=False)
    program: Program | None = dataclasses.field(repr=False)

    def __str__(self) -> str:
        """Return a line with what happened and where, and the explanation."""
        line = f"{self.kind} of {self.name}"
        line += f" from {self.site}" if self.site is not None else ""
        if self.cached or self.miss:
            line += f" (persistent cache: {self.miss or 'hit'})"
        return f"{line}: {self.explanation}" if self.explanation is not None else line


Watcher = Callable[[Event], None]

_CLEANUP: Final = Cleanup(LOCK)
_watchers: tuple[Watcher, ...] = ()
_eager: EagerLog = EagerLog()
_program_logs: int = 0


class _InProgress(threading.local):
    """What JAX is making on one thread.

    Attributes:
        ran: Programs whose bodies have run, of which JAX has reported nothing yet.
        current: The program that JAX is making, with the identity of its call's arguments.
        lowered: The last event, if it is the lowering of a call: JAX compiles it next.
    """

    def __init__(self) -> None:
        self.ran: list[tuple[ProgramLog, Program]] = []
        self.current: tuple[int, ProgramLog, Program] | None = None
        self.lowered: Event | None = None


_HERE: Final = _InProgress()


def watch_events(watcher: Watcher) -> None:
    """Call `watcher` with every event, on the thread where it happens, from now on."""
    global _watchers, _eager  # noqa: PLW0603  # replaced, never changed: other threads read them
    with LOCK:
        _listen(wanted=True)
        if not _watchers:
            _eager = EagerLog()
            listen_for_parts(on=True)
        _watchers = (*_watchers, watcher)


def unwatch_events(watcher: Watcher) -> None:
    """Stop calling `watcher`, once it was called with what has already happened here."""
    global _watchers  # noqa: PLW0603  # replaced, never changed: other threads walk over it
    _report_nested()
    with LOCK:
        left = tuple(each for each in _watchers if each != watcher)
        if _watchers and not left:
            listen_for_parts(on=False)
        _watchers = left
        _listen(wanted=False)


def listen_for_log(*, on: bool) -> None:
    """Listen to JAX for one more program log, or for one less."""
    global _program_logs  # noqa: PLW0603  # one count for the process
    with LOCK:
        if on:
            _listen(wanted=True)
        _program_logs += 1 if on else -1
        if not on:
            _listen(wanted=False)


def log_died() -> None:
    """Listen to JAX for one program log less."""
    _CLEANUP(functools.partial(listen_for_log, on=False))


def _listen(*, wanted: bool) -> None:
    """Listen to JAX while there is a watcher or a program log."""
    if _watchers or _program_logs:
        return
    if wanted:
        subscribe(_on_event)
    else:
        unsubscribe(_on_event)


def body_ran(log: ProgramLog, program: Program) -> None:
    """Add a program whose body has run, in a trace."""
    _HERE.ran.append((log, program))
    log.add(program)


def _on_event(raw: RawEvent) -> None:
    lowered, _HERE.lowered = _HERE.lowered, None
    if raw.kind is EventKind.COMPILE and lowered is not None and lowered.name == raw.name:
        _report_nested()
        if lowered.program is not None:
            _note_compile(lowered.program, raw)
        if lowered.eager:
            _eager.end()
        notify(_watchers, _compile_of(lowered, raw))
        return
    call = next(running_calls(), None)
    found: object = getattr(call.fun, "program_log", None) if call is not None else None
    log = found if isinstance(found, ProgramLog) else None
    program: Program | None = None
    if raw.kind is EventKind.TRACE:
        log, program = _traced(raw, call, log)
        first = program is not None
    else:
        _report_nested()
        program, first = _lowered_or_compiled(raw, call, log)
    explanation = program.explanation if program is not None and first else None
    event = _event(raw, call, log, explanation, program)
    if event.eager and _watchers and not _inside_a_log():
        why = _eager.explain(raw.kind, raw.name, call, inspect.currentframe())
        event = dataclasses.replace(event, explanation=why)
    fails = sys.exception() is not None  # JAX reports it all the same, and compiles nothing
    if raw.kind is EventKind.LOWERING and call is not None and call.runs and not fails:
        _HERE.lowered = event
    notify(_watchers, event)


def _compile_of(lowered: Event, raw: RawEvent) -> Event:
    """Return the event of a compile, which is that of the lowering but for what JAX says of it."""
    return dataclasses.replace(
        lowered,
        kind=raw.kind,
        seconds=raw.seconds,
        time=time.time(),
        cached=raw.cache.hit,
        miss=raw.cache.miss,
        explanation=None,
        key_parts=raw.cache.parts,
    )


def _note_compile(program: Program, raw: RawEvent) -> None:
    program.compile_seconds, program.cached = raw.seconds, raw.cache.hit
    _HERE.current = None


def _inside_a_log() -> bool:
    """Return whether this is a part of a program that has a log."""
    return any(hasattr(each.fun, "program_log") for each in running_calls())


def _traced(
    raw: RawEvent, call: RunningCall | None, log: ProgramLog | None
) -> tuple[ProgramLog | None, Program | None]:
    """Find the program whose trace JAX reports: the last body that ran, if it is of this log."""
    ran = _HERE.ran
    found: Program | None = None
    if ran:
        mine, program = ran[-1]
        if mine is log or (log is None and mine.name == raw.name):
            ran.pop()
            log, found = mine, program
            found.trace_seconds = raw.seconds
            _HERE.current = (id(call.args), mine, found) if call is not None else None
    _report_nested()
    return log, found


def _lowered_or_compiled(
    raw: RawEvent, call: RunningCall | None, log: ProgramLog | None
) -> tuple[Program | None, bool]:
    """Find the program that JAX lowers or compiles, and whether this is its first event."""
    if call is None or log is None:
        return None, False
    current = _HERE.current
    lowering = raw.kind is EventKind.LOWERING
    if (
        current is not None
        and current[1] is log
        # `lower` calls `trace` with a tuple of its own.
        and (current[0] == id(call.args) or not call.runs)
        and not (current[2].lower_seconds if lowering else current[2].compile_seconds)
    ):
        program, first = current[2], False
    else:
        program, first = log.new_program(Outcome.RECOMPILE, call, call.args, call.kwargs), True
        log.add(program)
        _HERE.current = (id(call.args), log, program)
    if lowering:
        program.lower_seconds = raw.seconds
    else:
        _note_compile(program, raw)
    return program, first


def _report_nested() -> None:
    """Report the traces inside other traces, of which JAX says nothing."""
    ran, _HERE.ran = _HERE.ran, []
    for log, program in ran:
        raw = RawEvent(EventKind.TRACE, log.name, program.trace_seconds)
        event = _event(raw, None, log, program.explanation, program)
        caller = caller_of(program.site, inspect.currentframe())
        notify(_watchers, dataclasses.replace(event, site=program.site, caller=caller))


def _event(
    raw: RawEvent,
    call: RunningCall | None,
    log: ProgramLog | None,
    explanation: Explanation | None,
    program: Program | None,
) -> Event:
    thread = threading.current_thread()
    fun = log.callee.find() if log is not None else None
    if call is not None:
        fun = function_behind(call.fun if fun is None else fun, call.args)
    frame = call.frame if call is not None else inspect.currentframe()
    site = site_of(frame)
    return Event(
        kind=raw.kind,
        name=raw.name,
        seconds=raw.seconds,
        time=time.time(),
        thread=thread.name,
        thread_id=thread.ident or 0,
        site=site,
        caller=caller_of(site, frame),
        eager=_is_eager(raw.name, fun) and log is None,
        cached=raw.cache.hit,
        miss=raw.cache.miss,
        explanation=explanation,
        fun=fun,
        key_parts=raw.cache.parts,
        program=program,
    )


def _is_eager(name: str, fun: Callable[..., Any] | None) -> bool:
    """Whether a function is an operation of JAX itself."""
    if fun is not None:
        package = str(getattr(fun, "__module__", "")).partition(".")[0]
        if package not in ("jax", "jaxlib"):
            _USERS.add(name)
            return False
        return True
    # Under `vmap`, or where a primitive was evaluated: by the file, and without it by the name.
    if source := source_of_running_jaxpr():
        return source.partition(" at ")[2].startswith(_FOLDER)
    plain = name.strip("_")
    modules = (jax.numpy, jax.lax, jax.nn, jax.random)
    return name not in _USERS and any(hasattr(module, plain) for module in modules)


_FOLDER: Final = os.path.join(os.path.dirname(jax.__file__), "")  # noqa: PTH118, PTH120  # a text
_USERS: Final[set[str]] = set()
"""The names of functions that are not JAX's own: JAX reports some events by name only."""
