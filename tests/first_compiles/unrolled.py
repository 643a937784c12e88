"""Programs with a loop that a trace unrolls: its line says ``runs``, and the kind of its fix."""

import functools
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

W = jnp.ones((4, 4))
XS = jnp.ones((12, 4))


def cell(h: Any, x: Any, w: Any) -> Any:
    """A recurrent cell."""
    z = jax.nn.sigmoid(h @ w + x)
    return (1 - z) * jnp.tanh(x @ w + h) + z * h


def forward(w: Any, xs: Any) -> Any:
    h = jnp.zeros(4)
    for x in xs:  # runs 12: scan
        h = cell(h, x, w)
    return h.sum()


def one_program() -> Any:
    return forward, (W, XS)


def its_gradient() -> Any:
    return jax.grad(forward), (W, XS)


def its_batches() -> Any:
    return jax.vmap(jax.grad(forward), (None, 0)), (W, jnp.ones((3, 12, 4)))


def loss_of(inner: Any) -> Any:
    def loss(w: Any, xs: Any) -> Any:
        h = jnp.zeros(4)
        for x in xs:  # runs 12: scan
            h = inner(h, x, w)
        return h.sum()

    return loss


def below_an_inner_jit() -> Any:
    return jax.grad(loss_of(jax.jit(cell))), (W, XS)


def checkpointed_cells() -> Any:
    loss = loss_of(jax.checkpoint(cell))
    return jax.vmap(jax.grad(loss), (None, 0)), (W, jnp.ones((3, 12, 4)))


def with_a_number() -> Any:
    def solve(y: Any) -> Any:
        for i in range(16):  # runs 16: scan
            k = jnp.sin(y + 0.1 * i)
            y = y + 0.1 * jnp.cos(k) * k
        return y

    return solve, (XS,)


def a_while_loop() -> Any:
    def solve(y: Any) -> Any:
        step = 0
        while step < 10:  # runs 10: scan
            y = jnp.sin(y @ W) + y
            step += 1
        return y

    return solve, (W,)


def nested_loops() -> Any:
    def fill(x: Any) -> Any:
        for i in range(4):
            for j in range(4):  # runs 16: scan
                x = x.at[i, j].add(jnp.sin(x[j, i]) * jnp.cos(x[i, j]))
        return x

    return fill, (W,)


def a_short_loop_in_a_long_one() -> Any:
    def loss(w: Any, xs: Any) -> Any:
        for x in xs:  # runs 12: scan
            for power in (1, 2, 3):
                w = w + jnp.tanh(w @ w) ** power
            w = w * jnp.cos(x).sum() + jnp.sin(w)
        return w

    return loss, (W, XS)


def a_generator() -> Any:
    def losses(xs: Any) -> Any:
        return sum(jnp.tanh(x @ W).sum() for x in xs)  # runs 12: map

    return losses, (XS,)


def a_list_of_results() -> Any:
    def results(xs: Any) -> Any:
        return jnp.stack([jnp.tanh(x @ W) * jnp.cos(x) for x in xs])  # runs 12: map

    return results, (XS,)


def random_keys() -> Any:
    def draw(key: Any) -> Any:
        total = jnp.zeros(3)
        for _ in range(20):  # runs 20: scan
            key, own = jax.random.split(key)
            total += jax.random.normal(own, (3,))
        return total

    return draw, (jax.random.key(0),)


def optimizer_steps() -> Any:
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))

    def train(params: Any, state: Any) -> Any:
        for _ in range(10):  # runs 10: scan
            grads = jax.grad(lambda w: jnp.tanh(w @ W).sum())(params)
            updates, state = optimizer.update(grads, state)
            params = optax.apply_updates(params, updates)
        return params

    return train, (W, optimizer.init(W))


def a_reduction() -> Any:
    def fold(h: Any, xs: Any) -> Any:
        return functools.reduce(lambda h, x: cell(h, x, W), xs, h)  # runs 12: scan

    return fold, (XS[0], XS)


def leaves_of_a_tree() -> Any:
    def update(tree: Any) -> Any:
        return jax.tree.map(lambda x: jnp.tanh(x @ W) * jnp.cos(x), tree)  # runs 12: none

    return update, (list(XS),)


def an_unrolled_scan() -> Any:
    def total(h: Any, xs: Any) -> Any:
        return jax.lax.scan(lambda h, x: (cell(h, x, W), None), h, xs, unroll=12)  # runs 12: unroll

    return total, (XS[0], XS)


def an_unrolled_scan_of_a_loop() -> Any:
    def body(h: Any, x: Any) -> Any:
        for power in (1.0, 2.0, 3.0):
            h = jnp.sin(h * power + x) @ W
        return h, h.sum()

    def total(h: Any, xs: Any) -> Any:
        return jax.lax.scan(body, h, xs, unroll=12)[1].sum()  # runs 12: unroll

    return jax.grad(total), (XS[0], XS)


def layers_as_pairs() -> Any:
    def net(params: Any, x: Any) -> Any:
        for w, b in params:  # runs 12: layers
            x = jax.nn.relu(x @ w + b)
        return x

    return net, ([(W, XS[0])] * 12, W)


def layers_of_other_shapes() -> Any:
    def net(params: Any, x: Any) -> Any:
        for w, b in params:  # runs 12: unlike
            x = jax.nn.relu(x @ w + b)
        return x

    sizes = [(jnp.ones((4 + at, 5 + at)), jnp.ones(5 + at)) for at in range(12)]
    return net, (sizes, W)


class _Net(eqx.Module):
    layers: list[eqx.nn.Linear]

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:  # runs 10: layers
            x = jax.nn.relu(layer(x))
        return x


def layers_of_equinox() -> Any:
    net = _Net([eqx.nn.Linear(4, 4, key=jax.random.key(at)) for at in range(10)])
    return lambda net, x: net(x), (net, XS[0])


class _Block(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return x + nn.Dense(4)(nn.LayerNorm()(x))


class _Blocks(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(9):  # runs 9: flax
            x = _Block()(x)
        return x


def blocks_of_flax() -> Any:
    net = _Blocks()
    return net.apply, (net.init(jax.random.key(0), XS), XS)


def a_custom_derivative() -> Any:
    @jax.custom_vjp
    def step(x: Any) -> Any:
        return jnp.sin(x) * x

    step.defvjp(lambda x: (step(x), x), lambda x, g: (jnp.cos(x) * g * x + jnp.sin(x) * g,))

    def solve(x: Any) -> Any:
        for _ in range(14):  # runs 14: scan
            x = step(x) + 0.1
        return x.sum()

    return jax.grad(solve), (XS,)


def below_a_scan() -> Any:
    def body(h: Any, x: Any) -> Any:
        for _ in range(11):  # runs 11: scan
            h = cell(h, x, W)
        return h, None

    return lambda h, xs: jax.lax.scan(body, h, xs), (XS[0], XS)
