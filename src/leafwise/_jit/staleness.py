"""What happens at a call when a capture changed since the trace.

Before each call, a generated check tests whether every capture is unchanged (`Current.check`). Only
if one has changed are all of them compared, to find their state. Each state has a number, which is
in JAX's key: the programs of other states are kept apart, and a state that recurs, such as a flag
that is set for training and reset for evaluation, finds its own.
"""

import contextlib
import dataclasses
import inspect
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any, Final

import jax
from jax.core import Tracer

from leafwise._captures.observe import Observer, Source, is_watched, source_of
from leafwise._captures.reads import Captured, Current, Read, changed, format_change, value_change
from leafwise._captures.treatment import way_of
from leafwise._compare.fixes import Cause
from leafwise._findings.reasons import Explanation, Outcome, Reason, ReasonKind
from leafwise._jax.compat import dispatch_entries
from leafwise._jax.context import current_number, is_traced_afresh, with_number
from leafwise._jax.frames import exclude_file
from leafwise._jit.blocks import (
    CaptureChecks,
    StaleAction,
    StaleCapture,
    current_block,
    follow_blocks,
    numpy_digests,
    program_change,
)
from leafwise._jit.callee import capturing_function, code_id
from leafwise._jit.clears import has_old_copy
from leafwise._jit.jax_errors import add_uses
from leafwise._jit.programs import ProgramEntry, ProgramLog
from leafwise._jit.trace_numbers import (
    Observation,
    changed_meanwhile,
    is_in_body,
    note,
    read_before,
    trace_afresh,
)
from leafwise._objects.attributes import name_of
from leafwise._objects.locks import new_lock
from leafwise._objects.methods import JittedFunction
from leafwise._objects.source.call_site import site_of
from leafwise._objects.stand_ins import Verbatim
from leafwise.errors import StaleCaptureError, StaleCaptureWarning

exclude_file(__file__)  # errors show the same frames as under `jax.jit`

MOST_WARNINGS: Final = 8

MOST_STATES: Final = 8
"""The number of states after which JAX drops the programs of all of them."""


def has_states(log: ProgramLog) -> bool:
    """Return whether a function is traced again when a capture has changed."""
    return any(each.stale is not StaleAction.IGNORE for each in list(log.guards))


def is_checked(log: ProgramLog) -> bool:
    """Return whether the reads of a trace are needed."""
    return has_states(log) or (bool(log.guards) and current_block() is not None)


def observe(
    log: ProgramLog,
    program: ProgramEntry,
    observer: Observer,
    reused: set[Source] | None,
    number: int | None,
    *,
    before: dict[Any, Captured],
) -> Observation | None:
    """Return the observation of a trace, and store it with the program.

    If a capture was another one before, the program is kept for no state.
    """
    try:
        runs = observer.ran()
        if reused is None:  # unknown, so nothing may be reused
            trace_afresh()
        users = {source for source in reused or () if is_watched(source[0])}
        missing = users - {source_of(run.code) for run in runs}
        around = [run for other in observer.around for run in other.so_far()] if missing else []
        runs += (run for run in around if missing & {source_of(run.code), *run.inside})
        earlier = read_before(missing)
        reads = Observation(runs, log.callee.fun, earlier, number)
        known = [trace.observation for trace in log.traced()[-1:] if trace.observation is not None]
        reads = next((latest for latest in known if latest.captured == reads.captured), reads)
    except Exception:  # noqa: BLE001  # a check must not break a correct program
        trace_afresh()
        return None
    is_apart = all(guard.action is not StaleAction.IGNORE for guard in list(log.guards))
    if is_apart and changed_meanwhile(before, reads.captured, runs):
        program.live = False
        trace_afresh()
        log.drop_state(program.state)
        return None
    program.observation = reads
    note(number, reads)
    log.note_captured(program.state, reads.captured)
    if is_apart:
        # The captures were those of this state: any that differ now, the trace itself has changed.
        same = [trace.observation for trace in log.traced() if trace.state == program.state]
        for own in [each.captured for each in same if each is not None]:
            own |= {key: reads.captured[key] for key in own.keys() & reads.captured.keys()}
    return reads


def explain_by_captures(log: ProgramLog, program: ProgramEntry) -> None:
    """Explain a program by the captures that changed, if its arguments are unchanged."""
    nearest, reasons = program.explanation.nearest, program.explanation.reasons
    if nearest is None or log.programs[nearest].state == program.state:
        return
    costly = [reason for reason in reasons if reason.outcome is Outcome.RETRACE]
    if any(reason.kind is not ReasonKind.CACHE for reason in costly):
        return
    for guard in list(log.guards)[:1]:
        causes = _reasons(_stale_captures(log.name, log.trace_of(nearest), guard.current()))
        if causes:
            program.explanation = Explanation(Outcome.RETRACE, tuple(causes), nearest=nearest)


class Guard:
    """The check of one jitted function, which it installs as what a call runs."""

    def __init__(
        self, jitted: JittedFunction, made: Any, log: ProgramLog, stale: StaleAction
    ) -> None:
        self.stale = stale  # what `on_stale=` says
        self.made = made  # what `jax.jit` returned for the function
        self._log = log
        self._find_jitted = weakref.ref(jitted)  # which holds this
        self._state: int | None = None  # of the last call that was checked
        self._counts: Counter[Any] = Counter()
        self._lock = new_lock()
        self._is_first = log.warns and not log.programs
        log.guards.add(self)
        follow_blocks(self)
        self.block_changed()  # another `jit` of this function may have programs already

    @property
    def action(self) -> StaleAction:
        block = current_block()
        return self.stale if block is None or not block.is_exact else block.action

    @property
    def name(self) -> str:
        """The name of the function; JAX has none for a callable object."""
        name, fun = self._log.name, self.made.__wrapped__
        return f"{name_of(fun)}.__call__" if name == "<unnamed function>" else name

    def reads(self) -> list[Read]:
        """Return the places that the function has read, each once."""
        found: dict[Any, Read] = {}
        for each in dict.fromkeys(trace.observation for trace in self._log.traced()):
            found |= {} if each is None else each.reads
        return list(found.values())

    def current(self) -> Current:
        return Current(self.reads())

    def block_changed(self) -> None:
        """Compare everything at the next call, if there is anything to check."""
        with self._lock:  # another thread may install a check of what it has just traced
            self._install(self._next_call())

    def first_call(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run a call while none has succeeded yet."""
        __tracebackhide__ = True
        try:
            result = self._next_call()(*args, **kwargs)
        except Exception as error:  # a user's function
            add_uses(error, self.made, args, kwargs)
            raise
        if self._is_first:  # no trace has installed a check
            self._is_first = False
            self.block_changed()
        return result

    def _next_call(self) -> Callable[..., Any]:
        """Return what a call runs while nothing is known about the captures."""
        block, is_ignored = current_block(), self.stale is StaleAction.IGNORE
        traced = any(each.observation is not None for each in self._log.traced())
        checks = block.is_exact or traced if block is not None else traced and not is_ignored
        is_dropped = 0 not in self._log.states and not is_ignored
        return self.changed_call if checks or is_dropped else self.made

    def traced(self) -> None:
        """From now on, also check what the latest trace has read."""
        current = self.current()
        state = self._find_state(current)
        if state is None:
            self.block_changed()
        else:
            self._check_against(current, state)

    def _install(self, call: Callable[..., Any]) -> None:
        jitted: Any = self._find_jitted()
        self._is_first &= not self._log.programs
        call = self.first_call if self._is_first else call
        if jitted is not None:
            jitted.set_call(call)

    def _check_against(self, current: Current, state: int) -> None:
        with self._lock:
            self._state = state
            self._install(self._check_of(current, state))

    def _check_of(self, current: Current, state: int) -> Callable[..., Any]:
        log, block, is_ignored = self._log, current_block(), self.stale is StaleAction.IGNORE
        traced, call = log.traced(), _in_state(self.made, state)
        if block is None and is_ignored:
            return call
        kinds = {(id(each.observation), each.state) for each in traced}
        # A program of another state may answer; or another thread has traced or dropped some.
        is_mixed = len(kinds) > 1 and (self.action is StaleAction.RAISE or is_ignored)
        is_known = traced and current.places == {read.place.key for read in self.reads()}
        is_known = is_known and (state in log.states or is_ignored)
        if is_mixed or not is_known or (block is not None and block.is_exact):
            return self.changed_call
        return current.check(call, self.changed_call, log.states.get(state, ()))

    def changed_call(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run a call for which some capture may have changed."""
        __tracebackhide__ = True
        if jax.config.jax_disable_jit:
            return self.made(*args, **kwargs)
        current = self.current()
        state = self._find_state(current)
        is_unsaid = is_in_body() or self.action is StaleAction.RETRACE
        stale = {} if is_unsaid else self._stale(args, kwargs, current, state)
        self._deliver(stale, args)
        block = current_block()
        state = self._enter(current)
        if stale and block is not None and not block.is_exact:
            self._install(self.changed_call)
        else:
            self._check_against(current, state)
        # Inside a trace, the enclosing program is what counts.
        inside = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((args, kwargs)))
        if block is not None and block.is_exact and not (stale or inside):
            return self._call_exactly(block, state, args, kwargs)
        return _in_state(self.made, state)(*args, **kwargs)

    def _find_state(self, current: Current) -> int | None:
        if self.action is StaleAction.IGNORE:
            return 0
        states = reversed(list(self._log.states.items()))
        same = (each for each, captured in states if not changed(captured, current.captured))
        return next(same, None)

    def _enter(self, current: Current) -> int:
        """Return the state that matches the current captures, or a new one."""
        log = self._log
        with self._lock:  # another thread may be about to trace in it
            state = self._find_state(current)
            if state is not None:
                return state
            is_copied = has_old_copy(current.values.values())
            if len(log.states) < MOST_STATES and not is_copied:
                return log.new_state(current.captured)
            stale = [_stale_captures(log.name, last, current) for last in log.traced()[-1:]]
            log.retire([reason for each in stale for reason in _reasons(each)])
            log.clear_caches()
            if is_copied and has_old_copy(current.values.values()):
                clear: Any = jax.clear_caches  # for a program of another function has it, too
                inspect.unwrap(clear)()  # not as a call of the user
            if threading.active_count() == 1:
                return 0
            log.states.pop(0, None)  # for which another thread may be compiling an old program
            return log.new_state(current.captured)

    @contextlib.contextmanager
    def entered(self) -> Generator[None, None, None]:
        """Make traces and lowerings in this block use the state of the current captures."""
        state = self._enter(self.current())
        with with_number(state) if state else contextlib.nullcontext():
            yield

    def _deliver(self, found: dict[Any, StaleCapture], args: Any) -> None:
        """Raise, warn about or record stale captures."""
        __tracebackhide__ = True
        block, action = current_block(), self.action
        if found and block is not None and (block.is_exact or action is StaleAction.IGNORE):
            owner = code_id(capturing_function(self.made.__wrapped__, args))
            block.note(owner, list(found.values()))
        if found and action is StaleAction.RAISE:
            raise StaleCaptureError("\n".join(map(str, found.values())), tuple(found.values()))
        for key, each in found.items() if action is StaleAction.WARN else ():
            self._counts[key] += 1
            if self._counts[key] <= MOST_WARNINGS:
                text, (file, line) = str(each), each.call[:2] if each.call else ("<unknown>", 0)
                if self._counts[key] == MOST_WARNINGS:
                    text += "\n  (it has changed so often that later changes will not be reported)"
                warnings.warn_explicit(text, StaleCaptureWarning, file, line)

    def _stale(
        self, args: Any, kwargs: Any, current: Current, state: int | None
    ) -> dict[Any, StaleCapture]:
        """Return the captures that changed since a trace of another state that would answer."""
        ran = any(each.is_compiled for each in self._log.traced())
        if ran and dispatch_entries(self.made) == 0:  # the caches of the process were cleared
            return {}
        try:
            log, signature = self._log, self._log.callee.record(args, kwargs)
            apart = self.action is not StaleAction.IGNORE
            if apart and state is not None and log.trace_for(signature, state) is not None:
                return {}
            program = log.trace_for(signature, self._state) or log.trace_for(signature)
        except Exception:  # noqa: BLE001  # user code: the call reports it better
            return {}
        if program is None:
            return {}
        found = _stale_captures(self.name, program, current)
        if apart:
            return found
        # The audit compares static arguments by itself, but not those of traces inside this one.
        given = set(map(id, (*args, *kwargs.values())))
        inner = () if program.observation is None else program.observation.reused
        kept = {key[1] for key in inner if key[0] == "object"} - given
        kept.add(id(getattr(self.made.__wrapped__, "__self__", None)))
        return {key: found[key] for key in found if key[0] != "object" or key[1] in kept}

    def stale_captures(self, args: Any, kwargs: Any) -> dict[Any, StaleCapture]:
        """Return the captures that changed since the trace whose program a call would get."""
        current = self.current()
        return self._stale(args, kwargs, current, self._find_state(current))

    def with_captures(self, found: Explanation, args: Any, kwargs: Any) -> Explanation:
        """Add the captures that changed since the trace to an explanation."""
        stale = self.stale_captures(args, kwargs)
        if stale and self.action in (StaleAction.RETRACE, StaleAction.WARN):
            reasons = tuple(_reasons(stale))
            return dataclasses.replace(found, outcome=Outcome.RETRACE, reasons=reasons)
        unsound = *found.unsound, *_reasons(stale, found.outcome)
        return dataclasses.replace(found, unsound=unsound)

    def _call_exactly(self, block: CaptureChecks, state: int, args: Any, kwargs: Any) -> Any:
        """Run a call in a block that compares each program with a fresh trace."""
        __tracebackhide__ = True
        log = self._log
        signature, before = log.callee.record(args, kwargs), state  # before the call donates them
        program = log.trace_for(signature, state)
        if program is not None and program.compared < block.most:
            program.compared += 1
            state = self._compare_exactly(block, program, state, args, kwargs)
        if program is None or state != before:
            trace_afresh()  # what earlier traces left for reuse may hold an old value, too
        result = _in_state(self.made, state)(*args, **kwargs)
        program = log.trace_for(signature, state)
        if program is not None and program.digests is None:
            with with_number(state or None):
                program.digests = numpy_digests(self.made, args, kwargs)
        return result

    def _compare_exactly(
        self, block: CaptureChecks, program: ProgramEntry, state: int, args: Any, kwargs: Any
    ) -> int:
        """Raise, warn about or record a program that differs now; return the state to call in."""
        __tracebackhide__ = True
        callee, digests = self._log.callee, program.digests or ()
        try:
            with with_number(state or None):
                change = program_change(self.made, callee, args, kwargs, digests)
        except Exception as error:  # noqa: BLE001  # the user's own code
            block.not_compared[self.name] = f"its trace raised {type(error).__name__}"
            return state
        if change is None:
            return state
        if block.action is not StaleAction.RETRACE:
            what = self.name, "program", *change, site_of(inspect.currentframe())
            self._deliver({("program", change[0]): StaleCapture(self.name, "", *what)}, args)
        if block.action is StaleAction.IGNORE:
            return state
        return self._log.new_state(self.current().captured)


def _in_state(made: Callable[..., Any], state: int) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        with with_number(current_number() if is_traced_afresh() else state):
            return made(*args, **kwargs)

    return call if state else made


def _changes(program: ProgramEntry, current: Current) -> list[Any]:
    """Return the keys of the captures that changed.

    If only functions and receivers of methods changed, return the innermost one.
    """
    seen, now = program.observation, current.captured
    keys = [] if seen is None else changed(seen.captured, now)
    inner = [key for key in keys if not now[key].is_around] or keys[-1:]
    ways = {(*key[:-1], key[-1][:n]) for key in inner for n in range(len(key[-1]))}
    return [key for key in inner if key not in ways]  # those that do not lead to another


def _stale_captures(name: str, program: ProgramEntry, current: Current) -> dict[Any, StaleCapture]:
    """Return the captures of a function that changed since a trace."""
    site, stale = site_of(inspect.currentframe()), dict[Any, StaleCapture]()
    old = {} if program.observation is None else program.observation.captured
    pairs = {key: (old[key], current.captured[key]) for key in _changes(program, current)}
    paths = {key: value_change(*pair)[0] for key, pair in pairs.items()}
    tokens = {key: [each.account.get(paths[key]) for each in pair] for key, pair in pairs.items()}
    whole = [(now.name, tokens[key]) for key, (_, now) in pairs.items() if not paths[key]]
    for key, (was, now) in pairs.items():
        step = "".join(map(str, paths[key][-1:]))
        if step and any(name.endswith(step) and tokens[key] == its for name, its in whole):
            continue  # the part has another path, which is a capture of its own
        what = now.name, now.read.reader, now.read.place.holder, now.read.site or was.read.site
        texts = format_change(was, now)
        stale[key] = StaleCapture(name, *what, *texts, site, way_of(current.values[key]))
    return stale


def _reasons(stale: dict[Any, StaleCapture], outcome: Outcome = Outcome.RETRACE) -> list[Reason]:
    kind, cause = ReasonKind.CAPTURE, Cause.CAPTURE
    return [
        Reason(each.name, kind, outcome, Verbatim(each.before), Verbatim(each.after), cause)
        for each in stale.values()
    ]
