"""Comparing each call of a jitted function with the program that answers it, types and all.

JAX compares statics by ``==``, and as they are now: a program that was made for ``True`` answers
for ``1``, and that of a list for what it has become. What a call is made of is looked up
(`CallKeys`); it is recorded and compared as in a trace only where that is new.
"""

import contextlib
import functools
import inspect
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from leafwise._compare.diff import compare
from leafwise._compare.explain import Explanation
from leafwise._compare.fixes import distinct_names
from leafwise._compare.reasons import Outcome, ReasonKind
from leafwise._compare.signature import Signature, StaticArguments
from leafwise._jax.context import make_context
from leafwise._jax.events import ignore_events
from leafwise._jax.exchanges import Exchange
from leafwise._jax.frames import exclude_file
from leafwise._jit.assignments import assignments
from leafwise._jit.blocks import StaleCapture
from leafwise._jit.call_keys import CallKeys, Content
from leafwise._jit.callee import Callee, name_of, static_arguments
from leafwise._jit.exact import is_part_of_trace, program_change
from leafwise._jit.jit import StaleCheckedFunction
from leafwise._jit.programs import Program, ProgramLog
from leafwise._objects.call_site import Site, short_file, site_of, user_frame
from leafwise._objects.text import Verbatim, shorten

exclude_file(__file__)  # an error shows the frames that it has without the audit

_ANSWERED: Final = (Outcome.REUSE, Outcome.DISPATCH, Outcome.RECOMPILE)
_MOST_KNOWN: Final = 1024


class WrongProgram(NamedTuple):
    """A call that was answered by a program made for another value.

    Attributes:
        text: What was called, and both values.
        site: The line that called.
        replayed: What a fresh trace of the call says; empty if it was not made.
    """

    text: str
    site: Site | None
    replayed: str = ""

    def __str__(self) -> str:
        """Return ``step answered for `config.flag=True`, but got `1` (int)``."""
        return f"{self.text}{self.replayed}"


_Bodies: TypeAlias = dict[StaticArguments, tuple[Callable[..., Any], ProgramLog]]


class _Here(threading.local):
    """What is audited on one thread.

    Attributes:
        call: The innermost call that is being made.
        recorded: The last call that was of a new kind.
        replays: Whether a call is being replayed, in which nothing is jitted or compared.
        cost: How many calls were compared, and the seconds; None if none so far.
    """

    call: "_Call | None" = None
    recorded: Signature | None = None
    replays: bool = False
    cost: "list[Any] | None" = None


class Audit:
    """Compares the calls of all functions that it is given.

    Args:
        note: Takes what was answered by another program, in each such call.
        replays: Whether to trace such a call afresh, and to compare the programs.
    """

    def __init__(self, note: Callable[[WrongProgram], None], *, replays: bool = False) -> None:
        self.note = note
        self.replays = replays
        if replays:
            make_context()  # before the script has traced anything
        self.here = _Here()
        self._costs: list[list[Any]] = []
        self._bodies: weakref.WeakKeyDictionary[Any, _Bodies] = weakref.WeakKeyDictionary()

    @property
    def calls(self) -> int:
        """How many calls were compared."""
        return sum(calls for calls, _ in self._costs)

    @property
    def seconds(self) -> float:
        """How long that took."""
        return float(sum(seconds for _, seconds in self._costs))

    def add_cost(self, seconds: float) -> None:
        """Note that a call was compared."""
        cost = self.here.cost
        if cost is None:
            cost = self.here.cost = [0, 0.0]
            self._costs.append(cost)
        cost[0] += 1
        cost[1] += seconds

    def function(self, jitted: StaleCheckedFunction) -> "AuditedFunction":
        """Return a jitted function, each call of which is compared."""
        return AuditedFunction(jitted, self)

    def mapped(self, pmap: Callable[..., Any]) -> Callable[..., Any]:
        """Return `jax.pmap` with functions whose calls are compared."""

        @functools.wraps(pmap)
        def watched(fun: Any, *args: Any, **options: Any) -> Any:
            if not callable(fun):
                return pmap(fun, *args, **options)
            body, log = self._mapped_body(fun, options.get("static_broadcasted_argnums"))
            calls = _Calls(self, log)
            made = calls.inner = pmap(body, *args, **options)

            @functools.wraps(made)
            def mapped(*args: Any, **kwargs: Any) -> Any:
                return calls.call(*args, **kwargs)

            mapped.__wrapped__ = fun
            return mapped

        return watched

    def _mapped_body(self, fun: Any, numbers: Any) -> tuple[Callable[..., Any], ProgramLog]:
        """Return what is traced in place of a function: always the same, as JAX goes by it.

        It does not keep the function alive.
        """
        try:
            find: Callable[[], Any] = weakref.ref(fun)
            known = self._bodies.setdefault(fun, {})
        except TypeError:
            find, known = (lambda: fun), {}
        statics = static_arguments(fun, numbers, None)
        if (found := known.get(statics)) is not None:
            return found
        log = ProgramLog(Callee(name_of(fun), find, statics))

        @functools.wraps(fun)
        def body(*args: Any, **kwargs: Any) -> Any:
            call, signature = self.here.call, self.here.recorded
            result = log.callee.fun(*args, **kwargs)
            if call is not None and call.calls.log is log:
                program = Program(Outcome.RETRACE, signature, Explanation(Outcome.RETRACE), None)
                log.keys.note(program, None)
                log.add(program)
            return result

        del body.__dict__["__wrapped__"]
        with contextlib.suppress(TypeError, ValueError):
            body.__dict__["__signature__"] = inspect.signature(fun)
        found = known[statics] = body, log
        return found

    def add_stale(self, found: Iterable[StaleCapture]) -> None:
        """Add captures for whose old values the call that is being made is answered."""
        call = self.here.call
        for each in found:
            changed = f", which is {each.after} now"
            if lines := assignments(each.name, each.line.rpartition(":")[0]):
                changed += f" (assigned at {', '.join(lines)})"
            if call is not None and call.previous is not None:
                changed += f"; the call before it was at {call.previous}"
            wrong = WrongProgram(
                f"{each.function} answered for `{each.name}={each.before}`{changed}", each.call
            )
            if call is None:
                self.note(wrong)
            else:
                call.add(wrong)

    def add_exchange(self, found: Exchange) -> None:
        """Note classes and statics that `cond` or a loop has exchanged, if it has."""
        if self.here.replays or _is_same(found.before, found.after):
            return
        try:
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
                self.note(WrongProgram(f"{answered}, but {other} returned {after}", site))


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two treedefs are the same, classes and types of statics included."""
    mine, its = one.node_data(), other.node_data()
    if mine is None or its is None:
        return mine is its
    if mine[0] is not its[0] or not _is_same_static(mine[1], its[1]):
        return False
    pairs = zip(one.children(), other.children(), strict=True)
    return all(_is_same(before, after) for before, after in pairs)


def _is_same_static(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is type(other) and type(one) in (tuple, list) and len(one) == len(other):
        return all(map(_is_same_static, one, other))
    return type(one) is type(other) and type(one) in (int, bool, str, bytes) and one == other


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


class _Call:
    """One call that is being made, and what was found wrong with its answer."""

    __slots__ = ("_replayed", "args", "calls", "found", "kwargs")

    def __init__(self, calls: "_Calls", args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.calls = calls
        self.args = args
        self.kwargs = kwargs
        self.found: list[WrongProgram] = []
        self._replayed = ""

    @property
    def previous(self) -> str | None:
        """The line of the last call before it."""
        found = self.calls.previous
        return None if found is None else f"{short_file(found[0])}:{found[1]}"

    def add(self, wrong: WrongProgram) -> None:
        """Add what its program was made for; the first time, before it is made, replay it."""
        audit = self.calls.audit
        self.found.append(wrong)
        if audit.replays and not self._replayed:
            audit.here.replays = True
            try:
                self._replayed = self._replay()
            finally:
                audit.here.replays = False

    def _replay(self) -> str:
        """Trace the call afresh; return what that says of the answer."""
        if is_part_of_trace(self.args, self.kwargs):
            return "; not replayed: it is a part of another trace"
        made = self.calls.made
        if made is None:
            return "; not replayed: it is under jax.pmap"
        try:
            change = program_change(made, self.calls.log.callee, self.args, self.kwargs)
        except Exception as error:  # noqa: BLE001  # the user's own code
            return f"; not replayed: its trace raised {type(error).__name__}"
        if change is None:
            return "; the answer is right"
        file, _, line = change.line.rpartition(":")
        where = f" at {short_file(file)}:{line}" if file else ""
        return f"; wrong answer: `{change.before}` would be `{change.after}`{where}"

    def report(self) -> None:
        """Note all that was found, once the call has returned."""
        for each in self.found:
            self.calls.audit.note(each._replace(replayed=self._replayed))


class _Wrong(NamedTuple):
    """A static for another value of which a program was made."""

    path: str
    before: Any
    after: Any


class _Known(NamedTuple):
    """What was found of calls of one key, and what has to live as long."""

    wrong: tuple[_Wrong, ...]
    kept: list[Any]


class _Calls:
    """The calls of one function: what is known of those with the same statics and avals."""

    def __init__(self, audit: Audit, log: ProgramLog, made: Any = None) -> None:
        self.inner: Any = None
        self.made = made
        self.audit = audit
        self.log = log
        self.previous: tuple[str, int] | None = None
        if log.keys is None:
            log.keys = CallKeys(log.callee)
        self._keys: CallKeys = log.keys
        self._known: dict[Any, _Known] = {}
        self._programs = 0

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Compare a call, and make it."""
        __tracebackhide__ = True
        audit = self.audit
        here = audit.here
        if here.replays:  # JAX would take up what it has traced for another value
            return self.log.callee.fun(*args, **kwargs)
        start = time.perf_counter()
        call = _Call(self, args, kwargs)
        frame = inspect.currentframe()
        try:
            wrong = self._compare(args, kwargs)
        except Exception:  # noqa: BLE001  # code of the values' own classes: the call says it better
            wrong = ()
        frame = user_frame(frame)
        around, here.call = here.call, call
        audit.add_cost(time.perf_counter() - start)
        try:
            for each in wrong:
                before, after = _words(each.before, each.after)
                text = f"{self.log.name} answered for `{each.path}={before}`, but got {after}"
                call.add(WrongProgram(text, site_of(frame)))
            result = self.inner(*args, **kwargs)
        except BaseException as error:
            # A script that prints the traceback finds its own line, and then JAX.
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            raise
        finally:
            here.call = around
        if frame is not None:
            self.previous = frame.f_code.co_filename, frame.f_lineno
        if call.found:
            call.report()
        return result

    def _compare(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[_Wrong, ...]:
        log = self.log
        if len(log.programs) != self._programs or len(self._known) > _MOST_KNOWN:
            self._known.clear()  # another program may answer now
            self._programs = len(log.programs)
        key = self._keys.key(args, kwargs)
        found = self._known.get(key.parts)
        if found is None:
            found = self._known[key.parts] = _Known(self._wrong(args, kwargs), key.kept)
        return found.wrong

    def _wrong(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[_Wrong, ...]:
        log = self.log
        signature = self.audit.here.recorded = log.callee.record(args, kwargs)
        explained = log.explain(signature)
        if explained.nearest is None or explained.outcome not in _ANSWERED:
            return ()
        then: Mapping[str, Content] = log.trace_of(explained.nearest).contents or {}
        now = self._keys.contents(signature)
        changed = [
            _Wrong(path, then[path].value, content.value)
            for path, content in now.items()
            if path in then and then[path].differs(content)
        ]
        seen = [each.path for each in changed]
        unsound = [
            _Wrong(each.path, each.before, each.after)
            for each in explained.unsound
            if not (
                any(path.startswith(each.path) for path in seen)
                or (each.path in then and then[each.path].is_plain and each.path in now)
            )
        ]
        return (*changed, *unsound)


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
