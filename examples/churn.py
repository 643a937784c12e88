"""`train_digits.py` with five mistakes that JAX does not report.

It computes the right thing, but compiles its step over and over. It does not import
leafwise's tools; let them name the five causes, with their lines (about ten seconds):

    leafwise explain examples/churn.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from train_digits import Layer, Model, TrainState

import leafwise as lw

STEPS = 3
BATCH = 64


@jax.jit
def train_step(
    state: TrainState, images: jax.Array, labels: jax.Array
) -> tuple[TrainState, jax.Array]:
    """Take one step on a batch; return the new state and the loss before it."""

    def loss_of(model: Model) -> jax.Array:
        losses = optax.softmax_cross_entropy_with_integer_labels(model(images), labels)
        return losses.mean()

    loss, gradient = jax.value_and_grad(loss_of)(state.model)
    direction, moments = state.optimizer.update(gradient, state.moments, state.model)
    model = jax.tree.map(lambda p, d: p - state.learning_rate * d, state.model, direction)
    return lw.replace(state, model=model, moments=moments), loss


def fresh_lambda(state: TrainState) -> TrainState:
    """Return the state with an activation that is a new function each time."""
    hidden: Layer = lw.replace(state.model.hidden, activation=lambda x: jax.nn.relu(x))  # noqa: PLW0108  # the point
    model = lw.replace(state.model, hidden=hidden)
    return lw.replace(state, model=model, moments=state.optimizer.init(model))


def rebuilt_optimizer(state: TrainState) -> TrainState:
    """Return the state with an equal optimizer, made of new closures each time."""
    return lw.replace(state, optimizer=optax.scale_by_adam())


def main() -> None:
    """Train a little, in each of the five ways."""
    pixels, digits = load_digits(return_X_y=True)
    images = np.asarray(pixels / 16, dtype="float32")
    labels = np.asarray(digits, dtype="int32")
    batch, answers = jnp.asarray(images[:BATCH]), jnp.asarray(labels[:BATCH])

    state = TrainState()
    train_step(state, batch, answers)  # the one compile that there should be

    for _ in range(STEPS):  # 1. a lambda made in the loop
        train_step(fresh_lambda(state), batch, answers)

    for _ in range(STEPS):  # 2. an optimizer made in the loop
        train_step(rebuilt_optimizer(state), batch, answers)

    # 3. a learning rate that is a Python number here and an array there
    train_step(lw.replace(state, learning_rate=jnp.float32(0.004)), batch, answers)

    for step in range(1, STEPS + 1):  # 4. a batch that grows
        size = BATCH + step
        train_step(state, jnp.asarray(images[:size]), jnp.asarray(labels[:size]))

    # 5. a second call with data that is committed to a device: compiled without a trace
    train_step(state, jax.device_put(batch, jax.devices()[0]), answers)

    print("Done: eleven calls after the first, each of them compiled again.")


if __name__ == "__main__":
    main()
