"""What is read of a static value: reading changes nothing, and filling a cache is not a change."""

import abc
import functools
import weakref
from collections.abc import Callable
from typing import Any

import attrs
import jax
import numpy as np
import optax
import pytest

import leafwise as lw
from leafwise.debug import check_statics

from .judge import Box, ByContent, P

pytestmark = pytest.mark.hazard


class Number(abc.ABC):  # noqa: B024  # others are registered with it
    """A class that others are registered with."""


def dispatching() -> Any:
    """Return a function of `functools.singledispatch` that nothing has called yet."""

    @functools.singledispatch
    def choose(x: Any) -> Any:
        return x

    choose.register(int, lambda x: x + 1)
    choose.register(Number, lambda x: x)
    return choose


def use(value: Any) -> None:
    """Call a function so that it fills its caches."""
    value(1)
    Number.register(type("Other", (), {}))
    value(2.0)


def over(value: Any) -> Callable[[Any], Any]:
    return lambda x: value(x)


@pytest.mark.parametrize("cls", [P, ByContent])
@pytest.mark.parametrize(
    "place",
    [lambda f: f, over, lambda f: functools.partial(f, 1)],
    ids=["itself", "closure", "partial"],
)
def test_a_function_that_dispatches(cls: Any, place: Any) -> None:
    """It can be static; a call does not change it, and another function for a type does."""
    choose = dispatching()
    p = cls(1.0, place(choose))
    structure = jax.tree.structure(p)
    with check_statics():
        use(choose)
        assert jax.tree.structure(p) == structure
        choose.register(type("New", (), {}), lambda x: 3 * x)
        with pytest.raises(lw.errors.StaticMutatedError, match=rf"{cls.__name__}\.s.*registry"):
            jax.tree.leaves(p)


def test_a_function_that_dispatches_by_content() -> None:
    """Two built alike are one program, whatever they were called with; others are not."""
    first, second, other = dispatching(), dispatching(), dispatching()
    use(second)
    other.register(int, lambda x: x - 1)
    keys = [jax.tree.structure(ByContent(1.0, over(each))) for each in (first, second, other)]
    assert keys[0] == keys[1]
    assert keys[0] != keys[2]


def test_a_captured_function_that_dispatches() -> None:
    """In a container that a program captures it is followed, its caches are not."""
    table = [dispatching()]
    run = lw.jit(lambda x: table[0](x), on_stale="raise")
    assert run(1.0) == 1.0
    use(table[0])
    assert run(1.0) == 1.0
    table[0].register(jax.core.Tracer, lambda x: 3 * x)
    with pytest.raises(lw.errors.StaleCaptureError, match="registry"):
        run(1.0)


@pytest.mark.parametrize(
    "make", [weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet]
)
@pytest.mark.parametrize("cls", [P, ByContent])
def test_weak_containers(cls: Any, make: Any) -> None:
    """An object or a function with one can be static; what such a cache holds does not count."""
    box, alive = Box(make()), Box(1)
    held = box.v
    for value in (box, lambda: box, lambda: held):
        p = cls(1.0, value)
        with check_statics():
            structure = jax.tree.structure(p)
            held.add(alive) if make is weakref.WeakSet else held.update({alive: alive})
            assert jax.tree.structure(p) == structure
            held.clear()


def test_a_package_turns_an_int_of_its_own_into_a_float() -> None:
    """A schedule of optax does so at its first call, and the number is the same."""
    schedule = optax.cosine_decay_schedule(1.0, 10)
    p = P(1.0, schedule)
    with check_statics():
        schedule(1)
        assert jax.tree.leaves(p) == [1.0]
        cells = dict(zip(schedule.__code__.co_freevars, schedule.__closure__, strict=True))
        cells["decay_steps"].cell_contents = 11.0
        with pytest.raises(lw.errors.StaticMutatedError, match=r"was 10\.0, now 11\.0"):
            jax.tree.leaves(p)


def test_reading_computes_no_cached_property() -> None:
    """What attrs computes when it is asked for is not asked for."""
    asked: list[int] = []

    @attrs.define(eq=False)
    class Lazy:
        a: int

        @functools.cached_property
        def twice(self) -> int:
            asked.append(1)
            return 2 * self.a

    for cls in (ByContent, P):
        lazy = Lazy(1)
        p = cls(1.0, lazy)
        with check_statics():
            jax.tree.leaves(p)
            assert asked == []
    with check_statics():
        assert lazy.twice == 2
        assert jax.tree.leaves(p) == [1.0]


def assert_named(static: Any, change: Callable[[], None], path: str) -> None:
    """Check that a change is named by its path, and nothing before it."""
    p = P(1.0, static)
    with check_statics():
        jax.tree.leaves(p)
        jax.tree.leaves(P(2.0, static))
        change()
        with pytest.raises(lw.errors.StaticMutatedError, match=path):
            jax.tree.leaves(p)


def with_rule(function: Any) -> Any:
    """Return a function with a rule of its own for derivatives, which is what changes."""
    made = jax.custom_vjp(lambda x: x)
    made.defvjp(lambda x: (x, None), lambda _, g: (function(g),))
    return made


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "jax.jit": jax.jit,
    "lw.jit": lw.jit,
    "jax.custom_vjp": jax.custom_vjp,
    "rule": with_rule,
    "custom_vmap": jax.custom_batching.custom_vmap,
    "jax.vmap": jax.vmap,
    "jax.checkpoint": jax.checkpoint,
    "np.vectorize": np.vectorize,
}


@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize("of_method", [False, True])
def test_functions_that_a_package_wraps(name: str, of_method: bool) -> None:
    """What a function holds is looked into through whatever JAX or NumPy made of it."""
    box, held = Box(2), [2]
    function = box.times if of_method else lambda x: x * held[0]
    change = (lambda: setattr(box, "v", 3)) if of_method else (lambda: held.__setitem__(0, 3))
    assert_named(WRAPPERS[name](function), change, r"P\.s.*(\.v|\['held'\]\[0\]) was 2, now 3")


def test_a_tracer_behind_jit() -> None:
    """It is refused as it is in the plain function."""

    @jax.jit
    def run(x: Any) -> Any:
        return P(x, jax.jit(lambda y: x * y)).x

    with pytest.raises(lw.errors.StaticFieldError, match=r"__closure__\['x'\]"):
        run(1.0)


ARRAY, BUFFER, MANY = np.zeros((1 << 13) + 1), bytearray((1 << 16) + 1), [[n] for n in range(2_000)]
RATE, ALIVE, WEAK = [1], Box(1), weakref.WeakKeyDictionary[Any, Any]()
RANDOM = np.random.default_rng(0)
UNSEEN: dict[str, tuple[Any, Callable[[], object]]] = {
    "array of more than 64 KiB": (Box(ARRAY), lambda: ARRAY.__setitem__(0, 1)),
    "buffer of more than 64 KiB": (Box(BUFFER), lambda: BUFFER.__setitem__(0, 1)),
    "more than 2,000 values": (Box(MANY), lambda: MANY[-1].append(1)),
    "global": (lambda x: x * RATE[0], lambda: RATE.append(1)),
    "weak container": (Box(WEAK), lambda: WEAK.update({ALIVE: 1})),
    "state of NumPy's own": (Box(RANDOM), RANDOM.random),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_what_is_not_seen(name: str) -> None:
    """The list in the docs."""
    static, change = UNSEEN[name]
    p = P(1.0, static)
    with check_statics():
        jax.tree.leaves(p)
        change()
        jax.tree.leaves(p)


@pytest.mark.parametrize("count", [1 << 13, 1_000])
def test_what_is_just_seen(count: int) -> None:
    """An array of 64 KiB, and the last of some thousand values."""
    large: Any = np.zeros(count) if count > 2_000 else [[n] for n in range(count - 5)]
    change = (lambda: large.__setitem__(-1, 1)) if count > 2_000 else (lambda: large[-1].append(1))
    assert_named(Box(large), change, r"P\.s\.v")
