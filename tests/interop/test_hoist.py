"""`lw.hoist` of functions that capture modules and optimizers of other libraries."""

import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import leafwise as lw

with warnings.catch_warnings():  # flax 0.12.1 uses what JAX 0.10 calls deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from flax import linen, nnx

pytestmark = pytest.mark.filterwarnings("ignore:jax.core.get_opaque_trace_state is deprecated")

X = jnp.array([1.0, 2.0, 4.0])
W = jnp.ones(3) * 2
layer = eqx.nn.Linear(3, 3, key=jax.random.key(0))
optimizer = optax.sgd(0.1, momentum=0.9)
moments = optimizer.init(X)
dense = linen.Dense(3)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    weights = dense.init(jax.random.key(0), X)
    module = nnx.Linear(3, 3, rngs=nnx.Rngs(0))

FUNCTIONS: dict[str, tuple[Callable[..., Any], set[str]]] = {
    "an equinox module": (lambda x: layer(x), {"layer"}),
    "an equinox module itself": (layer, {"self"}),
    "a jitted function of equinox": (eqx.filter_jit(lambda x: W * x), {"W"}),
    "a gradient of equinox": (eqx.filter_grad(lambda x: (W * x).sum()), {"W"}),
    "an optimizer and its state": (
        lambda x: optimizer.update(x, moments)[0],
        {"moments"},
    ),
    "parameters of flax.linen": (lambda x: dense.apply(weights, x), {"weights"}),
    "a module of flax.nnx": (lambda x: module(x), {"module"}),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_captures_of_other_libraries_become_arguments(kind: str) -> None:
    """What a function captures of other libraries is an argument, and no constant is left."""
    fn, names = FUNCTIONS[kind]
    hoisted, captured = lw.hoist(fn)
    assert set(captured) == names
    assert np.array_equal(hoisted(captured, X), fn(X))
    assert not jax.make_jaxpr(hoisted)(captured, X).consts
    others = jax.tree.map(lambda leaf: leaf * 2 + 1, captured)
    assert not np.array_equal(hoisted(others, X), fn(X))
