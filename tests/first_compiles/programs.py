"""Programs with a loop that a trace unrolls, and programs of which no loop may be named.

The line of an unrolled loop says ``runs``, and which fix it has.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

W = jnp.ones((4, 4))
XS = jnp.ones((12, 4))
BATCH = jnp.ones((3, 12, 4))
Programs = dict[str, tuple[Any, tuple[Any, ...]]]
"""Functions and their arguments, by name."""
UNROLLED: Programs = {}
ROLLED: Programs = {}


def unrolled(*args: Any, wrap: Any = lambda function: function) -> Callable[[Any], Any]:
    """Return a decorator of a function that has an unrolled loop."""
    return _adding(UNROLLED, wrap, args)


def rolled(*args: Any, wrap: Any = lambda function: function) -> Callable[[Any], Any]:
    """Return a decorator of a function that has no loop to name: none, a short one, or unseen."""
    return _adding(ROLLED, wrap, args)


def _adding(programs: Programs, wrap: Any, args: tuple[Any, ...]) -> Callable[[Any], Any]:
    def add(function: Any) -> Any:
        programs[function.__name__] = wrap(function), args
        return function

    return add


def cell(h: Any, x: Any, w: Any) -> Any:
    """A recurrent cell."""
    z = jax.nn.sigmoid(h @ w + x)
    return (1 - z) * jnp.tanh(x @ w + h) + z * h


@unrolled(W, XS)
def one_program(w: Any, xs: Any) -> Any:
    h = jnp.zeros(4)
    for x in xs:  # runs 12: scan
        h = cell(h, x, w)
    return h.sum()


def loss_of(inner: Any) -> Any:
    def loss(w: Any, xs: Any) -> Any:
        h = jnp.zeros(4)
        for x in xs:  # runs 12: scan
            h = inner(h, x, w)
        return h.sum()

    return loss


UNROLLED |= {
    "its_gradient": (jax.grad(one_program), (W, XS)),
    "its_batches": (jax.vmap(jax.grad(one_program), (None, 0)), (W, BATCH)),
    "below_an_inner_jit": (jax.grad(loss_of(jax.jit(cell))), (W, XS)),
    "checkpointed_cells": (
        jax.vmap(jax.grad(loss_of(jax.checkpoint(cell))), (None, 0)),
        (W, BATCH),
    ),
}


@unrolled(XS)
def with_a_number(y: Any) -> Any:
    for i in range(16):  # runs 16: scan
        k = jnp.sin(y + 0.1 * i)
        y = y + 0.1 * jnp.cos(k) * k
    return y


@unrolled(W)
def a_while_loop(y: Any) -> Any:
    step = 0
    while step < 10:  # runs 10: scan
        y = jnp.sin(y @ W) + y
        step += 1
    return y


@unrolled(W)
def nested_loops(x: Any) -> Any:
    for i in range(4):
        for j in range(4):  # runs 16: scan
            x = x.at[i, j].add(jnp.sin(x[j, i]) * jnp.cos(x[i, j]))
    return x


@unrolled(W, XS)
def a_short_loop_in_a_long_one(w: Any, xs: Any) -> Any:
    for x in xs:  # runs 12: scan
        for power in (1, 2, 3):
            w = w + jnp.tanh(w @ w) ** power
        w = w * jnp.cos(x).sum() + jnp.sin(w)
    return w


@unrolled(XS)
def a_generator(xs: Any) -> Any:
    return sum(jnp.tanh(x @ W).sum() for x in xs)  # runs 12: map


@unrolled(XS)
def a_list_of_results(xs: Any) -> Any:
    return jnp.stack([jnp.tanh(x @ W) * jnp.cos(x) for x in xs])  # runs 12: map


@unrolled(jax.random.key(0))
def random_keys(key: Any) -> Any:
    total = jnp.zeros(3)
    for _ in range(20):  # runs 20: scan
        key, own = jax.random.split(key)
        total += jax.random.normal(own, (3,))
    return total


CLIPPED = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))


@unrolled(W, CLIPPED.init(W))
def optimizer_steps(params: Any, state: Any) -> Any:
    for _ in range(10):  # runs 10: scan
        grads = jax.grad(lambda w: jnp.tanh(w @ W).sum())(params)
        updates, state = CLIPPED.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    return params


@unrolled(XS[0], XS)
def a_reduction(h: Any, xs: Any) -> Any:
    return functools.reduce(lambda h, x: cell(h, x, W), xs, h)  # runs 12: scan


@unrolled(list(XS))
def leaves_of_a_tree(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.tanh(x @ W) * jnp.cos(x), tree)  # runs 12: none


@unrolled(XS[0], XS)
def an_unrolled_scan(h: Any, xs: Any) -> Any:
    return jax.lax.scan(lambda h, x: (cell(h, x, W), None), h, xs, unroll=12)  # runs 12: unroll


def body_of_three(h: Any, x: Any) -> Any:
    for power in (1.0, 2.0, 3.0):
        h = jnp.sin(h * power + x) @ W
    return h, h.sum()


@unrolled(XS[0], XS, wrap=jax.grad)
def an_unrolled_scan_of_a_loop(h: Any, xs: Any) -> Any:
    return jax.lax.scan(body_of_three, h, xs, unroll=12)[1].sum()  # runs 12: unroll


@unrolled([(W, XS[0])] * 12, W)
def layers_as_pairs(params: Any, x: Any) -> Any:
    for w, b in params:  # runs 12: layers
        x = jax.nn.relu(x @ w + b)
    return x


@unrolled([(jnp.ones((4 + at, 5 + at)), jnp.ones(5 + at)) for at in range(12)], W)
def layers_of_other_shapes(params: Any, x: Any) -> Any:
    for w, b in params:  # runs 12: unlike
        x = jax.nn.relu(x @ w + b)
    return x


class _Net(eqx.Module):
    layers: list[eqx.nn.Linear]

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:  # runs 10: layers
            x = jax.nn.relu(layer(x))
        return x


LINEAR = _Net([eqx.nn.Linear(4, 4, key=jax.random.key(at)) for at in range(10)])
UNROLLED["layers_of_equinox"] = lambda net, x: net(x), (LINEAR, XS[0])


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


def of_flax(net: nn.Module) -> Any:
    return net.apply, (net.init(jax.random.key(0), XS), XS)


UNROLLED["blocks_of_flax"] = of_flax(_Blocks())


@jax.custom_vjp
def ruled(x: Any) -> Any:
    return jnp.sin(x) * x


ruled.defvjp(lambda x: (ruled(x), x), lambda x, g: (jnp.cos(x) * g * x + jnp.sin(x) * g,))


@unrolled(XS, wrap=jax.grad)
def a_custom_derivative(x: Any) -> Any:
    for _ in range(14):  # runs 14: scan
        x = ruled(x) + 0.1
    return x.sum()


def body_of_eleven(h: Any, x: Any) -> Any:
    for _ in range(11):  # runs 11: scan
        h = cell(h, x, W)
    return h, None


UNROLLED["below_a_scan"] = lambda h, xs: jax.lax.scan(body_of_eleven, h, xs), (XS[0], XS)


@rolled(W)
def linear_algebra(a: Any) -> Any:
    _, values, vectors = jnp.linalg.svd(a)
    return jnp.linalg.eigh(a)[0] + jax.scipy.linalg.expm(vectors) @ values


@rolled(W, wrap=lambda net: jax.grad(lambda x: net(x).sum()))
def a_loop_of_seven(x: Any) -> Any:
    for _ in range(7):
        x = jnp.tanh(x @ W)
    return x


@rolled(W)
def three_loops_of_three(x: Any) -> Any:
    for _ in range(3):
        x = jnp.tanh(x @ W)
    for _ in range(3):
        x = jnp.sin(x @ W)
    for _ in range(3):
        x = jnp.cos(x @ W)
    return x


@rolled(XS[0], XS)
def a_scan(h: Any, xs: Any) -> Any:
    return jax.lax.scan(lambda h, x: (jnp.tanh(h @ W + x), None), h, xs)


def body_of_one(h: Any, x: Any) -> Any:
    for w in (W,) * 3:
        h = jnp.tanh(h @ w + x)
    return h, None


@rolled(XS[0], XS, wrap=jax.grad)
def a_scan_whose_unroll_is_one(h: Any, xs: Any) -> Any:
    return jax.lax.scan(body_of_one, h, xs, unroll=1)[0].sum()


@rolled(XS, wrap=lambda function: jax.vmap(jax.grad(function)))
def a_batch(x: Any) -> Any:
    return jnp.tanh(x @ W).sum()


@rolled(XS[0], wrap=jax.hessian)
def a_hessian(x: Any) -> Any:
    return jnp.tanh(jnp.sin(x @ W) @ W).sum()


@rolled(W)
def part_of_the_program(x: Any) -> Any:
    for _ in range(8):
        x = x + 1
    y = jnp.linalg.norm(jnp.tanh(x @ W) * jnp.sin(x), axis=1) + jnp.cos(x).sum()
    z = jax.nn.softmax(y) * jax.nn.gelu(y) + jnp.std(y) * jnp.median(x)
    return z + jax.nn.logsumexp(x) * jnp.cumsum(y) + jnp.linalg.det(x) + jax.nn.silu(y)


class _Layers(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.relu(nn.Dense(4)(nn.LayerNorm()(x)))
        x = nn.relu(nn.Dense(4)(nn.LayerNorm()(x)))
        return nn.Dense(4)(nn.LayerNorm()(x))


ROLLED |= {
    "three_layers": (jax.vmap(eqx.nn.MLP(4, 4, 4, 3, key=jax.random.key(0))), (XS,)),
    "layers_of_one_name": of_flax(_Layers()),
}
PARAMS = {"w": W, "b": XS[0]}


@rolled(PARAMS, CLIPPED.init(PARAMS), PARAMS)
def a_chain_of_optax(grads: Any, state: Any, params: Any) -> Any:
    updates, state = CLIPPED.update(grads, state, params)
    return optax.apply_updates(params, updates), state


@rolled([W, W, W])
def a_few_leaves(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.tanh(x) * x, tree)


def tanh_cos(x: Any) -> Any:
    return jnp.tanh(x @ W) * jnp.cos(x)


@rolled(W)
def many_places(x: Any) -> Any:
    f = tanh_cos
    return f(f(f(x))) + f(f(f(x + 1))) + f(f(f(x + 2))) + f(f(f(x + 3)))


@rolled(jax.random.key(0))
def random_numbers(key: Any) -> Any:
    one, other = jax.random.split(key)
    return jax.random.normal(one, (9,)) + jax.random.permutation(other, 9)


@rolled(list(XS))
def a_loop_in_c(xs: Any) -> Any:
    """Not seen: `itertools` calls the function."""
    return list(itertools.accumulate(xs, lambda h, x: jnp.tanh(h @ W + x)))[-1]


@rolled(W, wrap=lambda power: functools.partial(power, n=20))
def a_recursion(x: Any, n: int) -> Any:
    """Not seen: no loop has it."""
    return jnp.tanh(a_recursion(x, n - 1) @ W) if n else x
