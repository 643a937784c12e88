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


def classes(base: Any) -> Any:
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

    class Generated(base):
        w: jax.Array
        rate: float = eqx.field(converter=doubled, static=True, default=0.5)
        k: int = lw.static_field(default=1)

    return ByHand, Generated


@pytest.mark.parametrize("base", [eqx.Module, Module], ids=["plain", "keyed"])
def test_replace(base: Any) -> None:
    """Changed fields are converted, others are not again; all statics count."""
    by_hand, generated = classes(base)
    for module in (by_hand(2), generated(jnp.ones(2))):
        assert module.rate == 1.0
        changed = lw.replace(module, k=5)
        assert (changed.k, changed.rate) == (5, 1.0)
        assert changed.w is module.w
        assert module.k == 1
        assert lw.replace(module, rate=3.0).rate == 6.0
        assert lw.replace(module, w=jnp.zeros(1)).w.shape == (1,)
        assert jax.tree.structure(changed) != jax.tree.structure(module)
        assert jax.tree.structure(lw.replace(changed, k=1)) == jax.tree.structure(module)
        with pytest.raises(lw.errors.StaticFieldError, match=r"\.k"):
            lw.replace(module, k=[1])
        with pytest.raises(TypeError, match="did you mean 'rate'"):
            lw.replace(module, rat=1)


@pytest.mark.parametrize("base", [eqx.Module, Module], ids=["plain", "keyed"])
def test_checked_again(base: Any) -> None:
    """A module's own check runs, as after every construction."""
    by_hand, _ = classes(base)
    with pytest.raises(ValueError, match="k is negative"):
        lw.replace(by_hand(2), k=-1)
