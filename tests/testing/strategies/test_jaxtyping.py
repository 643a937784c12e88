# Shapes stand in strings.
# ruff: noqa: F722, F821
"""`instances`: shapes and dtypes of jaxtyping annotations."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw
from leafwise.errors import CannotBuildError
from leafwise.testing.strategies import arrays, instances

from .seeking import assert_reaches, drawn, minimal

jaxtyping = pytest.importorskip("jaxtyping")

from jaxtyping import Float, Int, Key, PyTree, Shaped, UInt  # noqa: E402

Array = jax.Array


@lw.pytree
class Linear:
    w: Float[Array, "out in"]
    b: Float[Array, "out"] | None
    scale: Float[Array, ""]


@lw.pytree
class Two:
    first: Linear
    second: Linear
    x: Float[Array, "in"]


def test_one_length_throughout_an_instance() -> None:
    """A name stands for one length in all fields, and different names may differ."""
    values = drawn(instances(Linear))
    for value in values:
        assert value.b is None or value.b.shape == value.w.shape[:1]
        assert value.scale.shape == ()
    assert {value.w.shape[0] for value in values} == {1, 2, 3, 4}
    assert any(value.w.shape[0] != value.w.shape[1] for value in values)


def test_instances_inside_have_their_own() -> None:
    """A nested instance has names of its own: two layers need not be alike."""
    values = drawn(instances(Two), 30)
    assert any(made.first.w.shape != made.second.w.shape for made in values)
    assert any(made.first.w.shape[1] != made.x.shape[0] for made in values)
    for made in values:
        assert made.second.b is None or made.second.b.shape == made.second.w.shape[:1]


class Named(NamedTuple):
    a: Float[Array, "n"]
    b: Int[np.ndarray, "n n"]


@lw.pytree
class Sub(Linear):
    more: Float[Array, "in"]


@dataclasses.dataclass
class Wide:
    rest: Float[Array, "*batch n"]
    same: Float[Array, "*batch"]
    any: Float[Array, "... 2"]
    free: Float[Array, "_ _ n"]
    named: Float[Array, "rows=3 n"]
    more: Float[Array, "n+1 2*n min(n,2)"]
    less: Float[Array, "#n #3"]
    spread: Float[Array, "*#batch"]


def test_jaxtyping_agrees() -> None:
    """jaxtyping's own check takes every instance."""

    @jaxtyping.jaxtyped(typechecker=None)
    def check(made: Any, cls: Any) -> bool:
        return all(isinstance(getattr(made, f.name), f.type) for f in dataclasses.fields(cls))

    for made in drawn(instances(Wide), 25):
        assert check(made, Wide)


def test_namedtuples_and_subclasses() -> None:
    """Inherited fields share the names of the class, and so do those of a namedtuple."""
    for value in drawn(instances(Named), 30):
        assert value.b.shape == value.a.shape * 2
        assert isinstance(value.b, np.ndarray)
    for value in drawn(instances(Sub), 30):
        assert value.more.shape == value.w.shape[1:]


@pytest.mark.parametrize(
    ("annotation", "usual", "allowed"),
    [
        (Float, "float32", "float32 float16 bfloat16"),
        (Int, "int32", "int32 int8 int16"),
        (UInt, "uint32", "uint32 uint8"),
        (Shaped, "float32", "float32 int32 bool"),
        (jaxtyping.Int4, "int4", "int4"),
        (Key, "key<fry>", "key<fry>"),
    ],
    ids=str,
)
def test_dtypes(annotation: Any, usual: str, allowed: str) -> None:
    """Dtypes are among those annotated, and the usual one is the most usual."""
    cls = dataclasses.make_dataclass("Asked", [("it", annotation[Array, "2"])])
    dtypes = [str(made.it.dtype) for made in drawn(instances(cls), 40)]
    assert set(dtypes) <= set(allowed.split())
    assert dtypes.count(usual) > len(dtypes) / 3
    assert str(minimal(instances(cls)).it.dtype) == usual


def test_unions_trees_and_keys() -> None:
    """`ScalarLike`, `PRNGKeyArray` and `PyTree` are read as what they stand for."""

    @dataclasses.dataclass
    class Asked:
        scalar: jaxtyping.ScalarLike
        key: jaxtyping.PRNGKeyArray
        tree: PyTree[Float[Array, "n"]]
        any: PyTree
        x: Float[Array, "n"]

    values = drawn(instances(Asked))
    for made in values:
        assert np.shape(made.scalar) == ()
        assert isinstance(made.key, jax.Array)
        assert all(leaf.shape == made.x.shape for leaf in jax.tree.leaves(made.tree))
    structures = {str(jax.tree.structure(made.tree)) for made in values}
    assert len(structures) > 3


@pytest.mark.nightly
@pytest.mark.slow
def test_overrides_decide_lengths() -> None:
    """The other fields fit an override, and a default that is used."""
    for made in drawn(instances(Linear, w=arrays((5, 7))), 30):
        assert made.b is None or made.b.shape == (5,)
    for made in drawn(instances(Two, x=arrays(6), second=instances(Linear, w=arrays((2, 6)))), 9):
        assert (made.x.shape, made.second.w.shape) == ((6,), (2, 6))

    @dataclasses.dataclass
    class WithDefault:
        b: Float[Array, "n"]
        w: Float[Array, "n *rest"] = dataclasses.field(default_factory=lambda: jnp.zeros((9, 8)))
        r: Float[Array, "*rest"] | None = None

    for made in drawn(instances(WithDefault), 60):
        assert made.b.shape == made.w.shape[:1]
        assert made.r is None or made.r.shape == made.w.shape[1:]
    assert_reaches(instances(WithDefault), lambda v: v.w.shape == (9, 8), lambda v: v.w.ndim == 1)


def test_lengths_that_cannot_be_computed() -> None:
    """What jaxtyping reads from another field is not drawn, and said to be so."""

    @dataclasses.dataclass
    class Lost:
        x: Float[Array, "{self.n}"]

    with pytest.raises(CannotBuildError) as raised:
        drawn(instances(Lost))
    assert "'{self.n}' cannot be computed" in str(raised.value)
    assert "instances(Lost, x=...)" in str(raised.value)


def test_double_precision() -> None:
    """A float64 is an error that names the fix, and is drawn where JAX has it."""

    @dataclasses.dataclass
    class Double:
        x: jaxtyping.Float64[Array, "2"]
        y: jaxtyping.Float64[np.ndarray, "2"]

    with pytest.raises(CannotBuildError) as raised:
        drawn(instances(Double))
    assert "Double.x" in str(raised.value)
    assert "jax_enable_x64" in str(raised.value)
    with jax.enable_x64(True):
        assert {str(made.x.dtype) for made in drawn(instances(Double))} == {"float64"}
