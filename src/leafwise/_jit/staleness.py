"""What happens at a call when a capture changed since the trace.

Before each call a generated check asks whether every capture is the object that it was
(`quick_check`). Only where one is not are all captures fingerprinted, and the state that they are
in is found. Each state has a number, which is in JAX's key: the programs of other states are kept
apart, and a state that comes back finds its own.
"""

import contextlib
import dataclasses
import functools
import inspect
import linecache
import re
import types
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

import jax
import numpy as np
from jax.core import Tracer

from leafwise._captures.bindings import Binding
from leafwise._captures.fingerprint import (
    Fingerprint,
    FingerprintedFunction,
    Key,
    Observation,
    Probe,
    Source,
    changed,
    file_and_line,
    fingerprint_bindings,
    format_change,
    inner_change,
    union,
)
from leafwise._captures.forms import Names, code_inside
from leafwise._captures.observe import Observer
from leafwise._captures.places import GONE, BoundIn, CapturedPlace, cell_of, item_of
from leafwise._captures.treatment import way_of
from leafwise._compare.fixes import Cause
from leafwise._display.reasons import Explanation, Outcome, Reason, ReasonKind
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
from leafwise._jit.programs import ProgramEntry, ProgramLog
from leafwise._jit.trace_numbers import is_in_body, note, read_before, trace_afresh
from leafwise._objects.attributes import (
    dict_of,
    in_class,
    is_plain,
    keeps_in_dict,
    name_of,
    of_partial,
)
from leafwise._objects.call_site import site_of
from leafwise._objects.locks import new_lock
from leafwise._objects.methods import JittedFunction
from leafwise._objects.names import Item
from leafwise._objects.stand_ins import MISSING, Verbatim
from leafwise.errors import StaleCaptureError, StaleCaptureWarning

exclude_file(__file__)  # an error shows the frames that it has under `jax.jit`

MOST_WARNINGS: Final = 8
"""Of one capture there are so many warnings."""

MOST_STATES: Final = 8
"""After so many states JAX lets go of the programs of all of them."""


def has_states(log: ProgramLog) -> bool:
    """Return whether a function is traced again when a capture has changed."""
    return any(each.stale is not StaleAction.IGNORE for each in list(log.guards))


def is_checked(log: ProgramLog) -> bool:
    """Return whether somebody wants to know what a trace reads."""
    return has_states(log) or (bool(log.guards) and current_block() is not None)


def observe(
    log: ProgramLog,
    program: ProgramEntry,
    observer: Observer,
    reused: set[Source] | None,
    number: int | None,
) -> Observation | None:
    """Return what a trace has read, and note it with the program."""
    try:
        runs = observer.ran()
        if reused is None:  # nobody knows what was
            trace_afresh()
        missing = (reused or set()) - {file_and_line(run.code) for run in runs}
        around = [run for other in observer.around for run in other.so_far()] if missing else []
        runs += (run for run in around if missing & {*map(file_and_line, (run.code, *run.inside))})
        reads: Observation = log.observe(Observation(runs, log.callee.fun, read_before(missing)))
    except Exception:  # noqa: BLE001  # a check must not break a program that is right
        return None
    program.captured, program.observation = reads.fingerprint, reads
    if number is not None:
        note(number, reads)
    if all(guard.action is not StaleAction.IGNORE for guard in list(log.guards)):
        # The captures were those of this state: what is another now, the trace itself has changed.
        for trace in log.traced():
            own: Fingerprint = (trace.state == program.state and trace.captured) or {}
            own |= {key: reads.fingerprint[key] for key in own.keys() & reads.fingerprint.keys()}
    return reads


def explain_by_captures(log: ProgramLog, program: ProgramEntry) -> None:
    """Note that a program is made for captures that changed, if its arguments are as they were."""
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
    """The check of one jitted function: it replaces what a call of that runs."""

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
        return self.stale if block is None or not block.is_exact else block.action

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
        is_unsaid = is_in_body() or self.action is StaleAction.RETRACE
        stale = {} if is_unsaid else self._stale(args, kwargs, current, state)
        self._deliver(stale, args)
        block = current_block()
        state = self._enter(current, state)
        if stale and block is not None and not block.is_exact:
            self._install(self._recheck)
        else:
            self._check_against(current, state)
        # Inside a trace the program around it is the one that counts.
        inside = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((args, kwargs)))
        if block is not None and block.is_exact and not (stale or inside):
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
            values = [each.value for each in current.probes if each.place.key in stale]
            arrays = [each for each in values if isinstance(each, np.ndarray)]
            # JAX takes a copy of an array to convert it, and keeps it as long as some program does.
            if any(jax.dtypes.canonicalize_dtype(each.dtype) != each.dtype for each in arrays):
                clear_caches: Any = jax.clear_caches  # which has no types
                clear_caches()
            if len(log.states) + 1 < MOST_STATES:
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
                text, (file, line) = str(each), each.call[:2] if each.call else ("<unknown>", 0)
                if self._counts[key] == MOST_WARNINGS:
                    text += "\n  (it has changed so often that further changes are not warned of)"
                warnings.warn_explicit(text, StaleCaptureWarning, file, line)

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
        self, block: CaptureChecks, program: ProgramEntry, state: int, args: Any, kwargs: Any
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
            capture = StaleCapture(self.name, "", *what, site_of(inspect.currentframe()))
            self._deliver({("program", change.line): capture}, args)
        return state if block.action is StaleAction.IGNORE else self._log.new_state()


def _in_state(made: Callable[..., Any], state: int) -> Callable[..., Any]:
    """Return what a call runs in a state."""

    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        with with_number(current_number() if is_traced_afresh() else state):
            return made(*args, **kwargs)

    return call if state else made


def _changes(program: ProgramEntry, current: FingerprintedFunction) -> list[Key]:
    """Return the captures that are not as they were.

    Of functions, and objects whose methods run, the innermost one, where nothing else is.
    """
    keys = [] if program.captured is None else changed(program.captured, current.fingerprint)
    inner = [key for key in keys if not current.fingerprint[key].is_around] or keys[-1:]
    ways = {(*key[:-1], key[-1][:n]) for key in inner for n in range(len(key[-1]))}
    return [key for key in inner if key not in ways]  # those that lead to no other one


def _stale_captures(
    name: str, program: ProgramEntry, current: FingerprintedFunction
) -> dict[Key, StaleCapture]:
    """Return what a function captures that changed since a trace."""
    values = {probe.place.key: probe.value for probe in current.probes}
    site = site_of(inspect.currentframe())
    stale: dict[Key, StaleCapture] = {}
    keys = _changes(program, current)
    changes = {key: inner_change(program.captured[key], current.fingerprint[key]) for key in keys}
    whole = [
        (current.fingerprint[key].name, *texts)
        for key, (path, *texts) in changes.items()
        if not path
    ]
    for key, (path, *texts) in changes.items():
        step = re.search(r"[.[][^.[]*$", path)
        if step and any(name.endswith(step[0]) and texts == other for name, *other in whole):
            continue  # what is in it has another way, which is a capture of its own
        was, now = program.captured[key], current.fingerprint[key]
        before, after = format_change(was, now)
        what = now.name, now.reader, now.holder, now.site or was.site
        stale[key] = StaleCapture(name, *what, before, after, site, way_of(values[key]))
    return stale


def _reasons(stale: dict[Key, StaleCapture], outcome: Outcome = Outcome.RETRACE) -> list[Reason]:
    """Return the reasons that captures are for a program of another outcome."""
    kind, cause = ReasonKind.CAPTURE, Cause.CAPTURE
    return [
        Reason(each.name, kind, outcome, Verbatim(each.before), Verbatim(each.after), cause)
        for each in stale.values()
    ]


# The check before each call.

_FILE: Final = "<leafwise check of captures, {} terms>"


def quick_check(
    probes: Sequence[Probe], call: Callable[..., Any], recheck: Callable[..., Any]
) -> Callable[..., Any]:
    """Return the check of some captures, which calls one of two functions.

    It reads globals and cells by name, as the function itself does: it has the globals of the
    user's module, and the user's cells in its closure. Of ``lambda x: f(params, x)``, where
    ``params`` is a dict of two arrays, it is::

        def check(*args, **kwargs):
            __tracebackhide__ = True
            try:
                same = (
                    f is value_0
                    and type_1(at_0 := params) is kind_2
                    and len_4(at_1 := items_3(at_0)) == 4
                    and at_1[0] is value_5
                    and at_1[1] is value_6
                    and ref_7() is at_1[2] is not None
                    and ref_8() is at_1[3] is not None
                )
            except Exception_9:
                same = False
            return call_10(*args, **kwargs) if same else recheck_11(*args, **kwargs)
    """
    spaces = [each.place.owner() for each in probes if each.place.holder is BoundIn.GLOBAL]
    names, terms = Names(*spaces[:1]), list[str]()
    for probe in probes:
        found = _read_expression(probe.place, probe.value, names, terms)
        terms += probe.fingerprinted.source(found, names)
    if not terms:
        return call
    given = {"Exception": Exception, "call": call, "recheck": recheck}
    own = [names.of(name, value) for name, value in given.items()]
    return names.function(_compiled(", ".join(names.cells), tuple(terms), *own))


@functools.lru_cache(maxsize=256)
def _compiled(
    names: str, terms: tuple[str, ...], exception: str, call: str, recheck: str
) -> types.CodeType:
    lines = [
        f"def make({names}):",
        "    def check(*args, **kwargs):",
        "        __tracebackhide__ = True",
        "        try:",
        "            same = (",
        *[f"                {'and ' * (place > 0)}{each}" for place, each in enumerate(terms)],
        "            )",
        f"        except {exception}:",
        "            same = False",
        f"        return {call}(*args, **kwargs) if same else {recheck}(*args, **kwargs)",
        "    return check",
    ]
    source = "\n".join(lines) + "\n"
    filename = _FILE.format(len(terms))
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return code_inside(source, filename)


def _read_expression(place: CapturedPlace, value: Any, names: Names, terms: list[str]) -> str:
    """Return the expression that reads a place, as long as the terms that it adds are true."""
    at, first, text = place.start(), len(terms), _root(place, names)
    for step in place.steps if text else ():
        text, at = _next(text, at, step, names, terms)
        if not text:
            break
    if text and at is value and at is not MISSING:
        return text
    del terms[first:]
    return f"{names.of('read', place.read)}()"


def _next(text: str, at: Any, step: str | Item, names: Names, terms: list[str]) -> tuple[str, Any]:
    """Return the expression one step further on, and its value; no text if there is none."""
    if isinstance(step, Item):
        return f"{text}[{names.of('key', step.key)}]", item_of(at, step.key)
    if step == "__class__":
        return f"{names.of('type', type)}({text})", type(at)
    if is_plain(at, step):
        return f"{text}.{step}", getattr(at, step, MISSING)
    if _is_method(at, step):
        if hasattr(at, "__dict__"):
            terms.append(f"{step!r} not in {text}.__dict__")
        return f"{names.of('type', type)}({text}).{step}", getattr(type(at), step)
    kind = type(at)
    is_first = hasattr(type(in_class(kind, step)), "__set__")  # before the dict of an instance
    if keeps_in_dict(kind) and step in dict_of(at) and not is_first:
        find = names.of("getattribute", object.__getattribute__)
        return f"{find}({text}, '__dict__')[{step!r}]", dict_of(at)[step]
    return "", at


def _is_method(value: Any, name: str) -> bool:
    """Return whether an attribute is a function of the class, which nothing comes before."""
    kind: Any = type(value)
    if issubclass(kind, type) or type(kind) is not type or not is_plain(value, "__class__"):
        return False
    return type(in_class(kind, name)) is types.FunctionType and name not in dict_of(value)


def _root(place: CapturedPlace, names: Names) -> str:
    """Return the expression that reads the variable where a place starts; none for a rare one."""
    if place.start() is GONE:  # a moment ago it was there
        return ""
    owner, variable = place.owner(), place.variable
    match place.holder:
        case BoundIn.GLOBAL if owner is names.space and names.is_free(str(variable)):
            return str(variable)
        case BoundIn.GLOBAL if variable in owner:  # and no builtin
            return f"{names.of('names', owner)}[{variable!r}]"
        case BoundIn.CLOSURE:
            return names.of_cell(str(variable), cell_of(owner, str(variable)))
        case BoundIn.DEFAULT:
            code, found = owner.__code__, f"{names.of('ref', place.owner)}()"
            if variable in (owner.__kwdefaults__ or ()):
                return f"{found}.__kwdefaults__[{variable!r}]"
            return f"{found}.__defaults__[{code.co_varnames.index(variable) - code.co_argcount}]"
        case BoundIn.PARTIAL:
            _, args, keywords = of_partial(owner)
            held = keywords if isinstance(variable, str) else args
            return f"{names.of('held', held)}[{variable!r}]"
        case BoundIn.ATTRIBUTE:
            return f"{names.of('ref', place.owner)}()"
        case _:
            return ""
