"""leafwise classes and chex dataclasses in each other."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

import leafwise as lw
from leafwise.testing import check_pytree, check_recompilation

works = pytest.mark.works
NESTED = "leafwise classes and chex dataclasses nested in each other, through `jit`, `vmap`, `grad`"
PATHS = "Explanations name fields inside nested chex dataclasses, mappable or not"


@chex.dataclass
class Moments:
    mean: Any
    var: Any = 1.0


@chex.dataclass(frozen=True, mappable_dataclass=False)
class Plain:
    mean: Any
    var: Any = 1.0


@lw.pytree
class Norm:
    moments: Any
    scale: Any = 1.0
    act: lw.Static[object] = "relu"


@chex.dataclass
class State:
    norm: Norm
    step: Any = 0.0


def tree(inner: Any, n: int = 3, act: object = "relu") -> State:
    moments = inner(mean=jnp.ones(n), var=jnp.ones(2))
    return State(norm=Norm(moments, jnp.ones(()), act), step=jnp.ones(()))


def paths(value: Any) -> list[str]:
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(value)]


both = pytest.mark.parametrize("inner", [Moments, Plain], ids=["mappable", "plain"])


@works("chex", NESTED)
@both
def test_nested(inner: Any) -> None:
    """Leaves, statics and classes come through every transformation."""
    state = tree(inner)
    assert paths(state) == [".norm.moments.mean", ".norm.moments.var", ".norm.scale", ".step"]
    total = jax.jit(lambda s: s.norm.scale * s.norm.moments.mean.sum())
    with lw.budget(traces=1, exact=True, eager=False):
        total(state)
        total(jax.tree.map(lambda leaf: 2 * leaf, tree(inner)))
    with lw.budget(traces=1, exact=True, eager=False):
        total(tree(inner, act="tanh"))
    gradient = jax.grad(total)(state)
    assert (type(gradient.norm.moments), gradient.norm.act) == (inner, "relu")
    out = jax.jit(lambda s: s.replace(norm=lw.replace(s.norm, scale=s.step)))(state)
    chex.assert_trees_all_equal(out, state)


@works("chex", NESTED)
@both
def test_sound_keys_inside(inner: Any) -> None:
    """In a chex dataclass too, 1, True and 1.0 are three programs."""
    kind = jax.jit(lambda s: s.norm.act * s.step)
    with lw.budget(traces=3, exact=True, eager=False):
        for act in (1, True, 1.0):
            kind(tree(inner, act=act))
    with pytest.raises(AssertionError, match="act=True"):
        chex.assert_trees_all_equal(tree(inner, act=1), tree(inner, act=True))


@works("chex", PATHS)
@both
def test_paths(inner: Any) -> None:
    """A changed leaf, a changed static, and a changed dtype are told by their path."""
    total = lw.jit(lambda state: state.norm.moments.mean.sum())
    total(tree(inner))
    total(tree(inner, n=4))
    total(tree(inner, act="tanh"))
    said = [str(trace.explanation) for trace in total.traces]
    assert "state.norm.moments.mean: shape (3,) -> (4,)" in said[1]
    assert "state.norm.act (static): 'relu' -> 'tanh'" in said[2]


@works("chex", "a chex dataclass as a static field: frozen ones only")
def test_as_a_static() -> None:
    """A frozen dataclass without arrays is a key; a mutable one is refused by name."""
    run = jax.jit(lambda norm: norm.scale)
    with lw.budget(traces=1, exact=True, eager=False):
        run(Norm(1.0, act=Plain(mean=1)))
        run(Norm(2.0, act=Plain(mean=1)))
    with pytest.raises(lw.errors.StaticFieldError, match=r"Norm\.act: .*not frozen"):
        Norm(1.0, act=Moments(mean=1))


ACTS = st.sampled_from(["relu", "tanh"])
FEW = settings(max_examples=10)
LAWS = [
    "round-trip",
    "key-paths",
    "static-types",
    "aux-data-hash",
    "distinct-classes",
    "transformations",
]


@works("chex", "leafwise's property tests check chex dataclasses with leafwise classes in them")
def test_the_kit() -> None:
    """A chex dataclass keeps the laws of its kind, with a pytree class in it and in one."""
    arrays = st.sampled_from([np.ones(3, np.float32), np.zeros(3, np.float32)])
    states = st.builds(lambda leaf, act: State(norm=Norm(Plain(mean=leaf), 1.0, act)), arrays, ACTS)
    check_pytree(states, laws=LAWS, settings=FEW)
    claims = {"retrace_on": {"norm.act"}, "reuse_on": {"norm.moments.mean", "norm.scale"}}
    check_recompilation(states, settings=FEW, **claims)
