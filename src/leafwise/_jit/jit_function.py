"""What `leafwise.jit` returns: JAX's jitted function, with what is remembered of it."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, overload

from leafwise._compare.explain import Explanation
from leafwise._compare.reasons import Outcome
from leafwise._compare.signature import Signature
from leafwise._jax.compat import dispatch_entries
from leafwise._jit.blocks import Stale, StaleCapture
from leafwise._jit.programs import Memory, Program
from leafwise._jit.staleness import Guard
from leafwise._objects.jitted import Jitted

if TYPE_CHECKING:
    from leafwise._captures.captures import Captures

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
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

    At run time it stands for the object that `jax.jit` makes, with more attributes.

    Attributes:
        traces: One record for each trace, in order.
        recompiles: One record for each time that JAX lowered or compiled without a trace.
        captures: What the function captures, as `leafwise.captures` returns it.
    """

    traces: Programs
    recompiles: Programs
    __wrapped__: Callable[..., Any]
    __name__: str

    @property
    def captures(self) -> "Captures":
        """What the function captures, as `leafwise.captures` returns it."""
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
        """Say what a call with these arguments would do now, without making it.

        As for a function that uses all its arguments: JAX drops those that are not used before
        it lowers, so that a committed array in the place of one costs a dispatch entry only.
        """
        ...

    def stale(self, *args: P.args, **kwargs: P.kwargs) -> tuple[StaleCapture, ...]:
        """Return what changed since the trace that would answer a call with these arguments.

        Nothing if it would be traced: that takes the values of now. What is large is not looked
        into, unless it was in a block of `leafwise.debug.check_captures`.
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


class Function(Jitted):
    """A `JitFunction`: what JAX made, what is remembered, and the check of captures."""

    __slots__ = ()

    def __init__(self, made: Any, recorder: Any, stale: Stale) -> None:
        """Stand for what `jax.jit` made of a recorder."""
        own, memory = vars(made), recorder.memory
        self.__dict__.update({name: own[name] for name in own if name.endswith("__")})
        self._leafwise_jax = made
        self._leafwise_memory: Memory = memory
        self._leafwise_recorder = recorder
        self.__call__ = made
        self._leafwise_guard: Guard = Guard(self, made, memory, stale)
        self.traces = Programs(memory, Outcome.RETRACE)
        self.recompiles = Programs(memory, Outcome.RECOMPILE)

    @property
    def captures(self) -> "Captures":
        """What the function captures, as `leafwise.captures` returns it."""
        from leafwise._captures.captures import captures  # noqa: PLC0415  # few ask for it

        return captures(self.__wrapped__)

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Say what a call would do now, as `JitFunction.explain`."""
        memory = self._leafwise_memory
        refused = memory.callee.refusal(args, kwargs)
        if refused is not None:
            return Explanation(Outcome.ERROR, (refused,))
        signature = memory.callee.record(args, kwargs)
        found = memory.explain_now(signature, dispatch_entries(self._leafwise_jax))
        return self._leafwise_guard.with_captures(found, args, kwargs)

    def stale(self, *args: Any, **kwargs: Any) -> tuple[StaleCapture, ...]:
        """Return what a call would find changed, as `JitFunction.stale`."""
        return self._leafwise_guard.stale_captures(args, kwargs)

    def signature(self, *args: Any, **kwargs: Any) -> Signature:
        """Record a call, with the names of the parameters."""
        return self._leafwise_memory.callee.record(args, kwargs)

    def cache_size(self) -> int:
        """Return the number of dispatch entries."""
        return dispatch_entries(self._leafwise_jax)

    def clear_cache(self) -> None:
        """Forget all programs."""
        self._leafwise_memory.forget()
        self._leafwise_guard.block_changed()  # which has nothing to check now
        self._leafwise_jax.clear_cache()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what JAX made, without what is remembered."""
        stale = str(self._leafwise_guard.stale)
        return _load, (self._leafwise_jax, self._leafwise_recorder, stale)


def _load(made: Any, recorder: Any, stale: str) -> Function:
    """Put together again what was pickled: JAX drops the attributes."""
    functools.update_wrapper(made, recorder)
    made.__wrapped__ = recorder.memory.callee.fun
    return Function(made, recorder, Stale(stale))
