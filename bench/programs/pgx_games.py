# /// script
# requires-python = ">=3.12"
# dependencies = ["pgx==2.6.0"]
# ///
"""Play three games at random, sixteen at once."""

import jax
import pgx

for name in ("connect_four", "othello", "hex"):
    game = pgx.make(name)
    init, step = jax.jit(jax.vmap(game.init)), jax.jit(jax.vmap(game.step))
    state = init(jax.random.split(jax.random.key(0), 16))
    for number in range(8):
        logits = jax.numpy.where(state.legal_action_mask, 0.0, -1e9)
        state = step(state, jax.random.categorical(jax.random.key(number), logits))
    print(name, state.rewards.sum(), state.terminated.sum())
