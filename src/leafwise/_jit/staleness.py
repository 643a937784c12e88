"""What happens at a call when a capture changed since the trace.

Before each call a generated check asks whether all is as it was (`_quick_check`). Only where it
says no, what is here runs: it looks at everything, finds the program that would answer, and does
what ``stale=`` says. A function with nothing to check is not checked.
"""

import contextlib
import dataclasses
import functools
import inspect
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import jax
import numpy as np

from leafwise._captures.fingerprint import (
    CaptureState,
    Fingerprint,
    FingerprintedFunction,
    Key,
    Probe,
    changed,
    completed,
    fingerprint_function,
    words_of_change,
)
from leafwise._captures.fixes import Fix, fix_of
from leafwise._compare.explain import Explanation
from leafwise._compare.reasons import Outcome, Reason, ReasonKind
from leafwise._jax.compat import dispatch_entries
from leafwise._jit.blocks import (
    CaptureChecks,
    Stale,
    StaleCapture,
    current_block,
    follow_blocks,
    followers,
)
from leafwise._jit.callee import is_equinox
from leafwise._jit.inner_traces import forget, innermost, owner_of, readers_to_forget, reading
from leafwise._jit.programs import Program, ProgramLog
from leafwise._jit.quick_check import quick_check
from leafwise._objects.attributes import is_installed, name_of
from leafwise._objects.call_site import Site, site_of
from leafwise._objects.methods import JittedFunction
from leafwise._objects.text import Verbatim
from leafwise.errors import StaleCaptureError, StaleCaptureWarning

_FIX: Final = "Pass it as an argument, or make it a field of a pytree class."


def told(keys: list[Key], taken: FingerprintedFunction) -> list[Key]:
    """Return what to tell of some changes: of a package's own variables only if of no others.

    What the user did to an object of a package changes both.
    """
    there = [key for key in keys if key in taken.fingerprint]
    inner = {each.key for each in taken.places if is_installed(each.binding.function)}
    return [key for key in there if key not in inner] or there


def described(
    name: str,
    key: Key,
    entries: tuple[CaptureState, CaptureState],
    looked: Probe | None,
    site: Site | None,
) -> StaleCapture:
    """Return a change with all that is told of it."""
    (reader, variable, holder, _), (was, now) = key, entries
    before, after = words_of_change(was, now)
    fix = Fix() if looked is None else fix_of(looked.value)
    line = now.site or was.site
    return StaleCapture(name, variable, reader, holder, line, before, after, site, fix)


def reason_of(found: StaleCapture, outcome: Outcome) -> Reason:
    """Return a changed capture as a reason."""
    before, after = Verbatim(found.before), Verbatim(found.after)
    return Reason(found.name, ReasonKind.CAPTURE, outcome, before, after, _FIX)


MOST_WARNINGS: Final = 8
"""After so many warnings of one capture it is not checked any more."""

_ANSWERED: Final = (Outcome.REUSE, Outcome.DISPATCH, Outcome.RECOMPILE)


def fingerprint_of(memory: ProgramLog, args: Sequence[Any]) -> FingerprintedFunction | None:
    """Look at what the function of a memory captures, if somebody wants to know."""
    if not memory.guards:
        return None
    return _take(memory.callee.fun, args)


def before_trace(memory: ProgramLog, args: Sequence[Any]) -> FingerprintedFunction | None:
    """Look at what a function captures before it is traced, if somebody wants to know.

    What JAX has kept of the functions that it calls, with other values than these, is forgotten.
    """
    taken = fingerprint_of(memory, args)
    if taken is None or all(each.action is Stale.IGNORE for each in list(memory.guards)):
        return taken
    with contextlib.suppress(Exception):  # the user's own code: the trace must go on
        readers = readers_to_forget(taken, innermost(memory.callee.fun))
        if readers:
            forget(readers, taken)
            wanted = set(map(id, readers))
            for guard in followers():
                guard.forget_of(wanted)
    return taken


def _take(fun: Callable[..., Any], args: Sequence[Any] = ()) -> FingerprintedFunction | None:
    try:
        return fingerprint_function(reading(fun, args), large=current_block() is not None)
    except Exception:  # noqa: BLE001  # a check must not break a program that is right
        return None


class Guard:
    """The check of one jitted function.

    Attributes:
        stale: What ``stale=`` says.
    """

    def __init__(self, jitted: JittedFunction, made: Any, memory: ProgramLog, stale: Stale) -> None:
        """Begin without a check, if nothing has been traced."""
        self.stale = stale
        self._memory = memory
        self._find = weakref.ref(jitted)  # which has this
        self._jax = made
        self._told: Fingerprint = {}
        self._times: Counter[Key] = Counter()
        self._now: Fingerprint = {}
        self._lock = threading.Lock()
        memory.guards.add(self)
        follow_blocks(self)
        if memory.programs:  # of another `jit` of this function, which JAX takes up
            self.block_changed()

    @property
    def action(self) -> Stale:
        """What happens to a stale call now."""
        block = current_block()
        return self.stale if block is None else block.action

    # What is called.

    def block_changed(self) -> None:
        """Look closely at the next call, or not at all."""
        traced = any(each.captured is not None for each in list(self._memory.programs))
        wanted = traced and (current_block() is not None or self.stale is not Stale.IGNORE)
        self._put(_always(self._look_closer) if wanted else self._jax)

    def traced(self, taken: FingerprintedFunction) -> None:
        """Check from now on whether all is as it was in a trace."""
        self._set(taken)

    def _put(self, call: Callable[..., Any]) -> None:
        jitted: Any = self._find()
        if jitted is not None:
            jitted.__call__ = call

    def _set(self, taken: FingerprintedFunction) -> bool:
        """Check against what is there now; return whether a program is of old values.

        While one is, each call is asked which program answers it.
        """
        block = current_block()
        self._now = taken.fingerprint
        self._complete(taken.fingerprint)
        if block is not None:
            self._tell_hidden(block, taken.fingerprint)
        places = [each for each in taken.places if not self._is_given_up(each.key)]
        if not places or (block is None and self.stale is Stale.IGNORE):
            self._put(self._jax)
            return False
        outdated = any(self._changes(each) for each in self._memory.traced())
        if is_equinox(self._jax.__wrapped__):  # each call has a function of its own
            self._put(_always(self._look_closer))
        else:
            call = self._call_outdated if outdated else self._jax
            self._put(quick_check(places)(call, self._look_closer))
        return outdated

    def _complete(self, now: Fingerprint) -> None:
        """Let programs know what a closer look has seen of what did not change."""
        for program in self._memory.traced():
            if program.captured and not changed(program.captured, now):
                program.captured = completed(program.captured, now)

    def _tell_hidden(self, block: CaptureChecks, now: Fingerprint) -> None:
        for key, entry in now.items():
            name = f"{self.name} captures `{key[1]}`"
            if not entry.hidden or name in block.not_compared:
                continue
            block.not_compared[name] = entry.hidden
            if block.tells:
                text = f"{name} ({entry.site}), which cannot be compared: {entry.hidden}"
                _warn(text, site_of(inspect.currentframe()))

    # A call.

    def _look_closer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call, where something is not the very object that it was."""
        __tracebackhide__ = True
        taken = None if jax.config.jax_disable_jit else _take(self._jax.__wrapped__, args)
        if taken is None:
            return self._jax(*args, **kwargs)
        if not self._set(taken):
            return self._jax(*args, **kwargs)
        if self.action is Stale.RETRACE:
            self._trace_again(taken)
            return self._jax(*args, **kwargs)
        return self._call_outdated(*args, **kwargs)

    def _call_outdated(self, *args: Any, **kwargs: Any) -> Any:
        """Call, where some program is of old values: perhaps not the one that answers."""
        __tracebackhide__ = True
        if not jax.config.jax_disable_jit:
            self._judge(args, kwargs)
        return self._jax(*args, **kwargs)

    def _judge(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Do what ``stale=`` says about a call.

        Raises:
            StaleCaptureError: It is stale, and that is to raise.
        """
        __tracebackhide__ = True
        try:
            program = self._answering(args, kwargs)
            changes = [] if program is None else self._changes(program)
            site = site_of(inspect.currentframe()) if changes else None
            taken = _take(self._jax.__wrapped__, args) if changes else None
            shown = [] if taken is None else told(changes, taken)
            found = [] if taken is None else self._described(program, shown, taken, site)
        except Exception:  # noqa: BLE001  # the arguments' own code: the call says it better
            return
        if not found:
            return
        block, action = current_block(), self.action
        if block is not None:
            block.note(owner_of(reading(self._jax.__wrapped__, args)), found)
        if action is Stale.RAISE:
            raise StaleCaptureError("\n".join(map(str, found)), tuple(found))
        self._settle(changes)
        if action is Stale.WARN:
            for each, key in zip(found, shown, strict=True):
                last = self._times[key] == MOST_WARNINGS
                _warn(f"{each}{_LAST if last else ''}", site)

    def _settle(self, changes: Iterable[Key]) -> None:
        """Say no more of these values, and of a capture that keeps changing nothing at all."""
        with self._lock:
            for key in changes:
                self._told[key] = self._now[key]
                self._times[key] += 1
        self.block_changed()  # to check from here: against what is there now

    def _changes(self, program: Program) -> list[Key]:
        """Return what is not as it was when a program was traced, and is still to be told."""
        keys = _changed(program, self._now)
        if self.action in (Stale.RAISE, Stale.RETRACE):
            return keys
        told = {key: self._told[key] for key in keys if key in self._told}
        news = set(changed(told, self._now))
        untold = [key for key in keys if key not in told or key in news]
        return [key for key in untold if not self._is_given_up(key)]

    def _is_given_up(self, key: Key) -> bool:
        """Return whether a capture changes all the time, and that has been said often enough."""
        speaks = self.action in (Stale.RAISE, Stale.RETRACE)
        return not speaks and self._times[key] >= MOST_WARNINGS

    # Which program.

    def _answering(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program | None:
        """Return the trace whose program a call would get; None if it is traced anew."""
        if not self._entries_are_there():
            return None
        found = self._memory.explain(self._memory.callee.record(args, kwargs))
        if found.nearest is None or found.outcome not in _ANSWERED:
            return None
        return self._memory.trace_of(found.nearest)

    def _entries_are_there(self) -> bool:
        """Whether JAX has kept what it made: the caches of the process may have been cleared."""
        made = any(each.ran and each.compile_seconds for each in self._memory.traced())
        return not made or dispatch_entries(self._jax) != 0

    def stale_captures(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[StaleCapture, ...]:
        """Return what changed since the trace whose program a call would get."""
        taken, program = _take(self._jax.__wrapped__, args), self._answering(args, kwargs)
        if taken is None or program is None or program.captured is None:
            return ()
        keys = told(_changed(program, taken.fingerprint), taken)
        return tuple(self._described(program, keys, taken, None))

    def with_captures(
        self, found: Explanation, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Explanation:
        """Add to an explanation what the program that would answer does not know of."""
        if found.outcome not in _ANSWERED:
            return found
        stale = self.stale_captures(args, kwargs)
        if stale and self.action is Stale.RETRACE:
            reasons = tuple(reason_of(each, Outcome.RETRACE) for each in stale)
            return dataclasses.replace(found, outcome=Outcome.RETRACE, reasons=reasons)
        unsound = tuple(reason_of(each, found.outcome) for each in stale)
        return dataclasses.replace(found, unsound=(*found.unsound, *unsound))

    def _described(
        self,
        program: Program | None,
        keys: list[Key],
        taken: FingerprintedFunction,
        site: Site | None,
    ) -> list[StaleCapture]:
        was = {} if program is None or program.captured is None else program.captured
        looked = {each.key: each for each in taken.places}
        pairs = [(key, (was[key], taken.fingerprint[key])) for key in keys]
        return [described(self.name, key, pair, looked.get(key), site) for key, pair in pairs]

    @property
    def name(self) -> str:
        """The name of the function; JAX has none for an object that is called."""
        fun: Any = self._jax.__wrapped__
        while isinstance(fun, functools.partial):
            fun = fun.func
        return self._memory.name if hasattr(fun, "__name__") else f"{name_of(fun)}.__call__"

    # Tracing again.

    def _trace_again(self, taken: FingerprintedFunction) -> None:
        """Drop all programs, if one of them is of old values."""
        with self._lock:
            outdated = [each for each in self._memory.traced() if self._changes(each)]
            if not outdated:
                return
            last = outdated[-1]
            keys = self._changes(last)
            found = self._described(last, keys, taken, None)
            self._memory.retire([reason_of(each, Outcome.RETRACE) for each in found])
        self.forget()
        if any(_has_a_copy(each.value) for each in taken.places if each.key in keys):
            clear_caches: Any = jax.clear_caches  # which has no types
            clear_caches()

    def forget_of(self, functions: set[int]) -> None:
        """Drop all programs, if they are of one of these functions, which one around calls."""
        fun = self._memory.callee.find()
        if fun is None or id(innermost(fun)) not in functions or not self._memory.traced():
            return
        taken, found = _take(fun), list[StaleCapture]()
        for program in self._memory.traced():
            keys = [] if taken is None else _changed(program, taken.fingerprint)
            if taken is not None and keys:
                found = self._described(program, keys, taken, None)
        self._memory.retire([reason_of(each, Outcome.RETRACE) for each in found])
        self.forget()

    def forget(self) -> None:
        """Let JAX drop its programs of the function, through whatever it was jitted with."""
        for guard in list(self._memory.guards):
            each: Any = guard._jax  # noqa: SLF001  # of this class
            type(each).clear_cache(each)


def _changed(program: Program, now: Fingerprint) -> list[Key]:
    """Return the captures that are neither as they were before a trace nor as it left them."""
    keys = [] if program.captured is None else changed(program.captured, now)
    began = program.began or {}
    return [key for key in keys if key not in began or changed({key: began[key]}, now)]


def written(began: FingerprintedFunction, ended: FingerprintedFunction) -> Fingerprint | None:
    """Return what a trace itself changed, as it was before; None if nothing."""
    keys = changed(began.fingerprint, ended.fingerprint)
    return {key: began.fingerprint[key] for key in keys} or None


_LAST: Final = "\n  (it has changed so often that further changes are not checked)"


def _has_a_copy(value: Any) -> bool:
    """Return whether JAX takes a copy of an array, which it keeps as long as some program does."""
    if not isinstance(value, np.ndarray):
        return False
    return bool(jax.dtypes.canonicalize_dtype(value.dtype) != value.dtype)


def _always(look_closer: Callable[..., Any]) -> Callable[..., Any]:
    def check(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return look_closer(args, kwargs)

    return check


def _warn(text: str, site: Site | None) -> None:
    file, line = (site.file, site.line) if site is not None else ("<unknown>", 0)
    warnings.warn_explicit(text, StaleCaptureWarning, file, line)
