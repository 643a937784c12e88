"""A function under test: each call is watched, and its signature recorded."""

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import jax
import jax.numpy as jnp

from leafwise._compare.reasons import Outcome
from leafwise._compare.signature import Signature, labels_of, record
from leafwise._jax.compat import static_options
from leafwise._jax.events import count_events
from leafwise._jit.callee import static_arguments
from leafwise._jit.jit import StaleCheckedFunction
from leafwise.errors import RetraceStormWarning

_EQUINOX: Final = "equinox._jit"


class Subject:
    """A jitted function whose programs can be counted and dropped.

    Attributes:
        plain: The function as it was written.
        jitted: The jitted function.
    """

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

        plain = self.plain
        return Subject(equinox.filter_jit(functools.partial(plain)))

    def signature(
        self, args: Sequence[Any], kwargs: Mapping[str, Any] = MappingProxyType({})
    ) -> Signature:
        if isinstance(self.jitted, StaleCheckedFunction):
            return self.jitted.signature(*args, **kwargs)
        labels = labels_of(self.plain, args, kwargs)
        return record(args, kwargs, self._statics, filtered=self._filtered, labels=labels)

    def warm(self, args: Sequence[Any]) -> None:
        """Compile the program for these arguments."""
        self._call(args)

    def call(self, args: Sequence[Any]) -> Outcome:
        """Call, and return what JAX did: a retrace, a recompile, or a reuse.

        An exception of the function is not caught.
        """
        with count_events() as counts:
            self._call(args)
        if counts.traces:
            return Outcome.RETRACE
        return Outcome.RECOMPILE if counts.lowerings or counts.compiles else Outcome.REUSE

    def _call(self, args: Sequence[Any]) -> None:
        with warnings.catch_warnings():
            # Many traces are the point here.
            warnings.simplefilter("ignore", RetraceStormWarning)
            wait: Any = jax.block_until_ready
            wait(self.jitted(*args))


def probe() -> Subject:
    """Return a new function, without programs, that uses all leaves of its argument."""

    def everything(tree: Any) -> list[Any]:
        leaves = jax.tree_util.tree_leaves(tree)
        return [jax.random.key_data(leaf) if _is_key(leaf) else leaf for leaf in leaves]

    return Subject(everything)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(jax.typeof(leaf).dtype, jax.dtypes.prng_key)
