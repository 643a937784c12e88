"""Let a policy balance a pole for so many episodes, and improve it after each."""

import sys

import jax
import jax.numpy as jnp


def act(policy, state):
    return jnp.tanh(state @ policy["weight"] + policy["bias"])


def move(state, action):
    position, speed, angle, spin = state
    speed, spin = speed + 0.02 * action, spin + 0.02 * (9.8 * angle - action)
    return jnp.stack([position + 0.02 * speed, speed, angle + 0.02 * spin, spin])


@jax.jit
def episode(policy, start):
    def body(state, _):
        state = move(state, act(policy, state))
        return state, -jnp.abs(state[2])

    return jax.lax.scan(body, start, length=50)[1].mean()


improve = jax.jit(jax.value_and_grad(episode))
policy = {"weight": jnp.zeros(4), "bias": jnp.zeros(())}
for number in range(int(sys.argv[1])):
    start = 0.05 * jax.random.normal(jax.random.key(number), (4,))
    value, gradient = improve(policy, start)
    policy = jax.tree.map(lambda p, g: p + 0.01 * g, policy, gradient)
print(value)
