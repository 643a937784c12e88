"""What happens at a call when a capture changed since the trace.

Before each call a generated check asks whether every capture is the object that it was
(`quick_check`). Only where one is not does the code here run: it fingerprints all captures, finds
the program that would answer, and does what ``stale=`` says. A function without captures is not
checked.
"""

import contextlib
import dataclasses
import functools
import inspect
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import jax
import numpy as np

from leafwise._captures.fingerprint import (
    GONE,
    Fingerprint,
    FingerprintedFunction,
    Key,
    changed,
    completed,
    fingerprint_function,
    format_change,
)
from leafwise._captures.fixes import Fix, fix_of
from leafwise._compare.explain import Explanation
from leafwise._compare.fixes import Cause
from leafwise._compare.reasons import Outcome, Reason, ReasonKind
from leafwise._jax.compat import dispatch_entries
from leafwise._jit.blocks import (
    CaptureChecks,
    StaleAction,
    StaleCapture,
    current_block,
    follow_blocks,
    followers,
)
from leafwise._jit.callee import is_equinox
from leafwise._jit.inner_traces import (
    capturing_function,
    code_id,
    forget_old_traces,
    innermost,
)
from leafwise._jit.programs import Program, ProgramLog
from leafwise._jit.quick_check import quick_check
from leafwise._objects.attributes import is_installed, name_of
from leafwise._objects.call_site import Site, site_of
from leafwise._objects.locks import new_lock
from leafwise._objects.methods import JittedFunction
from leafwise._objects.text import Verbatim
from leafwise.errors import StaleCaptureError, StaleCaptureWarning

MOST_WARNINGS: Final = 8
"""After so many warnings of one capture it is not checked any more."""

_LAST: Final = "\n  (it has changed so often that further changes are not checked)"

_ANSWERED: Final = (Outcome.REUSE, Outcome.DISPATCH, Outcome.RECOMPILE)
"""The outcomes of a call that a trace made earlier answers."""


def fingerprint_log(
    log: ProgramLog, args: Sequence[Any], program: Program | None = None
) -> FingerprintedFunction | None:
    """Fingerprint the captures of the function of a log, if a guard wants to know.

    With what one program was given, or else all that JAX has traces of.
    """
    if not log.guards:
        return None
    return _fingerprint(log.callee.fun, args, log.given() if program is None else program.code)


def before_trace(
    log: ProgramLog, args: Sequence[Any], program: Program
) -> FingerprintedFunction | None:
    """Fingerprint the captures of a function before it is traced, if a guard wants to know.

    The traces that JAX has kept of the functions that it calls are forgotten, where they are of
    other values than these.
    """
    current = fingerprint_log(log, args, program)
    if current is None or all(each.action is StaleAction.IGNORE for each in list(log.guards)):
        return current
    with contextlib.suppress(Exception):  # the user's own code: the trace must go on
        fun = innermost(log.callee.fun)
        forgotten = forget_old_traces(current, fun, traced=bool(log.traced()))
        for guard in followers() if forgotten else ():
            guard.retire_if_of(forgotten)
    return current


def changed_by_trace(
    began: FingerprintedFunction | None, ended: FingerprintedFunction
) -> Fingerprint | None:
    """Return what a trace itself changed, as it was before; None if nothing."""
    if began is None or began is ended:
        return None
    keys = changed(began.fingerprint, ended.fingerprint)
    return {key: began.fingerprint[key] for key in keys} or None


def _fingerprint(
    fun: Callable[..., Any], args: Sequence[Any], given: Iterable[Any]
) -> FingerprintedFunction | None:
    try:
        large = current_block() is not None
        return fingerprint_function(capturing_function(fun, args), given, large=large)
    except Exception:  # noqa: BLE001  # a check must not break a program that is right
        return None


class Guard:
    """The check of one jitted function: it replaces what a call of that runs.

    A call runs one of three things, which `_install` puts there:

    - JAX's own function, where there is nothing to check.
    - `quick_check`, which calls JAX's function, or `_call_reporting` while some program is of
      old values, as long as all captures are the objects that they were; otherwise `_recheck`.
    - `_recheck`: it fingerprints all captures, and installs the quick check against them. It
      runs at the next call after `block_changed`, which is also how what was reported is
      taken up.

    Attributes:
        stale: What ``stale=`` says.
    """

    def __init__(
        self, jitted: JittedFunction, made: Any, log: ProgramLog, stale: StaleAction
    ) -> None:
        self.stale = stale
        self._jax = made
        self._log = log
        self._find_jitted = weakref.ref(jitted)  # which holds this
        self._count = 0
        self._current: Fingerprint = {}
        """The captures as they were last fingerprinted."""
        self._installed_for: Fingerprint | None = None
        """The captures of all programs, while the check of a call asks for them alone."""
        self._reported: Fingerprint = {}
        """Each capture as it was last reported stale: of one value there is one warning."""
        self._report_counts: Counter[Key] = Counter()
        self._lock = new_lock()
        log.guards.add(self)
        follow_blocks(self)
        if log.programs:  # of another `jit` of this function, which JAX takes up
            self.block_changed()

    @property
    def action(self) -> StaleAction:
        """What happens to a stale call now."""
        block = current_block()
        return self.stale if block is None or block.observes else block.action

    # What a call runs.

    def block_changed(self) -> None:
        """Fingerprint everything at the next call, if there is anything to check."""
        traced = any(each.captured is not None for each in list(self._log.programs))
        checks = current_block() is not None or self.stale is not StaleAction.IGNORE
        self._install(self._recheck_always() if traced and checks else self._jax)

    def traced(self, current: FingerprintedFunction, count: int) -> None:
        """Check from now on whether the captures are as they were in a trace of so many `args`."""
        self._count = count
        if self._installed_for is not current.fingerprint:
            self._check_against(current)

    def _install(self, call: Callable[..., Any], captured: Fingerprint | None = None) -> None:
        self._installed_for = captured
        jitted: Any = self._find_jitted()
        if jitted is not None:
            jitted.set_call(call)

    def _fingerprint(self, args: Sequence[Any]) -> FingerprintedFunction | None:
        return _fingerprint(self._jax.__wrapped__, args, self._log.given())

    def _recheck_always(self) -> Callable[..., Any]:
        def check(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            return self._recheck(args, kwargs)

        return check

    def _check_against(self, current: FingerprintedFunction) -> bool:
        """Install the check against these values; return whether some program is of old ones."""
        block = current_block()
        self._current = current.fingerprint
        self._complete_fingerprints()
        if block is not None:
            self._report_not_compared(block)
        probes = [each for each in current.probes if not self._is_given_up(each.key)]
        if not probes or (block is None and self.stale is StaleAction.IGNORE):
            self._install(self._jax)
            return False
        kinds = {(id(each.captured), id(each.began)): each for each in self._log.traced()}
        outdated = any(map(self._unreported_changes, kinds.values()))
        if is_equinox(self._jax.__wrapped__):  # each call has a function of its own
            self._install(self._recheck_always())
        else:
            call = self._call_reporting if outdated else self._jax
            is_settled = block is None and kinds.keys() == {(id(self._current), id(None))}
            captured = self._current if is_settled else None
            self._install(quick_check(probes, self._count)(call, self._recheck), captured)
        return outdated

    def _complete_fingerprints(self) -> None:
        """Add the forms of large values to the fingerprints that are not stale; share equal ones.

        A block fingerprints large values, too. Most programs are of the same values.
        """
        shared: dict[int, Fingerprint] = {}
        for program in self._log.traced():
            was: Fingerprint | None = program.captured
            if was and id(was) not in shared:
                now = was if changed(was, self._current) else completed(was, self._current)
                shared[id(was)] = next((each for each in shared.values() if each == now), now)
            if was:
                program.captured = shared[id(was)]

    def _recheck(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call, where some capture may not be the object that it was."""
        __tracebackhide__ = True
        current, self._count = None, len(args)
        if not jax.config.jax_disable_jit:
            current = self._fingerprint(args)
        if current is None or not self._check_against(current):
            return self._jax(*args, **kwargs)
        if self.action is StaleAction.RETRACE:
            self._retire_outdated(current)
            return self._jax(*args, **kwargs)
        return self._call_reporting(*args, **kwargs)

    def _call_reporting(self, *args: Any, **kwargs: Any) -> Any:
        """Call, where some program is of old values: perhaps not the one that answers."""
        __tracebackhide__ = True
        if not jax.config.jax_disable_jit:
            self._report(args, kwargs)
        return self._jax(*args, **kwargs)

    # Reports.

    def _report(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise, warn or note that a call is stale, if it is.

        Raises:
            StaleCaptureError: It is stale, and that is to raise.
        """
        __tracebackhide__ = True
        try:
            program = self._answering_trace(args, kwargs)
            changes = [] if program is None else self._unreported_changes(program)
            current = self._fingerprint(args) if changes else None
            if program is None or current is None:
                return
            site = site_of(inspect.currentframe())
            keys = _keys_to_show(changes, current)
            found = self._stale_captures_of(program, keys, current, site)
        except Exception:  # noqa: BLE001  # the arguments' own code: the call says it better
            return
        if not found:
            return
        block, action = current_block(), self.action
        if block is not None:
            block.note(code_id(capturing_function(self._jax.__wrapped__, args)), found)
        if action is StaleAction.RAISE:
            raise StaleCaptureError("\n".join(map(str, found)), tuple(found))
        with self._lock:
            for key in changes:
                self._reported[key] = self._current.get(key, GONE)
                self._report_counts[key] += 1
        self.block_changed()  # the next call checks against the values that were reported
        if action is StaleAction.WARN:
            for each, key in zip(found, keys, strict=True):
                last = self._report_counts[key] == MOST_WARNINGS
                _warn(f"{each}{_LAST if last else ''}", site)

    def _report_not_compared(self, block: CaptureChecks) -> None:
        for key, state in self._current.items():
            name = f"{self.name} captures `{key[1]}`"
            if not state.hidden or name in block.not_compared:
                continue
            block.not_compared[name] = state.hidden
            if block.warns_of_hidden:
                text = f"{name} ({state.site}), which cannot be compared: {state.hidden}"
                _warn(text, site_of(inspect.currentframe()))

    def _unreported_changes(self, program: Program) -> list[Key]:
        """Return the captures of a program that changed, but for what a warning has said."""
        keys = _changed_since(program, self._current)
        if self._reports_always():
            return keys
        reported = {key: self._reported[key] for key in keys if key in self._reported}
        again = set(changed(reported, self._current))
        unreported = [key for key in keys if key not in reported or key in again]
        return [key for key in unreported if not self._is_given_up(key)]

    def _reports_always(self) -> bool:
        block, action = current_block(), self.action
        if action is StaleAction.IGNORE:
            return block is not None and block.reports_all
        return action in (StaleAction.RAISE, StaleAction.RETRACE)

    def _is_given_up(self, key: Key) -> bool:
        """Return whether a capture changes all the time, and was reported often enough."""
        return not self._reports_always() and self._report_counts[key] >= MOST_WARNINGS

    # Which program answers, and what it does not know of.

    def _answering_trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program | None:
        """Return the trace whose program a call would get; None if the call is traced."""
        ran = any(each.is_compiled for each in self._log.traced())
        if ran and dispatch_entries(self._jax) == 0:  # the caches of the process were cleared
            return None
        found = self._log.explain(self._log.callee.record(args, kwargs))
        if found.nearest is None or found.outcome not in _ANSWERED:
            return None
        return self._log.trace_of(found.nearest)

    def stale_captures(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[StaleCapture, ...]:
        """Return what changed since the trace whose program a call would get."""
        current = self._fingerprint(args)
        program = self._answering_trace(args, kwargs)
        if current is None or program is None or program.captured is None:
            return ()
        keys = _keys_to_show(_changed_since(program, current.fingerprint), current)
        return tuple(self._stale_captures_of(program, keys, current, None))

    def with_captures(
        self, found: Explanation, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Explanation:
        """Add the captures that changed since the trace to an explanation."""
        if found.outcome not in _ANSWERED:
            return found
        stale = self.stale_captures(args, kwargs)
        if stale and self.action is StaleAction.RETRACE:
            reasons = tuple(_reason(each, Outcome.RETRACE) for each in stale)
            return dataclasses.replace(found, outcome=Outcome.RETRACE, reasons=reasons)
        unsound = tuple(_reason(each, found.outcome) for each in stale)
        return dataclasses.replace(found, unsound=(*found.unsound, *unsound))

    def _stale_captures_of(
        self, program: Program, keys: list[Key], current: FingerprintedFunction, site: Site | None
    ) -> list[StaleCapture]:
        probes = {each.key: each for each in current.probes}
        found: list[StaleCapture] = []
        for key in keys:
            reader, variable, holder, _ = key
            was, now = program.captured[key], current.fingerprint.get(key, GONE)
            before, after = format_change(was, now)
            fix = fix_of(probes[key].value) if key in probes else Fix()
            line = now.site or was.site
            found.append(
                StaleCapture(self.name, variable, reader, holder, line, before, after, site, fix)
            )
        return found

    @property
    def name(self) -> str:
        """The name of the function; JAX has none for an object that is called."""
        fun: Any = self._jax.__wrapped__
        while isinstance(fun, functools.partial):
            fun = fun.func
        return self._log.name if hasattr(fun, "__name__") else f"{name_of(fun)}.__call__"

    # Programs that JAX lets go of, so that the next call is traced.

    def _retire_outdated(self, current: FingerprintedFunction) -> None:
        """Drop all programs, if one of them is of old values."""
        with self._lock:
            outdated = [each for each in self._log.traced() if self._unreported_changes(each)]
            if not outdated:  # another thread has dropped them
                return
            last = outdated[-1]
            keys = self._unreported_changes(last)
            found = self._stale_captures_of(last, keys, current, None)
            self._log.retire([_reason(each, Outcome.RETRACE) for each in found])
        self._clear_caches()
        # JAX takes a copy of such an array, which it keeps as long as some program does.
        if any(
            isinstance(each.value, np.ndarray)
            and jax.dtypes.canonicalize_dtype(each.value.dtype) != each.value.dtype
            for each in current.probes
            if each.key in keys
        ):
            clear_caches: Any = jax.clear_caches  # which has no types
            clear_caches()

    def retire_if_of(self, functions: set[int]) -> None:
        """Drop all programs, if they are of one of these functions, which one around calls."""
        fun = self._log.callee.find()
        if fun is None or id(innermost(fun)) not in functions or not self._log.traced():
            return
        current, found = _fingerprint(fun, (), self._log.given()), list[StaleCapture]()
        for program in self._log.traced():
            keys = [] if current is None else _changed_since(program, current.fingerprint)
            if current is not None and keys:
                found = self._stale_captures_of(program, keys, current, None)
        self._log.retire([_reason(each, Outcome.RETRACE) for each in found])
        self._clear_caches()

    def _clear_caches(self) -> None:
        """Let JAX drop its programs of the function, through whatever it was jitted with."""
        for guard in list(self._log.guards):
            each: Any = guard._jax  # noqa: SLF001  # of this class
            type(each).clear_cache(each)


def _changed_since(program: Program, current: Fingerprint) -> list[Key]:
    """Return the captures that are neither as they were before a trace nor as it left them."""
    keys = [] if program.captured is None else changed(program.captured, current)
    began = program.began or {}
    return [key for key in keys if key not in began or changed({key: began[key]}, current)]


def _keys_to_show(keys: list[Key], current: FingerprintedFunction) -> list[Key]:
    """Return the changes to report: those of a package's own variables only if all are.

    What the user did to an object of a package changes both.
    """
    present = [key for key in keys if key in current.fingerprint]
    inner = {each.key for each in current.probes if is_installed(each.binding.function)}
    return [key for key in present if key not in inner] or present or keys


def _reason(found: StaleCapture, outcome: Outcome) -> Reason:
    before, after = Verbatim(found.before), Verbatim(found.after)
    return Reason(found.name, ReasonKind.CAPTURE, outcome, before, after, Cause.CAPTURE)


def _warn(text: str, site: Site | None) -> None:
    file, line = (site.file, site.line) if site is not None else ("<unknown>", 0)
    warnings.warn_explicit(text, StaleCaptureWarning, file, line)
