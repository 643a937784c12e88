"""Train a small classifier whose parameters, and whose whole training state, are pytree classes.

The optimizer is a static field and the learning rate a dynamic one: it changes after every
epoch, and the step is compiled once. Run me to see it (about ten seconds):

    python examples/train_digits.py
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from support.counting import Counts, counting

import leafwise as lw

EPOCHS = 12
BATCH = 64
SEED = 0

# An optax optimizer is a pair of closures, and functions compare by identity: a recreated one
# is a different static value and costs a retrace. So make it once.
ADAM = optax.scale_by_adam()

Activation = Callable[[jax.Array], jax.Array]


def identity(x: jax.Array) -> jax.Array:
    """Return the argument: the activation of the last layer."""
    return x


@lw.pytree
class Layer:
    """A dense layer."""

    weight: jax.Array = lw.field(default_factory=lambda: jnp.zeros((64, 10)))
    bias: jax.Array = lw.field(default_factory=lambda: jnp.zeros(10))
    activation: Activation = lw.static_field(default=identity)

    @classmethod
    def create(cls, seed: int, inputs: int, outputs: int, activation: Activation) -> Self:
        """Return a layer with random weights and no bias."""
        weight = jax.random.normal(jax.random.key(seed), (inputs, outputs))
        return cls(weight * (2 / inputs) ** 0.5, jnp.zeros(outputs), activation)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Apply the layer to a batch `[batch, inputs]`."""
        return self.activation(x @ self.weight + self.bias)


@lw.pytree
class Model:
    """Two layers, from the 64 pixels of an image to the scores for 10 digits."""

    hidden: Layer = lw.field(default_factory=lambda: Layer.create(SEED, 64, 64, jax.nn.relu))
    output: Layer = lw.field(default_factory=lambda: Layer.create(SEED + 1, 64, 10, identity))

    def __call__(self, images: jax.Array) -> jax.Array:
        """Return scores `[batch, 10]` of images `[batch, 64]`."""
        return self.output(self.hidden(images))


@lw.pytree
class TrainState:
    """Everything that a step reads and writes."""

    model: Model = lw.field(default_factory=Model)
    moments: optax.OptState = lw.field(default_factory=lambda: ADAM.init(Model()))
    learning_rate: float | jax.Array = 0.004
    optimizer: optax.GradientTransformation = lw.static_field(default=ADAM)


@jax.jit
def train_step(
    state: TrainState, images: jax.Array, labels: jax.Array
) -> tuple[TrainState, jax.Array]:
    """Take one step on a batch; return the new state and the loss before it."""

    def loss_of(model: Model) -> jax.Array:
        losses = optax.softmax_cross_entropy_with_integer_labels(model(images), labels)
        return losses.mean()

    loss, gradient = jax.value_and_grad(loss_of)(state.model)  # the gradient is a Model too
    direction, moments = state.optimizer.update(gradient, state.moments, state.model)
    model = jax.tree.map(lambda p, d: p - state.learning_rate * d, state.model, direction)
    return lw.replace(state, model=model, moments=moments), loss


@jax.jit
def accuracy_of(model: Model, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the fraction of images whose highest score is for their digit."""
    return (model(images).argmax(axis=1) == labels).mean()


def batches(
    rng: np.random.Generator, images: jax.Array, labels: jax.Array
) -> Iterator[tuple[jax.Array, jax.Array]]:
    """Yield shuffled batches, all of one size: a smaller last one would cost a retrace."""
    order = rng.permutation(len(labels))
    for start in range(0, len(order) - BATCH + 1, BATCH):
        chosen = order[start : start + BATCH]
        yield images[chosen], labels[chosen]


@dataclasses.dataclass(frozen=True)
class Result:
    """Loss and learning rate by epoch, the held-out accuracy, and what JAX did."""

    losses: list[float]
    learning_rates: list[float]
    accuracy: float
    state: TrainState
    training: Counts
    new_optimizer: Counts


def main() -> Result:
    """Train, print the progress, and return it."""
    pixels, digits = load_digits(return_X_y=True)
    rng = np.random.default_rng(SEED)
    order = rng.permutation(len(digits))
    images = jnp.asarray(pixels[order] / 16, dtype="float32")
    labels = jnp.asarray(digits[order])
    held_out, rest = slice(0, 360), slice(360, None)

    state = TrainState()
    losses: list[float] = []
    rates: list[float] = []
    accuracy = 0.0
    with counting(train_step) as training:
        for epoch in range(EPOCHS):
            rates.append(0.002 * (1 + math.cos(math.pi * epoch / EPOCHS)))
            state = lw.replace(state, learning_rate=rates[-1])
            steps: list[jax.Array] = []
            for batch in batches(rng, images[rest], labels[rest]):
                state, loss = train_step(state, *batch)
                steps.append(loss)
            losses.append(float(jnp.stack(steps).mean()))
            accuracy = float(accuracy_of(state.model, images[held_out], labels[held_out]))
            print(f"epoch {epoch + 1:>2}   learning rate {rates[-1]:.5f}", end="   ")
            print(f"loss {losses[-1]:.4f}   held-out accuracy {accuracy:.3f}")
    with counting(train_step) as new_optimizer:
        other = lw.replace(state, optimizer=optax.scale_by_adam())
        train_step(other, images[:BATCH], labels[:BATCH])

    print(f"\n{'train_step':<36}{'traces':>6}{'compiles':>10}")
    print(f"{f'  {EPOCHS} learning rates':<36}{training.traces:>6}{training.compiles:>10}")
    print(f"{'  an optimizer recreated':<36}{new_optimizer.traces:>6}{new_optimizer.compiles:>10}")
    print(
        f"\nHeld-out accuracy {accuracy:.3f}. A learning rate in a dynamic field changes without "
        "a retrace;\nthe optimizer, static, is part of the key: make it once."
    )
    return Result(losses, rates, accuracy, state, training, new_optimizer)


if __name__ == "__main__":
    main()
