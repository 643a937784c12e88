"""Classes that several tests of other libraries have in common."""

from typing import Any

import equinox as eqx
import jax
import pytest

import leafwise as lw
from leafwise.interop.equinox import Module

KEEPS = "`leafwise.interop.equinox.Module` keeps"


def works(what: str, cannot: str | None = None) -> pytest.MarkDecorator:
    return pytest.mark.works("equinox", what, cannot=cannot)


@lw.pytree
class Holder:
    """Holds a value of another library, and one as a static."""

    it: Any
    config: lw.Static[Any] = None


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
