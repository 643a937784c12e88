"""Captures are fingerprinted when a function is traced; `lw.jit` sees a later change."""

import copy
import functools
import gc
import pickle
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import leafwise as lw
from leafwise._captures.forms import MOST_BYTES, MOST_ITEMS
from leafwise._jax.events import count_events
from leafwise._objects.call_site import short_file
from leafwise._objects.methods import JittedFunction

ONES = jnp.ones(2)
jit: Any = lw.jit  # so that lambdas need no types
Change = Callable[[], None]

rate = 1.0
log: list[Any] = []


class Settings:
    """A configuration that can be assigned to."""

    def __init__(self, rate: Any = 1.0) -> None:
        self.rate = rate


def scaled(x: Any) -> Any:
    """Read a global."""
    return x * rate


def times(x: Any) -> Any:
    """Stand for a helper that a notebook defines again."""
    return x


def of_globals() -> tuple[Any, Change, str]:
    def function(x: Any) -> Any:
        return x * rate

    def change() -> None:
        global rate  # noqa: PLW0603  # what is tested
        rate *= 2

    return function, change, "rate"


def of_a_cell() -> tuple[Any, Change, str]:
    rate = 1.0

    def change() -> None:
        nonlocal rate
        rate += 1

    return lambda x: x * rate, change, "rate"


def of_a_default() -> tuple[Any, Change, str]:
    def function(x: Any, rate: float = 1.0) -> Any:
        return x * rate

    def change() -> None:
        function.__defaults__ = (2.0,)

    return function, change, "rate"


def of_a_keyword_default() -> tuple[Any, Change, str]:
    def function(x: Any, *, rate: float = 1.0) -> Any:
        return x * rate

    def change() -> None:
        function.__kwdefaults__["rate"] = 2.0

    return function, change, "rate"


def of_self() -> tuple[Any, Change, str]:
    class Model(Settings):
        def step(self, x: Any) -> Any:
            return x * self.rate

    model = Model()
    return model.step, lambda: setattr(model, "rate", 2.0), "self.rate"


def of_a_callable() -> tuple[Any, Change, str]:
    class Model(Settings):
        def __call__(self, x: Any) -> Any:
            return x * self.rate

    model = Model()
    return model, lambda: setattr(model, "rate", 2.0), "self.rate"


def of_settings() -> tuple[Any, Change, str]:
    settings = Settings()
    return lambda x: x * settings.rate, lambda: setattr(settings, "rate", 2.0), "settings.rate"


def of_settings_used_whole() -> tuple[Any, Change, str]:
    settings = Settings([Settings()])
    read: Any = lambda s: copy.copy(s).rate[0].rate  # noqa: E731
    change: Change = lambda: setattr(settings.rate[0], "rate", 2.0)  # noqa: E731
    return lambda x: x * read(settings), change, "settings"


def of_slots() -> tuple[Any, Change, str]:
    class Slots:
        __slots__ = ("rate",)

    settings = Slots()
    settings.rate = 1.0
    return lambda x: x * settings.rate, lambda: setattr(settings, "rate", 2.0), "settings.rate"


def of_a_list() -> tuple[Any, Change, str]:
    rates = [1.0, 2.0]
    return lambda x: x * sum(rates), lambda: rates.append(3.0), "rates"


def of_a_dict() -> tuple[Any, Change, str]:
    rates = {"a": 1.0}
    return lambda x: x * rates["a"], lambda: rates.update(a=2.0), "rates['a']"


def of_a_set() -> tuple[Any, Change, str]:
    on: set[str] = set()
    return lambda x: x * (2 if "twice" in on else 1), lambda: on.add("twice"), "on"


def of_numpy() -> tuple[Any, Change, str]:
    rates = np.ones(2, np.float32)
    return lambda x: x * rates, lambda: rates.fill(2.0), "rates"


def of_an_array() -> tuple[Any, Change, str]:
    rates = jnp.ones(2)

    def change() -> None:
        nonlocal rates
        rates = rates + 1

    return lambda x: x * rates, change, "rates"


def of_a_helper() -> tuple[Any, Change, str]:
    _, change, name = of_globals()
    return lambda x: scaled(x), change, name


def of_a_partial() -> tuple[Any, Change, str]:
    def function(x: Any, rate: float) -> Any:
        return x * rate

    bound = functools.partial(function, rate=1.0)
    return bound, lambda: bound.keywords.update(rate=2.0), "rate"


def redefined() -> tuple[Any, Change, str]:
    def change() -> None:
        globals()["times"] = lambda x: x * 2

    globals()["times"] = lambda x: x * 1
    return lambda x: times(x), change, "times"


def of_an_inner_jit() -> tuple[Any, Change, str]:
    function, change, name = of_a_cell()
    inner = jax.jit(function)
    return lambda x: inner(x) + 0, change, name


def of_a_body() -> tuple[Any, Change, str]:
    function, change, name = of_a_cell()

    def body(x: Any, _: Any) -> Any:
        return function(x), None

    return lambda x: jax.lax.scan(body, x, None, length=1)[0], change, name


def of_a_checkpoint() -> tuple[Any, Change, str]:
    function, change, name = of_a_cell()
    inner = jax.checkpoint(function)
    return lambda x: inner(x) + 0, change, name


def of_an_alias() -> tuple[Any, Change, str]:
    act: Any = jnp.square

    def change() -> None:
        nonlocal act
        act = jnp.exp2

    return lambda x: act(x), change, "act"


CASES = {
    each.__name__: each
    for each in (
        *(of_globals, of_a_cell, of_a_default, of_a_keyword_default, of_self, of_a_callable),
        *(of_settings, of_settings_used_whole, of_slots, of_a_list, of_a_dict, of_a_set),
        *(of_numpy, of_an_array, of_a_helper, of_a_partial, redefined, of_an_inner_jit),
        *(of_a_body, of_a_checkpoint, of_an_alias),
    )
}


@pytest.fixture(autouse=True)
def names_as_they_were() -> Iterator[None]:
    """Put back what tests assign in this module."""
    kept = rate, times
    yield
    globals().update(rate=kept[0], times=kept[1])


@pytest.mark.parametrize("make", list(CASES.values()), ids=list(CASES))
def test_a_change_is_seen(make: Callable[[], tuple[Any, Change, str]]) -> None:
    """Plain `jax.jit` goes on with the old value; `lw.jit` raises, or traces again."""
    for make_jit in (jax.jit, *(functools.partial(lw.jit, stale=each) for each in ACTIONS)):
        function, change, name = make()
        jitted = make_jit(function)
        old = jitted(ONES)
        assert np.array_equal(quiet(jitted, ONES), old)
        change()
        action = make_jit.keywords["stale"] if isinstance(make_jit, functools.partial) else ""
        if action == "raise":
            with pytest.raises(lw.errors.StaleCaptureError, match="captures") as info:
                jitted(ONES)
            assert [each.name for each in info.value.captures] == [name]
        elif action == "warn":
            with pytest.warns(lw.errors.StaleCaptureWarning, match="captures"):
                assert np.array_equal(jitted(ONES), 2 * old)
            assert np.array_equal(quiet(jitted, ONES), 2 * old)  # it was said
        elif action == "retrace":
            assert np.array_equal(quiet(jitted, ONES), 2 * old)
            reason = jitted.traces[-1].explanation.reasons[0]
            assert (reason.kind, reason.path) == (lw.types.ReasonKind.CAPTURE, name)
        else:
            assert np.array_equal(quiet(jitted, ONES), old)


ACTIONS = ("raise", "warn", "retrace", "ignore")


def test_a_copy_that_jax_keeps() -> None:
    """Of an array of 64 bits JAX keeps a copy as long as any program does: a retrace drops it."""
    rates = np.ones(2)
    others, jitted = jax.jit(lambda x: x * rates), jit(lambda x: x + rates, stale="retrace")
    _ = others(ONES), jitted(ONES)
    rates.fill(2.0)
    assert np.array_equal(jax.jit(lambda x: x * rates)(ONES), ONES)  # the hazard
    assert np.array_equal(jitted(ONES), [3, 3])


def test_a_trace_keeps_nothing() -> None:
    """What the callers of a function under `lw.jit` hold dies with them, before any collection."""

    class Model:
        rate = 2.0

    def caller() -> weakref.ref[Any]:
        model = Model()
        jit(lambda x: x * model.rate)(ONES)
        return weakref.ref(model)

    gc.disable()
    try:
        assert caller()() is None
    finally:
        gc.enable()


def test_what_changed_since_the_last_call() -> None:
    """A report compares with the program that ran last, not with the one that was traced last."""
    box = types.SimpleNamespace(rate=1.0, shift=2.0)
    jitted = jit(lambda x: x * box.rate + box.shift, stale="warn")
    jitted(1.0)
    box.shift = 3.0
    with pytest.warns(lw.errors.StaleCaptureWarning):
        jitted(1.0)
    box.shift = 2.0
    jitted(1.0)
    box.rate = 9.0
    assert [each.name for each in jitted.stale(1.0)] == ["box.rate"]


def quiet(function: Any, *args: Any) -> Any:
    """Call, where a warning would be an error."""
    return function(*args)


def test_what_is_equal_is_no_change() -> None:
    """A value of one type and content, and a function of one code, may be put in its place."""
    settings, nan = Settings(float("nan")), jnp.arange(3.0)

    def helper(x: Any, k: float = 1.5) -> Any:
        return x * k

    def again(x: Any, k: float = 1.5) -> Any:
        return x * k

    again.__code__ = again.__code__.replace(co_name="helper", co_qualname=helper.__qualname__)

    def function(x: Any) -> Any:
        return helper(x) * settings.rate + nan.sum()

    jitted = jit(function, stale="raise")
    with count_events() as counts:
        jitted(ONES)
    settings.rate, nan, helper = float("nan"), jnp.arange(3.0), again
    with count_events() as counts:
        jitted(ONES)
    assert counts.traces == 0
    settings.rate = 1.0
    with pytest.raises(lw.errors.StaleCaptureError, match="was nan"):
        jitted(ONES)


def test_paths_and_shardings_are_values() -> None:
    """A path may be made in another way, and a sharding where it is needed."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    held = {"path": Path("/a/b"), "at": jax.NamedSharding(mesh, jax.P("x"))}
    jitted = jit(
        lambda x: jax.lax.with_sharding_constraint(x, held["at"]) * len(str(held["path"])),
        stale="raise",
    )
    jitted(ONES)
    held.update(path=Path("/a") / "b", at=jax.NamedSharding(mesh, jax.P("x")))
    quiet(jitted, ONES)
    held["at"] = jax.NamedSharding(mesh, jax.P())
    with pytest.raises(lw.errors.StaleCaptureError, match="at"):
        jitted(ONES)
    held.update(path=Path("/a/c"), at=jax.NamedSharding(mesh, jax.P("x")))
    with pytest.raises(lw.errors.StaleCaptureError, match="path"):
        jitted(ONES)


def test_another_object_of_which_the_same_is_read() -> None:
    """Of an attribute or an item the value counts, not which object has it."""
    settings, rates = Settings(1.0), {"a": 2.0}
    jitted = jit(lambda x: x * settings.rate * rates["a"], stale="raise")
    jitted(ONES)
    settings, rates = Settings(float("1.0")), {"a": 2.0, "b": 1.0}
    quiet(jitted, ONES)
    settings = Settings(1)
    with pytest.raises(lw.errors.StaleCaptureError):
        jitted(ONES)


@pytest.mark.parametrize(
    ("before", "after"),
    [(1, True), (1, 1.0), (0.0, -0.0), ("a", b"a"), ((1, 2), (1.0, 2)), (np.int32(1), 1)],
    ids=repr,
)
def test_types_and_signs_count(before: Any, after: Any) -> None:
    """Values that compare equal, but make other programs, are distinguished."""
    value = before
    jitted = jit(lambda x: (x, str(value))[0], stale="raise")
    jitted(ONES)
    value = after
    with pytest.raises(lw.errors.StaleCaptureError):
        jitted(ONES)


def test_what_is_written_is_no_read() -> None:
    """A list that the body appends to, or a counter, decides no program."""
    count = 0

    @jit(stale="raise")
    def function(x: Any) -> Any:
        nonlocal count
        log.append(1)
        count += 1
        return x

    for size in (2, 3, 2, 3):
        quiet(function, jnp.ones(size))
    log.append(2)
    quiet(function, ONES)


def keep(value: Any) -> None:
    """Note a value, and read what there is already."""
    log.append(float(value) + len(log))


class Keeper:
    """The same as an object."""

    def __call__(self, value: Any) -> None:
        keep(value)


def noted_by_an_inner_function(x: Any) -> Any:
    def note(value: Any) -> None:
        keep(value)

    jax.debug.callback(note, x.sum())
    return x


KEEPER = Keeper()
ON_HOST: dict[str, Callable[[Any], Any]] = {
    "lambda": lambda x: (jax.debug.callback(lambda value: keep(value), x.sum()), x)[1],
    "inner function": noted_by_an_inner_function,
    "function": lambda x: (jax.debug.callback(keep, x.sum()), x)[1],
    "method": lambda x: (jax.debug.callback(log.append, x.sum()), x)[1],
    "object": lambda x: (jax.debug.callback(KEEPER, x.sum()), x)[1],
    "pure": lambda x: jax.pure_callback(lambda y: y + 0 * len(log), x, x),
    "io": lambda x: io_callback(lambda y: (keep(0), y)[1], x, x),
}


@pytest.mark.parametrize("kind", ON_HOST)
def test_what_the_host_reads_is_no_capture(kind: str) -> None:
    """It is read again at each call; what the rest of the function reads is one."""
    scale = 1.0
    call = ON_HOST[kind]
    jitted = jit(lambda x: call(x) * scale, stale="retrace")
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
    jitted = jit(lambda x: x * value, stale="raise")
    jitted(ONES)
    value = 2.0
    for _ in range(2):
        assert np.array_equal(quiet(jitted, jnp.ones(3)), [2, 2, 2])
    with pytest.raises(lw.errors.StaleCaptureError, match=r"was 1\.0 when .* and is 2\.0 now"):
        jitted(ONES)
    value = 1.0
    assert np.array_equal(quiet(jitted, ONES), [1, 1])
    with pytest.raises(lw.errors.StaleCaptureError, match=r"was 2\.0 when .* and is 1\.0 now"):
        jitted(jnp.ones(3))


def test_loops_of_a_new_trace_are_fresh() -> None:
    """JAX keeps the trace of a loop's body: a call of another shape must not take it up."""
    value = 1.0

    def body(c: Any, _: Any) -> Any:
        return c * value, None

    jitted = jit(lambda x: x + jax.lax.scan(body, 1.0, None, length=2)[0], stale="raise")
    jitted(ONES)
    value = 3.0
    assert np.array_equal(jitted(jnp.ones(3)), [10, 10, 10])


def test_the_message() -> None:
    """It names function, variable, line, both values and the fixes; it is pickled whole."""
    settings = Settings()

    @jit(stale="raise")
    def step(x: Any) -> Any:
        return x * settings.rate

    step(ONES)
    settings.rate = 0.5
    (said,) = step.stale(ONES)
    line = step.__wrapped__.__code__.co_firstlineno + 2
    assert said[1:7] == (
        "settings.rate",
        said.reader,
        "closure",
        f"{__file__}:{line}",
        "1.0",
        "0.5",
    )
    with pytest.raises(lw.errors.StaleCaptureError) as info:
        step(ONES)
    assert info.value.message.splitlines() == [
        f"step captures `settings.rate` ({short_file(__file__)}:{line}), which was 1.0 when it was "
        "traced and is 0.5 now",
        "  fix: pass it as an argument: `step(..., rate)`",
        "  or make it a field of a pytree class: `@lw.pytree class Params: rate: jax.Array`, and "
        "pass `params`",
        '  or let it be traced again silently: `lw.jit(..., stale="retrace")`',
    ]
    again = pickle.loads(pickle.dumps(info.value))  # noqa: S301  # our own
    assert (str(again), again.captures) == (str(info.value), info.value.captures)
    assert again.captures[0].call.file == __file__


def test_a_warning_names_the_calling_line() -> None:
    """It stands on the user's line, once for each value; after some there is the storm's alone."""
    value = 0
    jitted = jit(lambda x: x * value)
    jitted(ONES)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for value in range(1, 30):  # noqa: B007  # which is captured
            jitted(ONES)
            jitted(ONES)
    assert {each.filename for each in seen} == {__file__}
    assert [each.category for each in seen].count(lw.errors.StaleCaptureWarning) == 8
    (storm,) = (each for each in seen if each.category is lw.errors.RetraceStormWarning)
    assert "value" in str(storm.message)
    assert jitted(ONES).tolist() == [29, 29]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::leafwise.errors.RetraceStormWarning")
def test_a_state_that_comes_back() -> None:
    """Going back to an old value costs no trace; of many values JAX does not keep all programs."""
    rate = 0.0
    jitted = jit(lambda x: x * rate, stale="retrace")
    for value in (0.0, 1.0, 0.0, 1.0):
        rate = value
        assert jitted(ONES).tolist() == [value, value]
    assert len(jitted.traces) == 2
    for rate in map(float, range(30)):  # noqa: B007  # which is captured
        jitted(ONES)
        assert jitted.cache_size() <= 8


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


@pytest.mark.slow
@pytest.mark.parametrize("action", ["raise", "warn", "retrace", "ignore"])
@pytest.mark.parametrize("kind", ["array", "items", "object", "name that is made up"])
def test_a_block_is_exact(kind: str, action: Any) -> None:
    """Where names do not show it, or it is large, the program of a fresh trace does."""
    array, made_up = np.zeros(MOST_BYTES, np.float32), Settings(0.0)
    items = [0.0] * (MOST_ITEMS + 1)
    deep = Settings([Settings([Settings(0.0) for _ in range(30)]) for _ in range(30)])
    functions: dict[str, tuple[Any, Change]] = {
        "array": (lambda x: x + array[0] + array[1:3], lambda: array.__setitem__(1, 1)),
        "items": (lambda x: x + sum(items), lambda: items.__setitem__(1, 1)),
        "object": (
            lambda x: x + sum(b.rate for a in deep.rate for b in a.rate),
            lambda: setattr(deep.rate[3].rate[4], "rate", 1.0),
        ),
        "name that is made up": (
            lambda x: x + getattr(made_up, "ra" + "te"),
            lambda: setattr(made_up, "rate", 1.0),
        ),
    }
    function, change = functions[kind]
    jitted = jit(function, stale="ignore" if action == "raise" else "raise")
    with lw.debug.check_captures(stale=action) as found:
        old = jitted(ONES)
        quiet(jitted, ONES)
        change()
        if action == "raise":
            with pytest.raises(lw.errors.StaleCaptureError):
                jitted(ONES)
        elif action == "warn":
            with pytest.warns(lw.errors.StaleCaptureWarning):
                assert not np.array_equal(jitted(ONES), old)
        else:
            assert np.array_equal(jitted(ONES), old) == (action == "ignore")
        if action in ("warn", "retrace"):
            quiet(jitted, ONES)
    assert len(found.stale) == (action != "retrace")
    assert all(f"{__file__}:" in each.line for each in found.stale) or kind == "array"


@pytest.mark.parametrize("donates", [False, True])
def test_a_block_runs_the_body_once_more(donates: bool) -> None:
    """It traces each call once more, before that takes its arguments; no trace is counted."""
    ran: list[int] = []

    def function(x: Any) -> Any:
        ran.append(1)
        return x + 1

    jitted = jit(function, donate_argnums=0 if donates else ())
    with lw.debug.check_captures() as found:
        for _ in range(3):
            assert jitted(jnp.ones(2)).tolist() == [2, 2]
    assert len(ran) == 3
    assert len(jitted.traces) == 1
    assert found.not_compared == {}


def test_blocks_nest_and_end() -> None:
    """The innermost block counts, an error ends it, and functions made inside are covered."""
    value = [1.0]
    with pytest.raises(KeyError), lw.debug.check_captures():
        raise KeyError
    jitted = jit(lambda x: x * value[0], stale="ignore")
    with lw.debug.check_captures():
        jitted(ONES)
        with lw.debug.check_captures("ignore") as inner:
            value[0] = 2.0
            jitted(ONES)
        assert [each.after for each in inner.stale] == ["2.0"]
        value[0] = 3.0
        with pytest.raises(lw.errors.StaleCaptureError):
            jitted(ONES)
    quiet(jitted, ONES)
    with pytest.raises(ValueError, match="one of 'warn', 'raise', 'retrace', 'ignore', got 'no'"):
        lw.debug.check_captures("no").__enter__()
    with pytest.raises(ValueError, match=r"leafwise\.jit takes stale="):
        jit(abs, stale=True)


def test_what_cannot_be_traced_again_is_named() -> None:
    """A function that refuses a second trace is answered as it was."""
    ran: list[int] = []

    def function(x: Any) -> Any:
        ran.append(1)
        return x * {1: 2.0}[len(ran)]

    jitted = jit(function, stale="ignore")
    with lw.debug.check_captures() as found:
        assert jitted(ONES).tolist() == jitted(ONES).tolist() == [2, 2]
    assert found.not_compared == {"function": "its trace raised KeyError"}


class Raising:
    """An object whose every attribute raises."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        return 1


def test_code_of_the_users_that_raises_does_not_break_a_call() -> None:
    """An object that raises when it is inspected is compared by identity."""
    awkward = Raising()
    jitted = jit(lambda x: (x, id(awkward))[0], stale="raise")
    for _ in range(2):
        jitted(ONES)
    awkward = Raising()
    with pytest.raises(lw.errors.StaleCaptureError, match="awkward"):
        jitted(ONES)


def test_an_emptied_cell() -> None:
    """A variable that was deleted is a change like another; put back, it is none."""
    value = 1.0
    jitted = jit(lambda x: x * value, stale="raise")
    jitted(ONES)
    del value
    with pytest.raises(lw.errors.StaleCaptureError, match="is nothing now"):
        jitted(ONES)
    value = 1.0
    quiet(jitted, ONES)


def test_inside_of_another_trace() -> None:
    """Captured tracers do not leak, and are no change."""
    with jax.checking_leaks():

        @jax.jit
        def outer(x: Any) -> Any:
            inner = jit(lambda y: y * x, stale="raise")
            return inner(ONES) + inner(ONES)

        assert np.array_equal(outer(2.0), [4, 4])


@pytest.mark.parametrize(
    "wrap",
    [jax.vmap, jax.jit, jax.checkpoint, lambda f: f],
    ids=["vmap", "jit", "checkpoint", "plain"],
)
def test_under_transformations(wrap: Any) -> None:
    """A stale program is seen where a transformation takes it up, too."""
    value = 1.0
    jitted = jit(lambda x: x * value, stale="raise")
    x = jnp.ones((2, 2))
    wrap(jitted)(x)
    quiet(wrap(jitted), x)
    value = 2.0
    with pytest.raises(lw.errors.StaleCaptureError):
        wrap(lambda y: jitted(y))(x)


def test_without_jit() -> None:
    """With `jax.disable_jit` the function runs as it is: nothing is stale."""
    value = 1.0
    jitted = jit(lambda x: x * value, stale="raise")
    jitted(ONES)
    value = 2.0
    with jax.disable_jit():
        assert np.array_equal(jitted(ONES), [2, 2])


def test_nothing_runs_where_nothing_can_change() -> None:
    """Modules, functions of packages and arguments alone leave JAX's object to be called."""

    @jit
    def function(x: Any) -> Any:
        return jnp.sin(x) * np.pi + jax.nn.relu(x)

    function(ONES)
    assert isinstance(function, JittedFunction)
    assert function.__call__ is function._leafwise_jax
    method = jit(Settings.__init__)
    assert isinstance(method, jax.stages.Wrapped)


@pytest.mark.parametrize("kind", ["array", "numpy", "object", "function"])
def test_nothing_large_is_kept(kind: str) -> None:
    """What was captured goes as soon as with plain `jax.jit`; so does the function."""
    made: Any = {
        "array": lambda: jnp.arange(5.0) + 1,
        "numpy": lambda: np.arange(5.0) + 1,
        "object": Settings,
        "function": lambda: types.FunctionType((lambda x: x).__code__, {}),
    }[kind]

    def gone(jit: Any) -> list[bool]:
        box = [made()]

        def function(x: Any) -> Any:
            value = box[0]
            return x * (
                value.rate if kind == "object" else value(1) if callable(value) else value[0]
            )

        jitted = jit(function)
        jitted(1.0)
        jitted(1.0)
        refs = [weakref.ref(each) for each in (box[0], function, jitted)]
        box[0] = None
        gc.collect()
        states = [refs[0]() is None]
        del function, jitted
        gc.collect()
        return [*states, *[ref() is None for ref in refs]]

    assert gone(lw.jit) == gone(jax.jit)


def test_threads() -> None:
    """Calls from several threads, while a capture changes, all come back with one of its values."""
    value = 0.0
    jitted = jit(lambda x: x * value, stale="retrace")
    stop, wrong = threading.Event(), list[Any]()

    def call() -> None:
        while not stop.is_set():
            result = float(jitted(1.0))
            if not 0 <= result <= 5:
                wrong.append(result)

    workers = [threading.Thread(target=call) for _ in range(4)]
    for worker in workers:
        worker.start()
    try:
        for value in map(float, range(6)):  # noqa: B007  # which is captured
            jitted(1.0)
    finally:
        stop.set()
    for worker in workers:
        worker.join(20)
        assert not worker.is_alive()
    assert not wrong
    assert float(jitted(1.0)) == 5.0


def module_level(x: Any) -> Any:
    """Be found by name."""
    return x * rate


def test_copies_and_pickles() -> None:
    """A copy checks captures, too, and has no memory of the first one's calls."""
    jitted = jit(module_level, stale="raise")
    jitted(ONES)
    for other in (copy.copy(jitted), copy.deepcopy(jitted), copy.copy(jit(scaled))):
        assert isinstance(other, JittedFunction)
        assert other.__name__ == other.__wrapped__.__name__
        assert np.array_equal(other(ONES), ONES)
    assert copy.deepcopy(jitted).__wrapped__ is module_level
    globals()["rate"] = 2.0
    with pytest.raises(lw.errors.StaleCaptureError):
        jitted(ONES)


def test_two_jits_of_one_function() -> None:
    """Both see the change; clearing one of them makes both fresh, as in JAX."""
    value = 1.0
    function = lambda x: x * value  # noqa: E731
    first, second = jit(function, stale="retrace"), jit(function, stale="retrace")
    _ = first(ONES), second(ONES)
    value = 2.0
    assert [float(each(ONES)[0]) for each in (first, second, first)] == [2.0, 2.0, 2.0]
    with count_events() as counts:
        _ = first(ONES), second(ONES)
    assert counts.traces == 0
    value = 2.5
    third = jit(function, stale="raise")  # which JAX has programs for
    with pytest.raises(lw.errors.StaleCaptureError):
        third(ONES)
    second.clear_cache()
    value = 3.0
    assert np.array_equal(quiet(second, ONES), [3, 3])
    jax.clear_caches()
    value = 4.0
    assert np.array_equal(quiet(jit(function, stale="raise"), ONES), [4, 4])


class Scaling(Settings):
    """An object whose methods and calls read what is outside them."""

    def method(self, x: Any) -> Any:
        return x * rate * self.rate

    @classmethod
    def of_class(cls, x: Any) -> Any:
        return x * rate


class ByValue(Scaling):
    """The same, where equal ones are one function to JAX."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByValue)

    def __hash__(self) -> int:
        return 0

    def __call__(self, x: Any) -> Any:
        return x * rate


PLACE = jax.sharding.SingleDeviceSharding(jax.devices()[0])


def same_method() -> Callable[[], Any]:
    held = Scaling()
    return lambda: held.method


def same_function() -> Callable[[], Any]:
    function = lambda x: x * rate  # noqa: E731
    return lambda: function


EQUAL: dict[str, tuple[Callable[[], Callable[[], Any]], dict[str, Any]]] = {
    "bound method": (same_method, {}),
    "class method": (lambda: lambda: Scaling.of_class, {}),
    "method of an equal object": (lambda: lambda: ByValue().__call__, {}),
    "callable object": (lambda: ByValue, {}),
    "with shardings": (same_method, {"in_shardings": None}),
    "function with shardings": (same_function, {"out_shardings": PLACE}),
    "function on a device": (same_function, {"device": jax.devices()[0]}),
}


@pytest.mark.parametrize("kind", EQUAL)
@pytest.mark.filterwarnings("ignore:backend and device argument")
def test_two_jits_of_equal_callables(kind: str) -> None:
    """As when a cell of a notebook is run again: JAX takes up what it made for the first."""
    global rate  # noqa: PLW0603  # what is tested
    make, options = EQUAL[kind][0](), EQUAL[kind][1]
    strict = [jit(make(), stale="raise"), jit(make(), stale="raise", **options)]
    other = [jit(make(), stale="retrace"), jit(make(), stale="retrace", **options)]
    rate = 1.0
    for each in (*strict, *other):
        assert each(ONES).tolist() == [1, 1]
    rate = 2.0
    for each in strict:
        with pytest.raises(lw.errors.StaleCaptureError, match=r"`rate`"):
            each(ONES)
    for each in other:
        assert each(ONES).tolist() == [2, 2]


def test_equal_callables_let_go_of_each_other() -> None:
    """What is shared keeps neither of two jitted methods alive, nor their object."""
    held = Scaling()
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
