"""`==` is one bool, and `hash` agrees with it."""

import collections
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
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
    "numpy": (np.arange(3.0), np.arange(3.0)),
    "numpy and jax": (np.arange(3, dtype=np.float32), jnp.arange(3, dtype=jnp.float32)),
    "scalar array": (jnp.float32(1), np.float32(1)),
    "nan": (jnp.array([NAN, 1.0]), jnp.array([NAN, 1.0])),
    "python nan": (NAN, float("nan")),
    "complex nan": (jnp.array([complex(NAN, 1)]), jnp.array([complex(NAN, 1)])),
    "bfloat16 nan": (jnp.array([NAN], jnp.bfloat16), jnp.array([NAN], jnp.bfloat16)),
    "float8": (
        np.array([1.0, NAN], ml_dtypes.float8_e4m3fn),
        np.array([1.0, NAN], ml_dtypes.float8_e4m3fn),
    ),
    "zero signs": (jnp.array([0.0]), jnp.array([-0.0])),
    "empty": (jnp.zeros((0, 3)), jnp.zeros((0, 3))),
    "None": (None, None),
    "text": ("a", "a"),
    "list": ([jnp.ones(2), {"k": 1}], [jnp.ones(2), {"k": 1}]),
    "namedtuple": (Pair(jnp.ones(2), 1), Pair(jnp.ones(2), 1)),
    "nested": (P(jnp.ones(2), "n"), P(jnp.ones(2), "n")),
    "keys": (jax.random.key(0), jax.random.key(0)),
    "structs": (
        jax.ShapeDtypeStruct((2,), jnp.float32),
        jax.ShapeDtypeStruct((2,), jnp.float32),
    ),
    "np.bool": (np.array([True]), np.array([True])),
    "int4": (jnp.array([1, 2], jnp.int4), jnp.array([1, 2], jnp.int4)),
    "not a time": (np.array(["NaT"], "M8[s]"), np.array(["NaT"], "M8[s]")),
    "object array": (np.array(["a", None], object), np.array(["a", None], object)),
    "weak type": (jnp.asarray(1.0), jnp.float32(1.0)),
}
DIFFERENT: dict[str, tuple[Any, Any]] = {
    "elements": (jnp.arange(3.0), jnp.ones(3)),
    "one element": (jnp.array([1.0, NAN]), jnp.array([NAN, NAN])),
    "dtype": (jnp.ones(3, jnp.float32), jnp.ones(3, jnp.bfloat16)),
    "int and float": (jnp.ones(3, jnp.int32), jnp.ones(3, jnp.float32)),
    "shape": (jnp.ones(3), jnp.ones((1, 3))),
    "shape that broadcasts": (jnp.ones(3), jnp.ones(1)),
    "scalar and array": (1.0, jnp.float32(1.0)),
    "int and bool": (1, True),
    "int and float scalars": (1, 1.0),
    "None and leaf": (None, 1.0),
    "list and tuple": ([1], (1,)),
    "dict keys": ({"k": 1}, {"l": 1}),
    "namedtuple and tuple": (Pair(1, 2), (1, 2)),
    "nested static": (P(1.0, "n"), P(1.0, "m")),
    "nested class": (P(1.0), Q(1.0)),
    "keys": (jax.random.key(0), jax.random.key(1)),
    "key kinds": (jax.random.key(0), jax.random.key(0, impl="rbg")),
    "struct and array": (jax.ShapeDtypeStruct((2,), jnp.float32), jnp.ones(2)),
    "array and struct": (jnp.ones(2), jax.ShapeDtypeStruct((2,), jnp.float32)),
    "structs": (
        jax.ShapeDtypeStruct((2,), jnp.float32),
        jax.ShapeDtypeStruct((3,), jnp.float32),
    ),
    "bfloat16": (jnp.array([1.0, NAN], jnp.bfloat16), jnp.array([2.0, NAN], jnp.bfloat16)),
    "byte order": (np.ones(2, ">f4"), np.ones(2, "<i4")),
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

    with pytest.raises(lw.errors.TracerComparisonError, match=r"P\.x") as error:
        jax.jit(inside)(jnp.ones(()))
    assert "fix: compare outside the traced function" in str(error.value)
    assert isinstance(error.value, TypeError)


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


def test_leafless_instance_is_a_static_value() -> None:
    """An instance without leaves can be the static of another one, and is its key."""

    @lw.pytree
    class Config:
        n: lw.Static[Any]
        m: Any = None

    one, two = P(1.0, Config(1)), P(1.0, Config(1))
    assert jax.tree.structure(one) == jax.tree.structure(two)
    for other in (Config(True), Config(2), Q(None, 1)):
        assert jax.tree.structure(one) != jax.tree.structure(P(1.0, other))
    traces: list[Any] = []
    run = jax.jit(lambda p: traces.append(p.a.n) or p.x * p.a.n)
    run(P(1.0, Config(1)))
    run(P(2.0, Config(1)))
    assert run(P(1.0, Config(3))) == 3.0
    assert traces == [1, 3]


def test_jit_of_a_method() -> None:
    """`jax.jit(p.method)` works and is right, for each instance."""

    @lw.pytree
    class M:
        x: jax.Array
        a: lw.Static[Any] = 1

        def scaled(self, y: Any) -> Any:
            return self.x * self.a + y

        @jax.jit
        def fast(self, y: Any) -> Any:
            return self.x * self.a + y

    for x in (1.0, 2.0):
        for a in (1, 2, 2.5):
            m = M(jnp.full(2, x), a)
            assert jax.jit(m.scaled)(1.0).tolist() == [x * a + 1.0] * 2
            assert m.fast(1.0).tolist() == [x * a + 1.0] * 2
            assert jax.jit(M(jnp.full(2, x), a).scaled)(1.0).tolist() == [x * a + 1.0] * 2
