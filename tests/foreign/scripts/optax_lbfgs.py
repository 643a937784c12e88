"""Minimise a function with L-BFGS in a `while_loop` that is called outside `jit`."""

import functools
import sys

import jax
import jax.numpy as jnp
import optax


def rosenbrock(w):
    return jnp.sum(100.0 * (w[1:] - w[:-1] ** 2) ** 2 + (1.0 - w[:-1]) ** 2)


optimizer = optax.lbfgs(memory_size=4)
value_and_grad = optax.value_and_grad_from_state(rosenbrock)


def minimise(start, steps):
    def step(carry):
        w, state, number = carry
        value, gradient = value_and_grad(w, state=state)
        updates, state = optimizer.update(
            gradient, state, w, value=value, grad=gradient, value_fn=rosenbrock
        )
        return optax.apply_updates(w, updates), state, number + 1

    carry = start, optimizer.init(start), 0
    return jax.lax.while_loop(lambda carry: carry[2] < steps, step, carry)[0]


if "fixed" in sys.argv:
    minimise = functools.partial(jax.jit, static_argnames="steps")(minimise)
for seed in range(4):
    found = minimise(jax.random.normal(jax.random.key(seed), (8,)), steps=10)
    print(f"{rosenbrock(found):.3f}")
