"""JAX's messages on trees that do not agree: what they say, and what a note adds."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import leafwise as lw

from .mismatched import CALLS, bwd, one, two

pytestmark = pytest.mark.hazard


@lw.pytree
class Params:
    x: Any
    a: Any = lw.static_field(default=2)


@lw.pytree
class Twin:
    x: Any
    a: Any = lw.static_field(default=2)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Plain:
    x: Any
    a: Any = dataclasses.field(default=2, metadata={"static": True})


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
    assert "Params(a=2)" in message
    assert "Params(a=3)" in message
    plain, plain_note = raised(lambda: CALLS[name](Plain))
    assert "a=2" not in plain
    for text in (note, plain_note):
        assert ".a (static): 2 -> 3" in text
        assert "\n  fix: " in text


def tangent(before: Any, after: Any) -> Callable[[], Any]:
    return lambda: jax.jvp(lambda p: p, (before,), (after,))


def deep(dtype: Any) -> Any:
    """Return a tree of many leaves of which one has another dtype."""
    return {f"layer{i}": Params(jnp.ones(2, dtype if i == 17 else None)) for i in range(20)}


HIDDEN = {
    "none": (tangent(one(Params), Params(None)), "[0].x (structure): float32[] -> None"),
    "class": (tangent(one(Params), one(Twin)), "primals[0] (class): Params -> Twin"),
    "dtype": (tangent(deep(None), deep("float16")), "['layer17'].x: dtype float32 -> float16"),
    "key": (
        tangent({"a": 1.0}, {"a": 1.0, "b": 2.0}),
        "primals[0]['b'] (structure): (absent) -> (present)",
    ),
    "shape": (lambda: bwd(Params, lambda g: jnp.stack([g] * 3)), "args[0].x: shape () -> (3,)"),
}


@pytest.mark.parametrize(("call", "expected"), HIDDEN.values(), ids=HIDDEN)
def test_hidden_cause_is_named(call: Callable[[], Any], expected: str) -> None:
    """The note names the place and both sides by path, where JAX's message shows whole trees."""
    _, note = raised(call)
    assert expected in note


def test_none_for_a_cotangent_is_no_difference() -> None:
    """A backward rule may return None for zeros: only what JAX refuses is named."""
    _, note = raised(lambda: bwd(Params, lambda _: None))
    assert "args[0].a (static): 2 -> 3" in note
    assert "None" not in note


def test_what_jax_says_itself() -> None:
    """Where JAX's message has the path, there is no note."""
    message, note = raised(
        lambda: lax.cond(jnp.array(True), lambda: one(Params), lambda: two(Params))
    )
    assert "Params(a=3)" in message
    assert not note


def test_weak_types_raise_nothing() -> None:
    """JAX promotes a weakly typed carry silently, to another dtype too: there is no error."""
    with lw.debug.explain_errors():
        carry, _ = lax.scan(lambda p, _: (Params(p.x * 1.5), None), Params(1), None, length=2)
        assert lax.cond(jnp.array(True), lambda: 1.0, lambda: jnp.float32(1)) == 1
    assert jnp.issubdtype(carry.x.dtype, jnp.floating)
    assert [each.kind for each in lw.diff(Params(1), carry)] == [lw.types.ReasonKind.DTYPE]


def test_what_jax_does_not_check() -> None:
    """Where JAX compares no structures, the statics of what a function returns are lost."""
    many = Params(jnp.ones(2))
    summed = lax.associative_scan(lambda a, b: Params(a.x + b.x, 3), many)
    assert summed.a == 2
    with pytest.raises(lw.errors.StructureMismatchError, match=r"a \(static\): 2 -> 3"):
        lw.assert_same_structure(summed, two(Params))
