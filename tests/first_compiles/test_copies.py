"""Programs of many copies of one function, and random draws of three axes or more."""

import math
import time
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.first_compiles.test_rule import origins_of
from tests.kit.inside import BY_FAN_OUT, DRAWN_2D

pytestmark = pytest.mark.usefixtures("lines")

KEY, SHAPE = jax.random.key(0), (3, 3, 8, 16)
HE = jax.nn.initializers.he_normal()
DEEP = [SHAPE, (3, 8, 9), (3, 3, 16, 16)]


@pytest.fixture(autouse=True, scope="module")
def _leaves_no_traces() -> Any:
    """JAX gives a function of its own the lines of the first program that traced it."""
    yield
    jax.clear_caches()


def flat(init: Any, key: Any, shape: Any = SHAPE) -> Any:
    """Return what the fix draws."""
    return eval(DRAWN_2D, {"math": math}, {"init": init, "key": key, "shape": shape})  # noqa: S307


def draws(init: Any, shapes: Any) -> Any:
    def start(key: Any) -> Any:
        return list(map(init, jax.random.split(key, len(shapes)), shapes))

    return start


@pytest.mark.slow
def test_which_initializers_draw_the_same_numbers() -> None:
    """All of JAX do, but those that the fix names; one raises."""
    other = set[str]()
    for name, make in vars(jax.nn.initializers).items():
        if name.endswith(("normal", "uniform", "orthogonal")):
            try:
                other |= set() if np.array_equal(flat(make(), KEY), make()(KEY, SHAPE)) else {name}
            except ValueError:
                assert name == "delta_orthogonal"
    assert other == {f"{name}_{kind}" for name in BY_FAN_OUT for kind in ("normal", "uniform")}


@pytest.mark.parametrize("init", [HE, jax.random.normal, jax.random.uniform])
def test_deep_draws(init: Any) -> None:
    """They are counted, before the loop that has them, and may be drawn 2-D."""
    functions = draws(init, DEEP), draws(init, [*DEEP, (4, 4)]), draws(init, [(4, 4)] * 3)
    for function in (*functions, *functions[::-1]):
        (origin, *_) = origins_of(function, (KEY,))
        assert (origin.kind == "draws") == (function is not functions[2])
        if origin.kind == "draws":
            assert (origin.runs, origin.share < 1) == (3, True)
            assert str(origin.fix).startswith(f"draw 2-D: `{DRAWN_2D}` has the same numbers")
    assert origins_of(draws(init, [SHAPE] * 9), (KEY,))[0].runs == 9


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_other_draws(implementation: str) -> None:
    """Nothing is said for `vmap`, or where the shape decides the numbers, or of other draws."""
    key = jax.random.key(0, impl=implementation)
    with jax.threefry_partitionable(implementation != "threefry2x32"):
        kinds = [origin.kind for origin in origins_of(draws(HE, DEEP), (key,))]
    for start in (
        lambda key: jax.vmap(lambda one: HE(one, (8, 16)))(jax.random.split(key, 4)),
        draws(jax.random.gumbel, DEEP),
    ):
        kinds += [origin.kind for origin in origins_of(start, (key,))]
    assert "draws" not in kinds


class Convolutions(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Conv(2, (3, 3))(x) if x.ndim > 1 else self.param("own", HE, SHAPE)


@pytest.mark.parametrize(
    ("start", "how"),
    [
        (lambda key: Convolutions().init(key, jnp.ones((1, 4, 4, 2))), "pass a `kernel_init=` "),
        (lambda key: Convolutions().init(key, jnp.ones(2)), "draw 2-D: "),
        (lambda key: eqx.filter(eqx.nn.Conv2d(4, 4, 3, use_bias=False, key=key), True), ""),
    ],
)
def test_draws_of_a_package(start: Any, how: str) -> None:
    """The line is the user's; the fix is what the package lets the user write."""
    (origin,) = origins_of(lambda key: jax.tree.leaves(start(key)), (KEY,))
    assert (origin.kind, origin.site.file) == ("draws", __file__)
    assert str(origin.fix).startswith(how)
    assert bool(origin.fix) == bool(how)


def layer(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w) * jnp.sin(x) + jnp.cos(x) - x.mean() * jnp.exp(x)


def by_hand(w: Any, x: Any) -> Any:
    return layer(w, layer(w, layer(w, layer(w, x)))).sum()


def in_blocks(w: Any, x: Any) -> Any:
    for _ in range(3):
        x = layer(w, layer(w, x))
    return x.sum()


@pytest.mark.parametrize("wrap", [jax.checkpoint, jax.grad])
def test_copies(wrap: Any) -> None:
    """The function with most copies is named, with the number of its calls."""
    for function, calls in ((by_hand, 4), (in_blocks, 6), (in_blocks, 6), (by_hand, 4)):
        (origin,) = origins_of(wrap(function), (jnp.ones((4, 4)), jnp.ones((4, 4))))
        assert (origin.kind, origin.path, origin.runs) == ("copies", "layer", calls)
        assert origin.share > 0.6


def test_copies_of_a_draw() -> None:
    """The function of `jax.random` is named that initializers call."""
    (origin,) = origins_of(draws(HE, [(4, 8), (8, 4), (3, 4), (9, 9)]), (KEY,))
    assert (origin.kind, origin.path, origin.runs) == ("copies", "jax.random.truncated_normal", 4)


OPTIMIZED: Any = {"xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False}


@pytest.mark.nightly
def test_what_it_saves() -> None:
    """Drawn 2-D, the program compiles in at most half the CPU seconds, and has the same bits."""
    results: list[Any] = []
    for init in (HE, lambda key, shape: flat(HE, key, shape)):
        lowered = jax.jit(draws(init, [(3, 3, n, 64) for n in (16, 24, 32, 40)])).lower(KEY)
        start = time.process_time()
        compiled = lowered.compile(OPTIMIZED)
        results.append((time.process_time() - start, compiled(KEY)))
    assert results[1][0] <= results[0][0] / 2
    assert all(map(np.array_equal, results[0][1], results[1][1]))
