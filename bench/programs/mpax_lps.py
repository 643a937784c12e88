# /// script
# requires-python = ">=3.12"
# dependencies = ["mpax==0.2.4"]
# ///
"""Solve linear programs of two shapes, and one of them with three objectives."""

import jax
import jax.numpy as jnp
from mpax import create_lp, r2HPDHG, raPDHG


def problem(n, m, scale):
    keys = jax.random.split(jax.random.key(n), 3)
    more = jax.random.uniform(keys[0], (m, n))
    least = more @ jax.random.uniform(keys[1], (n,))
    c = scale * jax.random.uniform(keys[2], (n,))
    ones, half = jnp.ones((1, n)), jnp.array([n / 2.0])
    zeros, twos = jnp.zeros(n), jnp.full(n, 2.0)
    return create_lp(c, ones, half, more, least, zeros, twos, use_sparse_matrix=False)


solver = raPDHG(eps_abs=1e-3, eps_rel=1e-3, verbose=False)
for n, m, scale in ((10, 5, 1.0), (10, 5, 2.0), (10, 5, 3.0), (20, 8, 1.0)):
    result = solver.optimize(problem(n, m, scale))
    print(n, result.primal_objective)
solve = jax.jit(r2HPDHG(eps_abs=1e-3, eps_rel=1e-3, verbose=False).optimize)
print(solve(problem(10, 5, 1.0)).primal_objective)
