# /// script
# requires-python = ">=3.12"
# dependencies = ["flax==0.12.12"]
# ///
"""Sample from a decoder of six layers in flax.nnx, at three temperatures, as gemma's sampler."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

WIDTH, HEADS, LAYERS, VOCABULARY, LENGTH = 64, 4, 6, 256, 24


class Layer(nnx.Module):
    def __init__(self, rngs):
        self.before = nnx.RMSNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
        self.between = nnx.RMSNorm(WIDTH, rngs=rngs)
        self.gate = nnx.Linear(WIDTH, 4 * WIDTH, use_bias=False, rngs=rngs)
        self.up = nnx.Linear(WIDTH, 4 * WIDTH, use_bias=False, rngs=rngs)
        self.down = nnx.Linear(4 * WIDTH, WIDTH, use_bias=False, rngs=rngs)

    def __call__(self, x, mask):
        x = x + self.attention(self.before(x), mask=mask)
        h = self.between(x)
        return x + self.down(nnx.gelu(self.gate(h)) * self.up(h))


class Decoder(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.layers = nnx.List([Layer(rngs) for _ in range(LAYERS)])
        self.norm = nnx.RMSNorm(WIDTH, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens) * jnp.sqrt(WIDTH)
        mask = nnx.make_causal_mask(tokens)
        for layer in self.layers:
            x = layer(x, mask)
        return self.embed.attend(self.norm(x))


def choose(logits, key, temperature):
    if temperature > 0:
        return jax.random.categorical(key, logits / temperature)
    return logits.argmax(-1)


@partial(jax.jit, static_argnames=("graph", "temperature"))
def sample(graph, state, tokens, key, temperature):
    decoder = nnx.merge(graph, state)

    def body(carry, position):
        tokens, key = carry
        key, following = jax.random.split(key)
        chosen = choose(decoder(tokens)[:, position - 1], following, temperature)
        return (tokens.at[:, position].set(chosen), key), None

    positions = 8 + jnp.arange(4)
    return jax.lax.scan(body, (tokens, key), positions)[0][0]


graph, state = nnx.split(Decoder(nnx.Rngs(0)))
prompts = jax.random.randint(jax.random.key(0), (4, LENGTH), 0, VOCABULARY)
for count, temperature in ((4, 0.0), (4, 0.9), (4, 0.5), (3, 0.5), (2, 0.5)):
    tokens = sample(graph, state, prompts[:count], jax.random.key(1), temperature)
    print(temperature, tokens[0, 8:12])
