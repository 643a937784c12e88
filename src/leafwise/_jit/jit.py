"""`lw.jit`: `jax.jit` that logs the programs JAX makes, and checks what they captured."""

import contextlib
import functools
import inspect
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar, cast, overload

import jax

from leafwise._captures.captures import Captures, captures, captures_of
from leafwise._compare.signature import Signature
from leafwise._findings.reasons import Explanation, Outcome
from leafwise._jax.compat import JIT, dispatch_entries
from leafwise._jax.context import current_number, install_trace_context, is_traced_afresh
from leafwise._jax.frames import exclude_file
from leafwise._jax.stack import running_calls
from leafwise._jit.blocks import StaleAction, StaleCapture, StaleOption, checked_action
from leafwise._jit.callee import Callee, jitted_name, static_arguments, static_parameters
from leafwise._jit.checked_calls import Guard, explain_by_captures, observed
from leafwise._jit.everywhere import checked_timeout, compare_inputs, lowering, tracing
from leafwise._jit.programs import Program, ProgramEntry, ProgramLog
from leafwise._jit.recorder import body_ran, listen_for_logs
from leafwise._objects.attributes import compares_by_identity
from leafwise._objects.locks import new_lock
from leafwise._objects.methods import BoundMethod, JittedFunction
from leafwise._objects.text import got

exclude_file(__file__)  # errors in a function show the same frames as under `jax.jit`

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)


class Programs(tuple[Program, ...]):
    """The programs of a jitted function so far that have the same outcome."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return each program on its own lines."""
        return "\n".join(f"{place}: {each}" for place, each in enumerate(self)) or "(none)"


class JitFunction(Protocol[P, R_co]):
    """What `leafwise.jit` returns: a jitted function with a log of its programs.

    At run time it wraps the object that `jax.jit` returns, and adds attributes.

    Attributes:
        traces: One record for each trace so far, in order. If captures keep changing, only the last
            128 are kept.
        recompiles: One record for each lowering or compile so far that needed no trace.
        captures: The captures that the traces so far have read, like `leafwise.captures`.
    """

    traces: Programs
    recompiles: Programs
    __wrapped__: Callable[..., Any]
    __name__: str

    @property
    def captures(self) -> Captures:
        """The captures that the traces so far have read; before the first, those in the code."""
        ...

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function, as under `jax.jit`."""
        ...

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: "JitFunction[Concatenate[S, Q], R_co]", instance: S, owner: type | None = None
    ) -> "JitFunction[Q, R_co]": ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return a bound method, for a function that is defined in a class."""
        ...

    def explain(self, *args: P.args, **kwargs: P.kwargs) -> Explanation:
        """Explain what a call with these arguments would do now, without making it.

        It raises the error of the call for arguments that the function refuses.

        It assumes that the function uses all its arguments: JAX drops unused ones before it lowers,
        so that committing one of those costs only a dispatch entry.
        """
        ...

    def stale_captures(self, *args: P.args, **kwargs: P.kwargs) -> tuple[StaleCapture, ...]:
        """Return the captures that changed since the trace that would answer this call.

        Empty if the arguments need a new trace, which reads the current values. The content of
        large values is not compared.
        """
        ...

    def signature(self, *args: P.args, **kwargs: P.kwargs) -> Signature:
        """Record a call, with the names of the parameters."""
        ...

    def cache_size(self) -> int:
        """Return the number of dispatch entries."""
        ...

    def clear_cache(self) -> None:
        """Forget all programs."""
        ...

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Lower the function for these arguments, as `jax.jit` does."""
        ...

    def trace(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Trace the function for these arguments, as `jax.jit` does."""
        ...

    def eval_shape(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Return the shapes of the results, as `jax.jit` does."""
        ...


AUDITS: Final[list[Callable[[ProgramLog], Any]]] = []
"""What `leafwise explain --audit` calls with the log of each function, to compare its calls."""


class StaleCheckedFunction(JittedFunction):
    """A `JitFunction`: what JAX made, the log of its programs, and the check of captures."""

    __slots__ = ()

    def __init__(self, made: Any, body: Any, stale: StaleAction) -> None:
        own, log = vars(made), body.program_log
        self.__dict__.update({name: own[name] for name in own if name.endswith("__")})
        self._leafwise_jax = made
        self._leafwise_log: ProgramLog = log
        self._leafwise_body = body
        self._leafwise_audits = [make(log) for make in AUDITS]
        self.set_call(made)
        self._leafwise_guard: Guard = Guard(self, made, log, stale)

    def set_call(self, call: Callable[..., Any]) -> None:
        """Make calls run `call`, with the arguments that JAX sees."""
        marked = self._leafwise_log.callee.marked
        if marked is not None:
            call = marked.calling(call)
        for audit in self._leafwise_audits:
            audit.inner, call = call, audit.call
        self.__call__ = call

    def _staged(self, name: str, args: Any, kwargs: Any) -> Any:
        marked = self._leafwise_log.callee.marked
        if marked is not None:
            args, kwargs = marked.key(args, kwargs)
        with self._leafwise_guard.entered():
            return getattr(self._leafwise_jax, name)(*args, **kwargs)

    # `isinstance(function, jax.stages.Wrapped)` asks the class for these three.

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        if self._leafwise_log.callee.timeout is None:
            return self._staged("lower", args, kwargs)
        with lowering(self._leafwise_body) as note:
            lowered = self._staged("lower", args, kwargs)
            note(lowered)
        return lowered

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        return self._staged("trace", args, kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        return self._staged("eval_shape", args, kwargs)

    def _programs(self, outcome: Outcome) -> Programs:
        log = self._leafwise_log
        entries = [entry for entry in list(log.programs) if entry.outcome is outcome]
        return Programs(entry.view(log.name, self._leafwise_jax.lower) for entry in entries)

    @property
    def traces(self) -> Programs:
        return self._programs(Outcome.RETRACE)

    @property
    def recompiles(self) -> Programs:
        return self._programs(Outcome.RECOMPILE)

    @property
    def captures(self) -> Captures:
        reads, fun = self._leafwise_log.reads(), self.__wrapped__
        return captures_of(fun, reads) if reads else captures(fun)

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        log = self._leafwise_log
        with contextlib.suppress(ValueError):  # a builtin may have no signature
            inspect.signature(log.callee.fun).bind(*args, **kwargs)
        signature = log.callee.record(args, kwargs)
        explanation = log.explain_now(signature, dispatch_entries(self._leafwise_jax))
        return self._leafwise_guard.with_captures(explanation, args, kwargs)

    def stale_captures(self, *args: Any, **kwargs: Any) -> tuple[StaleCapture, ...]:
        return tuple(self._leafwise_guard.stale_captures(args, kwargs).values())

    def signature(self, *args: Any, **kwargs: Any) -> Signature:
        return self._leafwise_log.callee.record(args, kwargs)

    def cache_size(self) -> int:
        return dispatch_entries(self._leafwise_jax)

    def clear_cache(self) -> None:
        self._leafwise_log.forget()
        self._leafwise_guard.reset()  # nothing to check now
        self._leafwise_jax.clear_cache()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what JAX made, without the log."""
        stale = str(self._leafwise_guard.stale)
        return _load, (self._leafwise_jax, self._leafwise_body, stale)


def _load(made: Any, body: Any, stale: str) -> StaleCheckedFunction:
    """Unpickle: JAX drops the attributes."""
    functools.update_wrapper(made, body)
    made.__wrapped__ = body.callee.fun
    return StaleCheckedFunction(made, body, StaleAction(stale))


R = TypeVar("R")


class TracedBody:
    """The function passed to `jax.jit`: JAX needs one object to trace and to compare."""

    __slots__ = ("__dict__", "__weakref__", "callee", "first", "program_log")

    def __init__(self, callee: Callee) -> None:
        self.callee = callee
        self.first: TracedBody | None = None  # an equal body with the same log, kept alive
        self.program_log = ProgramLog(callee)
        fun = callee.fun
        for name in functools.WRAPPER_ASSIGNMENTS:
            if hasattr(fun, name):
                setattr(self, name, getattr(fun, name))
        own = getattr(fun, "__dict__", {})
        self.__dict__.update({name: own[name] for name in own if name != "__wrapped__"})
        self.__name__ = callee.name
        listen_for_logs()

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The user's function, for `inspect` and for JAX's messages."""
        return self.callee.fun

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the user's function: JAX traces it."""
        __tracebackhide__ = True
        log, run = self.program_log, self.callee.with_values(args, kwargs)
        if getattr(jax.config, "jax_disable_jit", False) or is_traced_afresh():
            return run()  # such a trace leads to no program
        call = next((call for call in running_calls() if call.fun is self), None)
        runs = call is not None and call.runs  # or is ahead of time, perhaps from shapes alone
        seen = (call.args, call.kwargs) if call is not None and runs else (args, kwargs)
        program = log.new_program(Outcome.RETRACE, call, *seen)
        program.state = current_number() or 0
        if self.callee.timeout is None:
            return self._trace(program, run)
        compare_inputs(self, program)
        with tracing(self, runs=runs):
            return self._trace(program, run)

    def _trace(self, program: ProgramEntry, run: Callable[[], Any]) -> Any:
        """Run the function, and record with its program what it captures."""
        __tracebackhide__ = True
        log = self.program_log
        explain_by_captures(log, program)
        with observed(log, program) as values:
            start = time.perf_counter()
            result = run()
            program.trace_seconds = time.perf_counter() - start
        if log.note_trace is not None:
            log.note_trace(program)
        body_ran(log, program)
        for guard in list(log.guards) if values else ():
            guard.traced(*values)
        return result

    def __eq__(self, other: object) -> bool:
        """Return whether JAX may reuse the programs of the other body."""
        if not isinstance(other, TracedBody):
            return NotImplemented
        mine, its = self.callee, other.callee
        fun, another = mine.find(), its.find()
        if fun is None or another is None:  # deleted, where JAX has not noticed so far
            return self is other
        return bool(fun == another) and mine.options == its.options

    def __hash__(self) -> int:
        fun = self.callee.find()
        return id(self) if fun is None else hash(fun)

    def __repr__(self) -> str:
        """Return what JAX's messages show: the user's function."""
        return repr(self.callee.fun)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return itself: functions are not copied, and a copy of what JAX made runs this one."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the function, without the log."""
        return _keeping_body, (self.callee.fun, self.callee.options)


_LOCK: Final = new_lock()
_SHARED: Final[weakref.WeakKeyDictionary[Any, dict[Any, TracedBody]]] = weakref.WeakKeyDictionary()

_FIRST: Final[weakref.WeakKeyDictionary[TracedBody, weakref.ref[TracedBody]]] = (
    weakref.WeakKeyDictionary()
)
"""For callables that compare by value: the first of the equal bodies, by any of them."""


def _keeping_body(fun: Callable[..., Any], options: tuple[Any, ...]) -> TracedBody:
    """Return a body that keeps the function alive, as where it is unpickled."""
    return TracedBody(Callee(jitted_name(fun), lambda: fun, *options))


def _traced_body_of(fun: Callable[..., Any], own: tuple[Any, ...]) -> TracedBody:
    """Return the body that JAX traces in place of a function, one for equal `Callee.options`."""
    # JAX keeps the programs of a function while the function lives, so that a second `jax.jit` of
    # it finds them. To JAX, the traced body is that function: it has to live as long, without
    # keeping the function alive. Callables that compare by value, such as bound methods, each have
    # a traced body of their own; JAX treats equal ones as the same.
    if not compares_by_identity(type(fun)):
        body = _keeping_body(fun, own)
        with contextlib.suppress(Exception):  # a user-defined `==` or hash
            first = _FIRST.setdefault(body, weakref.ref(body))()
            if first is not None and first is not body:
                body.first, body.program_log = first, first.program_log
        return body
    try:
        find = weakref.ref(fun)
    except TypeError:
        return _keeping_body(fun, own)
    with _LOCK:
        known = _SHARED.setdefault(fun, {})
        if own not in known:
            known[own] = TracedBody(Callee(jitted_name(fun), find, *own))
        return known[own]


@overload
def jit(
    fun: Callable[P, R],
    /,
    *,
    on_stale: StaleOption = "warn",
    same_everywhere: bool | float = False,
    **options: Any,
) -> JitFunction[P, R]: ...
@overload
def jit(
    *, on_stale: StaleOption = "warn", same_everywhere: bool | float = False, **options: Any
) -> Callable[[Callable[P, R]], JitFunction[P, R]]: ...
def jit(
    fun: Callable[..., Any] | None = None,
    /,
    *,
    on_stale: StaleOption = "warn",
    same_everywhere: bool | float = False,
    **options: Any,
) -> JitFunction[..., Any] | Callable[[Callable[..., Any]], JitFunction[..., Any]]:
    """Compile a function like `jax.jit`, log every trace, and check that captures are unchanged.

    While JAX traces, lowers or compiles the function, the arguments, the calling line and the
    times are recorded, and compared with those of earlier calls. No array is kept.

    What the function reads from globals, closures, defaults and attributes becomes part of the
    program. Each call checks that it has not changed since the trace: by identity, or by content
    for small NumPy arrays (1 KiB), containers (32 items) and objects (128 parts). If no capture can
    change, nothing runs per call. When one has changed, the function is traced with the new values;
    the programs of the last 8 states are kept, so that going back to old values costs no trace. In
    a block of `leafwise.debug.check_captures`, the programs themselves are compared.

    The first use in a process makes JAX trace and compile again what it has compiled before, as a
    context of leafwise becomes part of JAX's cache key (`jax.make_user_context`).

    A parameter annotated with `leafwise.Static` is a static argument, by position or name. Its
    values are compared like those of a static field: ``(1,)`` and ``(True,)`` get two programs, and
    a list or an array is refused.

    Args:
        fun: The function. Without it, a decorator is returned. For a bound method of a pytree
            class, the instance becomes an argument: methods of instances with equal keys and avals
            share programs, where `jax.jit` bakes each instance in.
        on_stale: What to do when a capture has changed since the trace that would answer a call.
            ``"warn"``: warn about each new value, at most 8 times per capture, and trace again.
            ``"raise"``: raise an error. ``"retrace"``: trace again silently. ``"ignore"``: answer
            for the old value, as `jax.jit` does.
        same_everywhere: Whether all processes of `jax.distributed` compare what they are about to
            compile: the inputs of each trace, before the function runs, and the lowered program,
            before XLA compiles it. A number is the timeout in seconds; True means 300. Cache hits
            cost nothing, and neither does a single process.
        **options: The options of `jax.jit`: ``static_argnums``, ``static_argnames``,
            ``donate_argnums``, ``donate_argnames``, ``keep_unused``, ``in_shardings``,
            ``out_shardings``, ``device``, ``backend``, ``inline``, ``compiler_options``.

    Returns:
        The jitted function, with `JitFunction.traces`, `JitFunction.recompiles`,
        `JitFunction.explain`, `JitFunction.stale_captures`, `JitFunction.captures`,
        `JitFunction.signature` and `JitFunction.cache_size` added.

    Raises:
        TypeError: `fun` is not callable, or as `jax.jit` raises it.
        DefinitionError: `leafwise.Static` has no effect where it is used, or cannot be resolved.
        StaticFieldError: (when called) the value of such a parameter cannot be static.
        ValueError: `on_stale` is not one of the four.
        StaleCaptureError: (when called) a capture changed, and ``on_stale="raise"``.
        DifferentProcessesError: (while tracing or compiling, in every process) the processes
            have different inputs, or lower different programs, with ``same_everywhere``.
        ProcessTimeoutError: (likewise) some process does not trace or compile it in time. This
            process then shuts its JAX client down, so that JAX ends those that wait for it.

    Warns:
        StaleCaptureWarning: (when called) a capture changed, and the function is traced again.
        RetraceStormWarning: (while tracing) one field or argument has caused 8 traces; see
            `leafwise.storm_guard`.

    Examples:
        >>> @jit
        ... def double(x):
        ...     return 2 * x
        >>> double(jnp.ones(3)), double(jnp.ones(4))  # doctest: +SKIP
        >>> print(double.traces[-1].explanation)  # doctest: +SKIP
        retrace: traced, lowered and compiled again
          x: shape (3,) -> (4,)
            fix: pad to one shape, and mask what is added
    """
    action, timeout = checked_action(on_stale, "leafwise.jit"), checked_timeout(same_everywhere)
    if fun is None:
        return functools.partial(jit, on_stale=on_stale, same_everywhere=same_everywhere, **options)
    bound = fun.args if isinstance(fun, BoundMethod) else None
    if isinstance(fun, BoundMethod):
        fun, options = fun.func, _shifted_by_self(options)
    if not callable(fun):
        raise TypeError(f"leafwise.jit takes a function, got {got(fun)}")
    try:
        hash(fun)  # by which JAX finds its programs
    except TypeError as error:
        error.add_note(
            f"leafwise.jit got {got(fun)}: JAX caches programs by the hash of the function\n"
            f"  fix: use equinox.filter_jit for a module or its method, or jit a function that "
            f"takes it as an argument"
        )
        raise
    install_trace_context()
    jitted = jit_with_log(fun, options, action, timeout, is_authors=True)
    return jitted if bound is None else BoundMethod(jitted, *bound)


def jit_with_log(
    fun: Callable[..., Any],
    options: dict[str, Any],
    stale: StaleAction,
    timeout: float | None = None,
    *,
    is_authors: bool = False,
) -> Any:
    """Return a function jitted by `jax.jit`, with a log of its programs."""
    # If its author wrote `leafwise.jit`, it warns about storms, adds notes to JAX's errors, and
    # makes parameters static that are annotated so.
    if inspect.isgeneratorfunction(fun):
        return JIT(fun, **options)  # which raises
    statics = static_arguments(fun, options.get("static_argnums"), options.get("static_argnames"))
    marked = static_parameters(fun, statics, depth=3) if is_authors else None
    if marked is not None:
        statics = statics.union(marked.arguments)
        options = {**options, "static_argnums": statics.numbers, "static_argnames": statics.names}
    placed = any(options.get(name) is not None for name in ("device", "backend"))
    sharded = any(options.get(name) is not None for name in ("in_shardings", "out_shardings"))
    has_states = stale is not StaleAction.IGNORE
    body = _traced_body_of(fun, (statics, placed, sharded, marked, timeout, has_states))
    jitted: Any = JIT(body, **options)
    jitted.__wrapped__ = fun  # which the body does not keep alive
    body.program_log.warns |= is_authors
    return StaleCheckedFunction(jitted, body, stale)


def _shifted_by_self(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a bound method for its function, whose first argument is self."""
    shifted = dict(options)
    for name in ("static_argnums", "donate_argnums"):
        numbers = options.get(name)
        if isinstance(numbers, int):
            shifted[name] = numbers + (numbers >= 0)
        elif isinstance(numbers, Iterable):
            shifted[name] = tuple(n + (n >= 0) for n in cast("Iterable[int]", numbers))
    shardings = options.get("in_shardings")
    if isinstance(shardings, tuple | list):
        shifted["in_shardings"] = (None, *cast("Iterable[Any]", shardings))
    return shifted
