"""Fit the rates of hares and lynxes to a curve, for so many steps."""

import sys
from functools import partial

import jax
import jax.numpy as jnp


@partial(jax.jit, static_argnames="steps")
def solve(rates, start, steps):
    def body(state, _):
        hares, lynxes = state
        hunted = rates["hunt"] * hares * lynxes
        hares = hares + 0.05 * (rates["birth"] * hares - hunted)
        lynxes = lynxes + 0.05 * (hunted - rates["death"] * lynxes)
        return (hares, lynxes), hares

    return jax.lax.scan(body, start, length=steps)[1]


@jax.jit
def improve(rates, seen):
    def loss(rates):
        return ((solve(rates, (1.0, 0.5), steps=100) - seen) ** 2).mean()

    value, gradient = jax.value_and_grad(loss)(rates)
    return jax.tree.map(lambda r, g: r - 0.01 * g, rates, gradient), value


seen = solve({"birth": 1.0, "hunt": 0.8, "death": 1.1}, (1.0, 0.5), steps=100)
rates = {"birth": jnp.float32(0.9), "hunt": jnp.float32(0.9), "death": jnp.float32(1.0)}
for _ in range(int(sys.argv[1])):
    rates, value = improve(rates, seen)
print(value)
