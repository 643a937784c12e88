"""`lw.watch` counts what JAX says, of whom, from where, and then goes away."""

import gc
import inspect
import threading
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from jax import monitoring
from tests.kit.inside import EventKind, is_tracing, recorder, short_file

import leafwise as lw
from leafwise._jax import events

pytestmark = pytest.mark.oracle

unregister: Any = getattr(monitoring, "unregister_event_duration_listener", None)
if unregister is None:  # before JAX 0.8.1
    from jax._src.monitoring import _unregister_event_duration_listener_by_callback as unregister

SEEN = {
    "/jax/core/compile/jaxpr_trace_duration": EventKind.TRACE,
    "/jax/core/compile/jaxpr_to_mlir_module_duration": EventKind.LOWERING,
    "/jax/core/compile/backend_compile_duration": EventKind.COMPILE,
}
ALL = [*SEEN.values()]
JITS = pytest.mark.parametrize("jit", [jax.jit, lw.jit], ids=["jax", "leafwise"])


@pytest.fixture
def heard() -> Iterator[list[EventKind]]:
    """The kinds of events that `jax.monitoring` says, without leafwise."""
    events: list[EventKind] = []

    def listen(event: str, _: float, **__: Any) -> None:
        # Before 0.10 JAX reports what is traced inside other traces, too.
        is_part = SEEN.get(event) is EventKind.TRACE and is_tracing()
        if event in SEEN and not is_part:
            events.append(SEEN[event])

    monitoring.register_event_duration_secs_listener(listen)
    yield events
    unregister(listen)


def ones(*shape: int) -> Any:
    return jnp.ones(shape)


def kinds(events: Any) -> list[EventKind]:
    return [event.kind for event in events]


def work(jit: Any) -> None:
    """Trace, lower and compile in many ways."""

    def f(x: Any) -> Any:
        return x * 3

    jitted = jit(f)
    jitted(ones(3))
    jitted(ones(4))
    jitted(ones(3))
    jitted(jax.device_put(ones(3), jax.devices()[0]))
    jax.grad(lambda x: jitted(x).sum())(ones(3))
    jax.vmap(jitted)(ones(3, 3))
    jitted.lower(ones(7)).compile()
    jitted.eval_shape(ones(8))


@JITS
def test_the_counts_are_those_of_jax(jit: Any, heard: list[EventKind]) -> None:
    """Kind by kind and in order, the log holds what `jax.monitoring` says."""
    with lw.watch() as log:
        work(jit)
    assert kinds(log) == heard
    assert len(log) == len(heard) > 10
    counts = len(log.traces), len(log.lowerings), len(log.compiles)
    assert counts == tuple(map(heard.count, ALL))
    assert log.seconds == pytest.approx(sum(event.seconds for event in log))
    assert all(event.seconds > 0 for event in log)
    assert not log.cache_hits


@JITS
def test_names_and_lines(jit: Any) -> None:
    """Each event names the function and the line of this file that called it."""

    def some_name(x: Any) -> Any:
        return x * 2

    jitted = jit(some_name)
    argument = ones(3)
    with lw.watch() as log:
        jitted(argument)
        line = inspect.currentframe().f_lineno - 1
    assert kinds(log) == ALL
    for event in log:
        assert event.name == "some_name"
        assert event.site is not None
        assert (event.site.file, event.site.line) == (__file__, line)
        assert event.site.text == "jitted(argument)"
        assert event.site.function == "test_names_and_lines"
        assert event.fun is some_name
        assert not event.eager
        assert event.thread == threading.current_thread().name
        assert event.thread_id == threading.get_ident()
    assert "trace of some_name" in str(log)
    assert f"{short_file(__file__)}:{line} in " in str(log)


def test_threads_share_a_block() -> None:
    """Each thread that enters one block has its own log, whichever leaves first."""
    block, entered, left = lw.watch(), threading.Event(), threading.Event()
    logs: list[Any] = []

    def enter_second() -> None:
        with block as log:
            entered.set()
            left.wait()
            jax.jit(lambda x: x - 1)(1.0)
        logs.append(log)

    second = threading.Thread(target=enter_second)
    with block as first:
        second.start()
        entered.wait()
    left.set()
    second.join()
    assert kinds(first) == []
    assert kinds(logs[0]) == ALL


@pytest.mark.parametrize("jit", [eqx.filter_jit, nnx.jit, jax.jit], ids=["eqx", "nnx", "jax"])
def test_lines_through_other_libraries(jit: Any) -> None:
    """The line is the user's, not one of the library that wraps `jax.jit`."""
    jitted = jit(lambda x: x * 2)
    argument = ones(3)
    with lw.watch() as log:
        jitted(argument)
        line = inspect.currentframe().f_lineno - 1
    assert {event.site.line for event in log if event.site is not None} == {line}
    assert {event.name for event in log} == {"<lambda>"}


def test_only_functions_with_a_memory_are_explained() -> None:
    """The first event of a program of `lw.jit` says why; those of `jax.jit` do not."""
    explained, plain = lw.jit(lambda x: x * 2), jax.jit(lambda x: x * 2)
    arguments = ones(3), ones(4)
    with lw.watch() as log:
        for argument in arguments:
            explained(argument)
            plain(argument)
    mine, its = log.of(explained), log.of(plain)
    assert [event.explanation is not None for event in mine] == [True, False, False] * 2
    assert mine[3].explanation is not None
    assert [reason.path for reason in mine[3].explanation.reasons] == ["x"]
    assert all(event.explanation is None for event in its)


def test_eager_operations_can_be_left_out() -> None:
    """Operations of JAX itself are marked; functions of the user never are."""
    jax.clear_caches()

    def add(x: Any) -> Any:
        return x * 2

    with lw.watch() as every, lw.watch(eager=False) as mine:
        jax.jit(add)(jnp.arange(5) * 3)
        jnp.linspace(0, 1, 7)
    assert kinds(mine) == ALL
    assert {event.name for event in mine} == {"add"}
    assert len(every) > 3
    assert {event.name for event in every if not event.eager} == {"add"}


def test_what_jax_jits_itself_is_eager_under_vmap() -> None:
    """Its file says so, where its name is no public one; a function of the user's is not."""

    @jax.jit
    def threefry(x: Any) -> Any:
        return x * 7

    keys = jax.random.split(jax.random.key(0), 3)
    with lw.watch() as log:
        jax.vmap(lambda key: jax.random.split(key, 17))(keys)
        jax.vmap(threefry)(jnp.ones((3, 17)))
    assert {each.name for each in log if not each.eager} == {"threefry"}
    assert any("split" in each.name for each in log)


def test_nested_watches_are_independent() -> None:
    """The outer one sees all, the inner one what happens in its block."""
    with lw.watch() as outer:
        jax.jit(lambda x: x)(1.0)
        with lw.watch() as inner:
            jax.jit(lambda x: x)(1.0)
        jax.jit(lambda x: x)(1.0)
    assert kinds(outer) == ALL * 3
    assert kinds(inner) == ALL
    assert list(outer)[3:6] == list(inner)


def test_nothing_listens_afterwards() -> None:
    """The listeners are gone after the block, and after one that raised."""
    gc.collect()
    before = recorder._watchers, events._subscribers
    logs: list[Any] = []

    def raising() -> None:
        with lw.watch() as log, lw.watch():
            logs.append(log)
            assert len(recorder._watchers) == len(before[0]) + 2
            raise KeyError

    with pytest.raises(KeyError):
        raising()
    jax.jit(lambda x: x)(1.0)
    assert (recorder._watchers, events._subscribers) == before
    assert [len(log) for log in logs] == [0]
