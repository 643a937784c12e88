"""Step an environment of brax: it is compiled twice, since `reset` leaves weak types."""

import sys

import jax
import jax.numpy as jnp
from brax import envs

env = envs.create("fast", episode_length=8)
reset, step = jax.jit(env.reset), jax.jit(env.step)
state = reset(jax.random.key(0))
if "fixed" in sys.argv:
    state = jax.tree.map(lambda leaf: leaf.astype(leaf.dtype), state)
action = jnp.zeros(env.action_size)
for _ in range(5):
    state = step(state, action)
    print(float(state.reward), float(state.done))
