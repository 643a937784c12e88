"""The calls of a jitted function, each checked before it runs.

What `step.__call__` runs, for `step = lw.jit(f)`::

    the first call         Guard.first_call: what `jax.jit` made, with notes on errors
      and its trace        TracedBody runs f, `observed` notes what that reads, and the values
                           Guard.traced puts a check of these in step.__call__
    a later call           the check, and then what `jax.jit` made
      after a change       Guard.changed_call warns or raises, finds the state of the captures,
                           and runs what `jax.jit` made under the state's number
    a call in a trace      the same; but the enclosing trace is what counts

A state is the captures of one or more traces, each as these saw it. Its number is in JAX's key: the
programs of other states are kept apart, and a state that recurs, such as a flag that is set for
training and reset for evaluation, finds its own.

While a body is traced, another number is in that key. Under it, JAX caches what is traced inside,
such as a loop body or a function under `jax.jit`. The next body is traced under the same one, and
may reuse that, while everything that was read is unchanged.
"""

import contextlib
import dataclasses
import functools
import inspect
import re
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final

import jax
from jax.core import Tracer

from leafwise._captures.observe import Run, is_watched, observing, source_of
from leafwise._captures.places import PlaceKey
from leafwise._captures.reads import (
    Captured,
    Current,
    Observation,
    captured_places,
    changed,
    differing,
    format_change,
    value_change,
)
from leafwise._captures.treatment import way_of
from leafwise._compare.fixes import Cause
from leafwise._findings.reasons import Explanation, Outcome, Reason, ReasonKind
from leafwise._jax.compat import dispatch_entries
from leafwise._jax.context import current_number, is_traced_afresh, new_number, with_number
from leafwise._jax.frames import exclude_file
from leafwise._jax.stack import functions_inside, source_in
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
from leafwise._objects.attributes import name_of
from leafwise._objects.locks import new_lock
from leafwise._objects.source.call_site import site_of
from leafwise._objects.source.names import names_stored
from leafwise._objects.stand_ins import Verbatim
from leafwise.errors import StaleCaptureError, StaleCaptureWarning

exclude_file(__file__)  # errors show the same frames as under `jax.jit`

_MOST_WARNINGS: Final = 8

_MOST_STATES: Final = 8
"""The number of states after which JAX drops the programs of all of them."""


class _Numbers:
    """The number of the latest trace, and what all traces with that number have read."""

    def __init__(self) -> None:
        self.threads = Counter[int]()  # how many traces each thread is in
        self.renew()

    def renew(self) -> None:
        """Start a new number, so that nothing traced so far is reused."""
        with _LOCK:
            self.latest = new_number()
            self.observations = dict[int, Callable[[], Observation | None]]()


_MOST_READ: Final = 64
"""The number of traces, of functions that may be gone, after which a new number is started."""
_LOCK: Final = new_lock()
_NUMBERS: Final = _Numbers()
_NOTED: Final[dict[int, weakref.ref[Observation]]] = {}  # of all numbers, while a program lives
_TRACES_OF: Final[dict[int, list[weakref.ref[Observation]]]] = {}
"""The traces in which a function has run, by the id of JAX's text for it, which they keep alive."""
trace_afresh: Final = _NUMBERS.renew


@contextlib.contextmanager
def numbered() -> Generator[int, None, None]:
    """Trace a body in this block; yield its number."""
    thread, threads = threading.get_ident(), _NUMBERS.threads
    with _LOCK:
        known = [find() for find in list(_NUMBERS.observations.values())]
        is_alone = threads.keys() <= {thread} and len(known) <= _MOST_READ
        if not is_alone or not all(seen is not None and seen.is_unchanged() for seen in known):
            _NUMBERS.renew()
        number = _NUMBERS.latest
        threads[thread] += 1
    try:
        with with_number(number):
            yield number
    except BaseException:
        trace_afresh()  # what was traced so far stays in JAX's caches, and its reads are unknown
        raise
    finally:
        with _LOCK:
            threads[thread] -= 1
            if not threads[thread]:
                del threads[thread]


def note(number: int | None, observation: Observation) -> None:
    """Record what a trace, with a number or without one, has read, and in which functions."""
    key, functions = id(observation), observation.functions
    with _LOCK:
        _NOTED.pop(key, None)  # the latest last
        _NOTED[key] = find = weakref.ref(observation, functools.partial(_forget, key, [*functions]))
        for function in functions:
            others = [trace for trace in _traces_of(function) if trace is not observation]
            _TRACES_OF[function] = [find, *map(weakref.ref, others)]
        if number == _NUMBERS.latest and observation.reads:
            # What it knows by address must not live longer than the function.
            is_held = not observation.keeps_alive
            _NUMBERS.observations[key] = (lambda: observation) if is_held else find


def _forget(key: int, functions: list[int], _: object) -> None:
    _NOTED.pop(key, None)
    for function in functions:
        if not _traces_of(function):
            _TRACES_OF.pop(function, None)


def _traces_of(function: int) -> list[Observation]:
    found = [find() for find in list(_TRACES_OF.get(function, ()))]
    return [trace for trace in found if trace is not None]


def changed_meanwhile(
    before: dict[PlaceKey, Captured], after: dict[PlaceKey, Captured], runs: Iterable[Run]
) -> bool:
    """Return whether a capture changed during a trace, and not by the code that ran in it."""
    stored = set[str]().union(*(names_stored(run.code) for run in runs)) if before else set[str]()
    for key in changed(before, after):
        was, now = before[key].account, after[key].account
        ways = [after[key].name, *(str(step) for path in differing(was, now) for step in path)]
        is_other = any(was[path] != now[path] for path in was.keys() & now.keys())
        if is_other and stored.isdisjoint(re.findall(r"\w+|\[", "".join(ways))):
            return True
    return False


@contextlib.contextmanager
def observed(log: ProgramLog, program: ProgramEntry) -> Generator[list[Current], None, None]:
    """Note with a program what is read in this block, its trace; fill a list with the values."""
    # If a capture was another one before, the program is kept for no state.
    fun, has_states, values = log.callee.fun, log.callee.has_states, list[Current]()
    if not has_states and current_block() is None:
        yield values
        return
    before = dict[PlaceKey, Captured]()
    if has_states and threading.active_count() > 1:  # others may change what the trace will read
        before = captured_places(fun) | log.states.get(program.state, {})
    block = numbered() if has_states else contextlib.nullcontext()
    with block as number, observing() as observer:
        yield values
        inside = functions_inside()
    try:
        runs = observer.runs()
        if inside is None:  # unknown, so nothing may be reused
            trace_afresh()
        ran = set[int]().union(*(run.within for run in runs))
        known = [(trace, key) for key in inside or () for trace in _traces_of(key)]
        earlier = [was for trace, key in known for was in trace.read_within(key)]
        # By their lines, those that ran in no trace that is known, such as one that is unfinished.
        unknown = [text for key, text in (inside or {}).items() if key not in ran]
        unknown = [text for text in unknown if not _traces_of(id(text))]
        users = {at for text in unknown if (at := source_in(text)) and is_watched(at[0])}
        missing = users - {source_of(run.code) for run in runs}
        around = [run for outer in observer.around for run in outer.runs()] if missing else []
        runs += (run for run in around if missing & {source_of(run.code), *run.inside})
        noted = [find() for find in list(_NOTED.values())] if missing else []
        earlier += [was for at in missing for seen in noted if seen for was in seen.read_in(at)]
        observation = Observation(runs, fun, earlier, number)
        current, observation.current = observation.current, None
        for latest in [trace.observation for trace in log.traced()[-1:]]:
            if latest is not None and latest.captured == observation.captured:
                latest.merge(observation)
                observation = latest
    except Exception:  # noqa: BLE001  # a check must not break a correct program
        trace_afresh()
        return
    is_apart = all(guard.action is not StaleAction.IGNORE for guard in list(log.guards))
    if is_apart and changed_meanwhile(before, observation.captured, runs):
        program.live = False
        trace_afresh()
        log.drop_state(program.state)
        return
    program.observation = observation
    note(number, observation)
    log.note_captured(program.state, observation.captured, is_apart=is_apart)
    values += [] if current is None else [current]


def explain_by_captures(log: ProgramLog, program: ProgramEntry) -> None:
    """Explain a program by the captures that changed, if its arguments are unchanged."""
    nearest, reasons = program.explanation.nearest, program.explanation.reasons
    if nearest is None or log.programs[nearest].state == program.state:
        return
    costly = [reason.kind for reason in reasons if reason.outcome is Outcome.RETRACE]
    if {*costly} <= {ReasonKind.CACHE}:
        trace, current = log.trace_of(nearest), Current(log.reads())
        causes = tuple(_reasons(_stale_captures(log.name, trace, current)))
        if causes:
            program.explanation = Explanation(Outcome.RETRACE, causes, nearest=nearest)


class Guard:
    """The check of one jitted function, which it installs as what a call runs."""

    def __init__(self, jitted: Any, made: Any, log: ProgramLog, stale: StaleAction) -> None:
        self.stale = stale  # what `on_stale=` says
        self.made = made  # what `jax.jit` returned for the function
        self._log = log
        self._find_jitted = weakref.ref(jitted)  # a `JittedFunction`, which holds this
        self._state: int | None = None  # of the last call that was checked
        self._counts: Counter[Any] = Counter()
        self._lock = new_lock()
        self._is_first = log.warns and not log.programs
        log.guards.add(self)
        follow_blocks(self)
        self.reset()  # another `jit` of this function may have programs already

    @property
    def action(self) -> StaleAction:
        block = current_block()
        return self.stale if block is None or not block.is_exact else block.action

    @property
    def name(self) -> str:
        """The name of the function; JAX has none for a callable object."""
        name, fun = self._log.name, self.made.__wrapped__
        return f"{name_of(fun)}.__call__" if name == "<unnamed function>" else name

    def reset(self) -> None:
        """Compare all captures at the next call, if there are any."""
        with self._lock:  # another thread may install a check
            self._install(self._next_call())

    def first_call(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run a call while none has succeeded yet."""
        __tracebackhide__ = True
        try:
            result = self._next_call()(*args, **kwargs)
        except Exception as error:  # a user's function
            add_uses(error, self.made, args, kwargs)
            raise
        if self._is_first:  # no trace was observed
            self._is_first = False
            self.reset()
        return result

    def _next_call(self) -> Callable[..., Any]:
        """Return what a call runs while nothing is known about the captures."""
        block = current_block()
        if block is not None and block.is_exact:
            return self.changed_call
        is_off = block is None and self.stale is StaleAction.IGNORE
        checks = not is_off and (self._log.reads() or 0 not in self._log.states)
        return self.changed_call if checks else self.made

    def _install(self, call: Callable[..., Any]) -> None:
        jitted: Any = self._find_jitted()
        self._is_first &= not self._log.programs
        if jitted is not None:
            jitted.set_call(self.first_call if self._is_first else call)

    def traced(self, current: Current) -> None:
        """From now on, also check what the latest trace has read, `current`."""
        reads = self._log.reads()
        if current.places != {read.place.key for read in reads}:
            current = Current(reads)
        state = self._find_state(current)
        if state is None:
            self.reset()
        else:
            self._check_against(current, state)

    def _check_against(self, current: Current, state: int) -> None:
        with self._lock:
            self._state = state
            self._install(self._check_of(current, state))

    def _check_of(self, current: Current, state: int) -> Callable[..., Any]:
        """Return what calls run while the captures are as they are now, in this state."""
        log, block, is_ignored = self._log, current_block(), self.stale is StaleAction.IGNORE
        traces = {(id(trace.observation), trace.state) for trace in log.traced()}
        # A program of another state may answer; or another thread has traced or dropped some.
        is_mixed = len(traces) > 1 and (self.action is StaleAction.RAISE or is_ignored)
        is_known = current.places == {read.place.key for read in log.reads()}
        is_known &= state in log.states or is_ignored
        call = _in_state(self.made, state)
        if block is None and is_ignored:
            return call
        if is_mixed or not is_known or (block is not None and block.is_exact):
            return self.changed_call
        return current.check(call, self.changed_call, log.states.get(state, ()))

    def changed_call(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run a call for which some capture may have changed."""
        __tracebackhide__ = True
        if jax.config.jax_disable_jit:
            return self.made(*args, **kwargs)
        current, block = Current(self._log.reads()), current_block()
        stale = dict[Any, StaleCapture]()
        is_in_body = threading.get_ident() in _NUMBERS.threads  # of a function under `lw.jit`
        if not (is_in_body or self.action is StaleAction.RETRACE):
            stale = self._stale(args, kwargs, current, self._find_state(current))
            self._deliver(stale, args)
        is_exact = block is not None and block.is_exact
        state = self._enter(current)
        if stale and block is not None and not is_exact:
            self._install(self.changed_call)
        else:
            self._check_against(current, state)
        if block is not None and is_exact and not stale:
            leaves = jax.tree.leaves((args, kwargs))
            if not any(isinstance(leaf, Tracer) for leaf in leaves):  # else what is around counts
                return self._call_exactly(block, state, args, kwargs)
        return _in_state(self.made, state)(*args, **kwargs)

    def _find_state(self, current: Current) -> int | None:
        if self.action is StaleAction.IGNORE:
            return 0
        states = reversed(list(self._log.states.items()))
        same = (state for state, captured in states if not changed(captured, current.captured))
        return next(same, None)

    def _enter(self, current: Current) -> int:
        """Return the state that matches the current captures, or a new one."""
        log = self._log
        with self._lock:  # another thread may be about to trace in it
            state = self._find_state(current)
            if state is not None:
                return state
            is_copied = has_old_copy(current.values.values())
            if len(log.states) < _MOST_STATES and not is_copied:
                return log.new_state(current.captured)
            stale = [_stale_captures(log.name, last, current) for last in log.traced()[-1:]]
            log.retire([reason for captures in stale for reason in _reasons(captures)])
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
        state = self._enter(Current(self._log.reads()))
        with with_number(state) if state else contextlib.nullcontext():
            yield

    def _deliver(self, stale: dict[Any, StaleCapture], args: Any) -> None:
        """Raise, warn about or record stale captures."""
        __tracebackhide__ = True
        block, action = current_block(), self.action
        if stale and block is not None and (block.is_exact or action is StaleAction.IGNORE):
            owner = code_id(capturing_function(self.made.__wrapped__, args))
            block.note(owner, list(stale.values()))
        if stale and action is StaleAction.RAISE:
            raise StaleCaptureError("\n".join(map(str, stale.values())), tuple(stale.values()))
        for key, capture in stale.items() if action is StaleAction.WARN else ():
            self._counts[key] += 1
            if self._counts[key] <= _MOST_WARNINGS:
                text = str(capture)
                file, line = capture.call[:2] if capture.call else ("<unknown>", 0)
                if self._counts[key] == _MOST_WARNINGS:
                    text += "\n  (it has changed so often that later changes will not be reported)"
                warnings.warn_explicit(text, StaleCaptureWarning, file, line)

    def _stale(
        self, args: Any, kwargs: Any, current: Current, state: int | None
    ) -> dict[Any, StaleCapture]:
        """Return the captures that changed since a trace of another state that would answer."""
        log, is_apart = self._log, self.action is not StaleAction.IGNORE
        ran = any(trace.is_compiled for trace in log.traced())
        if ran and dispatch_entries(self.made) == 0:  # the caches of the process were cleared
            return {}
        try:
            signature = log.callee.record(args, kwargs)
            if is_apart and state is not None and log.trace_for(signature, state) is not None:
                return {}
            program = log.trace_for(signature, self._state) or log.trace_for(signature)
        except Exception:  # noqa: BLE001  # user code: the call reports it better
            return {}
        stale = {} if program is None else _stale_captures(self.name, program, current)
        if is_apart or program is None:
            return stale
        # The audit compares static arguments by itself, but not those of traces inside this one.
        given = set(map(id, (*args, *kwargs.values())))
        inner = () if program.observation is None else program.observation.reused
        kept = {key.root.id for key in inner if key.root.holder is None} - given
        kept.add(id(getattr(self.made.__wrapped__, "__self__", None)))
        return {key: stale[key] for key in stale if key.root.holder or key.root.id in kept}

    def stale_captures(self, args: Any, kwargs: Any) -> dict[Any, StaleCapture]:
        """Return the captures that changed since the trace whose program a call would get."""
        current = Current(self._log.reads())
        return self._stale(args, kwargs, current, self._find_state(current))

    def with_captures(self, explanation: Explanation, args: Any, kwargs: Any) -> Explanation:
        """Add the captures that changed since the trace to an explanation."""
        stale = self.stale_captures(args, kwargs)
        if stale and self.action in (StaleAction.RETRACE, StaleAction.WARN):
            reasons = tuple(_reasons(stale))
            return dataclasses.replace(explanation, outcome=Outcome.RETRACE, reasons=reasons)
        unsound = *explanation.unsound, *_reasons(stale, explanation.outcome)
        return dataclasses.replace(explanation, unsound=unsound)

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
        return self._log.new_state(Current(self._log.reads()).captured)


def _in_state(made: Callable[..., Any], state: int) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        with with_number(current_number() if is_traced_afresh() else state):
            return made(*args, **kwargs)

    return call if state else made


def _stale_captures(name: str, program: ProgramEntry, current: Current) -> dict[Any, StaleCapture]:
    """Return the captures of a function that changed since a trace."""
    # If only functions and receivers of methods changed, the innermost one.
    site, stale = site_of(inspect.currentframe()), dict[Any, StaleCapture]()
    old, new = {} if program.observation is None else program.observation.captured, current.captured
    keys = changed(old, new)
    inner = [key for key in keys if not new[key].is_around] or keys[-1:]
    around = {
        key._replace(steps=key.steps[:size]) for key in inner for size in range(len(key.steps))
    }
    pairs = {key: (old[key], new[key]) for key in inner if key not in around}
    paths = {key: value_change(*pair)[0] for key, pair in pairs.items()}
    tokens = {key: [side.account.get(paths[key]) for side in pair] for key, pair in pairs.items()}
    whole = [(now.name, tokens[key]) for key, (_, now) in pairs.items() if not paths[key]]
    for key, (was, now) in pairs.items():
        step = "".join(map(str, paths[key][-1:]))
        if step and any(part.endswith(step) and tokens[key] == both for part, both in whole):
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
