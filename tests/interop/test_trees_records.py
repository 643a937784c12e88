"""`lw.select`, `partition`, `update` and `axes` on dataclasses and mappings of flax and chex."""

import warnings
from typing import Any

import chex
import flax.core
import flax.struct
import jax
import jax.numpy as jnp
import pytest

import leafwise as lw

with warnings.catch_warnings():  # flax 0.12.1 uses what JAX 0.10 calls deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from flax import nnx

WHAT = "`lw.select`, `partition`, `combine`, `mask`, `update`, `axes` on its trees"


@flax.struct.dataclass
class FlaxRecord:
    x: Any
    y: Any = flax.struct.field(default=0, metadata={"trainable": False})
    n: int = flax.struct.field(default=1, pytree_node=False)

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ValueError("n below zero")


@chex.dataclass
class ChexRecord:
    x: Any
    y: Any = 0


@chex.dataclass(frozen=True, mappable_dataclass=False, kw_only=True)
class ChexFrozen:
    x: Any
    y: Any = 0


def check(record: Any) -> None:
    """Try all of them on a tree that holds the record."""
    tree = {"k": [record]}
    before = jax.tree.leaves(tree)
    made = lw.update(tree, {"['k'][0].x": 5, "['k'][0].y": 6})["k"][0]
    assert (type(made), made.x, made.y) == (type(record), 5, 6)
    assert jax.tree.leaves(tree) == before
    selected, rest = lw.partition(tree, "**.x")
    assert (selected["k"][0].y, rest["k"][0].x) == (None, None)
    assert lw.combine(rest, selected) == tree
    assert lw.mask(tree, type(record))["k"][0].x is True
    assert lw.axes(record, None, x=0).x == 0
    with pytest.raises(lw.errors.PathError, match=r"nearest: \"\['k'\]\[0\].x\""):
        lw.update(tree, {"['k'][0].xx": 1})


@pytest.mark.works("chex", WHAT)
@pytest.mark.parametrize("cls", [ChexRecord, ChexFrozen])
def test_chex(cls: Any) -> None:
    """Dataclasses of chex, mappable or not, frozen or not, are never changed in place."""
    check(cls(x=1, y=2))


@pytest.mark.works("flax", WHAT)
def test_flax_struct() -> None:
    """Dataclasses of flax keep their statics, are validated, and declare metadata."""
    record = FlaxRecord(1, 2, n=3)
    check(record)
    assert lw.update(record, {"n": 4}) == FlaxRecord(1, 2, n=4)
    assert lw.mask(record, lw.select(trainable=False)) == FlaxRecord(False, True, n=3)
    with pytest.raises(ValueError, match="n below zero"):
        lw.update(record, {"n": -1})
    with pytest.raises(
        lw.errors.TreeError, match=r"the static FlaxRecord\.n is 3 in one, 4 in another"
    ):
        lw.combine(record, FlaxRecord(None, None, n=4))


@pytest.mark.works("flax", WHAT)
def test_frozen_dicts() -> None:
    """A FrozenDict is addressed by its keys and stays one."""
    tree = flax.core.FrozenDict({"params": {"w": 1, "b": 2}})
    assert lw.update(tree, {"['params']['w']": 3}) == flax.core.FrozenDict(params={"w": 3, "b": 2})
    assert lw.combine(*lw.partition(tree, "['params']['b']")) == tree


@pytest.mark.works("flax", WHAT)
@pytest.mark.filterwarnings("ignore:jax.core.get_opaque_trace_state is deprecated")
def test_nnx_modules() -> None:
    """A module of nnx is copied, not changed: its variables are found by their names."""
    module = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
    made = lw.update(module, {"bias.value": jnp.ones(3)})
    assert (float(made.bias[...].sum()), float(module.bias[...].sum())) == (3.0, 0.0)
    selected, rest = lw.partition(module, "kernel")
    assert len(jax.tree.leaves(selected)) == 1
    again = lw.combine(selected, rest)
    assert all(a is b for a, b in zip(*map(jax.tree.leaves, (again, module)), strict=True))
