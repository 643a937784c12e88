"""JAX's events as they happen: traces, lowerings and compiles, through `jax.monitoring`.

JAX keeps its listeners in plain lists: if one is removed while another thread iterates over the
list, that thread misses a different one. So one listener serves all subscribers, and is registered
while there are any.
"""

import contextlib
import dataclasses
import importlib
import threading
from collections.abc import Callable, Generator, Iterable
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

import jax

from leafwise._jax.persistent_cache import (
    CacheAnswer,
    compile_began,
    compile_ended,
    record_cache_event,
)
from leafwise._objects.locks import new_lock


class EventKind(StrEnum):
    """What JAX did."""

    TRACE = "trace"
    LOWERING = "lowering"
    COMPILE = "compile"


class RawEvent(NamedTuple):
    """One thing that JAX did, as it reports it."""

    kind: EventKind
    name: str
    seconds: float
    cache: CacheAnswer = CacheAnswer()


T = TypeVar("T")
Subscriber = Callable[[RawEvent], None]

_KINDS: Final = {
    "/jax/core/compile/jaxpr_trace_duration": EventKind.TRACE,
    "/jax/core/compile/jaxpr_to_mlir_module_duration": EventKind.LOWERING,
    "/jax/core/compile/backend_compile_duration": EventKind.COMPILE,
}

LOCK: Final = new_lock()  # held while listeners are added or removed

_HERE: Final = threading.local()
_subscribers: tuple[Subscriber, ...] = ()


def subscribe(subscriber: Subscriber) -> None:
    """Call `subscriber` once with every event from now on, on the thread where it happens."""
    global _subscribers  # noqa: PLW0603  # replaced, never changed: other threads iterate over it
    with LOCK:
        if any(each is subscriber for each in _subscribers):
            return
        if not _subscribers:
            _stop_listening()  # in a child process that was forked during this call
            jax.monitoring.register_event_duration_secs_listener(_on_duration)
            jax.monitoring.register_event_listener(record_cache_event)
        _subscribers = (*_subscribers, subscriber)


def unsubscribe(subscriber: Subscriber) -> None:
    global _subscribers  # noqa: PLW0603  # replaced, as in `subscribe`
    with LOCK:
        left = tuple(each for each in _subscribers if each is not subscriber)
        ends = _subscribers and not left
        _subscribers = left
        if ends:
            _stop_listening()


def _stop_listening() -> None:
    for listener, name in ((_on_duration, "event_duration"), (record_cache_event, "event")):
        unregister: Any = getattr(jax.monitoring, f"unregister_{name}_listener", None)
        if unregister is None:  # before JAX 0.8.1
            private = importlib.import_module("jax._src.monitoring")
            unregister = getattr(private, f"_unregister_{name}_listener_by_callback")
        with contextlib.suppress(AssertionError, ValueError):  # it was not registered
            unregister(listener)


def is_tracing() -> bool:
    """Return whether this thread is inside a transformation that traces, such as `jax.jit`."""
    get_mesh: Any = getattr(jax.sharding, "get_mesh", None)
    if get_mesh is None:  # before JAX 0.8.1
        return not importlib.import_module("jax._src.core").trace_state_clean()
    try:
        get_mesh()
    except ValueError:  # it raises inside a trace
        return True
    return False


def _on_duration(event: str, duration_secs: float, **details: str | int) -> None:
    kind, reader = _KINDS.get(event), getattr(_HERE, "reader", None)
    if kind is None or (kind is EventKind.TRACE and is_tracing()):  # only a part, before JAX 0.10
        return
    name = str(details.get("fun_name", ""))
    start, bracket, rest = name.partition("(")
    if bracket and start.isidentifier() and rest.endswith(")"):
        name = rest[:-1]  # JAX reports `jit(f)` once it is traced
    if reader is not None:
        reader(RawEvent(kind, name, duration_secs))
        return
    if kind is EventKind.LOWERING:
        compile_began()
    cache = compile_ended(duration_secs) if kind is EventKind.COMPILE else CacheAnswer()
    notify(_subscribers, RawEvent(kind, name, duration_secs, cache))


def notify(listeners: Iterable[Callable[[T], None]], event: T) -> None:
    """Call all listeners with an event, and then raise the first exception, if any raised one."""
    raised: Exception | None = None
    for listener in listeners:
        try:
            listener(event)
        except Exception as error:  # noqa: BLE001  # raised below, after all others were called
            raised = raised or error
    if raised is not None:
        raise raised


@contextlib.contextmanager
def read_events(reader: Subscriber) -> Generator[None, None, None]:
    """Report the events of this thread in this block to `reader` only."""

    def ignore(_: RawEvent) -> None:
        """Make JAX report its events."""

    subscribe(ignore)
    try:
        with _read_by(reader):
            yield
    finally:
        unsubscribe(ignore)


@contextlib.contextmanager
def _read_by(reader: Subscriber) -> Generator[None, None, None]:
    before, _HERE.reader = getattr(_HERE, "reader", None), reader
    try:
        yield
    finally:
        _HERE.reader = before


def ignore_events() -> contextlib.AbstractContextManager[None]:
    """Suppress the events of this thread in a block in which leafwise itself calls JAX."""
    return _read_by(lambda _: None)


@dataclasses.dataclass
class Counts:
    """How often JAX traced, lowered and compiled, and how many compiles were hits on disk."""

    traces: int = 0
    lowerings: int = 0
    compiles: int = 0
    cached: int = 0


@contextlib.contextmanager
def count_events(name: str = "") -> Generator[Counts, None, None]:
    """Count the events of this thread, of all functions or those of one name, in a block."""
    counts = Counts()
    thread = threading.get_ident()

    def count(event: RawEvent) -> None:
        if threading.get_ident() == thread and event.name == (name or event.name):
            setattr(counts, f"{event.kind}s", getattr(counts, f"{event.kind}s") + 1)
            counts.cached += event.cache.hit

    subscribe(count)
    try:
        yield counts
    finally:
        unsubscribe(count)
