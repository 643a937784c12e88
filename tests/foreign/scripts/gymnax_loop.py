"""Step an environment, and collect what is finished with a boolean mask, outside `jit`."""

import sys

import gymnax
import jax
import jax.numpy as jnp

env, params = gymnax.make("CartPole-v1")
step = jax.jit(jax.vmap(env.step, in_axes=(0, 0, 0, None)))
keys = jax.random.split(jax.random.key(0), 8)
observation, state = jax.jit(jax.vmap(env.reset, in_axes=(0, None)))(keys, params)
finished = []
for number in range(40):
    keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, number)
    action = (observation[:, 2] > 0).astype(jnp.int32) if number < 5 else jnp.ones(8, jnp.int32)
    times = state.time
    observation, state, reward, done, info = step(keys, state, action, params)
    if "fixed" in sys.argv:
        finished += jax.device_get(times)[jax.device_get(done)].tolist()
    else:
        finished += times[done].tolist()
print(len(finished), sorted(finished))
