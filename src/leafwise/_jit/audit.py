"""Comparing each call of a jitted function with the program that answers it, types and all.

JAX compares statics by ``==``, and as they are now: a program that was made for ``True`` answers
for ``1``, and that of a list for what it has become. What a call is made of is looked up
(`CallKeys`); it is recorded and compared as in a trace only where that is new.
"""

import dataclasses
import inspect
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from leafwise._compare.diff import compare
from leafwise._compare.fixes import distinct_names
from leafwise._compare.reasons import ReasonKind
from leafwise._jax.context import make_context
from leafwise._jax.events import ignore_events
from leafwise._jax.exchanges import Exchange
from leafwise._jax.frames import exclude_file
from leafwise._jit.assignments import assignments
from leafwise._jit.blocks import StaleCapture
from leafwise._jit.call_keys import CallKeys, content_of
from leafwise._jit.exact import is_part_of_trace, program_change
from leafwise._jit.jit import StaleCheckedFunction
from leafwise._jit.programs import ProgramLog
from leafwise._objects.call_site import Site, short_file, site_of, user_frame
from leafwise._objects.locks import new_lock
from leafwise._objects.text import Verbatim, shorten

exclude_file(__file__)  # an error shows the frames that it has without the audit

_MOST_KNOWN: Final = 1024


class _Here(threading.local):
    """What is audited on one thread: the innermost call, and whether one is being replayed."""

    call: "_Call | None" = None
    replays: bool = False


class Audit:
    """Compares the calls of all functions that it is given.

    What was answered by another program goes to `note`, as text, with the line that called. With
    `replays`, such a call is traced afresh, and the programs are compared.
    """

    def __init__(self, note: Callable[[str, Site | None], None], *, replays: bool = False) -> None:
        self.note = note
        self.replays = replays
        if replays:
            make_context()  # before the script has traced anything
        self.here = _Here()
        self.calls = 0
        self.seconds = 0.0
        self.lock = new_lock()

    def function(self, jitted: StaleCheckedFunction) -> "AuditedFunction":
        """Return a jitted function, each call of which is compared."""
        return AuditedFunction(jitted, self)

    def add_stale(self, found: Iterable[StaleCapture]) -> None:
        """Add captures for whose old values the call that is being made is answered."""
        call = self.here.call
        for each in found:
            text = f"{each.function} answered for `{each.name}={each.before}`"
            text += f", which is {each.after} now"
            if lines := assignments(each.name, each.line.rpartition(":")[0]):
                text += f" (assigned at {', '.join(lines)})"
            if call is not None and (frame := call.calls.previous):
                text += f"; the call before it was at {short_file(frame[0])}:{frame[1]}"
            (self.note if call is None else call.add)(text, each.call)

    def add_exchange(self, found: Exchange) -> None:
        """Note classes and statics that `cond` or a loop has exchanged, if it has."""
        if self.here.replays:
            return
        try:
            if content_of([found.before]) == content_of([found.after]):
                return
            with ignore_events():
                label = "out" if found.names else "carry"
                reasons = compare(label, found.make_before(), found.make_after())
        except Exception:  # noqa: BLE001  # code of the user's classes
            return
        site = site_of(inspect.currentframe())
        one, other = found.names or ("", "its body")
        of = f" of {one}" if one else ""
        for reason in reasons:
            if reason.kind in (ReasonKind.STATIC, ReasonKind.CLASS, ReasonKind.STRUCTURE):
                before, after = _words(reason.before, reason.after)
                answered = f"{found.operation} answered for `{reason.path}={before}`{of}"
                self.note(f"{answered}, but {other} returned {after}", site)


class AuditedFunction(StaleCheckedFunction):
    """A jitted function whose calls are compared with the programs that answer them."""

    __slots__ = ()

    def __init__(self, jitted: StaleCheckedFunction, audit: Audit) -> None:
        own = vars(jitted)
        self._leafwise_calls = _Calls(audit, own["_leafwise_log"], own["_leafwise_jax"])
        guard = own["_leafwise_guard"]
        super().__init__(own["_leafwise_jax"], own["_leafwise_body"], guard.stale)

    @property
    def __call__(self) -> Any:
        """What a call runs."""
        return self._leafwise_calls.call

    @__call__.setter
    def __call__(self, call: Any) -> None:
        self._leafwise_calls.inner = call


@dataclasses.dataclass(eq=False)
class _Call:
    """One call that is being made, and what was found wrong with its answer."""

    calls: "_Calls"
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    found: list[tuple[str, Site | None]] = dataclasses.field(default_factory=list)
    replayed: str = ""

    def add(self, text: str, site: Site | None) -> None:
        """Add what its program was made for; the first time, before it is made, replay it."""
        audit = self.calls.audit
        if audit.replays and not self.found:
            audit.here.replays = True
            try:
                self.replayed = self._replay()
            finally:
                audit.here.replays = False
        self.found.append((text, site))

    def _replay(self) -> str:
        """Trace the call afresh; return what that says of the answer."""
        if is_part_of_trace(self.args, self.kwargs):
            return "; not replayed: it is a part of another trace"
        made, callee = self.calls.made, self.calls.log.callee
        try:
            change = program_change(made, callee, self.args, self.kwargs)
        except Exception as error:  # noqa: BLE001  # the user's own code
            return f"; not replayed: its trace raised {type(error).__name__}"
        if change is None:
            return "; the answer is right"
        file, _, line = change.line.rpartition(":")
        where = f" at {short_file(file)}:{line}" if file else ""
        return f"; wrong answer: `{change.before}` would be `{change.after}`{where}"


@dataclasses.dataclass(eq=False)
class _Calls:
    """The calls of one function: what is known of those with the same statics and avals."""

    audit: Audit
    log: ProgramLog
    made: Any  # what `jax.jit` returned
    inner: Any = None  # what makes a call
    previous: tuple[str, int] | None = None  # the file and the line of the last call
    known: dict[Any, list[str]] = dataclasses.field(default_factory=dict)
    programs: int = 0  # how many there were when that was found

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Compare a call, and make it."""
        __tracebackhide__ = True
        audit = self.audit
        here = audit.here
        if here.replays:  # JAX would take up what it has traced for another value
            return self.log.callee.fun(*args, **kwargs)
        start = time.perf_counter()
        call = _Call(self, args, kwargs)
        frame = user_frame(inspect.currentframe())
        try:
            wrong = self._compare(call)
        except Exception:  # noqa: BLE001  # code of the values' own classes: the call says it better
            wrong = []
        around, here.call = here.call, call
        with audit.lock:
            audit.calls += 1
            audit.seconds += time.perf_counter() - start
        try:
            for text in wrong:
                call.add(text, site_of(frame))
            result = self.inner(*args, **kwargs)
        except BaseException as error:
            # A script that prints the traceback finds its own line, and then JAX.
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            raise
        finally:
            here.call = around
        if frame is not None:
            self.previous = frame.f_code.co_filename, frame.f_lineno
        for text, site in call.found:
            audit.note(text + call.replayed, site)
        return result

    def _compare(self, call: _Call) -> list[str]:
        """Return for which other values of its statics the program of a call was made."""
        log = self.log
        if log.keys is None:
            log.keys = CallKeys(log.callee)
        if len(log.programs) != self.programs or len(self.known) > _MOST_KNOWN:
            self.known.clear()  # another program may answer now
            self.programs = len(log.programs)
        key = log.keys.key(call.args, call.kwargs)
        if key not in self.known:
            signature = log.callee.record(call.args, call.kwargs)
            program, now = log.trace_for(signature), log.keys.contents(signature)
            then = (program and program.contents) or {}
            self.known[key] = [
                "{} answered for `{}={}`, but got {}".format(
                    log.name, path, *_words(then[path][1], now[path][1])
                )
                for path in now
                if path in then and then[path][0] != now[path][0]
            ]
        return self.known[key]


def _words(before: Any, after: Any) -> tuple[str, str]:
    if isinstance(before, type) and isinstance(after, type):
        before, after = map(Verbatim, distinct_names(before, after))
    one, other = (
        str(each) if isinstance(each, Verbatim) else shorten(each, 60) for each in (before, after)
    )
    if isinstance(before, Verbatim) or isinstance(after, Verbatim):
        return one, f"`{other}`"
    kinds = type(before).__qualname__, type(after).__qualname__
    return one if one != other else f"{one} ({kinds[0]})", f"`{other}` ({kinds[1]})"
