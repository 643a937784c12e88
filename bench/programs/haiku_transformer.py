# /// script
# requires-python = ">=3.12"
# dependencies = ["dm-haiku==0.0.17", "jax==0.12.0.1", "optax==0.2.8"]
# ///
"""Train a transformer of eight layers for three steps, in the way of haiku's example."""

import haiku as hk
import jax
import jax.numpy as jnp
import optax

WIDTH, LAYERS, VOCABULARY = 64, 8, 96


def forward(tokens):
    positions = hk.get_parameter("positions", (tokens.shape[1], WIDTH), init=jnp.zeros)
    x = hk.Embed(VOCABULARY, WIDTH)(tokens) + positions
    mask = jnp.tril(jnp.ones((1, 1, tokens.shape[1], tokens.shape[1])))
    start = hk.initializers.VarianceScaling(2 / LAYERS)
    for _ in range(LAYERS):
        h = hk.LayerNorm(-1, create_scale=True, create_offset=True)(x)
        attention = hk.MultiHeadAttention(4, WIDTH // 4, model_size=WIDTH, w_init=start)
        x = x + hk.dropout(hk.next_rng_key(), 0.1, attention(h, h, h, mask=mask))
        h = hk.LayerNorm(-1, create_scale=True, create_offset=True)(x)
        dense = [hk.Linear(4 * WIDTH, w_init=start), jax.nn.gelu, hk.Linear(WIDTH, w_init=start)]
        x = x + hk.dropout(hk.next_rng_key(), 0.1, hk.Sequential(dense)(h))
    return hk.Linear(VOCABULARY)(x)


model = hk.transform(forward)
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))


@jax.jit
def init(key, batch):
    params = model.init(key, batch[:, :-1])
    return params, optimizer.init(params)


@jax.jit
def update(params, state, key, batch):
    def loss_of(params):
        logits = model.apply(params, key, batch[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()

    loss, grads = jax.value_and_grad(loss_of)(params)
    updates, state = optimizer.update(grads, state)
    return optax.apply_updates(params, updates), state, loss


batch = jax.random.randint(jax.random.key(0), (4, 33), 0, VOCABULARY)
params, state = init(jax.random.key(1), batch)
for number in range(3):
    params, state, loss = update(params, state, jax.random.key(number), batch)
print(loss)
