"""What is compiled once, and looks like a repeat: derivatives, dtypes, leaves, inner functions."""

import functools

import jax
import jax.numpy as jnp


@jax.jit
def f(x):
    return jnp.sum(jnp.sin(x) * x)


@jax.jit
def inner(x):
    return x * 2.0


@jax.jit
def outer(x):
    return inner(x[:2]).sum() + inner(x[:3]).sum() + inner(x).sum()


x = jnp.ones(13)
print(f(x), jax.grad(f)(x).sum(), jax.hessian(f)(x).sum(), jax.jacfwd(f)(x).sum())
print(outer(x), jax.vmap(f)(jnp.ones((3, 13))).sum())
compiled = f.lower(jnp.ones(17)).compile()
print(compiled(jnp.ones(17)), f.lower(jnp.ones(19)).compile()(jnp.ones(19)))
print([jnp.ones(5, kind).sum().item() for kind in (jnp.float32, jnp.int32, jnp.bfloat16)])
tree = {"w": jnp.ones((3, 4)), "b": jnp.ones(4), "n": jnp.int32(2)}
print(jax.tree.map(lambda leaf: (leaf * 2).sum().item(), tree))
print(jax.lax.associative_scan(jnp.add, jnp.arange(9.0)).tolist())
sizes = [8, 4, 2]
layers = [jax.random.normal(jax.random.key(n), each) for n, each in enumerate([(8, 4), (4, 2)])]
print(functools.reduce(lambda y, w: jnp.tanh(y @ w), layers, jnp.ones(8)).shape)
