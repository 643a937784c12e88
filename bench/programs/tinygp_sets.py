# /// script
# requires-python = ">=3.12"
# dependencies = ["tinygp==0.3.1"]
# ///
"""Fit a Gaussian process to three data sets, and a quasiseparable one to the last."""

import jax
import jax.numpy as jnp
import numpy as np
from tinygp import GaussianProcess, kernels

random = np.random.default_rng(0)


def build(params, x):
    kernel = jnp.exp(params["amp"]) * kernels.Matern32(jnp.exp(params["scale"]))
    kernel += kernels.ExpSineSquared(scale=jnp.exp(params["period"]), gamma=1.0)
    return GaussianProcess(kernel, x, diag=jnp.exp(params["diag"]))


@jax.jit
def loss(params, x, y):
    return -build(params, x).log_probability(y)


for size in (30, 40, 50):
    x = np.sort(random.uniform(0, 10, size))
    y = np.sin(x) + 0.1 * random.normal(size=size)
    params = {"amp": jnp.zeros(()), "scale": jnp.zeros(()), "period": jnp.ones(()), "diag": -2.0}
    for _ in range(5):
        grads = jax.grad(loss)(params, x, y)
        params = jax.tree.map(lambda p, g: p - 0.01 * g, params, grads)
    gp = build(params, x)
    _, conditioned = gp.condition(y, np.linspace(0, 10, 20))
    print(size, loss(params, x, y), conditioned.loc[0], conditioned.variance[0])

fast = GaussianProcess(kernels.quasisep.Matern32(1.5), x, diag=0.1)
print(fast.log_probability(y), fast.condition(y).gp.loc[0])
