"""What `lw.debug.check_statics()` looks into, and the short list of what it does not."""

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import leafwise as lw
from leafwise.debug import check_statics

pytestmark = pytest.mark.hazard


@lw.pytree
class P:
    x: Any
    s: lw.Static[Any]


class Box:
    def __init__(self, v: Any) -> None:
        self.v = v

    def times(self, x: Any) -> Any:
        """Return a product."""
        return x * self.v


def assert_named(static: Any, change: Callable[[], None], path: str) -> None:
    """Check that a change is named by its path, and nothing before it."""
    p = P(1.0, static)
    with check_statics():
        jax.tree.leaves(p)
        jax.tree.leaves(P(2.0, static))
        change()
        with pytest.raises(lw.errors.StaticMutatedError, match=path):
            jax.tree.leaves(p)


def assert_not_seen(static: Any, change: Callable[[], None]) -> None:
    """Check that a change is not named."""
    p = P(1.0, static)
    with check_statics():
        jax.tree.leaves(p)
        change()
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


class Record(NamedTuple):
    """A value that can be written to, with what writes to it."""

    value: Any
    change: Callable[[], None]


RATE = [1]


def proxied() -> Record:
    """Return a proxy, and what changes the object behind it."""
    box = Box(1)
    PROXIED.append(box)
    return Record(Box(weakref.proxy(box)), lambda: setattr(box, "v", 2))


PROXIED: list[Any] = []


def unseen(name: str) -> Record:
    """Return one of the values in the list of the docs, and a change that is not seen."""
    if name == "array of more than 64 KiB":
        large = np.zeros((1 << 13) + 1)
        return Record(Box(large), lambda: large.__setitem__(0, 1))
    if name == "buffer of more than 64 KiB":
        data = bytearray((1 << 16) + 1)
        return Record(Box(data), lambda: data.__setitem__(0, 1))
    if name == "more than 2,000 values":
        many = [[n] for n in range(2_000)]
        return Record(Box(many), lambda: many[-1].append(1))
    if name == "global":
        return Record(lambda x: x * RATE[0], lambda: RATE.append(1))
    if name == "weak container":
        alive, weak = Box(1), weakref.WeakKeyDictionary[Any, Any]()
        PROXIED.append(alive)
        return Record(Box(weak), lambda: weak.update({alive: 1}))
    if name == "proxy":
        return proxied()
    random = np.random.default_rng(0)
    return Record(Box(random), lambda: [random.random()].clear())


@pytest.mark.parametrize(
    "name",
    [
        *["array of more than 64 KiB", "buffer of more than 64 KiB", "more than 2,000 values"],
        *["global", "weak container", "proxy", "state of NumPy's own"],
    ],
)
def test_what_is_not_seen(name: str) -> None:
    """The list in the docs."""
    assert_not_seen(*unseen(name))


@pytest.mark.parametrize("count", [1 << 13, 1_000])
def test_what_is_just_seen(count: int) -> None:
    """An array of 64 KiB, and the last of some thousand values."""
    large: Any = np.zeros(count) if count > 2_000 else [[n] for n in range(count - 5)]
    change = (lambda: large.__setitem__(-1, 1)) if count > 2_000 else (lambda: large[-1].append(1))
    assert_named(Box(large), change, r"P\.s\.v")
