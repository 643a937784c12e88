"""The loops that diffrax is made of, over leafwise classes and modules."""

import dataclasses
from typing import TYPE_CHECKING, Any

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import pytest

import leafwise as lw
from leafwise.interop.equinox import Module

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = ("lax", "checkpointed", "bounded")


@lw.pytree
class Carry:
    x: jax.Array
    steps: jax.Array
    label: str = lw.static_field(default="carry")


class ModuleCarry(Module):
    x: jax.Array
    steps: jax.Array
    label: str = lw.static_field(default="carry")


@pytest.mark.slow
@pytest.mark.parametrize("cls", [Carry, ModuleCarry])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.works("equinox", "the loops of `eqx.internal` that diffrax uses, as carry")
def test_while_loop(kind: str, cls: type) -> None:
    """A carry keeps its class and statics in a loop of any kind, also in its gradient."""
    make: Callable[..., Any] = cls

    def loop(x: jax.Array) -> Any:
        return eqxi.while_loop(
            lambda carry: carry.steps < 3,
            lambda carry: dataclasses.replace(carry, x=carry.x * 2, steps=carry.steps + 1),
            make(x, jnp.asarray(0), "loop"),
            kind=kind,
            max_steps=None if kind == "lax" else 4,
        )

    out = jax.jit(loop)(jnp.asarray(1.5))
    assert type(out) is cls
    assert (out.label, float(out.x), int(out.steps)) == ("loop", 12.0, 3)
    if kind == "bounded":
        assert float(jax.grad(lambda x: loop(x).x)(1.5)) == 8.0


@pytest.mark.works("equinox", "a static that changes in a loop is refused, by name")
def test_changed_static_in_loop() -> None:
    """The body must give back the statics that it was given: the message shows both."""
    start = Carry(jnp.asarray(0.0), jnp.asarray(0), "before")
    with pytest.raises((TypeError, ValueError), match=r"Carry\(.*label='after'\)"):
        eqxi.while_loop(
            lambda carry: carry.steps < 3,
            lambda carry: lw.replace(carry, label="after"),
            start,
            kind="lax",
        )
