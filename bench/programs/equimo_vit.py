# /// script
# requires-python = ">=3.12"
# dependencies = ["equimo==2.7.0", "optax==0.2.8"]
# ///
"""Train a vision transformer of twelve blocks for three steps."""

import equimo.vision.models as em
import equinox as eqx
import jax
import jax.numpy as jnp
import optax

model = em.VisionTransformer(
    img_size=32, in_channels=3, dim=48, patch_size=8, num_heads=[3], depths=[12], num_classes=10,
    key=jax.random.key(0),
)  # fmt: skip
images = jax.random.normal(jax.random.key(1), (4, 3, 32, 32))
labels = jnp.arange(4)
optimizer = optax.adamw(1e-3)
state = optimizer.init(eqx.filter(model, eqx.is_array))


def loss_of(model, key):
    keys = jax.random.split(key, len(images))
    logits = jax.vmap(model)(images, key=keys)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


@eqx.filter_jit
def step(model, state, key):
    loss, grads = eqx.filter_value_and_grad(loss_of)(model, key)
    updates, state = optimizer.update(grads, state, eqx.filter(model, eqx.is_array))
    return eqx.apply_updates(model, updates), state, loss


for number in range(3):
    model, state, loss = step(model, state, jax.random.key(number))
print(loss)
