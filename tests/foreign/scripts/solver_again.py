"""A solver of a package, called outside `jit` again and again: its loops get new bodies."""

import sys

import jax
import jax.numpy as jnp
from jax.scipy.optimize import minimize


def loss(x):
    return ((x - 3.0) ** 2).sum()


x = jnp.zeros(11)
if "fixed" in sys.argv:
    jitted_minimize = jax.jit(lambda x: minimize(loss, x, method="BFGS"))
for _ in range(5):
    if "fixed" in sys.argv:
        x = jitted_minimize(x).x + 1.0
    else:
        x = minimize(loss, x, method="BFGS").x + 1.0
print(x.tolist())
