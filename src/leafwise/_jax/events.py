"""Events of JAX as they happen: traces, lowerings and compiles, through `jax.monitoring`.

JAX keeps its listeners in plain lists, and one that is removed while another thread walks
over the list makes that thread skip a neighbour. So there is one listener for all subscribers,
which is registered as long as there is one.
"""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Generator, Iterable
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

import jax

from leafwise._jax.persistent_cache import CacheAnswer, answer_to, expect_compile, note_event
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

LOCK: Final = new_lock()
"""Taken by whoever changes who listens."""

_HERE: Final = threading.local()
_subscribers: tuple[Subscriber, ...] = ()


def subscribe(subscriber: Subscriber) -> None:
    """Call `subscriber` with every event from now on, on the thread where it happens, once."""
    global _subscribers  # noqa: PLW0603  # replaced, never changed: other threads walk over it
    with LOCK:
        if any(each is subscriber for each in _subscribers):
            return
        if not _subscribers:
            _stop_listening()  # in a child process whose parent was just here
            jax.monitoring.register_event_duration_secs_listener(_on_duration)
            jax.monitoring.register_event_listener(_on_event)
        _subscribers = (*_subscribers, subscriber)


def unsubscribe(subscriber: Subscriber) -> None:
    """Stop calling `subscriber`."""
    global _subscribers  # noqa: PLW0603  # replaced, as in `subscribe`
    with LOCK:
        left = tuple(each for each in _subscribers if each is not subscriber)
        ends = _subscribers and not left
        _subscribers = left
        if ends:
            _stop_listening()


def _stop_listening() -> None:
    with contextlib.suppress(AssertionError, ValueError):  # it was not registered
        jax.monitoring.unregister_event_duration_listener(_on_duration)
    with contextlib.suppress(AssertionError, ValueError):
        jax.monitoring.unregister_event_listener(_on_event)


def _on_event(event: str, **_: str | int) -> None:
    note_event(event)


def _on_duration(event: str, duration_secs: float, **details: str | int) -> None:
    kind = _KINDS.get(event)
    if kind is None or getattr(_HERE, "ignored", False):
        return
    name = str(details.get("fun_name", ""))
    start, bracket, rest = name.partition("(")
    if bracket and start.isidentifier() and rest.endswith(")"):
        name = rest[:-1]  # JAX reports `jit(f)` once it is traced
    if kind is EventKind.LOWERING:
        expect_compile()
    cache = answer_to(name, duration_secs) if kind is EventKind.COMPILE else CacheAnswer()
    notify(_subscribers, RawEvent(kind, name, duration_secs, cache))


def notify(listeners: Iterable[Callable[[T], None]], event: T) -> None:
    """Call all listeners with an event, and then raise what the first of them raised."""
    raised: Exception | None = None
    for listener in listeners:
        try:
            listener(event)
        except Exception as error:  # noqa: BLE001  # raised below, after all others were called
            raised = raised or error
    if raised is not None:
        raise raised


@contextlib.contextmanager
def ignore_events() -> Generator[None, None, None]:
    """Report no events of this thread in this block, in which leafwise itself calls JAX."""
    before = getattr(_HERE, "ignored", False)
    _HERE.ignored = True
    try:
        yield
    finally:
        _HERE.ignored = before


@dataclasses.dataclass
class Counts:
    """How often JAX traced, lowered and compiled; how many compiles the cache on disk answered."""

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
