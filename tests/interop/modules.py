"""A module with statics of each spelling, for the tests of `leafwise.interop.equinox`."""

import equinox as eqx
import jax
import pytest

import leafwise as lw
from leafwise.interop.equinox import Module

KEEPS = "`leafwise.interop.equinox.Module` keeps"


def works(what: str, cannot: str | None = None) -> pytest.MarkDecorator:
    return pytest.mark.works("equinox", what, cannot=cannot)


class Layer(Module):
    """A layer with statics of each spelling."""

    w: jax.Array
    act: lw.Static[str] = "relu"
    depth: int = eqx.field(static=True, default=2, converter=int)
    name: str = lw.static_field(default="layer", kw_only=True)

    def __call__(self, x: jax.Array) -> jax.Array:
        for _ in range(self.depth):
            x = getattr(jax.nn, self.act)(self.w * x)
        return x
