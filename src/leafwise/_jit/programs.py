"""The log of a jitted function: every program that JAX made for it, and why."""

import dataclasses
import functools
import heapq
import inspect
import math
import types
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from leafwise._captures.places import PlaceKey
from leafwise._captures.reads import Captured, Observation, Read, names_in, reachable
from leafwise._captures.uses import host_call, value_use
from leafwise._compare.fixes import FIRST, Cause, fix_in_code, fix_through_package, sharded_first
from leafwise._compare.signature import Signature, nearest
from leafwise._findings.reasons import Act, Advice, Explanation, Fix, Outcome, Reason, ReasonKind
from leafwise._jax.compat import ANSWERS, Internal, shows_no_reasons
from leafwise._jax.context import new_number
from leafwise._jax.events import ignore_events
from leafwise._jax.stack import RunningCall, Work, compute_alike, is_inside_trace
from leafwise._jit import storm
from leafwise._jit.callee import Callee, innermost, is_equinox
from leafwise._jit.clears import CLEARS, reason_of_clear
from leafwise._jit.jitted_call import made_at, variable_given
from leafwise._objects.attributes import compares_by_identity
from leafwise._objects.classes import is_a
from leafwise._objects.locks import cached_property, new_lock
from leafwise._objects.source.call_site import Site, site_of, user_frame
from leafwise._objects.stand_ins import MISSING, Verbatim
from leafwise._trees.nodes import Node
from leafwise.errors import message_of

if TYPE_CHECKING:
    from leafwise._findings.records import FirstCompile


@dataclasses.dataclass(frozen=True, repr=False)
class Program:
    """One program that JAX made for a function, or a trace on the way to one.

    Attributes:
        name: The name of the function.
        outcome: ``"retrace"``, or ``"recompile"`` if there was no trace.
        explanation: Why it was made, compared with the nearest earlier one.
        site: The line of user code that made the call, or None.
        trace_seconds: How long the trace took; 0.0 for a recompile.
        lower_seconds: How long the lowering took; 0.0 if not lowered so far.
        compile_seconds: How long the compile took; 0.0 if not compiled so far.
        lower: Lowers the function for these arguments again.
    """

    name: str
    outcome: Outcome
    explanation: Explanation
    site: Site | None
    trace_seconds: float
    lower_seconds: float
    compile_seconds: float
    lower: Callable[[], Any] = dataclasses.field(repr=False, compare=False)

    def first_compile(self) -> "FirstCompile | None":
        """Lower the function again, and return what XLA had to compile.

        If JAX has dropped the trace, as after `clear_cache`, the function runs once more.

        Returns:
            An unrolled loop, constants, or the lines with most operations. None if it was made
            under a transformation, or if JAX does not show it.
        """
        from leafwise._programs.first_compile import first_compile  # noqa: PLC0415  # few ask

        return first_compile(self.lower(), self.site)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """What differs from the nearest earlier call."""
        return self.explanation.reasons

    @property
    def seconds(self) -> float:
        """The time of the trace, the lowering and the compile together."""
        return self.trace_seconds + self.lower_seconds + self.compile_seconds

    def __str__(self) -> str:
        """Return the calling line, and the explanation."""
        return f"{self.site or 'called from an unknown line'}\n{self.explanation}"

    def __repr__(self) -> str:
        """Return the outcome, the function and the calling line as one line."""
        return f"<{self.outcome} of {self.name}{'' if self.site is None else f' at {self.site}'}>"


@dataclasses.dataclass(eq=False, repr=False)
class ProgramEntry:
    """The entry of a program in the log of its function, with which later calls are compared."""

    outcome: Outcome
    signature: Signature | None  # the arguments; None where they could not be seen
    explanation: Explanation
    site: Site | None
    trace_seconds: float = 0.0
    lower_seconds: float = 0.0
    compile_seconds: float = 0.0
    ran: bool = True  # called, rather than traced or lowered ahead of time
    live: bool = True  # JAX still has it, as far as leafwise knows
    # The values that the user's line names in the call of the package that led to it.
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    role: tuple[str, ...] = ()  # the transformation: `("vmap",)`, see `Work`; empty for itself
    # The sizes of the batches, the inputs and the devices; None before the lowering.
    lowered: tuple[Any, Any, Any] | None = None
    results: tuple[Any, ...] | None = None  # their avals; None where they were not seen
    jaxpr: Callable[[], Any] = lambda: None  # what was traced, while JAX keeps it
    is_inner: bool = False  # made inside the trace of another function
    earlier: Site | None = None  # the line of the call that it is compared with
    # In JAX's key: the number of the state of its captures, 0 at first, or of an enclosing trace.
    state: int = 0
    observation: Observation | None = None  # what the trace read, if it was observed
    statics: Any = None  # after the trace, for the audit; None without one
    digests: list[str] | None = None  # of the NumPy arrays among its constants, once needed
    compared: int = 0  # how many of its calls were compared with a fresh trace
    # How often JAX's caches had been cleared before, as far as recorded.
    clears: int = dataclasses.field(default_factory=CLEARS.__len__)

    @cached_property
    def place(self) -> int:
        """The hash of the signature: programs of one trace share it."""
        return hash(self.signature)

    @cached_property
    def parts(self) -> frozenset[int]:
        return frozenset() if self.signature is None else _parts(self.signature)

    @property
    def is_call(self) -> bool:
        """Whether it was made for calls of the function itself: in one, or ahead of time."""
        return (self.ran or self.compile_seconds > 0) and not self.is_inner

    @property
    def is_compiled(self) -> bool:
        """Whether JAX has compiled it for calls of the function itself."""
        return self.ran and not self.role and self.compile_seconds > 0

    def replace(self, reason: Reason, cause: Cause | Advice) -> None:
        known = self.explanation.reasons
        reasons = tuple(each._replace(cause=cause) if each is reason else each for each in known)
        self.explanation = dataclasses.replace(self.explanation, reasons=reasons)

    def view(self, name: str, lower: Callable[..., Any]) -> Program:
        """Return its public view; `lower` lowers the function when that is asked for."""

        def lower_again() -> Any:
            if self.signature is None or self.role:
                return None
            args, kwargs = self.signature.arguments()
            with ignore_events():
                return lower(*args, **kwargs)

        seconds = self.trace_seconds, self.lower_seconds, self.compile_seconds
        return Program(name, self.outcome, self.explanation, self.site, *seconds, lower_again)


_ANSWERED: Final = (Outcome.REUSE, Outcome.DISPATCH, Outcome.RECOMPILE)
"""The outcomes of a call that an earlier trace answers."""

_PLACING: Final = {ReasonKind.SHARDING, ReasonKind.COMMITMENT, ReasonKind.DEVICES}

_MOST_RETIRED: Final = 128  # how many records of programs that JAX has dropped are kept


class ProgramLog:
    """The programs of one function."""

    def __init__(self, callee: Callee) -> None:
        self.callee = callee
        self.name = callee.name
        self.programs: list[ProgramEntry] = []
        self.guards: weakref.WeakSet[Any] = weakref.WeakSet()
        self.warns = False
        self.note_trace: Callable[[ProgramEntry], None] | None = None
        self._retired_for: tuple[int, list[Reason]] | None = None
        self._causes: Counter[Any] = Counter()
        self._lock = new_lock()
        self._drop_live()

    def _drop_live(self) -> None:
        """Start again, after JAX has dropped all programs."""
        self._traced: list[ProgramEntry] = []
        self.states: dict[int, dict[PlaceKey, Captured]] = {0: {}}
        """The captures of each state, by its number, as far as its programs read them."""
        self._recent: deque[int] = deque(maxlen=_SEARCHED)
        """The index of each of the latest programs."""

    def explain(self, signature: Signature) -> Explanation:
        programs, place = list(self.programs), hash(signature)
        same = {at for at, entry in enumerate(programs) if entry.place == place}
        known = sorted(same.union(self._nearby(signature)))
        # Not those of an enclosing trace, which have its number in JAX's key.
        return self._nearest(signature, [at for at in known if programs[at].state in self.states])

    def _nearby(self, signature: Signature) -> list[int]:
        """Return the indices of the programs with the most parts in common with a call."""
        recent, programs = list(self._recent), list(self.programs)
        parts = _parts(signature) if recent else frozenset[int]()
        common = [(len(parts & programs[index].parts), index) for index in recent]
        return sorted(index for _, index in heapq.nlargest(_MOST_NEAR, common))

    def _nearest(
        self, signature: Signature, chosen: Iterable[int], site: Site | None = None
    ) -> Explanation:
        programs = list(self.programs)
        known = [at for at in chosen if programs[at].signature and programs[at].live]
        known.sort(key=lambda at: programs[at].ran)  # among equals, a call is nearest
        signatures = [earlier for at in known if (earlier := programs[at].signature)]
        of_line = [entry for entry in programs[-_SEARCHED:] if site and entry.site == site]
        reasons = [reason for entry in of_line for reason in entry.explanation.reasons]
        shared = frozenset((reason.path, reason.kind) for reason in reasons)
        explanation = nearest(signatures, signature, placed=self.callee.placed, shared=shared)
        place = None if explanation.nearest is None else known[explanation.nearest]
        is_first = len(known) == 1
        named = tuple(
            self._with_code(reason, signature, is_first=is_first) for reason in explanation.reasons
        )
        return Explanation(explanation.outcome, named, explanation.unsound, place)

    def _with_code(self, reason: Reason, signature: Signature, *, is_first: bool) -> Reason:
        """Return a reason with the facts from the function's code and the earlier programs."""
        before, after = reason.before, reason.after
        of_trace = fix_in_code(host_call(self.callee.fun)) if reason.cause in _OF_ARRAYS else Fix()
        if of_trace:  # another trace, or one less, changes what it returns
            return reason._replace(cause=Advice(reason.change, of_trace))
        if reason.cause is Cause.SHAPE and is_first:
            return reason._replace(details=FIRST)
        is_static = reason.cause is Cause.STATIC
        is_number = type(before) is type(after) in (int, float, complex) and abs(after) < math.inf
        is_object = compares_by_identity(type(after)) or is_a(after, types.MethodType)
        if not (is_static and (is_number or (is_object and reason.path.isidentifier()))):
            return reason
        facts: dict[str, Any]
        try:
            function: Any = self.callee.fun
            if is_number:
                function = signature.leaf_records[0].value if is_equinox(function) else function
                needed = value_use(innermost(function), reason.path)
                facts = {"instead": fix_in_code(host_call(function), needed)}
            else:
                runs = reachable(functools.partial(function, **{reason.path: after}))  # a user's
                facts = {"reads": names_in(runs) if runs else None}
                facts["made"] = made_at(after, inspect.currentframe())
        except Exception:  # noqa: BLE001  # the user's own code
            return reason
        return reason._replace(details=reason.details._replace(**facts))

    def trace_for(self, signature: Signature, state: int | None = None) -> ProgramEntry | None:
        """Return the trace whose program answers a call; None if the call is traced."""
        if state is None:
            explanation = self.explain(signature)
        else:
            chosen = [at for at, entry in enumerate(list(self.programs)) if entry.state == state]
            explanation = self._nearest(signature, chosen)
        if explanation.nearest is None or explanation.outcome not in _ANSWERED:
            return None
        return self.trace_of(explanation.nearest)

    def explain_now(self, signature: Signature, entries: int) -> Explanation:
        """Explain a call without making it; JAX has this number of dispatch entries."""
        answer = self.explain(signature)
        cause = self._cause_elsewhere(answer, entries)
        return answer if cause is None else _with_cause(answer, cause)

    def _cause_elsewhere(self, answer: Explanation, entries: int) -> Cause | None:
        """Return what decides a call besides its arguments: the first that applies, or None."""
        outcome, nearest = answer.outcome, answer.nearest
        is_moved = self.callee.sharded and any(reason.kind in _PLACING for reason in answer.reasons)
        is_refused = outcome is Outcome.ERROR and not is_moved
        if nearest is None or is_refused or outcome is Outcome.UNKNOWN:
            return None
        live = [program for program in list(self.programs) if program.live]
        compiled = [program for program in live if program.is_compiled]
        if compiled and not entries:  # `jax.clear_caches()`, by whomever
            return Cause.CLEARED
        if shows_no_reasons() and outcome is not Outcome.RETRACE:
            is_hit = outcome is Outcome.REUSE and len(compiled) <= entries
            return None if is_hit and self.programs[nearest].is_compiled else Cause.UNSEEN_CALLS
        if is_moved:
            return Cause.SHARDED
        if outcome in _ANSWERED and not self.programs[nearest].ran:
            return Cause.AHEAD_OF_TIME
        # JAX does not describe its dispatch entries: one more than programs may be this call's.
        if outcome is Outcome.DISPATCH and not 0 <= entries <= len(compiled):
            return Cause.UNKNOWN_ENTRY
        return None

    def new_program(
        self,
        outcome: Outcome,
        call: RunningCall | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        work: Work | None = None,
    ) -> ProgramEntry:
        """Return the record of a program for these arguments, without adding it."""
        abstract = work.is_ahead if work else call is not None and not call.runs
        inner = is_inside_trace(1 if work is None else 0)  # 1: its own, which runs the body
        # Without JAX's frame: from here, past leafwise's own.
        site = site_of(call.frame if call is not None else inspect.currentframe())
        signature: Signature | None = None
        try:
            if call is not None or work is None:
                signature = self.callee.record(args, kwargs, abstract=abstract)
            explanation = self._explain_new(outcome, signature, work, site, inner=inner or abstract)
        except Exception as error:  # noqa: BLE001  # the user's own code; the call must go on
            words = Verbatim(f"{type(error).__name__}: {message_of(error)}")
            explanation = _with_cause(Explanation(Outcome.UNKNOWN), Cause.UNREAD, after=words)
        else:
            if explanation.nearest is not None and explanation.outcome is not outcome:
                # The arguments do not explain it.
                reason = reason_of_clear(self.programs[explanation.nearest].clears, outcome)
                cause = Cause.AHEAD_OF_TIME if abstract and work else Cause.NO_DIFFERENCE
                if not ANSWERS.get(Internal.CONTEXT, True):
                    cause = Cause.UNSEEN_CONTEXT
                explanation = _with_cause(explanation, cause, outcome)
                if reason is not None:
                    explanation = dataclasses.replace(explanation, reasons=(reason,))
        program = ProgramEntry(outcome, signature, explanation, site, ran=not abstract)
        program.is_inner = inner
        if explanation.nearest is not None:
            program.earlier = self.programs[explanation.nearest].site
        if work is not None:
            program.role, program.lowered = work.role, work.lowered
        return program

    def _explain_new(
        self,
        outcome: Outcome,
        signature: Signature | None,
        work: Work | None,
        site: Site | None,
        *,
        inner: bool,
    ) -> Explanation:
        if outcome is Outcome.RETRACE and signature is not None:
            if self._retired_for is not None:  # not for its arguments
                (last, reasons), self._retired_for = self._retired_for, None
                return Explanation(Outcome.RETRACE, tuple(reasons), nearest=last)
            nearby = self._nearby(signature)
            called = [at for at in nearby if inner or self.programs[at].is_call]
            return self._nearest(signature, called, site)
        work = work or Work()
        programs = list(self.programs)
        known = [at for at, entry in enumerate(programs) if entry.is_call and entry.live]
        same = [at for at in known if _is_alike(programs[at], work)]
        if not same:  # the first program of its role
            return Explanation(outcome)
        if signature is not None:
            explanation = self._nearest(signature, same, site)
            if explanation.outcome.severity >= Outcome.RECOMPILE.severity or not work.role:
                return explanation
        reason = _role_reason(programs[same[-1]], work)
        return Explanation(outcome, () if reason is None else (reason,), nearest=same[-1])

    def add(self, program: ProgramEntry) -> None:
        """Add a program, and warn if one cause keeps recurring."""
        with self._lock:
            self.programs.append(program)
            if program.signature is not None:
                self._recent.append(len(self.programs) - 1)
            if program.outcome is Outcome.RETRACE:
                self._traced.append(program)
        if program.signature is not None and self.warns and program.ran:  # not ahead of time
            explanation, site = program.explanation, program.site
            storm.count(self._causes, self.name, program.signature, explanation, site)

    def traced(self) -> list[ProgramEntry]:
        """Return the traces that JAX may reuse."""
        return [program for program in list(self._traced) if program.live]

    def trace_of(self, index: int) -> ProgramEntry:
        """Return the trace that a program was made from, or the program itself."""
        program = self.programs[index]
        known = [entry for entry in self.traced() if entry.state == program.state]
        same = [entry for entry in known if entry.place == program.place]
        return program if program.outcome is Outcome.RETRACE or not same else same[-1]

    def new_state(self, captured: dict[PlaceKey, Captured]) -> int:
        number = new_number()
        with self._lock:
            self.states[number] = captured
        return number

    def note_captured(
        self, number: int, captured: dict[PlaceKey, Captured], *, is_apart: bool
    ) -> None:
        """Record what a trace in a state has read; the first one sets all of its captures."""
        same = [trace for trace in self.traced() if trace.state == number]
        with self._lock:
            if number in self.states:
                self.states[number] = self.states[number] | captured if same else captured
        # If its programs are kept apart, the trace itself has changed a capture that differs now.
        for observation in [trace.observation for trace in same if is_apart]:
            was = {} if observation is None else observation.captured
            was |= {key: captured[key] for key in was.keys() & captured.keys()}

    def drop_state(self, number: int) -> None:
        """Forget a state for which JAX has a program of another: its number is not used again."""
        with self._lock:
            self.states.pop(number, None)
            for program in self._traced:
                program.live &= program.state != number
        for guard in list(self.guards):
            guard.reset()

    def reads(self) -> list[Read]:
        observations = dict.fromkeys(trace.observation for trace in self.traced())
        reads = [seen.reads for seen in observations if seen is not None]
        return list({key: read for batch in reads for key, read in batch.items()}.values())

    def clear_caches(self) -> None:
        """Make JAX drop its programs of the function, for every `jit` of it."""
        for guard in list(self.guards):
            each: Any = guard.made
            type(each).clear_cache(each)

    def retire(self, reasons: list[Reason]) -> None:
        """Record that JAX drops all programs, and why the next call is traced."""
        with self._lock:
            dropped = max(0, len(self.programs) - _MOST_RETIRED)
            del self.programs[:dropped]
            for program in self.programs:
                program.live, program.observation = False, None
                found = program.explanation
                if dropped and found.nearest is not None:
                    place = found.nearest - dropped if found.nearest >= dropped else None
                    program.explanation = dataclasses.replace(found, nearest=place)
            self._drop_live()
            self._retired_for = (len(self.programs) - 1, reasons) if reasons else None

    def note_package(self, program: ProgramEntry, values: Mapping[str, Any]) -> None:
        """Record that a package made the call, and the values that the user's line names there."""
        program.given = values
        nearest = program.explanation.nearest
        earlier = {} if nearest is None else self.programs[nearest].given
        changes = {name: (earlier[name], values[name]) for name in values if name in earlier}
        reasons = program.explanation.reasons
        is_intended = all(map(_is_sentence, reasons))
        for reason in reasons:
            pair = reason.before, reason.after
            # The user cannot change how it calls: a fix has to be in what the line names.
            name = next((name for name, change in changes.items() if change == pair), "")
            fix = reason._replace(path=name).fix if name else fix_through_package(reason)
            if fix and name not in str(fix):  # in the user's own name
                fix = fix._replace(words=f"{fix.words} (`{name}` here)")
            fix = Fix(act=Act.NOTHING) if is_intended else fix
            program.replace(reason, Advice(reason.change, fix))

    def note_mapped(self, program: ProgramEntry, call: RunningCall) -> None:
        """Record what a user can do about an argument that a `jax.pmap` returns sharded."""
        leaves = {} if program.signature is None else program.signature.leaves
        for reason in program.explanation.reasons:
            if reason.cause is Cause.SHARDING and reason.path in leaves:
                variable = variable_given(user_frame(call.frame), call.fun, reason.path)
                fix = sharded_first(call.mapping or {}, variable, leaves[reason.path].sharding)
                program.replace(reason, Advice(reason.change, fix))

    def note_results(self, program: ProgramEntry, work: Work) -> None:
        """Record the trace of a program: a dtype is to be converted only if no result changes."""
        program.results = work.outputs
        program.jaxpr = (lambda: None) if work.jaxpr is None else weakref.ref(work.jaxpr)
        nearest = program.explanation.nearest
        for reason in () if nearest is None else program.explanation.reasons:
            if reason.cause is Cause.DTYPE and nearest is not None:
                earlier = self.programs[nearest]
                before, after, cause = earlier.jaxpr(), work.jaxpr, Cause.OTHER_VALUES
                if before is not None and after is not None:
                    if earlier.results != work.outputs:
                        cause = Cause.OTHER_RESULTS
                    elif compute_alike(before, after):
                        cause = Cause.DTYPE
                program.replace(reason, cause)

    def forget(self) -> None:
        """Drop all programs, as after `clear_cache`."""
        with self._lock:
            self.programs.clear()
            self._drop_live()


_OF_ARRAYS: Final = (Cause.SHAPE, Cause.DTYPE)


def _is_sentence(reason: Reason) -> bool:
    """Return whether a static is a string of several words, such as an error message."""
    texts = reason.before, reason.after
    is_static = reason.cause is Cause.STATIC
    return is_static and all(isinstance(text, str) and " " in text for text in texts)


def _with_cause(
    found: Explanation, cause: Cause, outcome: Outcome = Outcome.UNKNOWN, after: Any = MISSING
) -> Explanation:
    reason = Reason("(not an argument)", ReasonKind.CACHE, outcome, MISSING, after, cause)
    return dataclasses.replace(found, outcome=outcome, reasons=(*found.reasons, reason))


def _is_alike(program: ProgramEntry, work: Work) -> bool:
    _, inputs, _ = program.lowered or ((), None, ())
    counts = [len(avals) for avals in (inputs, work.inputs) if avals is not None]
    return program.role == work.role and len(set(counts)) < 2  # noqa: PLR2004  # both alike


def _role_reason(earlier: ProgramEntry, work: Work) -> Reason | None:
    """Return what differs between two programs with the same role and equal arguments."""
    sizes, inputs, devices = earlier.lowered or ((), (), ())
    recompile = Outcome.RECOMPILE
    if sizes != work.sizes:
        before, after = (batch[0] if len(batch) == 1 else batch for batch in (sizes, work.sizes))
        return Reason("batch", ReasonKind.BATCH, recompile, before, after, Cause.BATCH)
    if devices != work.devices:
        one, other = (Verbatim(", ".join(map(str, group))) for group in (devices, work.devices))
        return Reason("devices", ReasonKind.SHARDING, recompile, one, other, Cause.SHARDING)
    if inputs != work.inputs and "vmap" in work.role:
        one, other = (
            Verbatim(", ".join(str(aval.str_short()) for aval in avals or ()))
            for avals in (inputs, work.inputs)
        )
        return Reason("arrays", ReasonKind.BATCH, recompile, one, other, Cause.AXES)
    return None


_MOST_NEAR: Final = 6
"""How many programs a retrace is compared with: the cost must not grow with the log."""

_SEARCHED: Final = 128
"""How many of the latest programs are searched for those with the most equal parts."""


def _parts(signature: Signature) -> frozenset[int]:
    """Return a hash for the configuration, for each static, and for each leaf with its position."""
    statics, todo = [_hash(("config", signature.config))], [signature.root]
    while todo:
        node = todo.pop()
        place = len(statics)
        statics.append(_hash((place, node.cls, len(node.children))))
        statics += [_hash((place, at, type(value), value)) for at, value in enumerate(node.values)]
        todo += [child for child in node.children if isinstance(child, Node)]
    leaves = [
        _hash((place, leaf.aval, leaf.kind, leaf.value))
        for place, leaf in enumerate(signature.leaf_records)
    ]
    return frozenset(statics + leaves)


def _hash(values: tuple[Any, ...]) -> int:
    try:
        return hash(values)
    except Exception:  # noqa: BLE001  # without a hash, or the user's own code
        return hash((*values[:-1], type(values[-1])))
