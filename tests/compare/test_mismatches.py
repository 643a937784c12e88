"""JAX's messages on trees that do not agree: what they say, and what a note adds."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from tests.kit.specimens import Plain

import leafwise as lw

pytestmark = pytest.mark.hazard


@lw.pytree
class Params:
    w: Any
    n: Any = lw.static_field(default=2)


@lw.pytree
class Twin:
    w: Any
    n: Any = lw.static_field(default=2)


def one(cls: Any) -> Any:
    """Return an instance with the static 2."""
    return cls(jnp.float32(1), 2)


def two(cls: Any) -> Any:
    """Return an instance that differs by the static 3."""
    return cls(jnp.float32(1), 3)


def bwd(cls: Any, wrong: Callable[[Any], Any] = lambda g: g) -> Any:
    @jax.custom_vjp
    def double(p: Any) -> Any:
        return p.w * 2

    double.defvjp(lambda p: (p.w * 2, None), lambda _, g: (cls(wrong(g), 3),))
    return jax.grad(double)(one(cls))


def jvp_rule(cls: Any) -> Any:
    @jax.custom_jvp
    def double(p: Any) -> Any:
        return cls(p.w * 2, 2)

    double.defjvp(lambda ps, ts: (cls(ps[0].w, 2), cls(ts[0].w, 3)))
    return jax.jvp(double, (one(cls),), (one(cls),))


CALLS: dict[str, Callable[[Any], Any]] = {
    "custom_vjp bwd": bwd,
    "custom_jvp": jvp_rule,
    "jvp": lambda cls: jax.jvp(lambda p: p.w, (one(cls),), (two(cls),)),
    "linearize": lambda cls: jax.linearize(lambda p: p, one(cls))[1](two(cls)),
    "linear_transpose": lambda cls: jax.linear_transpose(lambda p: p, one(cls))(two(cls)),
}
"""Calls that JAX refuses, by the construct."""


def raised(call: Callable[[], Any]) -> tuple[str, str]:
    """Return the message of what JAX raises, and the note that explains it."""
    with pytest.raises((TypeError, ValueError)) as caught, lw.debug.explain_errors():
        call()
    notes = [each for each in getattr(caught.value, "__notes__", ()) if "leafwise" in each]
    assert len(notes) <= 1
    return str(caught.value), "".join(notes)


@pytest.mark.parametrize("name", CALLS)
def test_static_mismatch_is_named(name: str) -> None:
    """JAX prints treedefs, with names for leafwise alone; the note names fields of any class."""
    message, note = raised(lambda: CALLS[name](Params))
    assert "PyTreeDef(" in message
    assert "Params(n=2)" in message
    assert "Params(n=3)" in message
    plain, plain_note = raised(lambda: CALLS[name](Plain))
    assert "n=2" not in plain
    for text in (note, plain_note):
        assert ".n (static): 2 -> 3" in text
        assert "\n  fix: " in text


def tangent(before: Any, after: Any) -> Callable[[], Any]:
    return lambda: jax.jvp(lambda p: p, (before,), (after,))


def deep(dtype: Any) -> Any:
    """Return a tree of many leaves of which one has another dtype."""
    return {f"layer{i}": Params(jnp.ones(2, dtype if i == 17 else None)) for i in range(20)}


HIDDEN = {
    "none": (tangent(one(Params), Params(None)), "[0].w (structure): float32[] -> None"),
    "class": (tangent(one(Params), one(Twin)), "primals[0] (class): Params -> Twin"),
    "dtype": (tangent(deep(None), deep("float16")), "['layer17'].w: dtype float32 -> float16"),
    "key": (
        tangent({"a": 1.0}, {"a": 1.0, "b": 2.0}),
        "primals[0]['b'] (structure): (absent) -> (present)",
    ),
    "shape": (lambda: bwd(Params, lambda g: jnp.stack([g] * 3)), "args[0].w: shape () -> (3,)"),
}


@pytest.mark.parametrize(("call", "expected"), HIDDEN.values(), ids=HIDDEN)
def test_hidden_cause_is_named(call: Callable[[], Any], expected: str) -> None:
    """The note names the place and both sides by path, where JAX's message shows whole trees."""
    _, note = raised(call)
    assert expected in note


def test_none_for_a_cotangent_is_no_difference() -> None:
    """A backward rule may return None for zeros: only what JAX refuses is named."""
    _, note = raised(lambda: bwd(Params, lambda _: None))
    assert "args[0].n (static): 2 -> 3" in note
    assert "None" not in note


def test_what_jax_says_itself() -> None:
    """Where JAX's message has the path, there is no note."""
    message, note = raised(lambda: lax.cond(True, lambda: one(Params), lambda: two(Params)))
    assert "Params(n=3)" in message
    assert not note


def test_what_jax_does_not_check() -> None:
    """Where JAX compares no structures, the statics of what a function returns are lost."""
    many = Params(jnp.ones(2))
    summed = lax.associative_scan(lambda a, b: Params(a.w + b.w, 3), many)
    assert summed.n == 2
    with pytest.raises(lw.errors.StructureMismatchError, match=r"n \(static\): 2 -> 3"):
        lw.assert_same_structure(summed, two(Params))
