"""What happens at a call when a capture changed since the trace.

Before each call a generated check asks whether every capture is the object that it was
(`quick_check`). Only where one is not does the code here run: it fingerprints all captures, and
finds the state that they are in. Each state has a number, which is in JAX's key: the programs of
other states are kept apart, and a state that comes back finds its own. A function without captures
is not checked.
"""

import contextlib
import dataclasses
import functools
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
from leafwise._objects.call_site import Site, site_of
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
    """Return what a trace has read, and note it with the program.

    Args:
        log: The log of the function.
        program: The program that is made.
        observer: What has observed the trace.
        reused: The functions in the trace that JAX may have taken up from another one.
        number: The number of the trace; None if it has none.
    """
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
        stale = _stale_captures(log.name, log.trace_of(nearest), guard.current(), None)
        if stale:
            found = tuple(_reason(each, Outcome.RETRACE) for each in stale.values())
            program.explanation = Explanation(Outcome.RETRACE, found, nearest=nearest)


class Guard:
    """The check of one jitted function: it replaces what a call of that runs.

    A call runs one of three things, which `_install` puts there:

    - JAX's own function, where there is nothing to check.
    - `quick_check`, which calls JAX's function in the current state as long as all captures are
      the objects that they were, and otherwise `_recheck`.
    - `_recheck`: it fingerprints all captures, finds their state, and installs the quick check
      against them. In a block of `check_captures` each call runs it.

    Attributes:
        stale: What ``stale=`` says.
        made: What `jax.jit` has made of the function.
    """

    def __init__(
        self, jitted: JittedFunction, made: Any, log: ProgramLog, stale: StaleAction
    ) -> None:
        self.stale = stale
        self.made = made
        self._log = log
        self._find_jitted = weakref.ref(jitted)  # which holds this
        self._count = 0
        self._state: int | None = None
        """The state of the last call that was checked."""
        self._installed_for: Fingerprint | None = None
        """The captures of all programs, while the check of a call asks for them alone."""
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

    def bindings(self) -> list[Binding]:
        """Return the places that the function has read."""
        return union(dict.fromkeys(each.observation for each in self._log.traced()))

    def current(self) -> FingerprintedFunction:
        """Return what is in these places now."""
        return fingerprint_bindings(self.bindings())

    # What a call runs.

    def block_changed(self) -> None:
        """Fingerprint everything at the next call, if there is anything to check."""
        block, is_ignored = current_block(), self.stale is StaleAction.IGNORE
        if block is not None and block.is_exact:
            self._install(self._recheck_always())
            return
        traced = any(each.captured is not None for each in self._log.traced())
        checks = traced and not (block is None and is_ignored)
        self._install(self._recheck_always() if checks else self.made)

    def traced(self, observed: Observation, count: int) -> None:
        """Check from now on what a trace of so many `args` has read, too."""
        self._count = count
        if self._installed_for is not observed.fingerprint:
            current = self.current()
            state = self._find_state(current)
            if state is None:
                self.block_changed()
            else:
                self._check_against(current, state)

    def _install(self, call: Callable[..., Any], captured: Fingerprint | None = None) -> None:
        self._installed_for = captured
        jitted: Any = self._find_jitted()
        if jitted is not None:
            jitted.set_call(call)

    def _recheck_always(self) -> Callable[..., Any]:
        def check(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            return self._recheck(args, kwargs)

        return check

    def call_first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call, where nothing was traced so far."""
        __tracebackhide__ = True
        block = current_block()
        if block is None or not block.is_exact:
            return self.made(*args, **kwargs)
        return self._recheck(args, kwargs)

    def _in_state(self, state: int) -> Callable[..., Any]:
        """Return what a call runs in a state."""
        made: Callable[..., Any] = self.made
        if not state:
            return made

        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            with with_number(state):
                return made(*args, **kwargs)

        return call

    def _check_against(self, current: FingerprintedFunction, state: int) -> None:
        """Install the check against these values, which are those of a state."""
        self._state = state
        block, call = current_block(), self._in_state(state)
        is_ignored = self.stale is StaleAction.IGNORE
        is_exact = block is not None and block.is_exact
        if not is_exact and (not current.probes or (block is None and is_ignored)):
            self._install(call)
            return
        traced = self._log.traced()
        kinds = {(id(each.captured), each.state) for each in traced}
        # A program of another state may be the one that answers.
        is_mixed = len(kinds) > 1 and (self.action is StaleAction.RAISE or is_ignored)
        if is_exact or is_mixed:
            self._install(self._recheck_always())
            return
        own = {key for each in traced if each.state == state for key in each.captured or ()}
        probes = [each for each in current.probes if each.place.key in own]
        check = quick_check(probes, self._count)(call, self._recheck)
        self._install(check, traced[-1].captured if len(kinds) == 1 else None)

    def _recheck(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call, where some capture may not be the object that it was.

        Raises:
            StaleCaptureError: The call is stale, and that is to raise.
        """
        __tracebackhide__ = True
        self._count = len(args)
        if jax.config.jax_disable_jit:
            return self.made(*args, **kwargs)
        current = self.current()
        state = self._find_state(current)
        is_stale, block = self._report(args, kwargs, current, state), current_block()
        state = self._enter(current, state)
        if is_stale and block is not None and block.observes:
            self._install(self._recheck_always())
        else:
            self._check_against(current, state)
        inside = is_part_of_trace(args, kwargs)
        if block is not None and block.is_exact and not (is_stale or inside):
            return self._call_exactly(block, args, kwargs, state)
        return self._in_state(state)(*args, **kwargs)

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
            stale = _stale_captures(log.name, log.traced()[-1], current, None)
            # JAX takes a copy of such an array, which it keeps as long as some program does.
            if any(
                each.place.key in stale and _is_converted(each.value) for each in current.probes
            ):
                clear_caches: Any = jax.clear_caches  # which has no types
                clear_caches()
            if log.count_states() < MOST_STATES:
                log.latest = current.fingerprint, log.new_state()
                return log.latest[1]
            log.retire([_reason(each, Outcome.RETRACE) for each in stale.values()])
            log.clear_caches()
            return 0

    @contextlib.contextmanager
    def entered(self) -> Generator[None, None, None]:
        """Trace or lower a call in this block in the state of its captures."""
        state = 0
        if self._log.traced() and self.action is not StaleAction.IGNORE:
            current = self.current()
            state = self._enter(current, self._find_state(current))
        with with_number(state) if state else contextlib.nullcontext():
            yield

    # Reports.

    def _report(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        current: FingerprintedFunction,
        state: int | None,
    ) -> bool:
        """Raise, warn or note that a call is stale, if it is; return whether it is.

        Raises:
            StaleCaptureError: It is stale, and that is to raise.
        """
        __tracebackhide__ = True
        block, action = current_block(), self.action
        if is_tracing() or action is StaleAction.RETRACE:
            return False
        site = site_of(inspect.currentframe())
        found = self._stale(args, kwargs, current, state, site)
        if found and block is not None and (block.is_exact or action is StaleAction.IGNORE):
            owner = code_id(capturing_function(self.made.__wrapped__, args))
            block.note(owner, list(found.values()))
        if found and action is StaleAction.RAISE:
            raise StaleCaptureError("\n".join(map(str, found.values())), tuple(found.values()))
        for key, each in found.items() if action is StaleAction.WARN else ():
            self._counts[key] += 1
            if self._counts[key] <= MOST_WARNINGS:
                last = _LAST if self._counts[key] == MOST_WARNINGS else ""
                _warn(f"{each}{last}", site)
        return bool(found)

    def _stale(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        current: FingerprintedFunction,
        state: int | None,
        site: Site | None,
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
        found = _stale_captures(self.name, program, current, site)
        if apart:
            return found
        # Of a static argument the audit knows what it is.
        own = id(getattr(self.made.__wrapped__, "__self__", None))
        return {key: found[key] for key in found if key[0] != "object" or key[1] == own}

    def stale_captures(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[StaleCapture, ...]:
        """Return what changed since the trace whose program a call would get."""
        current = self.current()
        return tuple(self._stale(args, kwargs, current, self._find_state(current), None).values())

    def with_captures(
        self, found: Explanation, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Explanation:
        """Add the captures that changed since the trace to an explanation."""
        stale = self.stale_captures(args, kwargs)
        if stale and self.action in (StaleAction.RETRACE, StaleAction.WARN):
            reasons = tuple(_reason(each, Outcome.RETRACE) for each in stale)
            return dataclasses.replace(found, outcome=Outcome.RETRACE, reasons=reasons)
        unsound = tuple(_reason(each, found.outcome) for each in stale)
        return dataclasses.replace(found, unsound=(*found.unsound, *unsound))

    @property
    def name(self) -> str:
        """The name of the function; JAX has none for an object that is called."""
        fun: Any = self.made.__wrapped__
        while isinstance(fun, functools.partial):
            fun = fun.func
        return self._log.name if hasattr(fun, "__name__") else f"{name_of(fun)}.__call__"

    # The exact level.

    def _call_exactly(
        self, block: CaptureChecks, args: tuple[Any, ...], kwargs: dict[str, Any], state: int
    ) -> Any:
        """Call, in a block that compares each program with a fresh trace.

        Raises:
            StaleCaptureError: The programs differ, and that is to raise.
        """
        __tracebackhide__ = True
        log = self._log
        program = log.trace_for(log.callee.record(args, kwargs), state)
        if program is not None:
            state = self._compare_exactly(block, program, args, kwargs, state)
        count = len(log.traced())
        call = self._in_state(state)
        result = call(*args, **kwargs)
        for each in log.traced()[count:]:
            self._note_digests(each, args, kwargs)
        return result

    def _note_digests(
        self, program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        with with_number(program.state or None):
            program.digests = numpy_digests(self.made, args, kwargs)

    def _compare_exactly(
        self,
        block: CaptureChecks,
        program: Program,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        state: int,
    ) -> int:
        """Raise, warn or note that a program is another one now; return the state to call in."""
        __tracebackhide__ = True
        try:
            with with_number(state or None):
                change = program_change(
                    self.made, self._log.callee, args, kwargs, program.digests or ()
                )
        except Exception as error:  # noqa: BLE001  # the user's own code
            block.not_compared[self.name] = f"its trace raised {type(error).__name__}"
            return state
        if change is None:
            if program.digests is None:
                self._note_digests(program, args, kwargs)
            return state
        if block.action is StaleAction.RETRACE:
            return self._log.new_state()
        site = site_of(inspect.currentframe())
        what = self.name, "program", change.line, change.before, change.after
        found = StaleCapture(self.name, "", *what, site)
        block.note(code_id(capturing_function(self.made.__wrapped__, args)), [found])
        if block.action is StaleAction.RAISE:
            raise StaleCaptureError(str(found), (found,))
        if block.action is StaleAction.WARN:
            _warn(str(found), site)
        return state if block.action is StaleAction.IGNORE else self._log.new_state()


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
    name: str, program: Program, current: FingerprintedFunction, site: Site | None
) -> dict[Key, StaleCapture]:
    """Return what a function captures that changed since a trace."""
    values = {each.place.key: each.value for each in current.probes}
    found: dict[Key, StaleCapture] = {}
    for key in _changes(program, current):
        was, now = program.captured[key], current.fingerprint[key]
        before, after = format_change(was, now)
        what = now.name, now.reader, now.holder, now.site or was.site
        found[key] = StaleCapture(name, *what, before, after, site, fix_of(values[key]))
    return found


def _reason(found: StaleCapture, outcome: Outcome) -> Reason:
    before, after = Verbatim(found.before), Verbatim(found.after)
    return Reason(found.name, ReasonKind.CAPTURE, outcome, before, after, Cause.CAPTURE)


def _warn(text: str, site: Site | None) -> None:
    file, line = (site.file, site.line) if site is not None else ("<unknown>", 0)
    warnings.warn_explicit(text, StaleCaptureWarning, file, line)
