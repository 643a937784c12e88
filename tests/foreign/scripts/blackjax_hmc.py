"""Sample with HMC, and try three step sizes: each makes a new algorithm, and so a new function."""

import functools
import sys

import blackjax
import jax
import jax.numpy as jnp
from jax.scipy import stats

observed = jax.random.normal(jax.random.key(1), (50,)) + 2.0


def log_density(position):
    scale = jnp.exp(position["log_scale"])
    return position["log_scale"] + stats.norm.logpdf(observed, position["loc"], scale).sum()


settings = {"inverse_mass_matrix": jnp.ones(2), "num_integration_steps": 3}
state = blackjax.hmc.init({"loc": jnp.float32(1.0), "log_scale": jnp.float32(1.0)}, log_density)
kernel = jax.jit(functools.partial(blackjax.hmc.build_kernel(), logdensity_fn=log_density))
for step_size in (0.2, 0.1, 0.05):
    if "fixed" in sys.argv:
        step = functools.partial(kernel, step_size=step_size, **settings)
    else:
        step = jax.jit(blackjax.hmc(log_density, step_size=step_size, **settings).step)
    for number in range(5):
        state, info = step(jax.random.key(number), state)
    print(f"{state.position['loc']:.2f} {state.position['log_scale']:.2f} {info.is_accepted}")
