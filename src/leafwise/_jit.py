"""`jax.jit` with a memory: nothing runs per call, everything is recorded as it is traced."""

import functools
import inspect
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar, cast, overload

import jax

from leafwise._callee import Callee, name_of, static_arguments
from leafwise._explain import Explanation
from leafwise._introspect import compares_by_identity
from leafwise._jaxcompat import dispatch_entries, running_calls
from leafwise._memory import Memory, Program
from leafwise._method import BoundMethod
from leafwise._reasons import Outcome
from leafwise._signature import Signature, StaticArguments
from leafwise._text import got
from leafwise._watching import body_ran, remember_events

_JAX_JIT: Final = jax.jit
"""The one of JAX: `leafwise explain` puts ours in its place."""

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Programs(Sequence[Program]):
    """What a jitted function remembers, as it grows."""

    def __init__(self, memory: Memory, outcome: Outcome) -> None:
        """Show the programs of one outcome."""
        self._memory = memory
        self._outcome = outcome

    def _now(self) -> list[Program]:
        return [each for each in list(self._memory.programs) if each.outcome is self._outcome]

    @overload
    def __getitem__(self, index: int) -> Program: ...
    @overload
    def __getitem__(self, index: slice) -> list[Program]: ...
    def __getitem__(self, index: int | slice) -> Program | list[Program]:
        """Return a program, the first one is 0, or several."""
        return self._now()[index]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._now())

    def __iter__(self) -> Iterator[Program]:
        """Iterate over those that are there now."""
        return iter(self._now())

    def __repr__(self) -> str:
        """Return each of them on lines of its own."""
        return "\n".join(f"{place}: {each}" for place, each in enumerate(self._now())) or "(none)"


class JitFunction(Protocol[P, R_co]):
    """What `leafwise.jit` returns: a jitted function that remembers.

    At run time it is the very object that `jax.jit` makes, with more attributes.

    Attributes:
        traces: One record for each trace, in order.
        recompiles: One record for each time that JAX lowered or compiled without a trace.
    """

    traces: Programs
    recompiles: Programs
    __wrapped__: Callable[..., Any]
    __name__: str

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
        """Say what a call with these arguments would do now, without making it.

        As for a function that uses all its arguments: JAX drops those that are not used before
        it lowers, so that a committed array in the place of one costs a dispatch entry only.
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


class _Recorder:
    """The function that is handed to `jax.jit` in place of the user's."""

    __slots__ = ("__dict__", "__weakref__", "memory")

    def __init__(self, callee: Callee) -> None:
        self.memory = Memory(callee)
        fun = callee.fun
        for name in functools.WRAPPER_ASSIGNMENTS:
            if hasattr(fun, name):
                setattr(self, name, getattr(fun, name))
        own = getattr(fun, "__dict__", {})
        self.__dict__.update({name: own[name] for name in own if name != "__wrapped__"})
        self.__name__ = callee.name
        remember_events(on=True)
        weakref.finalize(self, remember_events, on=False).atexit = False

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The user's function, for `inspect` and for JAX's messages."""
        return self.memory.callee.fun

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the user's function: JAX traces it."""
        __tracebackhide__ = True
        memory, fun = self.memory, self.memory.callee.fun
        if getattr(jax.config, "jax_disable_jit", False):
            return fun(*args, **kwargs)
        call = next((each for each in running_calls() if each.fun is self), None)
        if call is not None and call.runs:
            seen, named = call.args, call.kwargs
        else:  # lowered or traced ahead of time, perhaps from shapes alone
            seen, named = args, kwargs
        program = memory.new_program(Outcome.RETRACE, call, seen, named)
        start = time.perf_counter()
        result = fun(*args, **kwargs)
        program.trace_seconds = time.perf_counter() - start
        body_ran(memory, program)
        return result

    def __eq__(self, other: object) -> bool:
        """Return whether JAX may take what it made for the other one."""
        if not isinstance(other, _Recorder):
            return NotImplemented
        mine, its = self.memory.callee, other.memory.callee
        return mine.fun == its.fun and mine.statics == its.statics

    def __hash__(self) -> int:
        """Return the hash of the function."""
        return hash(self.memory.callee.fun)

    def __repr__(self) -> str:
        """Return what JAX's messages show: the user's function."""
        return repr(self.memory.callee.fun)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the function, without what it remembers."""
        callee = self.memory.callee
        return _load, (callee.fun, callee.statics, (callee.placed, callee.sharded))


_LOCK: Final = threading.Lock()
_SHARED: Final[weakref.WeakKeyDictionary[Any, dict[Any, _Recorder]]] = weakref.WeakKeyDictionary()


def _load(fun: Callable[..., Any], statics: StaticArguments, own: tuple[bool, bool]) -> _Recorder:
    """Make a recorder in another process, where nothing else keeps the function alive."""
    return _Recorder(Callee(name_of(fun), lambda: fun, statics, *own))


def _recorder_of(fun: Callable[..., Any], statics: StaticArguments, options: Any) -> _Recorder:
    """Return the recorder of a function.

    JAX keeps what it made for a function as long as the function lives, so that a second
    `jax.jit` of it finds all of that. Here the recorder is that function: it has to live as
    long, and must not keep the function alive. Of callables that compare by value each has
    its own recorder; JAX takes equal ones for one another.
    """
    placed = any(options.get(name) is not None for name in ("device", "backend"))
    sharded = any(options.get(name) is not None for name in ("in_shardings", "out_shardings"))
    make = functools.partial(Callee, name_of(fun), statics=statics, placed=placed, sharded=sharded)
    if not compares_by_identity(type(fun)):
        return _Recorder(make(lambda: fun))
    try:
        find = weakref.ref(fun)
    except TypeError:
        return _Recorder(make(lambda: fun))
    with _LOCK:
        known = _SHARED.setdefault(fun, {})
        key = statics, placed, sharded
        if key not in known:
            known[key] = _Recorder(make(find))
        return known[key]


@overload
def jit(fun: Callable[P, R], /, **options: Any) -> JitFunction[P, R]: ...
@overload
def jit(**options: Any) -> Callable[[Callable[P, R]], JitFunction[P, R]]: ...
def jit(fun: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Do what `jax.jit` does, and remember every trace.

    Nothing runs per call: what is returned is the object that `jax.jit` makes. While JAX
    traces, lowers or compiles the function, the arguments, the calling line and the times are
    recorded, and compared with those of earlier calls. No array is kept.

    Args:
        fun: The function. Without it, a decorator is returned. A bound method of a pytree
            class takes its instance as an argument: methods of instances with equal keys and
            avals share programs, where `jax.jit` bakes each instance in.
        **options: The options of `jax.jit`: ``static_argnums``, ``static_argnames``,
            ``donate_argnums``, ``donate_argnames``, ``keep_unused``, ``in_shardings``,
            ``out_shardings``, ``device``, ``backend``, ``inline``, ``compiler_options``.

    Returns:
        The jitted function, with `JitFunction.traces`, `JitFunction.recompiles`,
        `JitFunction.explain`, `JitFunction.signature` and `JitFunction.cache_size` added.

    Raises:
        TypeError: `fun` is not callable, or as `jax.jit` raises it.

    Warns:
        RetraceStormWarning: (while tracing) one field or argument has caused 8 traces; see
            `leafwise.storm_guard`.

    Example:
        >>> @jit
        ... def double(x):
        ...     return 2 * x
        >>> double(jnp.ones(3)), double(jnp.ones(4))  # doctest: +SKIP
        >>> print(double.traces[-1].explanation)  # doctest: +SKIP
        retrace: traced, lowered and compiled again
          x: shape: (3,) -> (4,). Each shape has a program of its own: ...
    """
    if fun is None:
        return functools.partial(jit, **options)
    if isinstance(fun, BoundMethod):
        return BoundMethod(jit(fun.func, **_behind_self(options)), *fun.args)
    if not callable(fun):
        msg = f"leafwise.jit takes a function, got {got(fun)}"
        raise TypeError(msg)
    _check_hash(fun)
    return remembering(fun, options)


def remembering(fun: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Return what `jax.jit` makes of a function, with the memory that `jit` documents."""
    numbers, names = options.get("static_argnums"), options.get("static_argnames")
    if inspect.isgeneratorfunction(fun):
        return _JAX_JIT(fun, **options)  # which raises
    recorder = _recorder_of(fun, static_arguments(fun, numbers, names), options)
    jitted: Any = _JAX_JIT(recorder, **options)
    jitted.__wrapped__ = fun  # which the recorder does not keep alive
    return _with_memory(jitted, recorder.memory)


def _check_hash(fun: Callable[..., Any]) -> None:
    """Raise what JAX raises for a function without a hash, with the way out beside it."""
    try:
        hash(fun)
    except TypeError as error:
        error.add_note(
            f"leafwise.jit got {got(fun)}: JAX files programs under the function\n"
            f"  fix: equinox.filter_jit for a module or its method; or jit a function that takes "
            f"it as an argument"
        )
        raise


def _behind_self(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of a bound method as those of its function, whose first argument is self."""
    shifted = dict(options)
    for name in ("static_argnums", "donate_argnums"):
        numbers = options.get(name)
        if isinstance(numbers, int):
            shifted[name] = _behind(numbers)
        elif isinstance(numbers, Iterable):
            shifted[name] = tuple(map(_behind, cast("Iterable[int]", numbers)))
    shardings = options.get("in_shardings")
    if isinstance(shardings, tuple | list):
        shifted["in_shardings"] = (None, *cast("Iterable[Any]", shardings))
    return shifted


def _behind(number: int) -> int:
    return number + 1 if number >= 0 else number


def _with_memory(jitted: Any, memory: Memory) -> Any:
    """Give a jitted function its further attributes."""
    # No cycles: a function that is made in a loop goes when it is let go.
    find = weakref.ref(jitted)

    def explain(*args: Any, **kwargs: Any) -> Explanation:
        now = find()
        entries = 0 if now is None else dispatch_entries(now)
        refused = memory.callee.refusal(args, kwargs)
        if refused is not None:
            return Explanation(Outcome.ERROR, (refused,))
        return memory.explain_now(memory.callee.record(args, kwargs), entries)

    def signature(*args: Any, **kwargs: Any) -> Signature:
        return memory.callee.record(args, kwargs)

    def cache_size() -> int:
        now = find()
        return 0 if now is None else dispatch_entries(now)

    def clear_cache() -> None:
        memory.forget()
        if (now := find()) is not None:
            type(now).clear_cache(now)

    jitted.traces = Programs(memory, Outcome.RETRACE)
    jitted.recompiles = Programs(memory, Outcome.RECOMPILE)
    jitted.explain = explain
    jitted.signature = signature
    jitted.cache_size = cache_size
    jitted.clear_cache = clear_cache
    return jitted
