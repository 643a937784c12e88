"""Minimise a small system with FIRE, and print an energy that is called outside `jit`."""

import sys

import jax
import jax.numpy as jnp
from jax_md import energy, minimize, quantity, space

COUNT = 32
box = quantity.box_size_at_number_density(COUNT, 0.8, 2)
displacement, shift = space.periodic(box)
positions = box * jax.random.uniform(jax.random.key(0), (COUNT, 2))
species = jnp.where(jnp.arange(COUNT) < COUNT // 2, 0, 1)
sigma = jnp.array([[1.0, 1.2], [1.2, 1.4]])

energy_fn = energy.soft_sphere_pair(displacement, species=species, sigma=sigma)
if "fixed" in sys.argv:
    energy_fn = jax.jit(energy_fn)
fire_init, fire_apply = minimize.fire_descent(energy_fn, shift)
fire_apply = jax.jit(fire_apply)
state = fire_init(positions)
for _ in range(10):
    state = fire_apply(state)
    print(f"{energy_fn(state.position):.4f}")
