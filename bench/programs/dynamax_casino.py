# /// script
# requires-python = ">=3.12"
# dependencies = ["dynamax==1.0.3"]
# ///
"""Learn a casino's loaded dice by EM, by full gradients, and by batches at three rates."""

import jax
import jax.numpy as jnp
import optax
from dynamax.hidden_markov_model import CategoricalHMM

hmm = CategoricalHMM(num_states=2, emission_dim=1, num_classes=6)
true, _ = hmm.initialize(
    jax.random.key(0), transition_matrix=jnp.array([[0.95, 0.05], [0.10, 0.90]])
)
keys = jax.random.split(jax.random.key(1), 8)
_, rolls = jax.vmap(lambda key: hmm.sample(true, key, 200))(keys)
params, props = hmm.initialize(jax.random.key(2))

_, by_em = hmm.fit_em(params, props, rolls, num_iters=10, verbose=False)
print("EM", by_em[-1])
adam = optax.adam(1e-2)
_, losses = hmm.fit_sgd(params, props, rolls, optimizer=adam, batch_size=8, num_epochs=10)
print("full", losses[-1])
for rate in (1e-3, 1e-2, 5e-2):
    sgd = optax.sgd(rate, momentum=0.95)
    _, losses = hmm.fit_sgd(params, props, rolls, optimizer=sgd, batch_size=4, num_epochs=10)
    print(rate, losses[-1])
