# /// script
# requires-python = ">=3.12"
# dependencies = ["jaxoplanet==0.2.0"]
# ///
"""Compute light curves of three orbits, and the gradient of one."""

import jax
import jax.numpy as jnp
from jaxoplanet.light_curves import limb_dark_light_curve
from jaxoplanet.orbits import TransitOrbit
from jaxoplanet.orbits.keplerian import Central, System

time = jnp.linspace(-0.1, 0.1, 100)
u = jnp.array([0.1, 0.3])
for duration in (0.1, 0.12, 0.14):
    orbit = TransitOrbit(period=3.456, duration=duration, time_transit=0.0, radius_ratio=0.1)
    print(duration, limb_dark_light_curve(orbit, u)(time).min())
for period in (3.0, 4.0, 5.0):
    system = System(Central(mass=1.1, radius=1.0)).add_body(period=period, radius=0.1)
    print(period, limb_dark_light_curve(system, u)(time).min())


@jax.jit
def loss(ratio):
    orbit = TransitOrbit(period=3.456, duration=0.1, time_transit=0.0, radius_ratio=ratio)
    return (limb_dark_light_curve(orbit, u)(time) ** 2).sum()


print(jax.grad(loss)(0.1), jax.grad(loss)(0.2))
