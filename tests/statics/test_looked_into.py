"""What `lw.debug.check_statics()` looks into, and the short list of what it does not."""

import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import leafwise as lw
from leafwise.debug import check_statics

from .judge import Box, P

pytestmark = pytest.mark.hazard


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
