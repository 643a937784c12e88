# /// script
# requires-python = ">=3.12"
# dependencies = ["flax==0.12.12", "optax==0.2.8"]
# ///
"""Train a small language model of six blocks, in the way of optax's nanolm example."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

WIDTH, LENGTH, LAYERS, VOCABULARY = 64, 32, 6, 65


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.LayerNorm()(x)
        mask = nn.make_causal_mask(x[..., 0])
        attention = nn.MultiHeadDotProductAttention(4, dropout_rate=0.2, deterministic=not train)
        x = x + attention(x, mask=mask)
        h = nn.Dense(4 * WIDTH)(nn.LayerNorm()(x))
        return x + nn.Dropout(0.2, deterministic=not train)(nn.Dense(WIDTH)(nn.relu(h)))


class NanoLM(nn.Module):
    @nn.compact
    def __call__(self, tokens, train):
        x = nn.Embed(VOCABULARY, WIDTH)(tokens)
        x = x + nn.Embed(LENGTH, WIDTH)(jnp.arange(tokens.shape[1]))
        for _ in range(LAYERS):
            x = Block()(x, train)
        return nn.Dense(VOCABULARY)(nn.LayerNorm()(x))


model = NanoLM()
optimizer = optax.adamw(1e-3)


def loss_of(params, batch, key):
    logits = model.apply(params, batch[:, :-1], train=True, rngs={"dropout": key})
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()


@jax.jit
def step(params, state, batch, key):
    loss, grads = jax.value_and_grad(loss_of)(params, batch, key)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


@jax.jit
def evaluate(params, batch):
    logits = model.apply(params, batch[:, :-1], train=False)
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()


text = jax.random.randint(jax.random.key(0), (16, LENGTH + 1), 0, VOCABULARY)
params = model.init(jax.random.key(1), text[:, :-1], train=False)
state = optimizer.init(params)
for number in range(5):
    params, state, loss = step(params, state, text, jax.random.key(number))
print(loss, evaluate(params, text))
tokens = text[:1, :LENGTH]
generate = jax.jit(lambda params, tokens: model.apply(params, tokens, train=False)[:, -1])
for number in range(4):
    following = jax.random.categorical(jax.random.key(number), generate(params, tokens))
    tokens = jnp.concatenate([tokens[:, 1:], following[:, None]], axis=1)
print(tokens[0, -4:])
