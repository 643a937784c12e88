"""Train an `eqx.nn.MLP` that is a dynamic field of a leafwise train state.

The network is an equinox module, and the state around it a pytree class: optax's moments and the
learning rate are dynamic, the optimizer and the name of the run static. The rate changes after
every epoch, and the step is traced and compiled once. Run me to see it (a few seconds):

    python examples/equinox_mlp.py
"""

import dataclasses
import math
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from support.counting import Counts, counting

import leafwise as lw

EPOCHS = 8
BATCH = 96
SEED = 0

# Made once: optimizers compare by identity, so a new one would be another static and a retrace.
ADAM = optax.scale_by_adam()


def network() -> eqx.nn.MLP:
    """Return a random network, from the 64 pixels of an image to the scores of 10 digits."""
    return eqx.nn.MLP(64, 10, width_size=64, depth=1, key=jax.random.key(SEED))


def first_moments() -> optax.OptState:
    """Return the optimizer's state before the first step."""
    return ADAM.init(eqx.filter(network(), eqx.is_inexact_array))


@lw.pytree
class TrainState:
    """Everything that a step reads and writes.

    The activation functions of the network are leaves, but not arrays: hence `eqx.filter_jit`.
    It also treats Python numbers as static, so the learning rate is an array.
    """

    model: eqx.nn.MLP = lw.field(default_factory=network)
    moments: optax.OptState = lw.field(default_factory=first_moments)
    learning_rate: jax.Array = lw.field(default_factory=lambda: jnp.float32(0.0))
    optimizer: optax.GradientTransformation = lw.static_field(default=ADAM)
    name: lw.Static[str] = "digits"


def loss_of(model: eqx.nn.MLP, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean loss on a batch `[batch, 64]`."""
    scores = jax.vmap(model)(images)
    return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()


@eqx.filter_jit
def train_step(
    state: TrainState, images: jax.Array, labels: jax.Array
) -> tuple[TrainState, jax.Array]:
    """Take one step on a batch; return the new state and the loss before it."""
    loss, gradient = eqx.filter_value_and_grad(loss_of)(state.model, images, labels)
    direction, moments = state.optimizer.update(gradient, state.moments)
    updates = jax.tree.map(lambda d: -state.learning_rate * d, direction)
    model = eqx.apply_updates(state.model, updates)
    return lw.replace(state, model=model, moments=moments), loss


@eqx.filter_jit
def accuracy_of(model: eqx.nn.MLP, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the fraction of images whose highest score is for their digit."""
    return (jax.vmap(model)(images).argmax(axis=1) == labels).mean()


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
    renamed: Counts


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
            rates.append(0.004 * (1 + math.cos(math.pi * epoch / EPOCHS)))
            state = lw.replace(state, learning_rate=jnp.float32(rates[-1]))
            steps: list[jax.Array] = []
            for batch in batches(rng, images[rest], labels[rest]):
                state, loss = train_step(state, *batch)
                steps.append(loss)
            losses.append(float(jnp.stack(steps).mean()))
            accuracy = float(accuracy_of(state.model, images[held_out], labels[held_out]))
            print(f"epoch {epoch + 1:>2}   learning rate {rates[-1]:.5f}", end="   ")
            print(f"loss {losses[-1]:.4f}   held-out accuracy {accuracy:.3f}")
    with counting(train_step) as renamed:
        train_step(lw.replace(state, name="other"), images[:BATCH], labels[:BATCH])

    print(f"\n{'train_step':<36}{'traces':>6}{'compiles':>10}")
    print(f"{f'  {EPOCHS} learning rates':<36}{training.traces:>6}{training.compiles:>10}")
    print(f"{'  another name, which is static':<36}{renamed.traces:>6}{renamed.compiles:>10}")
    print(
        f"\nHeld-out accuracy {accuracy:.3f}. The network is equinox's, the state around it "
        "leafwise's;\na learning rate in a dynamic field changes without a retrace."
    )
    return Result(losses, rates, accuracy, state, training, renamed)


if __name__ == "__main__":
    main()
