"""A jitted function under `vmap`, for a batch of another size each time."""

import sys

import jax
import jax.numpy as jnp


@jax.jit
def score(w, x):
    return jnp.tanh(x @ w).sum()


w = jnp.ones(7)
for n in (2, 3, 4):
    size = 4 if "fixed" in sys.argv else n
    x = jnp.zeros((size, 7)).at[:n].set(1.0)
    print(jax.vmap(score, in_axes=(None, 0))(w, x)[:n].tolist())
