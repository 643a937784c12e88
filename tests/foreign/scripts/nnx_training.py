"""Train a network; the last batch of each epoch is smaller, and dropout is off in between."""

import sys

import jax
import optax
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(3, 8, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.last = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(self.dropout(nnx.relu(self.first(x))))


@nnx.jit
def train_step(model, optimizer, x, y):
    loss, gradients = nnx.value_and_grad(lambda model: ((model(x) - y) ** 2).mean())(model)
    optimizer.update(model, gradients)
    return loss


model = Net(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adam(0.01), wrt=nnx.Param)
x = jax.random.normal(jax.random.key(0), (20, 3))
y = x.sum(axis=1, keepdims=True)
size = 10 if "fixed" in sys.argv else 8
for _ in range(3):
    for start in range(0, 20, size):
        loss = train_step(model, optimizer, x[start : start + size], y[start : start + size])
    print(f"{loss:.3f}")
model.eval()
if "fixed" in sys.argv:
    model.train()
print(f"{train_step(model, optimizer, x[:size], y[:size]):.3f}")
