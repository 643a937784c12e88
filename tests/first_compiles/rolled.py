"""Programs of which no loop may be named: there is none, it is short, or it is not seen."""

import functools
import itertools
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

W = jnp.ones((4, 4))
XS = jnp.ones((12, 4))


def linear_algebra() -> Any:
    def solve(a: Any) -> Any:
        _, values, vectors = jnp.linalg.svd(a)
        return jnp.linalg.eigh(a)[0] + jax.scipy.linalg.expm(vectors) @ values

    return solve, (W,)


def a_loop_of_seven() -> Any:
    def net(x: Any) -> Any:
        for _ in range(7):
            x = jnp.tanh(x @ W)
        return x

    return jax.grad(lambda x: net(x).sum()), (W,)


def three_loops_of_three() -> Any:
    def net(x: Any) -> Any:
        for _ in range(3):
            x = jnp.tanh(x @ W)
        for _ in range(3):
            x = jnp.sin(x @ W)
        for _ in range(3):
            x = jnp.cos(x @ W)
        return x

    return net, (W,)


def a_scan() -> Any:
    return lambda h, xs: jax.lax.scan(lambda h, x: (jnp.tanh(h @ W + x), None), h, xs), (XS[0], XS)


def a_scan_whose_unroll_is_one() -> Any:
    def body(h: Any, x: Any) -> Any:
        for w in (W,) * 3:
            h = jnp.tanh(h @ w + x)
        return h, None

    return jax.grad(lambda h, xs: jax.lax.scan(body, h, xs, unroll=1)[0].sum()), (XS[0], XS)


def a_batch() -> Any:
    return jax.vmap(jax.grad(lambda x: jnp.tanh(x @ W).sum())), (XS,)


def a_hessian() -> Any:
    return jax.hessian(lambda x: jnp.tanh(jnp.sin(x @ W) @ W).sum()), (XS[0],)


def part_of_the_program() -> Any:
    def net(x: Any) -> Any:
        for _ in range(8):
            x = x + 1
        y = jnp.linalg.norm(jnp.tanh(x @ W) * jnp.sin(x), axis=1) + jnp.cos(x).sum()
        z = jax.nn.softmax(y) * jax.nn.gelu(y) + jnp.std(y) * jnp.median(x)
        return z + jax.nn.logsumexp(x) * jnp.cumsum(y) + jnp.linalg.det(x) + jax.nn.silu(y)

    return net, (W,)


def three_layers() -> Any:
    net = eqx.nn.MLP(4, 4, 4, 3, key=jax.random.key(0))
    return jax.vmap(net), (XS,)


class _Net(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.relu(nn.Dense(4)(nn.LayerNorm()(x)))
        x = nn.relu(nn.Dense(4)(nn.LayerNorm()(x)))
        return nn.Dense(4)(nn.LayerNorm()(x))


def layers_of_one_name() -> Any:
    net = _Net()
    return net.apply, (net.init(jax.random.key(0), XS), XS)


def a_chain_of_optax() -> Any:
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    params = {"w": W, "b": XS[0]}

    def update(grads: Any, state: Any, params: Any) -> Any:
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    return update, (params, optimizer.init(params), params)


def a_few_leaves() -> Any:
    return lambda tree: jax.tree.map(lambda x: jnp.tanh(x) * x, tree), ([W, W, W],)


def many_places() -> Any:
    def f(x: Any) -> Any:
        return jnp.tanh(x @ W) * jnp.cos(x)

    return lambda x: f(f(f(x))) + f(f(f(x + 1))) + f(f(f(x + 2))) + f(f(f(x + 3))), (W,)


def random_numbers() -> Any:
    def draw(key: Any) -> Any:
        one, other = jax.random.split(key)
        return jax.random.normal(one, (9,)) + jax.random.permutation(other, 9)

    return draw, (jax.random.key(0),)


def a_loop_in_c() -> Any:
    """Not seen: `itertools` calls the function."""

    def running(xs: Any) -> Any:
        return list(itertools.accumulate(xs, lambda h, x: jnp.tanh(h @ W + x)))[-1]

    return running, (list(XS),)


def a_recursion() -> Any:
    """Not seen: no loop has it."""

    def power(x: Any, n: int) -> Any:
        return jnp.tanh(power(x, n - 1) @ W) if n else x

    return functools.partial(power, n=20), (W,)
