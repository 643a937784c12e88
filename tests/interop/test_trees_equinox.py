"""`lw.select`, `partition`, `combine`, `mask`, `update`, `axes` next to equinox, flax and chex."""

import functools
import warnings
from typing import Any

import chex
import equinox as eqx
import flax.core
import flax.struct
import jax
import jax.numpy as jnp
import pytest

import leafwise as lw

PARTS = "`partition` and `combine`, of either library, on trees of either"
SELECTION = "`lw.select`: paths, classes and field metadata in modules; masks as `filter_spec`"
UPDATE = "`lw.update` in modules: leaves and statics, converters and `__check_init__` run"
AXES = "`lw.axes` of modules, for `vmap` and `filter_vmap`"


@lw.pytree
class Scale:
    factor: jax.Array
    offset: jax.Array = lw.field(metadata={"trainable": False})
    power: int = lw.static_field(default=1)


class Net(eqx.Module):
    mlp: eqx.nn.MLP
    scale: Scale
    frozen: Any = eqx.field(metadata={"trainable": False})
    name: str = eqx.field(static=True, default="net")

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.mlp(x) * self.scale.factor**self.scale.power + self.scale.offset


def net() -> Net:
    mlp = eqx.nn.MLP(2, 1, 3, 1, key=jax.random.key(0))
    return Net(mlp, Scale(jnp.ones(1), jnp.zeros(1), power=2), [jnp.ones(2)])


def same(one: Any, other: Any) -> bool:
    return bool(eqx.tree_equal(one, other))


@pytest.mark.slow
@pytest.mark.works("equinox", PARTS)
@pytest.mark.parametrize("where", ["mlp.layers[*].weight", eqx.is_inexact_array])
def test_halves_are_those_of_equinox(where: Any) -> None:
    """Both libraries make the same halves of a selection, and put them together again."""
    tree = net()
    mine = lw.partition(tree, where)
    theirs = eqx.partition(tree, lw.mask(tree, where))
    assert all(same(*pair) for pair in zip(mine, theirs, strict=True))
    for halves in (mine, theirs):
        assert same(lw.combine(*halves), tree)
        assert same(eqx.combine(*halves), tree)


@pytest.mark.works("equinox", SELECTION)
def test_selections_in_modules() -> None:
    """Paths, classes and metadata select across module boundaries, masks are modules."""
    tree = net()
    mask = lw.mask(tree, "mlp.layers[-1]")
    assert isinstance(mask, Net)
    assert (mask.mlp.layers[1].weight, mask.mlp.layers[0].weight) == (True, False)
    # A module that can be called is a tree of bools all the same.
    assert same(lw.mask(tree, mask), mask)
    frozen = lw.select("scale.offset") | lw.select("frozen")
    assert same(lw.mask(tree, lw.select(trainable=False)), lw.mask(tree, frozen))
    with pytest.raises(lw.errors.PathError, match=r"nearest: 'mlp.layers\[1\].weight'"):
        lw.mask(tree, "mlp.layers[2].weight")
    with pytest.raises(lw.errors.PathError, match=r"Linear\.use_bias is static"):
        lw.mask(tree, "mlp.layers[0].use_bias")


class Checked(eqx.Module):
    low: Any = eqx.field(converter=float)
    high: Any = 1.0
    kind: str = eqx.field(static=True, default="a")

    def __check_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low above high")


class Handmade(Checked):
    made: int = eqx.field(static=True, default=0)

    def __init__(self, size: int) -> None:
        self.low, self.high, self.made, self.kind = 0, size, size, "b"


@pytest.mark.works("equinox", UPDATE)
@pytest.mark.parametrize("module", [Checked(0), Handmade(1)])
def test_update_of_modules(module: Any) -> None:
    """No constructor runs; converters and `__check_init__` do, on all changes together."""
    made = lw.update([module], {"[0].low": 5, "[0].high": 6.0, "[0].kind": "z"})[0]
    assert type(made) is type(module)
    assert (made.low, type(made.low), made.high, made.kind) == (5.0, float, 6.0, "z")
    assert (module.low, module.kind) == (0.0, module.kind)
    assert getattr(made, "made", None) == getattr(module, "made", None)
    with pytest.raises(ValueError, match="low above high") as caught:
        lw.update([module], {"[0].low": 5})
    assert "list[0]" in caught.value.__notes__[0]


@pytest.mark.works("equinox", UPDATE)
def test_update_deep_in_modules() -> None:
    """It does what `tree_at` does, and statics, too; the rest is the same objects."""
    tree = net()
    new = jnp.zeros((3, 2))
    made = lw.update(tree, {"mlp.layers[0].weight": new, "scale.power": 3, "name": "other"})
    there = eqx.tree_at(lambda t: t.mlp.layers[0].weight, tree, new)
    assert same(lw.update(made, {"scale.power": 2, "name": "net"}), there)
    assert (made.scale.power, made.name, tree.name) == (3, "other", "net")
    assert made.mlp.layers[1] is tree.mlp.layers[1]
    assert made.frozen is tree.frozen


@pytest.mark.works("equinox", UPDATE)
def test_update_forgets_what_was_cached() -> None:
    """A copy does not inherit what a cached property has stored of the original."""

    class Cached(eqx.Module):
        x: float
        n: int = eqx.field(static=True, default=1)

        @functools.cached_property
        def product(self) -> float:
            return self.x * self.n

    module = Cached(2.0)
    assert module.product == 2.0
    assert lw.update(module, {"x": 3.0}).product == 3.0
    assert lw.update(module, {"n": 5}).product == 10.0


@pytest.mark.works("equinox", AXES)
def test_axes_of_modules() -> None:
    """An ensemble of modules is mapped over with such a tree, by JAX and by equinox."""
    tree = net()
    tree = lw.update(tree, {"scale.factor": jnp.arange(1.0, 4.0)[:, None]})
    arrays, rest = lw.partition(tree, eqx.is_array)
    x = jnp.ones(2)
    axes = lw.axes(arrays, None, {"scale.factor": 0})
    assert isinstance(axes, Net)
    assert axes.name == "net"

    def call(part: Net, x: jax.Array) -> jax.Array:
        return lw.combine(part, rest)(x)

    mapped = jax.vmap(call, in_axes=(axes, None))(arrays, x)
    filtered = eqx.filter_vmap(lambda t: t(x), in_axes=(lw.axes(tree, None, {"scale.factor": 0}),))
    alone = [lw.update(tree, {"scale.factor": jnp.full(1, n)})(x) for n in (1.0, 2.0, 3.0)]
    assert jnp.allclose(mapped, jnp.stack(alone))
    assert jnp.allclose(filtered(tree), jnp.stack(alone))


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
