"""Functions under test: the prediction for a call, and what JAX does."""

import dataclasses
import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax

from leafwise._compare.signature import Signature, labels_of, record
from leafwise._findings.reasons import Explanation, Outcome
from leafwise._jax.compat import static_options
from leafwise._jax.events import Counts, count_events
from leafwise._jit.callee import static_arguments
from leafwise._jit.jit import StaleCheckedFunction
from leafwise.errors import RetraceStormWarning


@dataclasses.dataclass(frozen=True)
class ObservedCall:
    """The prediction for a call, compared with an earlier one, and what JAX did."""

    predicted: Explanation
    counts: Counts
    is_refused: bool = False  # it raised as predicted, perhaps before it reached JAX

    @property
    def expected(self) -> Outcome:
        """The predicted outcome; a dispatch counts as a reuse, as they look the same."""
        outcome = self.predicted.outcome
        return Outcome.REUSE if outcome is Outcome.DISPATCH else outcome

    @property
    def outcome(self) -> Outcome:
        """What JAX did: a retrace, a recompile, a reuse, or the predicted error."""
        if self.is_refused:
            return Outcome.ERROR
        if self.counts.traces:
            return Outcome.RETRACE
        return Outcome.RECOMPILE if self.counts.lowerings or self.counts.compiles else Outcome.REUSE

    @property
    def is_as_predicted(self) -> bool:
        """Whether JAX did what was predicted, or nothing was."""
        return self.expected in (self.outcome, Outcome.UNKNOWN)


class Subject:
    """A jitted function and the plain function in it; `fresh` drops its programs."""

    def __init__(self, fun: Callable[..., Any] | None = None, *, uses_leaves: bool = True) -> None:
        self.name = ""
        if fun is None:

            def leafwise_probe(tree: Any) -> Any:
                return jax.tree_util.tree_leaves(tree) if uses_leaves else ()

            fun, self.name = leafwise_probe, leafwise_probe.__name__
        if inspect.ismethod(fun):  # its first argument is bound: static_argnums skip it
            fun = functools.partial(fun)
        self.plain: Callable[..., Any] = getattr(fun, "__wrapped__", fun)
        self._filtered = type(fun).__module__ == "equinox._jit"
        is_jitted = self._filtered or callable(getattr(fun, "clear_cache", None))
        self.jitted: Any = fun if is_jitted else jax.jit(fun)
        options = static_options(fun) if is_jitted and not self._filtered else ((), ())
        if options is None:
            raise TypeError(
                f"JAX {jax.__version__} does not show which arguments of {fun} are static\n"
                f"  fix: pass the undecorated function, or the result of `lw.jit`"
            )
        numbers, names = options
        self._statics = static_arguments(self.plain, numbers or None, names or None)

    @property
    def static_names(self) -> frozenset[str]:
        parameters = list(inspect.signature(self.plain).parameters)
        numbered = {parameters[n] for n in self._statics.numbers if n < len(parameters)}
        return frozenset({*numbered, *self._statics.names})

    def fresh(self) -> "Subject":
        if not self._filtered:
            self.jitted.clear_cache()
            return self
        # equinox's wrapper cannot clear the inner function's cache: wrap it again.
        import equinox  # noqa: PLC0415  # already imported, since this is its wrapper

        return Subject(equinox.filter_jit(functools.partial(self.plain)))

    def signature(self, *args: Any, **kwargs: Any) -> Signature:
        if isinstance(self.jitted, StaleCheckedFunction):
            return self.jitted.signature(*args, **kwargs)
        labels = {} if self.name else labels_of(self.plain, args, kwargs)
        return record(args, kwargs, self._statics, filtered=self._filtered, labels=labels)


class SubjectProbe:
    """A function with a program for an instance, or for the arguments in it (`spread`).

    Without a `subject` there are two functions. The one for predicted retraces uses no leaves,
    so that almost nothing is compiled: JAX retraces it for anything a program depends on.
    Without `compiles`, a predicted retrace is only traced.
    """

    def __init__(
        self,
        base: Any,
        subject: Subject | None = None,
        *,
        spread: bool = False,
        compiles: bool = True,
    ) -> None:
        self._given = subject
        self._traced = None if subject or compiles else Outcome.RETRACE
        self._any = subject or Subject()
        self._spread = spread
        self._args = self._arguments(base)
        self._before = self._any.signature(*self._args)
        self._warm: dict[Outcome | None, tuple[Subject, list[Signature]]] = {}
        self.refused: Exception | None = None
        self._start(None if subject else self._traced or Outcome.RECOMPILE)

    def try_observe(self, edited: Any) -> ObservedCall | None:
        """Call a function with the edited instance; set `refused` and return None if it raises."""
        predicted, counts = None, Counts()
        try:
            args = self._arguments(edited)
            after = self._any.signature(*args)
            predicted = after.explain(self._before)
            function = self._function_for(after, predicted.outcome)
            with count_events(self._any.name) as counts:
                if predicted.outcome is self._traced:
                    function.jitted.trace(*args)
                if not counts.traces:
                    _call(function, args)
        except Exception as error:  # noqa: BLE001  # user checks
            if predicted is None or predicted.outcome is not Outcome.ERROR:
                self.refused = error
                return None
            return ObservedCall(predicted, counts, is_refused=True)
        seen = ObservedCall(predicted, counts)
        if not seen.is_as_predicted:
            self._warm.clear()  # their programs are not those predicted
        return seen

    def _arguments(self, instance: Any) -> Sequence[Any]:
        return tuple(instance) if self._spread else (instance,)

    def _function_for(self, after: Signature, outcome: Outcome) -> Subject:
        own = Outcome.RETRACE if outcome is Outcome.RETRACE else Outcome.RECOMPILE
        role = own if self._given is None else None
        function, known = self._warm.get(role) or self._start(role)
        if after in known or (known and self._given is not None):
            function, known = self._start(role)
        if outcome is not Outcome.REUSE:
            known.append(after)
        return function

    def _start(self, role: Outcome | None) -> tuple[Subject, list[Signature]]:
        """Make a function that has only the program for the instance."""
        uses_leaves = role is not Outcome.RETRACE
        function = self._given.fresh() if self._given else Subject(uses_leaves=uses_leaves)
        if role is not None and role is self._traced:
            function.jitted.trace(*self._args)
        else:
            _call(function, self._args)
        self._warm[role] = function, []
        return self._warm[role]


def _call(subject: Subject, args: Sequence[Any]) -> None:
    with warnings.catch_warnings(action="ignore", category=RetraceStormWarning):  # they are wanted
        wait: Any = jax.block_until_ready
        wait(subject.jitted(*args))
