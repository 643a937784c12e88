"""What the check of a captured value covers, what is said of a change, and what can be done."""

import enum
import functools
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.checks import check_of
from tests.kit.things import Frozen, Model, Thing

import leafwise as lw
from leafwise._captures.reads import Traced, format_change
from leafwise._captures.treatment import Way, parameter_of, way_of
from leafwise._objects.describe import describe_value
from leafwise._statics.account import account_of

ONES = jnp.ones(2)
jit: Any = lw.jit  # so that lambdas need no types


def entry(value: Any) -> Traced:
    """Return what is kept of a captured value."""
    return Traced(account_of(value), describe_value(value))


ODD: dict[str, Callable[[], Any]] = {
    "thread": threading.Thread,
    "lock": threading.Lock,
    "generator": lambda: (each for each in "ab"),
    "random": lambda: np.random.default_rng(0),
    "array": lambda: np.ones(1000),
    "list": lambda: list(range(100)),
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_an_odd_or_large_part_hides_no_other(make: Callable[[], Any]) -> None:
    """It is known by identity; what stands before, behind and inside others is compared."""
    thing: Any = Thing(a=1, odd=make(), rate=1.0, then=types.SimpleNamespace(rate=1.0))
    before, is_unchanged = account_of(thing), check_of(thing)
    assert is_unchanged(thing)
    assert account_of(thing) == before
    for holder, name in ((thing, "a"), (thing, "rate"), (thing.then, "rate"), (thing, "odd")):
        kept = getattr(holder, name)
        setattr(holder, name, make() if name == "odd" else 2)
        assert not is_unchanged(thing)
        assert account_of(thing) != before or name == "odd"
        setattr(holder, name, kept)
        assert account_of(thing) == before


INNER: dict[str, tuple[Any, Any, tuple[str, str, str]]] = {
    "attribute": (Thing(p=1), Thing(p=2), (".p", "1", "2")),
    "way": (
        Thing(layers=[Thing(w=jnp.ones(2))]),
        Thing(layers=[Thing(w=jnp.zeros(2))]),
        (".layers[0].w", "float32[2]", "another float32[2]"),
    ),
    "numpy": (
        Thing(q={"a": np.array([1], np.int32)}),
        Thing(q={"a": np.array([2], np.int32)}),
        (".q['a']", "int32[1] [1]", "int32[1] [2]"),
    ),
    "added": (Thing(q=[1]), Thing(q=[1, "a"]), (".q[1]", "nothing", "'a'")),
    "class": (Thing(q=int), Thing(q=float), (".q", "int", "float")),
    "partial": (
        Thing(f=functools.partial(max, 1)),
        Thing(f=functools.partial(max, 2)),
        (".f.args[0]", "1", "2"),
    ),
    "large": (
        Thing(f=np.ones(999)),
        Thing(f=np.ones(999)),
        (".f", "<ndarray>", "another <ndarray>"),
    ),
}


@pytest.mark.parametrize("case", INNER.values(), ids=INNER)
def test_the_part_that_changed_is_found(case: tuple[Any, Any, tuple[str, str, str]]) -> None:
    """The way to it, the old value and the new one are told."""
    before, after, (path, one, other) = case
    was, now = entry(before), entry(after)
    wanted = f"{was.text} with `{path}` {one}", f"{now.text} with `{path}` {other}"
    assert format_change(was, now) == wanted


def test_nothing_is_kept_alive() -> None:
    """What was fingerprinted is not kept alive, and what changed can be said nevertheless."""
    thing: Any = Thing(inner=Thing(w=jnp.ones(2)), k=1)
    was = entry(thing)
    gone = [weakref.ref(each) for each in (thing, thing.inner, thing.inner.w)]
    del thing
    assert [each() for each in gone] == [None] * 3
    now = entry(Thing(inner=Thing(w=jnp.ones(2)), k=2))
    assert format_change(was, now) == ("<Thing> with `.k` 1", "<Thing> with `.k` 2")


def converting(steps: Any) -> Any:
    """Return a schedule that converts its own variable, as one of optax does."""

    def schedule(x: Any) -> Any:
        nonlocal steps
        steps = float(steps)
        return x * steps

    return schedule


def test_what_the_code_converts_in_place_is_no_change() -> None:
    """A new function over an equal number is no change; one over another number is."""
    schedule = converting(100)
    jitted = jit(lambda x: schedule(x), on_stale="raise")
    for _ in range(2):
        jitted(ONES)
    schedule = converting(100)
    assert np.array_equal(jitted(ONES), [100, 100])
    schedule = converting(200)
    with pytest.raises(lw.errors.StaleCaptureError):
        jitted(ONES)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_modules_of_nnx() -> None:
    """A parameter that is changed in place, or rebound, is seen, also deep inside."""
    nnx = pytest.importorskip("flax.nnx")
    net = nnx.Sequential(*[nnx.Linear(2, 2, rngs=nnx.Rngs(0)) for _ in range(12)])
    jitted = jit(lambda x: net(x), on_stale="raise")
    for _ in range(2):
        jitted(ONES)
    with lw.debug.check_captures() as found:
        jitted(ONES)
    assert found.not_compared == {}
    kept = net.layers[11].kernel[...]
    net.layers[11].kernel[...] = jnp.zeros((2, 2))
    with pytest.raises(lw.errors.StaleCaptureError):
        jitted(ONES)
    net.layers[11].kernel[...] = kept
    net.layers[1].kernel = nnx.Param(jnp.ones((2, 2)))
    with pytest.raises(lw.errors.StaleCaptureError):
        jitted(ONES)


class Kind(enum.Enum):
    ONE = 1


MODEL: Any = Model(rate=1.0)


@pytest.mark.parametrize(
    ("value", "way"),
    [
        (1.0, Way.ARGUMENT),
        (np.ones(2), Way.ARGUMENT),
        (jnp.ones(2), Way.ARGUMENT),
        ([1.0, 2.0], Way.ARGUMENT),
        ({"a": np.ones(2)}, Way.ARGUMENT),
        ({"a": "text"}, Way.PYTREE),
        (("a", 1.0), Way.STATIC),
        ("text", Way.STATIC),
        (True, Way.STATIC),
        (None, Way.STATIC),
        (Kind.ONE, Way.STATIC),
        (Frozen(1.0), Way.STATIC),
        (Frozen, Way.STATIC),
        (MODEL, Way.PYTREE),
        (parameter_of, Way.STATIC),
        (MODEL.step, Way.STATIC),
        (jax.jit(parameter_of), Way.STATIC),
    ],
    ids=map(str, range(17)),
)
def test_how_a_value_can_be_passed(value: Any, way: Way) -> None:
    """Numbers are arguments, what is hashed by value is static, the rest a pytree class."""
    assert way_of(value) is way


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("rate", "rate"),
        ("self.rate (2)", "rate"),
        ("config['rate']", "rate"),
        ("c.sub[0]", "sub"),
        ("step.__self__", "step"),
        ("config['class']", "config"),
        ("__self__", "value"),
    ],
)
def test_parameters(name: str, parameter: str) -> None:
    """A capture has a name that a parameter can have."""
    assert parameter_of(name) == parameter


def stale(fun: Any, change: Callable[[], None]) -> str:
    """Return what is said of the one stale call."""
    jitted = jit(fun, on_stale="raise")
    jitted(jnp.ones(2))
    change()
    with pytest.raises(lw.errors.StaleCaptureError) as info:
        jitted(jnp.ones(2))
    assert len(info.value.captures) == 1
    return str(info.value)


def test_the_fixes_of_a_text() -> None:
    """No array can be made of it: it is a static argument, or a static field."""
    mode = "a"

    def change() -> None:
        nonlocal mode
        mode = "b"

    said = stale(lambda x: x if mode == "a" else -x, change)
    assert 'argument `mode` of `<lambda>`, with `static_argnames="mode"`' in said
    assert "`@lw.pytree class Params: mode: Any = lw.static_field()`" in said


def test_the_name_of_an_object_that_is_called() -> None:
    """It is that of its class, where JAX has none."""
    model = Model(rate=1.0)
    said = stale(model, lambda: setattr(model, "rate", 2.0))
    assert said.startswith("Model.__call__ captures ")
    assert "unnamed" not in said


def test_an_optimizer_is_named_once() -> None:
    """The variables of optax that differ with it are not reported next to it."""
    optax: Any = pytest.importorskip("optax")
    optimizer = optax.sgd(0.1)
    assert way_of(optimizer) is Way.STATIC

    def change() -> None:
        nonlocal optimizer
        optimizer = optax.sgd(0.2)

    said = stale(lambda x: optimizer.update(x, optimizer.init(x))[0], change)
    assert "`optimizer.update`" in said
