"""`lw.replace` on modules: the fields are exchanged, and the module is checked again."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import leafwise as lw
from leafwise.interop.equinox import Module

pytestmark = pytest.mark.works(
    "equinox", "`lw.replace` of modules, those with a constructor by hand included"
)


def doubled(value: float) -> float:
    return 2 * value


def make_class(base: Any) -> Any:
    class ByHand(base):
        w: jax.Array
        rate: float = eqx.field(converter=doubled, static=True)
        k: int = lw.static_field(default=1)

        def __init__(self, n: int, rate: float = 0.5) -> None:
            self.w = jnp.ones(n)
            self.rate = rate

        def __check_init__(self) -> None:
            if self.k < 0:
                raise ValueError("k is negative")

    return ByHand


@pytest.mark.parametrize("base", [eqx.Module, Module], ids=["plain", "keyed"])
def test_replace(base: Any) -> None:
    """Changed fields are converted, others are not again; all statics count; the check runs."""
    module = make_class(base)(2)
    changed = lw.replace(module, k=5)
    assert (changed.k, changed.rate, module.k) == (5, 1.0, 1)
    assert changed.w is module.w
    assert lw.replace(module, rate=3.0).rate == 6.0
    assert jax.tree.structure(changed) != jax.tree.structure(module)
    assert jax.tree.structure(lw.replace(changed, k=1)) == jax.tree.structure(module)
    with pytest.raises(lw.errors.StaticFieldError, match=r"\.k"):
        lw.replace(module, k=[1])
    with pytest.raises(TypeError, match="did you mean 'rate'"):
        lw.replace(module, rat=1)
    with pytest.raises(ValueError, match="k is negative"):
        lw.replace(module, k=-1)
