"""What happens at a call when a capture changed since the trace.

Before each call a generated check asks whether every capture is the object that it was
(`quick_check`). Only where one is not does the code here run: it fingerprints all captures, and
finds the state that they are in. Each state has a number, which is in JAX's key: the programs of
other states are kept apart, and a state that comes back finds its own. A function without captures
is not checked.
"""

import contextlib
import dataclasses
import inspect
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any, Final

import jax
import numpy as np

from leafwise._captures.bindings import Binding
from leafwise._captures.fingerprint import (
    Fingerprint,
    FingerprintedFunction,
    Key,
    changed,
    fingerprint_bindings,
    format_change,
)
from leafwise._captures.fixes import fix_of
from leafwise._captures.observation import Observation, Source, source_of, union
from leafwise._captures.observe import Observer
from leafwise._compare.explain import Explanation
from leafwise._compare.fixes import Cause
from leafwise._compare.reasons import Outcome, Reason, ReasonKind
from leafwise._jax.compat import dispatch_entries
from leafwise._jax.context import with_number
from leafwise._jax.frames import exclude_file
from leafwise._jit.blocks import (
    CaptureChecks,
    StaleAction,
    StaleCapture,
    current_block,
    follow_blocks,
)
from leafwise._jit.callee import capturing_function, code_id
from leafwise._jit.exact import is_part_of_trace, numpy_digests, program_change
from leafwise._jit.programs import Program, ProgramLog
from leafwise._jit.quick_check import quick_check
from leafwise._jit.trace_numbers import is_tracing, note, read_before, trace_afresh
from leafwise._objects.attributes import name_of
from leafwise._objects.call_site import site_of
from leafwise._objects.locks import new_lock
from leafwise._objects.methods import JittedFunction
from leafwise._objects.text import Verbatim
from leafwise.errors import StaleCaptureError, StaleCaptureWarning

exclude_file(__file__)  # an error shows the frames that it has under `jax.jit`

MOST_WARNINGS: Final = 8
"""Of one capture there are so many warnings."""

MOST_STATES: Final = 8
"""After so many states JAX lets go of the programs of all of them."""

_LAST: Final = "\n  (it has changed so often that further changes are not warned of)"


def has_states(log: ProgramLog) -> bool:
    """Return whether a function is traced again when a capture has changed."""
    return any(each.stale is not StaleAction.IGNORE for each in list(log.guards))


def is_checked(log: ProgramLog) -> bool:
    """Return whether somebody wants to know what a trace reads."""
    return has_states(log) or (bool(log.guards) and current_block() is not None)


def observe(
    log: ProgramLog,
    program: Program,
    observer: Observer,
    reused: set[Source] | None,
    number: int | None,
) -> Observation | None:
    """Return what a trace has read, and note it with the program."""
    try:
        runs = observer.ran()
        ran = {source_of(each.code) for each in runs}
        if reused is None:  # nobody knows what was
            trace_afresh()
        taken = read_before((reused or set()) - ran)
        found: Observation = log.observe(Observation(runs, log.callee.fun, taken))
    except Exception:  # noqa: BLE001  # a check must not break a program that is right
        return None
    program.captured, program.observation = found.fingerprint, found
    if number is not None:
        note(number, found)
    if all(each.action is not StaleAction.IGNORE for each in list(log.guards)):
        # The captures were those of this state: what is another now, the trace itself has changed.
        for each in log.traced():
            own: Fingerprint = (each.state == program.state and each.captured) or {}
            own |= {key: found.fingerprint[key] for key in own.keys() & found.fingerprint.keys()}
    return found


def explain_by_captures(log: ProgramLog, program: Program) -> None:
    """Note that a program is made for captures that changed, if its arguments are as they were."""
    nearest, reasons = program.explanation.nearest, program.explanation.reasons
    if nearest is None or log.programs[nearest].state == program.state:
        return
    costly = [each for each in reasons if each.outcome is Outcome.RETRACE]
    if any(each.kind is not ReasonKind.CACHE for each in costly):
        return
    for guard in list(log.guards)[:1]:
        found = _reasons(_stale_captures(log.name, log.trace_of(nearest), guard.current()))
        if found:
            program.explanation = Explanation(Outcome.RETRACE, tuple(found), nearest=nearest)


class Guard:
    """The check of one jitted function: it replaces what a call of that runs.

    A call runs one of three things, which `_install` puts there:

    - JAX's own function, where there is nothing to check.
    - `quick_check`, which calls JAX's function in the current state as long as all captures are
      the objects that they were, and otherwise `_recheck`.
    - `_recheck`: it fingerprints all captures, finds their state, and installs the quick check
      against them. In a block of `check_captures` each call runs it.
    """

    def __init__(
        self, jitted: JittedFunction, made: Any, log: ProgramLog, stale: StaleAction
    ) -> None:
        self.stale = stale  # what `stale=` says
        self.made = made  # what `jax.jit` has made of the function
        self._log = log
        self._find_jitted = weakref.ref(jitted)  # which holds this
        self._state: int | None = None  # of the last call that was checked
        self._counts: Counter[Key] = Counter()
        self._lock = new_lock()
        log.guards.add(self)
        follow_blocks(self)
        self.block_changed()  # another `jit` of this function may have programs already

    @property
    def action(self) -> StaleAction:
        """What happens to a stale call now."""
        block = current_block()
        return self.stale if block is None or block.observes else block.action

    @property
    def name(self) -> str:
        """The name of the function; JAX has none for an object that is called."""
        name, fun = self._log.name, self.made.__wrapped__
        return f"{name_of(fun)}.__call__" if name == "<unnamed function>" else name

    def bindings(self) -> list[Binding]:
        """Return the places that the function has read."""
        return union(dict.fromkeys(each.observation for each in self._log.traced()))

    def current(self) -> FingerprintedFunction:
        """Return what is in these places now."""
        return fingerprint_bindings(self.bindings())

    # What a call runs.

    def block_changed(self) -> None:
        """Fingerprint everything at the next call, if there is anything to check."""
        self._install(self.next_call())

    def next_call(self) -> Callable[..., Any]:
        """Return what a call runs, as long as nothing is known of the captures."""
        block, is_ignored = current_block(), self.stale is StaleAction.IGNORE
        traced = any(each.captured is not None for each in self._log.traced())
        checks = block.is_exact or traced if block is not None else traced and not is_ignored
        return self._recheck if checks else self.made

    def traced(self) -> None:
        """Check from now on what a trace has read, too."""
        current = self.current()
        state = self._find_state(current)
        if state is None:
            self.block_changed()
        else:
            self._check_against(current, state)

    def _install(self, call: Callable[..., Any]) -> None:
        jitted: Any = self._find_jitted()
        if jitted is not None:
            jitted.set_call(call)

    def _check_against(self, current: FingerprintedFunction, state: int) -> None:
        """Install the check against these values, which are those of a state."""
        self._state = state
        block, is_ignored = current_block(), self.stale is StaleAction.IGNORE
        traced = self._log.traced()
        kinds = {(id(each.captured), each.state) for each in traced}
        # A program of another state may be the one that answers.
        is_mixed = len(kinds) > 1 and (self.action is StaleAction.RAISE or is_ignored)
        call = _in_state(self.made, state)
        if block is not None and block.is_exact:
            self._install(self._recheck)
        elif not current.probes or (block is None and is_ignored):
            self._install(call)
        elif is_mixed:
            self._install(self._recheck)
        else:
            own = {key for each in traced if each.state == state for key in each.captured or ()}
            probes = [each for each in current.probes if each.place.key in own]
            self._install(quick_check(probes, call, self._recheck))

    def _recheck(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call, where some capture may not be the object that it was."""
        __tracebackhide__ = True
        if jax.config.jax_disable_jit:
            return self.made(*args, **kwargs)
        current = self.current()
        state = self._find_state(current)
        is_unsaid = is_tracing() or self.action is StaleAction.RETRACE
        found = {} if is_unsaid else self._stale(args, kwargs, current, state)
        self._deliver(found, args)
        block = current_block()
        state = self._enter(current, state)
        if found and block is not None and block.observes:
            self._install(self._recheck)
        else:
            self._check_against(current, state)
        inside = is_part_of_trace(args, kwargs)
        if block is not None and block.is_exact and not (found or inside):
            return self._call_exactly(block, state, args, kwargs)
        return _in_state(self.made, state)(*args, **kwargs)

    # The states of the captures.

    def _find_state(self, current: FingerprintedFunction) -> int | None:
        """Return the latest state in which the captures are as they are now; None if none is."""
        if self.action is StaleAction.IGNORE:
            return 0
        traced = [each for each in self._log.traced() if self._log.is_own(each.state)]
        if not traced:
            return 0
        kinds = {(each.state, id(each.captured)): each for each in traced}
        states = dict.fromkeys(each.state for each in reversed(traced))
        others = {state for (state, *_), each in kinds.items() if _changes(each, current)}
        return next((state for state in states if state not in others), None)

    def _enter(self, current: FingerprintedFunction, state: int | None) -> int:
        """Return a state as it was found, or the number of a new one."""
        log = self._log
        if state is not None:
            return state
        with self._lock:
            if log.latest is not None and log.latest[0] == current.fingerprint:
                return log.latest[1]  # another thread is about to trace in it
            stale = _stale_captures(log.name, log.traced()[-1], current)
            # JAX takes a copy of such an array, which it keeps as long as some program does.
            if any(
                each.place.key in stale and _is_converted(each.value) for each in current.probes
            ):
                clear_caches: Any = jax.clear_caches  # which has no types
                clear_caches()
            if log.count_states() < MOST_STATES:
                log.latest = current.fingerprint, log.new_state()
                return log.latest[1]
            log.retire(_reasons(stale))
            log.clear_caches()
            return 0

    @contextlib.contextmanager
    def entered(self) -> Generator[None, None, None]:
        """Trace or lower a call in this block in the state of its captures."""
        current = self.current()
        state = self._enter(current, self._find_state(current))
        with with_number(state) if state else contextlib.nullcontext():
            yield

    # Reports.

    def _deliver(self, found: dict[Key, StaleCapture], args: Any) -> None:
        """Raise, warn or note what is stale."""
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
                last = _LAST if self._counts[key] == MOST_WARNINGS else ""
                file, line = ("<unknown>", 0) if each.call is None else each.call[:2]
                warnings.warn_explicit(f"{each}{last}", StaleCaptureWarning, file, line)

    def _stale(
        self, args: Any, kwargs: Any, current: FingerprintedFunction, state: int | None
    ) -> dict[Key, StaleCapture]:
        """Return what changed since the trace of another state that would answer a call."""
        ran = any(each.is_compiled for each in self._log.traced())
        if ran and dispatch_entries(self.made) == 0:  # the caches of the process were cleared
            return {}
        try:
            log, signature = self._log, self._log.callee.record(args, kwargs)
            apart = self.action is not StaleAction.IGNORE
            if apart and state is not None and log.trace_for(signature, state) is not None:
                return {}
            program = log.trace_for(signature, self._state) or log.trace_for(signature)
        except Exception:  # noqa: BLE001  # the arguments' own code: the call says it better
            return {}
        if program is None:
            return {}
        found = _stale_captures(self.name, program, current)
        if apart:
            return found
        # Of a static argument the audit knows what it is.
        own = id(getattr(self.made.__wrapped__, "__self__", None))
        return {key: found[key] for key in found if key[0] != "object" or key[1] == own}

    def stale_captures(self, args: Any, kwargs: Any) -> dict[Key, StaleCapture]:
        """Return what changed since the trace whose program a call would get."""
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

    # The exact level.

    def _call_exactly(self, block: CaptureChecks, state: int, args: Any, kwargs: Any) -> Any:
        """Call, in a block that compares each program with a fresh trace."""
        __tracebackhide__ = True
        log = self._log
        signature, before = log.callee.record(args, kwargs), state  # before the call donates them
        program = log.trace_for(signature, state)
        if program is not None:
            state = self._compare_exactly(block, program, state, args, kwargs)
        if program is None or state != before:
            trace_afresh()  # what is taken up of earlier traces may be of an old value, too
        result = _in_state(self.made, state)(*args, **kwargs)
        program = log.trace_for(signature, state)
        if program is not None and program.digests is None:
            with with_number(state or None):
                program.digests = numpy_digests(self.made, args, kwargs)
        return result

    def _compare_exactly(
        self, block: CaptureChecks, program: Program, state: int, args: Any, kwargs: Any
    ) -> int:
        """Raise, warn or note that a program is another one now; return the state to call in."""
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
            what = self.name, "program", change.line, change.before, change.after
            found = StaleCapture(self.name, "", *what, site_of(inspect.currentframe()))
            self._deliver({("program", change.line): found}, args)
        return state if block.action is StaleAction.IGNORE else self._log.new_state()


def _in_state(made: Callable[..., Any], state: int) -> Callable[..., Any]:
    """Return what a call runs in a state."""

    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        with with_number(state):
            return made(*args, **kwargs)

    return call if state else made


def _is_converted(value: Any) -> bool:
    """Return whether JAX converts an array of NumPy before it takes it."""
    if not isinstance(value, np.ndarray):
        return False
    return bool(jax.dtypes.canonicalize_dtype(value.dtype) != value.dtype)


def _changes(program: Program, current: FingerprintedFunction) -> list[Key]:
    """Return the captures that are not as they were.

    Of functions, and objects whose methods run, the innermost one, where nothing else is.
    """
    keys = [] if program.captured is None else changed(program.captured, current.fingerprint)
    inner = [key for key in keys if not current.fingerprint[key].is_around] or keys[-1:]
    return [key for key in inner if not any(_is_inside(each, key) for each in inner)]


def _is_inside(one: Key, other: Key) -> bool:
    """Return whether one capture is an attribute or an item of another."""
    return one[:-1] == other[:-1] and one[-1] != other[-1] == one[-1][: len(other[-1])]


def _stale_captures(
    name: str, program: Program, current: FingerprintedFunction
) -> dict[Key, StaleCapture]:
    """Return what a function captures that changed since a trace."""
    values = {each.place.key: each.value for each in current.probes}
    site = site_of(inspect.currentframe())
    found: dict[Key, StaleCapture] = {}
    for key in _changes(program, current):
        was, now = program.captured[key], current.fingerprint[key]
        before, after = format_change(was, now)
        what = now.name, now.reader, now.holder, now.site or was.site
        found[key] = StaleCapture(name, *what, before, after, site, fix_of(values[key]))
    return found


def _reasons(stale: dict[Key, StaleCapture], outcome: Outcome = Outcome.RETRACE) -> list[Reason]:
    """Return the reasons that captures are for a program of another outcome."""
    found: list[Reason] = []
    for each in stale.values():
        before, after = Verbatim(each.before), Verbatim(each.after)
        kind, cause = ReasonKind.CAPTURE, Cause.CAPTURE
        found.append(Reason(each.name, kind, outcome, before, after, cause))
    return found
