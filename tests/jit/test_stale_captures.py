"""Captures are fingerprinted when a function is traced; `lw.jit` sees a later change."""

import contextlib
import copy
import cProfile
import dataclasses
import gc
import pickle
import sys
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tests.kit.inside import count_events, short_file
from tests.kit.things import Model

import leafwise as lw

ONES = jnp.ones(2)
jit: Any = lw.jit  # so that lambdas need no types

rate = 1.0
log: list[Any] = []


def scaled(x: Any) -> Any:
    return x * rate


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "rate", 1.0)


def test_a_copy_that_jax_keeps() -> None:
    """JAX caches its 32-bit copy of a 64-bit array; retracing drops the copy."""
    rates = np.ones(2)
    others, jitted = jax.jit(lambda x: x * rates), jit(lambda x: x + rates, on_stale="retrace")
    _ = others(ONES), jitted(ONES)
    rates.fill(2.0)
    if jax.__version_info__ >= (0, 9):
        assert np.array_equal(jax.jit(lambda x: x * rates)(ONES), ONES)  # the hazard
    assert np.array_equal(jitted(ONES), [3, 3])


def test_arrays_of_64_bits_that_are_bound_again() -> None:
    """Going back to any of them costs no trace, and no other function is traced."""
    runs, others = list[Any](), list[Any]()
    other = jit(lambda x: (others.append(1), x + 1)[1])
    arrays = [np.array([1.0, n]) for n in range(4)]
    rates, pair = arrays[0], [arrays[1]]
    jitted = jit(lambda x: (runs.append(1), x * rates * pair[0])[1], on_stale="retrace")
    for _ in range(2):
        for rates in arrays:  # which is captured
            assert jitted(ONES).tolist() == (rates * pair[0]).tolist()
            other(ONES)
    assert (len(runs), len(others)) == (4, 1)


@pytest.mark.parametrize("shape", [(2,), ()])
def test_an_array_of_64_bits_that_is_changed_in_place(shape: tuple[int, ...]) -> None:
    """Only the programs of the functions that captured it go, wherever it is held."""
    others, its, kept = list[Any](), [np.ones(shape)], np.ones(shape)
    other = jax.jit(lambda x: (others.append(1), x * kept)[1])
    jitted = jit(lambda x: next(x * each for each in its), on_stale="retrace")
    assert np.array_equal(jitted(ONES), other(ONES))
    for value in (2.0, 1.0, 3.0):
        its[0].fill(value)
        assert jitted(ONES).tolist() == [value, value]
        other(ONES)
    assert len(others) == 1
    assert "its (capture)" in str(jitted.traces[-1].explanation)


def test_a_trace_keeps_nothing() -> None:
    """What the callers of a function under `lw.jit` hold dies with them, before any collection."""

    def caller() -> weakref.ref[Any]:
        model = Model(rate=2.0)
        jit(lambda x: x * model.rate)(ONES)
        return weakref.ref(model)

    gc.disable()
    try:
        assert caller()() is None
    finally:
        gc.enable()


def test_a_class_goes_with_its_jitted_function() -> None:
    """Neither the check of a class nor what a trace has read of it keeps the class alive."""

    def use(cls: Any, x: Any) -> Any:
        return x * cls.rate

    def define() -> weakref.ref[Any]:
        cls: Any = type("Net", (), {"rate": 2.0})
        cls.step = step = jit(lambda x: use(cls, x))
        _ = step(1.0), step(1.0)
        return weakref.ref(cls)

    found = define()
    gc.collect()
    assert found() is None


def test_what_changed_since_the_last_call() -> None:
    """A report compares with the program that ran last, not with the one that was traced last."""
    box = types.SimpleNamespace(rate=1.0, shift=2.0)
    jitted = jit(lambda x: x * box.rate + box.shift, on_stale="warn")
    jitted(1.0)
    box.shift = 3.0
    with pytest.warns(lw.errors.StaleCaptureWarning):
        jitted(1.0)
    box.shift = 2.0
    jitted(1.0)
    box.rate = 9.0
    assert [each.name for each in jitted.stale_captures(1.0)] == ["box.rate"]


count = 0
cached: dict[str, Any] = {}
optimizer = optax.adam(0.1)


def counting(x: Any) -> Any:
    global count  # noqa: PLW0603  # what a user writes
    count += 1
    log.append(x.shape)
    return x


def caching(x: Any) -> Any:
    if "table" not in cached:
        cached["table"] = np.arange(2.0)
    return x * cached["table"]


def training(state: Any) -> Any:
    x, inner = state
    updates, inner = optimizer.update(jax.grad(lambda x: (x**2).sum())(x), inner)
    return optax.apply_updates(x, updates), inner


def stepping(net: Any) -> Any:
    slope = eqx.filter_grad(lambda net: (net(ONES) ** 2).sum())(net)
    return eqx.apply_updates(net, slope)


ALARMS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "what is written": (counting, ONES),
    "a cache that is filled": (caching, ONES),
    "optax": (training, (ONES, optimizer.init(ONES))),
    "equinox": (stepping, eqx.nn.Linear(2, 2, key=jax.random.key(0))),
}


@pytest.mark.parametrize("kind", ALARMS)
def test_no_false_alarm(kind: str) -> None:
    """What a function writes itself, or only its steps change, decides no program."""
    cached.clear()
    threading.Timer(1.0, int).start()  # another thread, which might have changed it
    function, state = ALARMS[kind]
    jitted = jit(lambda state: function(state), on_stale="raise")
    for _ in range(3):
        state = jitted(state)
        log.append(2)
    assert len(jitted.traces) == 1


def keep(value: Any) -> None:
    """Note a value, and read what there is already."""
    log.append(float(value) + len(log))


ON_HOST: dict[str, Callable[[Any], Any]] = {
    "lambda": lambda x: (jax.debug.callback(lambda value: keep(value), x.sum()), x)[1],
    "function": lambda x: (jax.debug.callback(keep, x.sum()), x)[1],
    "method": lambda x: (jax.debug.callback(log.append, x.sum()), x)[1],
    "pure": lambda x: jax.pure_callback(lambda y: y + 0 * len(log), x, x),
}


@pytest.mark.parametrize("kind", ON_HOST)
def test_what_the_host_reads_is_no_capture(kind: str) -> None:
    """It is read again at each call; what the rest of the function reads is one."""
    scale = 1.0
    call = ON_HOST[kind]
    jitted = jit(lambda x: call(x) * scale, on_stale="retrace")
    for _ in range(3):
        assert jitted(ONES).tolist() == [1, 1]
        jax.effects_barrier()
        log.append(1.0)
    assert len(jitted.traces) == 1
    scale = 2.0
    assert jitted(ONES).tolist() == [2, 2]


def test_a_call_that_is_traced_is_right() -> None:
    """It takes the new value, and from then on has a program of it; the old one stays stale."""
    value = 1.0
    jitted = jit(lambda x: x * value, on_stale="raise")
    jitted(ONES)
    value = 2.0
    for _ in range(2):
        assert np.array_equal(jitted(jnp.ones(3)), [2, 2, 2])
    with pytest.raises(lw.errors.StaleCaptureError, match=r"was 1\.0 when .* and is 2\.0 now"):
        jitted(ONES)
    del value
    with pytest.raises(lw.errors.StaleCaptureError, match="is nothing now"):
        jitted(ONES)
    value = 1.0
    assert np.array_equal(jitted(ONES), [1, 1])
    with pytest.raises(lw.errors.StaleCaptureError, match=r"was 2\.0 when .* and is 1\.0 now"):
        jitted(jnp.ones(3))


def test_the_message() -> None:
    """It names function, variable, line, both values and the fixes; it is pickled whole."""
    settings = Model(rate=1.0)

    @jit(on_stale="raise")
    def step(x: Any) -> Any:
        return x * settings.rate

    step(ONES)
    settings.rate = 0.5
    (said,) = step.stale_captures(ONES)
    line = step.__wrapped__.__code__.co_firstlineno + 2
    assert (said.name, said.holder, said.line) == ("settings.rate", "closure", f"{__file__}:{line}")
    assert (said.before, said.after) == ("1.0", "0.5")
    with pytest.raises(lw.errors.StaleCaptureError) as info:
        step(ONES)
    assert info.value.message.splitlines() == [
        f"step captures `settings.rate` ({short_file(__file__)}:{line}), which was 1.0 when it was "
        "traced and is 0.5 now",
        "  fix: pass it as an argument `rate` of `step`",
        "  or make it a field of a pytree class: `@lw.pytree class Params: rate: jax.Array`, and "
        "pass `params`",
        '  or let it be traced again silently: `on_stale="retrace"`',
    ]
    again = pickle.loads(pickle.dumps(info.value))  # noqa: S301  # our own
    assert (str(again), again.captures) == (str(info.value), info.value.captures)
    assert again.captures[0].call.file == __file__


def test_one_change_on_two_ways() -> None:
    """An attribute of an object that is in a list, too, is said once, by its own name."""
    own = Model(rate=1.0)
    every = [own, Model(rate=3.0)]
    jitted = jit(lambda x: x * own.rate + sum(one.rate for one in every), on_stale="raise")
    jitted(ONES)
    own.rate = 2.0
    with pytest.raises(lw.errors.StaleCaptureError) as info:
        jitted(ONES)
    assert [capture.name for capture in info.value.captures] == ["own.rate"]
    own.rate, every[1].rate = 1.0, 4.0
    with pytest.raises(lw.errors.StaleCaptureError, match=r"`\[1\]\.rate` 3\.0"):
        jitted(ONES)


def test_a_warning_names_the_calling_line() -> None:
    """It stands on the user's line, once for each value; after some there is the storm's alone."""
    value = 0
    jitted = jit(lambda x: x * value)
    jitted(ONES)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for value in range(1, 12):  # noqa: B007  # which is captured
            jitted(ONES)
            jitted(ONES)
    assert {each.filename for each in seen} == {__file__}
    assert [each.category for each in seen].count(lw.errors.StaleCaptureWarning) == 8
    (storm,) = (each for each in seen if each.category is lw.errors.RetraceStormWarning)
    assert "value" in str(storm.message)
    assert jitted(ONES).tolist() == [11, 11]


def test_explanations_say_it() -> None:
    """`.explain` says that it is traced again, and for what."""
    value = 1.0
    function = lambda x: x * value  # noqa: E731
    warns = jit(function)
    warns(ONES)
    assert warns.explain(ONES).outcome is lw.types.Outcome.REUSE
    value = 2.0
    said = warns.explain(ONES)
    assert said.outcome is lw.types.Outcome.RETRACE
    assert [(each.path, each.kind) for each in said.reasons] == [
        ("value", lw.types.ReasonKind.CAPTURE)
    ]
    assert warns.explain(jnp.ones(3)).reasons[0].kind is lw.types.ReasonKind.SHAPE
    assert [each.name for each in warns.captures] == ["value"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="`sys.monitoring` is of Python 3.12")
@pytest.mark.parametrize("tool", [0, 1], ids=["debugger", "coverage"])
def test_beside_another_tool_that_monitors(tool: int) -> None:
    """A debugger and coverage go on seeing what starts, and leafwise sees what is read."""
    monitoring, started, helpers = sys.monitoring, list[Any](), [scaled]
    if monitoring.get_tool(tool) is not None:
        pytest.skip("such a tool is running")
    start = monitoring.events.PY_START
    monitoring.use_tool_id(tool, "test")
    try:
        monitoring.register_callback(tool, start, lambda code, _: started.append(code))
        monitoring.set_events(tool, start)
        jitted = jit(lambda x: next(each(x) for each in helpers), on_stale="raise")
        jitted(ONES)
        globals()["rate"] = 2.0
        with pytest.raises(lw.errors.StaleCaptureError, match="`rate`"):
            jitted(ONES)
    finally:
        monitoring.set_events(tool, 0)
        monitoring.register_callback(tool, start, None)
        monitoring.free_tool_id(tool)
    assert scaled.__code__ in started


def test_nothing_runs_where_nothing_can_change() -> None:
    """Modules, functions of packages and arguments alone leave JAX's object to be called."""

    @jit
    def function(x: Any) -> Any:
        return jnp.sin(x) * np.pi + jax.nn.relu(x)

    function(ONES)
    assert isinstance(function, type(jit(scaled)))
    assert function.__call__ is function._leafwise_jax
    assert isinstance(jit(Model.step), jax.stages.Wrapped)


def test_what_another_function_reads_is_its_own() -> None:
    """A function whose trace takes up one of JAX's functions has no captures of another."""
    scale = Model(rate=1.0)
    other = jit(lambda x: x + scale.step(x))
    other(ONES)
    relu = jit(lambda x: jax.nn.relu(x), on_stale="raise")
    relu(ONES)
    scale = Model(rate=3.0)
    assert np.array_equal(relu(ONES), ONES)


@pytest.mark.filterwarnings("ignore")  # a storm of retraces
def test_threads() -> None:
    """Calls from several threads, while a capture changes, all come back with one of its values."""
    value = 0.0
    jitted = jit(lambda x: x * value, on_stale="retrace")
    stop, wrong = threading.Event(), list[Any]()

    def call() -> None:
        while not stop.is_set():
            result = float(jitted(1.0))
            if not 0 <= result <= 300:
                wrong.append(result)

    workers = [threading.Thread(target=call) for _ in range(4)]
    for worker in workers:
        worker.start()
    try:
        for value in map(float, range(300)):  # noqa: B007  # which is captured
            time.sleep(0.001)
    finally:
        stop.set()
    for worker in workers:
        worker.join(20)
        assert not worker.is_alive()
    assert not wrong
    for value in (299.0, 9999.0, 1.0):
        assert float(jitted(1.0)) == value


@pytest.mark.parametrize("calls", [0, 1])
def test_a_capture_that_changes_during_a_trace(calls: int) -> None:
    """The call gets what was read, and no later call gets that for another value."""
    held, twin = Model(rate=1.0), Model(rate=1.0)
    read, changed = threading.Event(), threading.Event()

    def scale(x: Any) -> Any:
        product = x * held.rate * twin.rate
        read.set()
        changed.wait(20)
        return product

    def change() -> None:
        read.wait(20)
        held.rate = 2.0
        changed.set()

    jitted = jit(scale, on_stale="retrace")
    for _ in range(calls):
        changed.set()
        assert jitted(1.0) == 1.0
        held.rate = 4.0
        read.clear()
        changed.clear()
    worker = threading.Thread(target=change)
    worker.start()
    assert jitted(1.0) == (4.0 if calls else 1.0)
    worker.join()
    for held.rate in (2.0, 4.0, 1.0, 2.0):
        assert jitted(1.0) == held.rate
    twin.rate = 3.0
    assert jitted(1.0) == 6.0


def test_copies() -> None:
    """A copy checks captures, too."""
    jitted = jit(scaled, on_stale="raise")
    copies = [jitted, copy.copy(jitted), copy.deepcopy(jitted)]
    for each in copies:
        assert type(each) is type(jitted)
        assert each.__wrapped__ is scaled
        assert np.array_equal(each(ONES), ONES)
    globals()["rate"] = 2.0
    for each in copies:
        with pytest.raises(lw.errors.StaleCaptureError):
            each(ONES)


def test_two_jits_of_one_function() -> None:
    """Both see the change; clearing one of them makes both fresh, as in JAX."""
    value = 1.0
    function = lambda x: x * value  # noqa: E731
    first, second = jit(function, on_stale="retrace"), jit(function, on_stale="retrace")
    _ = first(ONES), second(ONES)
    value = 2.0
    assert [float(each(ONES)[0]) for each in (first, second, first)] == [2.0, 2.0, 2.0]
    with count_events() as counts:
        _ = first(ONES), second(ONES)
    assert counts.traces == 0
    value = 2.5
    third = jit(function, on_stale="raise")  # which JAX has programs for
    with pytest.raises(lw.errors.StaleCaptureError):
        third(ONES)
    second.clear_cache()
    value = 3.0
    assert np.array_equal(second(ONES), [3, 3])
    jax.clear_caches()
    value = 4.0
    assert np.array_equal(jit(function, on_stale="raise")(ONES), [4, 4])


class Scaling(Model):
    """An object whose methods and calls read what is outside them."""

    def method(self, x: Any) -> Any:
        return x * rate * self.rate


@dataclasses.dataclass(frozen=True)
class ByValue:
    """The same, where equal ones are one function to JAX."""

    def __call__(self, x: Any) -> Any:
        return x * rate


SCALING, PLACE = Scaling(rate=1.0), jax.sharding.SingleDeviceSharding(jax.devices()[0])
EQUAL: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "bound method": (lambda: SCALING.method, {}),
    "callable object": (ByValue, {}),
    "with shardings": (lambda: SCALING.method, {"in_shardings": None}),
    "function with shardings": (lambda: scaled, {"out_shardings": PLACE}),
}


@pytest.mark.parametrize("kind", EQUAL)
def test_two_jits_of_equal_callables(kind: str) -> None:
    """As when a cell of a notebook is run again: JAX takes up what it made for the first."""
    make, options = EQUAL[kind]
    strict = [jit(make(), on_stale="raise"), jit(make(), on_stale="raise", **options)]
    other = [jit(make(), on_stale="retrace"), jit(make(), on_stale="retrace", **options)]
    for each in (*strict, *other):
        assert each(ONES).tolist() == [1, 1]
    globals()["rate"] = 2.0
    for each in strict:
        with pytest.raises(lw.errors.StaleCaptureError, match=r"`rate`"):
            each(ONES)
    for each in other:
        assert each(ONES).tolist() == [2, 2]


def test_equal_callables_let_go_of_each_other() -> None:
    """What is shared keeps neither of two jitted methods alive, nor their object."""
    held = Scaling(rate=1.0)
    first, second = jit(held.method), jit(held.method)
    assert (first(ONES).tolist(), second(ONES).tolist()) == ([1, 1], [1, 1])
    assert len(first.traces) == len(second.traces) == 1
    found = weakref.ref(held)
    del first
    gc.collect()
    assert second(ONES).tolist() == [1, 1]
    del second, held
    gc.collect()
    assert found() is None


@pytest.mark.nightly
def test_values_that_do_not_come_back_are_let_go_of() -> None:
    """What is kept of a capture that always changes is bounded; JAX's own cache is, too."""
    value = 0.0
    step = jit(lambda x: x * value, on_stale="retrace")

    def change(times: int) -> int:
        nonlocal value
        for _ in range(times):
            value += 1.0
            step.trace(1.0)
        gc.collect()
        ours = [each for each in gc.get_objects() if "leafwise" in str(type(each).__module__)]
        return len(ours)

    with lw.storm_guard(None):
        change(200)
        before = change(80)
        assert change(160) < before + 50
        assert step.cache_size() <= 8
    assert len(step.traces) < 200


def test_a_function_that_was_first_jitted_without_a_check() -> None:
    """Its programs were not observed, so that they are not taken up by a `lw.jit` that checks."""
    value = 1.0
    function = lambda x: x * value  # noqa: E731
    assert jit(function, on_stale="ignore")(2.0) == 2.0
    step = jit(function, on_stale="raise")
    assert step(2.0) == 2.0
    value = 3.0
    with pytest.raises(lw.errors.StaleCaptureError, match="value"):
        step(2.0)


def test_a_trace_under_cprofile() -> None:
    """It is observed beside the profiler, or a warning says that it is not: on Python 3.11."""
    value = 1.0
    step = jit(lambda x: x * value, on_stale="retrace")
    is_seen = sys.version_info >= (3, 12)
    expected = contextlib.nullcontext() if is_seen else pytest.warns(RuntimeWarning, match="cProf")
    with cProfile.Profile(), expected:
        assert step(2.0) == 2.0
    value = 3.0
    assert step(2.0) == (6.0 if is_seen else 2.0)
