"""`==` is one bool, and `hash` agrees with it."""

import collections
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw


@lw.pytree
class P:
    x: Any
    a: lw.Static[Any] = 1


@lw.pytree
class Q:
    x: Any
    a: lw.Static[Any] = 1


NAN = float("nan")
Pair = collections.namedtuple("Pair", ["left", "right"])  # noqa: PYI024  # untyped is enough


@lw.pytree
class Noted:
    x: Any
    note: lw.Static[str] = lw.field(default="", compare=False)
    cache: Any = lw.field(default=None, compare=False)


def test_fields_that_are_not_compared() -> None:
    """``==`` and hash pass them over, at any depth; the key counts them."""
    one, other = Noted(jnp.ones(2), "a", jnp.ones(3)), Noted(jnp.ones(2), "b", [])
    for a, b in ((one, other), (P([one]), P([other]))):
        assert a == b
        assert hash(a) == hash(b)
        assert jax.tree.structure(a) != jax.tree.structure(b)
    assert one != Noted(jnp.zeros(2), "a", one.cache)
    assert P([one]) != P([Noted(jnp.zeros(2), "a", one.cache)])


def test_a_hash_without_the_fields_that_are_not_compared_stays_the_same() -> None:
    """Instances that are equal have one hash, whatever else is made and dropped meanwhile."""
    found, alive = set(), []
    for number in range(20):
        found.add(hash(Noted(1.0, f"a {number}")))
        alive.append(Noted(1.0, f"b {number}"))
    assert len(found) == 1


EQUAL: dict[str, tuple[Any, Any]] = {
    "arrays": (jnp.arange(3.0), jnp.arange(3.0)),
    "numpy and jax": (np.arange(3, dtype=np.float32), jnp.arange(3, dtype=jnp.float32)),
    "nan": (jnp.array([NAN, 1.0]), jnp.array([NAN, 1.0])),
    "python nan": (NAN, float("nan")),
    "bfloat16 nan": (jnp.array([NAN], jnp.bfloat16), jnp.array([NAN], jnp.bfloat16)),
    "zero signs": (jnp.array([0.0]), jnp.array([-0.0])),
    "list": ([jnp.ones(2), {"k": 1}], [jnp.ones(2), {"k": 1}]),
    "namedtuple": (Pair(jnp.ones(2), 1), Pair(jnp.ones(2), 1)),
    "nested": (P(jnp.ones(2), "n"), P(jnp.ones(2), "n")),
    "keys": (jax.random.key(0), jax.random.key(0)),
    "structs": (
        jax.ShapeDtypeStruct((2,), jnp.float32),
        jax.ShapeDtypeStruct((2,), jnp.float32),
    ),
    "weak type": (jnp.asarray(1.0), jnp.float32(1.0)),
}
DIFFERENT: dict[str, tuple[Any, Any]] = {
    "elements": (jnp.arange(3.0), jnp.ones(3)),
    "dtype": (jnp.ones(3, jnp.float32), jnp.ones(3, jnp.bfloat16)),
    "shape": (jnp.ones(3), jnp.ones((1, 3))),
    "scalar and array": (1.0, jnp.float32(1.0)),
    "int and bool": (1, True),
    "None and leaf": (None, 1.0),
    "list and tuple": ([1], (1,)),
    "dict keys": ({"k": 1}, {"l": 1}),
    "namedtuple and tuple": (Pair(1, 2), (1, 2)),
    "nested static": (P(1.0, "n"), P(1.0, "m")),
    "nested class": (P(1.0), Q(1.0)),
    "keys": (jax.random.key(0), jax.random.key(1)),
    "key kinds": (jax.random.key(0), jax.random.key(0, impl="rbg")),
    "struct and array": (jax.ShapeDtypeStruct((2,), jnp.float32), jnp.ones(2)),
    "bfloat16": (jnp.array([1.0, NAN], jnp.bfloat16), jnp.array([2.0, NAN], jnp.bfloat16)),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal(name: str) -> None:
    """Equal class, statics and leaves (NaN too) give True, and the same hash."""
    one, two = (P(value) for value in EQUAL[name])
    assert (one == two) is True
    assert (two == one) is True
    assert (one != two) is False
    assert hash(one) == hash(two)


@pytest.mark.parametrize("name", DIFFERENT)
def test_different(name: str) -> None:
    """Whatever differs gives False: one bool, never an array and never an error."""
    one, two = (P(value) for value in DIFFERENT[name])
    assert (one == two) is False
    assert (two == one) is False
    assert (one != two) is True


def test_hash_ignores_contents_only() -> None:
    """The hash is made of statics, shapes and dtypes, never of array contents."""
    assert hash(P(jnp.ones(3))) == hash(P(jnp.zeros(3)))
    assert hash(P(jnp.ones(3))) != hash(P(jnp.ones(4)))
    assert hash(P(jnp.ones(3))) != hash(P(jnp.ones(3, jnp.int32)))
    assert hash(P(jnp.ones(3), 1)) != hash(P(jnp.ones(3), 2))
    assert hash(P(jnp.ones(3))) != hash(Q(jnp.ones(3)))


@pytest.mark.parametrize("which", ["left", "right", "both", "nested"])
def test_tracers_are_a_clear_error(which: str) -> None:
    """Where traced values would have to be compared, the error says so, with the path."""

    def inside(v: Any) -> Any:
        one = P([v] if which == "nested" else v if which != "right" else jnp.ones(()))
        two = P([v + 1] if which == "nested" else v + 1 if which != "left" else jnp.ones(()))
        return one == two

    with pytest.raises(lw.errors.TreeError, match=r"P\.x") as error:
        jax.jit(inside)(jnp.ones(()))
    assert "fix: compare outside the traced function" in str(error.value)


def test_tracers_that_need_no_comparison() -> None:
    """The same tracer, or one of another shape or dtype or static, is answered."""

    def inside(v: Any) -> Any:
        p = P(v)
        assert p == P(v)
        assert p == jax.tree.map(lambda x: x, p)
        assert p != P(v, 2)
        assert p != Q(v)
        assert p != P(v.astype(jnp.int32) + 1)
        assert p != P(v[None])
        return v

    assert jax.jit(inside)(jnp.ones(())) == 1.0


def test_hash_agrees_inside_and_outside_of_jit() -> None:
    """A tracer hashes as the array it stands for, and as its `ShapeDtypeStruct`."""
    seen: list[int] = []
    jax.jit(lambda p: seen.append(hash(p)))(P(jnp.ones(3)))
    assert seen == [hash(P(jnp.zeros(3)))]
