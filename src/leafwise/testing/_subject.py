"""Functions under test: what is predicted of a call, and what JAX is seen to do.

A `Subject` is any function; a `Probe` is made for the edits of one instance.
"""

import dataclasses
import functools
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import jax

from leafwise._compare.explain import Explanation, explain
from leafwise._compare.reasons import Outcome
from leafwise._compare.signature import Signature, labels_of, record, signature
from leafwise._jax.compat import static_options
from leafwise._jax.events import Counts, count_events
from leafwise._jit.callee import static_arguments
from leafwise._jit.jit import StaleCheckedFunction
from leafwise.errors import RetraceStormWarning

_EQUINOX: Final = "equinox._jit"


@dataclasses.dataclass(frozen=True)
class Observation:
    """What was predicted of a call against an earlier one, and what JAX did.

    It is refused if it raised as predicted, or was not made for that reason.
    """

    predicted: Explanation
    counts: Counts
    is_refused: bool = False

    @property
    def expected(self) -> Outcome:
        """What was predicted, as far as it can be seen: a dispatch is a reuse."""
        outcome = self.predicted.outcome
        return Outcome.REUSE if outcome is Outcome.DISPATCH else outcome

    @property
    def outcome(self) -> Outcome:
        """What JAX did: a retrace, a recompile, or a reuse; or the error that was predicted."""
        if self.is_refused:
            return Outcome.ERROR
        if self.counts.traces:
            return Outcome.RETRACE
        return Outcome.RECOMPILE if self.counts.lowerings or self.counts.compiles else Outcome.REUSE

    @property
    def is_as_predicted(self) -> bool:
        """Whether JAX did what was predicted, as far as that was known."""
        return self.expected in (self.outcome, Outcome.UNKNOWN)


class Subject:
    """A jitted function, and the plain one inside, whose programs can be counted and dropped."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        if inspect.ismethod(fun):  # its first argument is bound: options do not count it
            fun = functools.partial(fun)
        self.plain: Callable[..., Any] = getattr(fun, "__wrapped__", fun)
        self._filtered = type(fun).__module__ == _EQUINOX
        self._is_jitted = self._filtered or callable(getattr(fun, "clear_cache", None))
        self.jitted: Any = fun if self._is_jitted else jax.jit(fun)
        numbers, names = static_options(self.jitted)
        self._statics = static_arguments(self.plain, numbers or None, names or None)

    @property
    def static_names(self) -> frozenset[str]:
        parameters = list(inspect.signature(self.plain).parameters)
        numbered = {parameters[n] for n in self._statics.numbers if n < len(parameters)}
        return frozenset({*numbered, *self._statics.names})

    def fresh(self) -> "Subject":
        """Return the function without its programs."""
        if not self._filtered:
            self.jitted.clear_cache()
            return self
        # equinox's wrapper cannot clear the cache of the function inside: wrap it again.
        import equinox  # noqa: PLC0415  # the function is its own, so it is imported

        return Subject(equinox.filter_jit(functools.partial(self.plain)))

    def signature(
        self, args: Sequence[Any], kwargs: Mapping[str, Any] = MappingProxyType({})
    ) -> Signature:
        if isinstance(self.jitted, StaleCheckedFunction):
            return self.jitted.signature(*args, **kwargs)
        labels = labels_of(self.plain, args, kwargs)
        return record(args, kwargs, self._statics, filtered=self._filtered, labels=labels)

    def observe(self, before: Sequence[Any], after: Sequence[Any]) -> Observation:
        """Call with other arguments than those that it is warm for, unless JAX will refuse them."""
        predicted = explain(self.signature(before), self.signature(after))
        if predicted.outcome is Outcome.ERROR:
            return Observation(predicted, Counts(), is_refused=True)
        with count_events() as counts:
            self.call(after)
        return Observation(predicted, counts)

    def call(self, args: Sequence[Any]) -> None:
        with warnings.catch_warnings():
            # Many traces are the point here.
            warnings.simplefilter("ignore", RetraceStormWarning)
            wait: Any = jax.block_until_ready
            wait(self.jitted(*args))


class Probe:
    """Jitted functions that have a program for an instance, for all edits of it.

    All but the one that may recompile are without leaves, so that almost nothing is compiled: JAX
    traces them again for whatever a program depends on.
    """

    def __init__(self, base: Any) -> None:
        self._base = base
        self._before = signature(base)
        self._functions: dict[str, Any] = {}
        self._known: list[Signature] = []
        self._warm("whole")

    def observe(self, edited: Any) -> Observation:
        """Call a function that knows the instance, and not the edited one."""
        after = signature(edited)
        predicted = explain(self._before, after)
        function = self._function_for(after, predicted.outcome)
        is_refused = False
        with count_events(_NAME) as counts:
            try:
                wait: Any = jax.block_until_ready
                wait(function(edited))
            except Exception:
                if predicted.outcome is not Outcome.ERROR:
                    raise
                is_refused = True
        seen = Observation(predicted, counts, is_refused)
        if not seen.is_as_predicted:
            self._functions.clear()  # what they know now is not what was predicted
        return seen

    def try_observe(self, edited: Any) -> Observation | None:
        """Observe a call; None if the class refuses the instance where JAX traces it."""
        try:
            return self.observe(edited)
        except Exception:  # noqa: BLE001  # the user's own checks
            return None

    def _function_for(self, after: Signature, outcome: Outcome) -> Any:
        if outcome is not Outcome.RETRACE:
            # One that never sees another structure; where it may compile, one that uses all leaves.
            return self._warm("reused" if outcome is Outcome.REUSE else "whole")
        if after in self._known:
            self._functions.pop("retraced", None)
            self._known = []
        self._known.append(after)
        return self._warm("retraced")

    def _warm(self, role: str) -> Any:
        if role not in self._functions:

            def leafwise_probe(tree: Any) -> Any:
                leaves = jax.tree_util.tree_leaves(tree)
                return leaves if role == "whole" else ()

            jitted: Any = jax.jit(leafwise_probe)
            jitted(self._base)
            self._functions[role] = jitted
        return self._functions[role]


_NAME: Final = "leafwise_probe"
