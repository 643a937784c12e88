# /// script
# requires-python = ">=3.12"
# dependencies = ["exponax==0.2.0"]
# ///
"""Roll out two equations, each for three lengths or viscosities."""

import exponax as ex
import jax
import jax.numpy as jnp

state = ex.ic.RandomTruncatedFourierSeries(1, cutoff=5)(num_points=64, key=jax.random.key(0))
for extent in (50.0, 60.0, 70.0):
    stepper = ex.stepper.KuramotoSivashinskyConservative(
        num_spatial_dims=1, domain_extent=extent, num_points=64, dt=0.1
    )
    trajectory = ex.rollout(stepper, 20, include_init=True)(state)
    print(extent, jnp.abs(trajectory[-1]).mean())
flat = ex.ic.RandomTruncatedFourierSeries(2, cutoff=3)(num_points=24, key=jax.random.key(1))
flow = jnp.concatenate([flat, flat])
for diffusivity in (0.05, 0.1, 0.2):
    burgers = ex.stepper.Burgers(2, 1.0, 24, 0.01, diffusivity=diffusivity)
    print(diffusivity, jnp.abs(ex.repeat(burgers, 10)(flow)).mean())
