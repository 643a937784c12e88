# /// script
# requires-python = ">=3.12"
# dependencies = ["brainstate==0.6.0", "optax==0.2.8"]
# ///
"""Train a recurrent network to integrate noise, in the way of brainstate's example."""

import brainstate as bst
import jax.numpy as jnp
import optax

STEPS = 25


class RNN(bst.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = bst.nn.GRUCell(1, width)
        self.readout = bst.nn.Linear(width, 1)

    def update(self, x):
        return self.readout(self.cell(x))


def predict(model, inputs):
    bst.nn.init_all_states(model, batch_size=inputs.shape[1])
    return bst.transform.for_loop(model.update, inputs)


def data(batch):
    steps = 0.1 * bst.random.randn(STEPS, batch, 1)
    return steps, jnp.cumsum(steps, axis=0)


model = RNN(32)
weights = model.states(bst.ParamState)
optimizer = optax.adam(1e-2)
state = optimizer.init({path: weight.value for path, weight in weights.items()})


@bst.transform.jit
def train(inputs, targets, state):
    def loss_of():
        return ((predict(model, inputs) - targets) ** 2).mean()

    grads, loss = bst.transform.grad(loss_of, weights, return_value=True)()
    updates, state = optimizer.update(grads, state)
    for path, weight in weights.items():
        weight.value = optax.apply_updates(weight.value, updates[path])
    return loss, state


for _ in range(10):
    loss, state = train(*data(16), state)
print(loss)
inputs, targets = data(1)
print(jnp.abs(predict(model, inputs) - targets).mean(), train(inputs, targets, state)[0])
