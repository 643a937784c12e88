"""Train a neural ODE, whose scale is weakly typed, on a short and then a long series."""

import sys

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optax


class Field(eqx.Module):
    scale: jax.Array
    mlp: eqx.nn.MLP

    def __init__(self, key):
        self.scale = jnp.ones(()) if "fixed" in sys.argv else jnp.array(1.0)
        self.mlp = eqx.nn.MLP(2, 2, 8, 1, activation=jax.nn.softplus, key=key)

    def __call__(self, t, y, args):
        return self.scale * jnp.tanh(self.mlp(y))


@eqx.filter_value_and_grad
def loss_and_gradient(model, times, series):
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(model),
        diffrax.Tsit5(),
        t0=times[0],
        t1=times[-1],
        dt0=0.1,
        y0=series[0],
        saveat=diffrax.SaveAt(ts=times),
    )
    return jnp.mean((solution.ys - series) ** 2)


optimizer = optax.adam(0.01)


@eqx.filter_jit
def make_step(model, state, times, series):
    loss, gradient = loss_and_gradient(model, times, series)
    updates, state = optimizer.update(gradient, state)
    return loss, eqx.apply_updates(model, updates), state


times = jnp.linspace(0.0, 3.0, 20)
series = jnp.stack([jnp.cos(times), -jnp.sin(times)], axis=1)
model = Field(jax.random.key(0))
state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
for length in (20,) if "fixed" in sys.argv else (10, 20):
    for _ in range(4):
        loss, model, state = make_step(model, state, times[:length], series[:length])
    print(f"{loss:.4f}")
