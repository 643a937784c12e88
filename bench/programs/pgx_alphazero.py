# /// script
# requires-python = ">=3.12"
# dependencies = ["dm-haiku==0.0.17", "jax==0.12.0.1", "optax==0.2.8", "pgx==2.6.0"]
# ///
"""Play against oneself and learn, mapped over the devices, in the way of pgx's AlphaZero."""

import haiku as hk
import jax
import jax.numpy as jnp
import optax
import pgx

game = pgx.make("connect_four")
optimizer = optax.adam(1e-3)
devices = jax.local_devices()


def forward(observation):
    x = hk.Conv2D(16, 3)(observation.astype(jnp.float32))
    for _ in range(3):
        block = hk.Sequential([jax.nn.relu, hk.Conv2D(16, 3), jax.nn.relu, hk.Conv2D(16, 3)])
        x = x + block(x)
    x = hk.Flatten()(jax.nn.relu(x))
    return hk.Linear(game.num_actions)(x), jnp.tanh(hk.Linear(1)(x))[:, 0]


network = hk.without_apply_rng(hk.transform(forward))


@jax.pmap
def selfplay(params, key):
    def play(state, key):
        logits, _ = network.apply(params, state.observation)
        logits = jnp.where(state.legal_action_mask, logits, -1e9)
        action = jax.random.categorical(key, logits)
        following = jax.vmap(game.step)(state, action)
        return following, (state.observation, jax.nn.softmax(logits), following.rewards[:, 0])

    start = jax.vmap(game.init)(jax.random.split(key, 8))
    return jax.lax.scan(play, start, jax.random.split(key, 16))[1]


@jax.pmap
def train(params, state, samples):
    def loss_of(params):
        observation, policy, value = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), samples)
        logits, predicted = network.apply(params, observation)
        loss = optax.softmax_cross_entropy(logits, policy).mean()
        return loss + ((predicted - value) ** 2).mean()

    loss, grads = jax.value_and_grad(loss_of)(params)
    updates, state = optimizer.update(grads, state)
    return optax.apply_updates(params, updates), state, loss


first = jax.vmap(game.init)(jax.random.split(jax.random.key(0), 2))
params = network.init(jax.random.key(1), first.observation)
copies = (params, optimizer.init(params))
params, state = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(devices)), copies)
for number in range(4):
    samples = selfplay(params, jax.random.split(jax.random.key(number), len(devices)))
    params, state, loss = train(params, state, samples)
    print(number, loss)
