"""What type checkers see of a subclass of `leafwise.interop.equinox.Module`."""

import dataclasses
from typing import assert_type

import equinox as eqx
import jax
import jax.numpy as jnp

import leafwise as lw
from leafwise.interop.equinox import Module


class Net(Module):
    w: jax.Array
    depth: int = lw.static_field(default=2)
    act: lw.Static[str] = "relu"
    width: int = eqx.field(static=True, default=3)
    name: str = lw.static_field(default="net", kw_only=True)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.w * x


class Wide(Net):
    scale: float = lw.field(default=1.0)


class Required(Module):
    depth: int = lw.static_field()


class Own(Module):
    w: jax.Array

    def __init__(self, size: int) -> None:
        self.w = jnp.ones(size)


x = jnp.ones(3)
net = Net(x, 3, act="tanh", name="a")
assert_type(net, Net)
assert_type(net.w, jax.Array)
assert_type(net.depth, int)
assert_type(net.act, str)
assert_type(net.width, int)
assert_type(net(x), jax.Array)
assert_type(Wide(x, 3, "tanh", 4, 2.0).scale, float)
assert_type(dataclasses.replace(net, depth=4), Net)
assert_type(lw.replace(net, depth=4), Net)
assert_type(Own(3).w, jax.Array)
assert_type(Required(3).depth, int)

# The constructor is checked.
Net()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Net(x, "three")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Net(x, 3, "tanh", 4, "a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Required()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
