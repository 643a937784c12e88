"""Count what JAX does with one function, as JAX itself reports it."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax

TRACE = "/jax/core/compile/jaxpr_trace_duration"
COMPILE = "/jax/core/compile/backend_compile_duration"


@dataclasses.dataclass
class Counts:
    """How often JAX traced and compiled a function."""

    traces: int = 0
    compiles: int = 0


@contextlib.contextmanager
def counting(function: Callable[..., object]) -> Iterator[Counts]:
    """Count the traces and compiles of a jitted function until the block ends.

    Events carry the function's name, so helpers that JAX jits on the way do not count.
    """
    counts = Counts()
    name = function.__name__

    def listen(event: str, duration_secs: float, **details: str | int) -> None:  # noqa: ARG001
        seen = (event, details.get("fun_name"))
        counts.traces += seen == (TRACE, name)
        counts.compiles += seen == (COMPILE, f"jit({name})")

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield counts
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def cache_size(function: Any) -> int:
    """Return how many entries the cache of a jitted function holds."""
    return function._cache_size()  # noqa: SLF001  # JAX has no public name for it
