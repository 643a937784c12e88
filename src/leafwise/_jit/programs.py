"""The log of a jitted function: every program that JAX made for it, and why."""

import dataclasses
import inspect
import threading
import time
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from leafwise._captures.arguments import code_within
from leafwise._captures.fingerprint import FingerprintedFunction
from leafwise._compare.explain import Explanation, nearest
from leafwise._compare.fixes import Cause
from leafwise._compare.reasons import Outcome, Reason, ReasonKind
from leafwise._compare.signature import Signature
from leafwise._jax.compat import RunningCall, is_known
from leafwise._jit import storm
from leafwise._jit.callee import Callee
from leafwise._jit.nearby import NearbyPrograms
from leafwise._objects.call_site import Site, site_of
from leafwise._objects.locks import cached_property, new_lock
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import Verbatim
from leafwise._trees.leaves import LeafKind
from leafwise.errors import message_of


@dataclasses.dataclass(eq=False, repr=False)
class Program:
    """One program that JAX made for a function, or a trace that it made on the way.

    Attributes:
        outcome: ``"retrace"``, or ``"recompile"`` if there was no trace.
        signature: The arguments; None where they could not be seen.
        explanation: Why it was made, against the nearest earlier one.
        site: The line of the user's code that called; None if there is none.
        time: When it began, in seconds, as `time.time` says it.
        thread: The name of the thread.
        trace_seconds: How long the trace took; 0.0 for a recompile.
        lower_seconds: How long the lowering took; 0.0 if there was none so far.
        compile_seconds: How long the compile took; 0.0 if there was none so far.
        cached: Whether the persistent compilation cache answered.
        ran: Whether the function was called, rather than traced or lowered ahead of time.
        live: Whether JAX still has it, as far as `leafwise` has not let go of it.
        captured: What the function captured when it was traced; None if it was not fingerprinted.
        began: The same before the trace, of what the trace itself changed.
        contents: What its statics were after the trace, by path; None if nobody asked.
    """

    outcome: Outcome
    signature: Signature | None
    explanation: Explanation
    site: Site | None
    time: float = dataclasses.field(default_factory=time.time)
    thread: str = dataclasses.field(default_factory=lambda: threading.current_thread().name)
    trace_seconds: float = 0.0
    lower_seconds: float = 0.0
    compile_seconds: float = 0.0
    cached: bool = False
    ran: bool = True
    live: bool = True
    captured: Any = None
    began: Any = None
    contents: Any = None

    @cached_property
    def place(self) -> int:
        """The hash of the signature: programs of one trace share it."""
        return hash(self.signature)

    @cached_property
    def given(self) -> list[Any]:
        """The user's classes and functions among the arguments."""
        if self.signature is None:
            return []
        return code_within((*self.signature.classes.values(), *self.signature.all_statics.values()))

    @cached_property
    def is_inner(self) -> bool:
        """Whether it was made inside the trace of another function, for tracers."""
        return self.signature is not None and _has_tracers(self.signature)

    @property
    def seconds(self) -> float:
        """How long all of it took."""
        return self.trace_seconds + self.lower_seconds + self.compile_seconds

    def __str__(self) -> str:
        """Return the calling line, and the explanation."""
        return f"{self.site or 'called from no file'}\n{self.explanation}"

    def __repr__(self) -> str:
        """Return what it was made for, in one line."""
        where = "" if self.site is None else f" at {self.site}"
        given = " ".join(str(self.signature or "unknown arguments").split())
        return f"<{self.outcome}{where}: {given}>"


def _has_tracers(signature: Signature) -> bool:
    return any(leaf.kind is LeafKind.TRACER for leaf in signature.leaf_records)


_MOST_GIVEN: Final = 64


def _reads_of(given: Any) -> Any:
    """Return what functions that read the same places have in common."""
    if isinstance(given, type):
        return id(given)
    held = (given.__code__, given.__closure__ or (), given.__defaults__ or ())
    return tuple(map(id, (held[0], *held[1], *held[2])))


_PLACING: Final = {ReasonKind.SHARDING, ReasonKind.COMMITMENT, ReasonKind.DEVICES}


class ProgramLog:
    """The programs of one function.

    Attributes:
        callee: The function, and which of its arguments are static.
        name: Its name.
        programs: What was made for it, in order.
        guards: The checks of its captures, one for each jitted function that lives.
        warns: Whether one cause that keeps coming back is warned of.
        keys: What keeps the contents of statics with each program; None if nobody asked.
    """

    def __init__(self, callee: Callee) -> None:
        self.callee = callee
        self.name = callee.name
        self.programs: list[Program] = []
        self.guards: weakref.WeakSet[Any] = weakref.WeakSet()
        self.warns = False
        self.keys: Any = None
        self._retired_for: tuple[int, list[Reason]] | None = None
        self._causes: Counter[Any] = Counter()
        self._lock = new_lock()
        self._drop_live()

    def _drop_live(self) -> None:
        """Start again with the programs that JAX has, which are none."""
        self._traced: list[Program] = []
        self._given: dict[Any, Any] = {}
        self._searched = 0
        self._nearby = NearbyPrograms()

    def given(self) -> list[Any]:
        """Return what `Program.given` is of the calls that JAX has traces of.

        All classes, and the latest functions: there may be a new lambda at each call.
        """
        with self._lock:
            for program in self._traced[self._searched :]:
                self._given.update((_reads_of(each), each) for each in program.given)
            self._searched = len(self._traced)
            found = list(self._given.values())
        functions = [each for each in found if not isinstance(each, type)]
        return [*(each for each in found if isinstance(each, type)), *functions[-_MOST_GIVEN:]]

    def explain(self, signature: Signature, *, retraced: bool = False) -> Explanation:
        """Explain a call against the programs in the log.

        A call that needs no trace is found among all programs; the nearest one to a call
        that does, among those that have something in common with it.

        Args:
            signature: The call.
            retraced: Whether JAX is tracing it, so that no program answers it.
        """
        programs, nearby = list(self.programs), list[int]()
        found = Explanation(Outcome.RETRACE)
        # What was traced inside other functions only is called for the first time.
        outer = retraced and not _has_tracers(signature)
        for nearby in self._nearby.candidates(signature, len(programs)):
            chosen = [at for at in nearby if not (outer and programs[at].is_inner)]
            found = self._nearest(chosen, programs, signature)
            if found.nearest is not None and len(found.reasons) <= 1:  # none can have fewer
                break
        if retraced or found.outcome in (Outcome.REUSE, Outcome.DISPATCH):
            return found
        place = hash(signature)
        same = {at for at, each in enumerate(programs) if each.place == place}
        return self._nearest(sorted(same.union(nearby)), programs, signature)

    def _nearest(
        self, chosen: list[int], programs: list[Program], signature: Signature
    ) -> Explanation:
        known = [
            (at, each.signature) for at in chosen if (each := programs[at]).signature and each.live
        ]
        signatures = [each for _, each in known]
        found = nearest(signatures, signature, placed=self.callee.placed)
        place = None if found.nearest is None else known[found.nearest][0]
        return Explanation(found.outcome, found.reasons, found.unsound, place)

    def explain_now(self, signature: Signature, entries: int) -> Explanation:
        """Explain a call that was not made, where JAX has so many dispatch entries."""
        found = self.explain(signature)
        programs = [each for each in list(self.programs) if each.live]
        made = [each for each in programs if each.ran and each.compile_seconds]
        # JAX says nothing of dispatch entries: one more than programs may be this call's. And
        # none at all where there were programs: the caches of the process were cleared.
        moved = self.callee.sharded and any(each.kind in _PLACING for each in found.reasons)
        refused = found.outcome is Outcome.ERROR and not moved
        if refused or found.outcome is Outcome.UNKNOWN or found.nearest is None:
            return found
        ahead = found.outcome is Outcome.RECOMPILE and not self.programs[found.nearest].ran
        if made and not entries:
            return _with_cause(found, Cause.CLEARED)
        if not is_known() and found.outcome is not Outcome.RETRACE:
            return _with_cause(found, Cause.UNSEEN_CALLS)
        if moved:
            return _with_cause(found, Cause.SHARDED)
        if ahead:
            return _with_cause(found, Cause.AHEAD_OF_TIME)
        if found.outcome is Outcome.DISPATCH and not 0 <= entries <= len(made):
            return _with_cause(found, Cause.UNKNOWN_ENTRY)
        return found

    def new_program(
        self,
        outcome: Outcome,
        call: RunningCall | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Program:
        """Return the record of a program for these arguments, which is not added yet."""
        abstract = call is not None and not call.runs
        signature: Signature | None = None
        try:
            signature = self.callee.record(args, kwargs, abstract=abstract)
            retraced = outcome is Outcome.RETRACE
            found = self._explain_by_captures(outcome) or self.explain(signature, retraced=retraced)
        except Exception as error:  # noqa: BLE001  # the user's own code; the call must go on
            words = Verbatim(f"{type(error).__name__}: {message_of(error)}")
            found = _with_cause(Explanation(Outcome.UNKNOWN), Cause.UNREAD, after=words)
        else:
            if found.nearest is not None and found.outcome is not outcome:
                # The arguments do not explain it.
                cause = Cause.NO_DIFFERENCE
                if outcome is Outcome.RECOMPILE and _has_tracers(signature):
                    cause = Cause.AHEAD_OF_TIME if abstract else Cause.TRANSFORMED
                found = _with_cause(found, cause, outcome)
        # Without JAX's frame: from here, past leafwise's own.
        frame = call.frame if call is not None else inspect.currentframe()
        return Program(outcome, signature, found, site_of(frame), ran=not abstract)

    def add(self, program: Program) -> None:
        """Add a program that was made, and warn if one cause keeps coming back."""
        with self._lock:
            if program.signature is not None:
                self._nearby.add(len(self.programs), program.signature)
            self.programs.append(program)
            if program.outcome is Outcome.RETRACE:
                self._traced.append(program)
        if program.signature is not None:
            found, site = program.explanation, program.site
            storm.count(self._causes, self.name, program.signature, found, site, warns=self.warns)

    def traced(self) -> list[Program]:
        """Return the traces that JAX may take up again."""
        return list(self._traced)

    def shared(self, current: FingerprintedFunction) -> FingerprintedFunction:
        """Return a fingerprint as the one object that the latest trace has, if it is equal."""
        latest = self._traced[-1].captured if self._traced else None
        return current._replace(fingerprint=latest) if latest == current.fingerprint else current

    def trace_of(self, index: int) -> Program:
        """Return the trace that a program was made from; the program itself if there is none."""
        program = self.programs[index]
        same = [each for each in self.traced() if each.place == program.place]
        return program if program.outcome is Outcome.RETRACE or not same else same[-1]

    def retire(self, reasons: list[Reason]) -> None:
        """Note that JAX lets go of all programs, and why the next call is traced."""
        with self._lock:
            for program in self.programs:
                program.live = False
            self._drop_live()
            self._retired_for = (len(self.programs) - 1, reasons) if reasons else None

    def _explain_by_captures(self, outcome: Outcome) -> Explanation | None:
        """Return why a call is traced, if that is not for its arguments."""
        if outcome is not Outcome.RETRACE or self._retired_for is None:
            return None
        last, reasons = self._retired_for
        self._retired_for = None
        return Explanation(outcome, tuple(reasons), nearest=last)

    def forget(self) -> None:
        """Drop all programs, as after `clear_cache`."""
        with self._lock:
            self.programs.clear()
            self._drop_live()


def _with_cause(
    found: Explanation, cause: Cause, outcome: Outcome = Outcome.UNKNOWN, after: Any = MISSING
) -> Explanation:
    """Add a cause that is not among the arguments, and decides."""
    reason = Reason("(not an argument)", ReasonKind.CACHE, outcome, MISSING, after, cause)
    return dataclasses.replace(found, outcome=outcome, reasons=(*found.reasons, reason))
