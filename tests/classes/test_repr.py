"""The repr of instances, and `lw.pformat`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw


@lw.pytree
class P:
    x: Any
    a: lw.Static[Any] = 2
    act: lw.Static[str] = "relu"


@lw.pytree
class Box:
    inner: Any


class Plain:
    @lw.pytree
    class Nested:  # noqa: D106  # a specimen
        x: Any


def test_arrays_are_summarised() -> None:
    """An array is its dtype and shape, statics are their repr."""
    assert repr(P(jnp.ones((3, 4)))) == "P(x=f32[3,4], a=2, act='relu')"
    assert repr(P(jnp.int32(1), a=None)) == "P(x=i32[], a=None, act='relu')"
    assert "bf16[2]" in repr(P(jnp.ones(2, jnp.bfloat16)))
    assert "bool[0]" in repr(P(jnp.zeros(0, bool)))


def test_pformat() -> None:
    """It is the repr, also of what is in a container; a narrow width has a field a line."""
    assert lw.pformat([P(1.5)]) == f"[{P(1.5)!r}]"
    lines = lw.pformat(P(jnp.ones(3)), width=20).splitlines()
    assert lines[0] == "P("
    assert [line.strip() for line in lines[1:-1]] == ["x=f32[3],", "a=2,", "act='relu'"]


def test_nested_and_containers() -> None:
    """Instances inside instances, lists and dicts are printed the same way."""
    text = repr(Box({"k": [P(jnp.ones(2)), None]}))
    assert text == "Box(inner={'k': [P(x=f32[2], a=2, act='relu'), None]})"
    assert repr(Plain.Nested(1)).endswith("Nested(x=1)")


def test_tracers() -> None:
    """Inside jit, vmap and grad the repr works, and leaks nothing."""
    texts: list[str] = []

    def look(p: P) -> Any:
        texts.append(lw.pformat(p))
        texts.append(repr(p))
        return p.x.sum()

    jax.jit(look)(P(jnp.ones(3)))
    jax.grad(look)(P(jnp.ones(3)))
    jax.vmap(look)(P(jnp.ones((2, 3))))
    assert all(text.startswith("P(") for text in texts)
    assert "f32[3](traced)" in texts[1]


LEAVES: dict[str, Any] = {
    "None": None,
    "struct": jax.ShapeDtypeStruct((2, 3), jnp.float32),
    "key": jax.random.key(0),
    "keys": jax.random.split(jax.random.key(0)),
    "function": len,
    "StaticArray": lw.StaticArray([1, 2]),
    "object array": np.array([object()], object),
    "structured": np.zeros(2, [("a", "f4")]),
    "masked": np.ma.masked_array([1, 2], [True, False]),
}


@pytest.mark.parametrize("name", LEAVES)
def test_any_leaf(name: str) -> None:
    """Whatever an unflatten put into a field, the repr works."""
    p = jax.tree.unflatten(jax.tree.structure(P(1.0)), [LEAVES[name]])
    assert repr(p).startswith("P(")
    assert str(p) == repr(p)
