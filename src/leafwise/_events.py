"""Counting what JAX does: traces, lowerings and compiles, through `jax.monitoring`."""

import contextlib
import dataclasses
import threading
from collections.abc import Generator
from typing import Final

import jax

_COUNTED: Final = {
    "/jax/core/compile/jaxpr_trace_duration": "traces",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowerings",
    "/jax/core/compile/backend_compile_duration": "compiles",
}


@dataclasses.dataclass
class Counts:
    """How often JAX traced, lowered and compiled."""

    traces: int = 0
    lowerings: int = 0
    compiles: int = 0


@contextlib.contextmanager
def count_events() -> Generator[Counts, None, None]:
    """Count what JAX does on this thread, of all functions, until the block ends."""
    counts = Counts()
    thread = threading.get_ident()

    def listen(event: str, duration_secs: float, **_: str | int) -> None:  # noqa: ARG001  # JAX's own
        name = _COUNTED.get(event)
        if name is not None and threading.get_ident() == thread:
            setattr(counts, name, getattr(counts, name) + 1)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield counts
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
