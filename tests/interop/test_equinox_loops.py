"""The loops that diffrax is made of, over leafwise classes and modules."""

import dataclasses
import functools
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


@functools.cache
def checkpointed_gradients_work() -> bool:
    """Return whether they do without leafwise: in equinox 0.13.2 they do not with JAX 0.10."""

    def loop(x: jax.Array) -> jax.Array:
        return eqxi.while_loop(
            lambda y: y < 3, lambda y: y * 2, x, kind="checkpointed", max_steps=4
        )

    try:
        return float(jax.grad(loop)(1.0)) == 4.0
    except AttributeError:
        return False


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
    if kind == "bounded" or (kind == "checkpointed" and checkpointed_gradients_work()):
        assert float(jax.grad(lambda x: loop(x).x)(1.5)) == 8.0


@pytest.mark.parametrize("kind", ["lax", "checkpointed"])
@pytest.mark.works("equinox", "the loops of `eqx.internal` that diffrax uses, as carry")
def test_scan(kind: str) -> None:
    """A scan carries an instance and stacks others."""

    def body(carry: Carry, x: jax.Array) -> tuple[Carry, Carry]:
        after = lw.replace(carry, x=carry.x + x, steps=carry.steps + 1)
        return after, after

    start = Carry(jnp.asarray(0.0), jnp.asarray(0), "scan")
    last, all_of_them = eqxi.scan(body, start, jnp.arange(3.0), kind=kind)
    assert (float(last.x), last.label) == (3.0, "scan")
    assert all_of_them.label == "scan"
    assert jnp.array_equal(all_of_them.x, jnp.array([0.0, 1.0, 3.0]))


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
