"""Train a small network with adam for so many steps."""

import sys

import jax
import jax.numpy as jnp
import optax

optimizer = optax.adam(1e-3)
keys = jax.random.split(jax.random.key(0), 4)
params = [(jax.random.normal(key, (16, 16)) / 4, jnp.zeros(16)) for key in keys]
moments = optimizer.init(params)


@jax.jit
def step(params, moments, x):
    def loss(params):
        out = x
        for weight, bias in params:
            out = jnp.tanh(out @ weight + bias)
        return ((out - x) ** 2).mean()

    value, gradient = jax.value_and_grad(loss)(params)
    updates, moments = optimizer.update(gradient, moments)
    return optax.apply_updates(params, updates), moments, value


for number in range(int(sys.argv[1])):
    x = jax.random.normal(jax.random.fold_in(keys[0], number), (32, 16))
    params, moments, value = step(params, moments, x)
print(value)
