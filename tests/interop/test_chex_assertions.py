"""chex's assertions on leafwise trees: they pass, they fail, and they say where."""

import importlib.metadata
from collections.abc import Callable, Iterator
from typing import Any

import chex
import jax
import jax.numpy as jnp
import pytest

import leafwise as lw

works = pytest.mark.works
OLD = tuple(map(int, importlib.metadata.version("chex").split("."))) < (0, 1, 92)
since_0_1_92 = pytest.mark.skipif(OLD, reason="this chex asks JAX for what JAX has removed")


@lw.pytree
class Layer:
    w: Any
    b: Any
    act: lw.Static[object] = 1


@lw.pytree
class Net:
    layers: list[Any]
    scale: Any


def net(w: Any = None, **statics: Any) -> Net:
    given = jnp.ones((2, 3)) if w is None else w
    return Net([Layer(given, jnp.zeros(3), **statics)], jnp.float32(1))


@pytest.fixture(autouse=True)
def _no_counts() -> Iterator[None]:
    chex.clear_trace_counter()
    yield
    chex.clear_trace_counter()


PAIRS = {
    "equal": (chex.assert_trees_all_equal, jnp.zeros((2, 3))),
    "close": (chex.assert_trees_all_close, jnp.full((2, 3), 1.1)),
    "equal_shapes": (chex.assert_trees_all_equal_shapes, jnp.ones((2, 4))),
    "equal_shapes_and_dtypes": (
        chex.assert_trees_all_equal_shapes_and_dtypes,
        jnp.ones((2, 3), jnp.int32),
    ),
}
TWO_TREES = "`assert_trees_all_equal`, `_close`, `_equal_shapes` and the like: they name the field"


@works("chex", TWO_TREES)
@pytest.mark.parametrize(("assertion", "other"), PAIRS.values(), ids=PAIRS)
def test_two_trees(assertion: Callable[..., None], other: Any) -> None:
    """Two equal trees pass; another leaf fails, by its path."""
    assertion(net(), net())
    assertion(net(), net(), net())
    with pytest.raises(AssertionError, match=r"differ in leaves 'layers/0/w'"):
        assertion(net(), net(w=other))


STRUCTS = {**PAIRS, "equal_structs": (chex.assert_trees_all_equal_structs, None)}


@works("chex", "trees whose statics differ in value or type (`1`, `True`) are not equal")
@pytest.mark.parametrize("assertion", [each for each, _ in STRUCTS.values()], ids=STRUCTS)
def test_statics_differ(assertion: Callable[..., None]) -> None:
    """Every assertion about two trees sees another static, and shows it by its field."""
    with pytest.raises(AssertionError, match=r"L?ayer\(act=1\).*[\s\S]*Layer\(act=True\)"):
        assertion(net(), net(act=True))


ONE_TREE: dict[str, tuple[Callable[[Any], None], Any, Any, str]] = {
    "all_finite": (
        chex.assert_tree_all_finite,
        net(),
        net(w=jnp.full((2, 3), jnp.nan)),
        r"Layer\(w='Nonfinite', b='Finite', act=1\)",
    ),
    "has_only_ndarrays": (
        chex.assert_tree_has_only_ndarrays,
        net(),
        net(w=1.5),
        r"leaf 'layers/0/w' is not an ndarray",
    ),
    "shape_prefix": (
        lambda tree: chex.assert_tree_shape_prefix(tree, (3,)),
        Layer(jnp.ones((3, 2)), jnp.ones(3)),
        Layer(jnp.ones((2, 3)), jnp.ones(3)),
        r"leaf 'w' has a shape prefix different from expected: \(2,\) != \(3,\)",
    ),
}


@works("chex", "`assert_tree_all_finite`, `_shape_prefix`, `_has_only_ndarrays`: by field")
@pytest.mark.parametrize(("assertion", "good", "bad", "said"), ONE_TREE.values(), ids=ONE_TREE)
def test_one_tree(assertion: Callable[[Any], None], good: Any, bad: Any, said: str) -> None:
    """A good tree passes; the message about a bad one names the field."""
    assertion(good)
    with pytest.raises(AssertionError, match=said):
        assertion(bad)


@works("chex", "`assert_tree_no_nones` sees a None in a field, not one in a static")
def test_no_nones() -> None:
    """A None in a dynamic field counts, one in a static field is not part of the tree."""
    chex.assert_tree_no_nones(net(act=None))
    with pytest.raises(AssertionError, match="Tree contains `None`"):
        chex.assert_tree_no_nones(Layer(jnp.ones(3), None))


@works("chex", "`assert_tree_is_on_device`, `_on_host`, `_is_sharded`: they name the field")
@since_0_1_92
def test_places() -> None:
    """Where arrays lie is told by field."""
    tree, one = net(), jax.devices()[0]
    chex.assert_tree_is_on_host(tree)
    chex.assert_tree_is_on_device(tree, platform="cpu")
    chex.assert_tree_is_on_device(tree, device=one)
    with pytest.raises(AssertionError, match="leaf 'layers/0/w' resides on 'cpu'"):
        chex.assert_tree_is_on_device(tree, platform="gpu")


# chex 0.1.91 has numpy ask an array for its dtype.
@pytest.mark.filterwarnings("ignore:Implicit conversion of an array:DeprecationWarning")
@works("chex", "`assert_rank`, `_shape`, `_type`, `_equal_shape` of fields, traced or not")
def test_fields() -> None:
    """A field is the array that it is, also while JAX traces a method."""

    def check(layer: Layer) -> Any:
        chex.assert_rank([layer.w, layer.b], [2, 1])
        chex.assert_shape(layer.w, (None, layer.b.shape[0]))
        chex.assert_type([layer.w, layer.b], float)
        chex.assert_scalar_positive(layer.act)
        chex.assert_equal(layer.act, 1)
        return layer.w

    layer = net().layers[0]
    check(layer)
    jax.jit(check)(layer)
    with pytest.raises(AssertionError, match="rank 1"):
        jax.jit(check)(lw.replace(layer, w=jnp.ones(3)))
    with pytest.raises(AssertionError, match="must be positive"):
        jax.jit(check)(lw.replace(layer, act=-1))


@works("chex", "`assert_tree_all_finite` in a method under `chexify`, at once or later")
def test_chexify() -> None:
    """A value assertion in a jitted function fails when the values are there."""

    @jax.jit
    def total(tree: Net) -> Any:
        chex.assert_tree_all_finite(tree.layers[0].w, custom_message="layers[0].w")
        return tree.layers[0].w.sum()

    checked = chex.chexify(total)
    assert checked(net()) == 6
    checked(net(w=jnp.full((2, 3), jnp.nan)))
    with pytest.raises(AssertionError, match=r"value: nan. Custom message: layers\[0\]"):
        checked.wait_checks()


@works("chex", "`assert_trees_all_close` under `chexify` names the field")
def test_chexified_comparison() -> None:
    """Two traced trees are compared leaf by leaf, with paths."""
    checked = chex.chexify(jax.jit(chex.assert_trees_all_close), async_check=False)
    checked(net(), net())
    with pytest.raises(AssertionError, match=r"differ in leaves '\('layers', 0, 'w'\)'"):
        checked(net(), net(w=jnp.zeros((2, 3))))


@works(
    "chex",
    "statics under `chexify`: `assert_trees_all_equal` of traced trees",
    cannot="chex compares no structures there, for any class; add `assert_trees_all_equal_structs`",
)
def test_chexified_comparison_sees_no_structure() -> None:
    """Traced trees of other statics pass in any library, and structures are compared beside."""
    checked = chex.chexify(jax.jit(chex.assert_trees_all_equal), async_check=False)
    checked(net(), net(act=True))
    with pytest.raises(AssertionError, match="act=True"):
        jax.jit(chex.assert_trees_all_equal_structs)(net(), net(act=True))


@works(
    "chex",
    "which leaf is not finite, of `assert_tree_all_finite(tree)` under `chexify`",
    cannot="chex prints the tree with numbers for its arrays, and leafwise's repr shows only "
    "shapes; assert field by field, or with `chex_check`",
)
def test_chexified_finite_names_no_leaf() -> None:
    """The message shows the fields, but not which of them it is about."""
    checked = chex.chexify(jax.jit(chex.assert_tree_all_finite), async_check=False)
    with pytest.raises(AssertionError, match=r"Layer\(w=f32\[\], b=f32\[\], act=1\)"):
        checked(net(w=jnp.full((2, 3), jnp.nan)))


@works("chex", "`assert_max_traces` counts one trace for equal statics, however rebuilt")
def test_max_traces() -> None:
    """A rebuilt equal static causes no trace, another one does."""

    @jax.jit
    @chex.assert_max_traces(n=1)
    def total(tree: Net) -> Any:
        return tree.layers[0].w.sum()

    total(net(act=("relu", 1)))
    total(net(w=jnp.zeros((2, 3)), act=tuple(["relu", 1])))  # noqa: C409  # another object
    with pytest.raises(AssertionError, match="'total' is traced > 1 times"):
        total(net(act=("relu", True)))


@works("chex", "`fake_jit` and `fake_pmap_and_jit`")
@pytest.mark.parametrize("fake", [chex.fake_jit, chex.fake_pmap_and_jit], ids=["jit", "both"])
def test_fake_jit(fake: Callable[[], Any]) -> None:
    """Without jit a function gets the instance itself."""
    seen: list[bool] = []

    def double(tree: Net) -> Net:
        seen.append(isinstance(tree.scale, jax.core.Tracer))
        return jax.tree.map(lambda leaf: 2 * leaf, tree)

    with fake():
        jax.jit(double)(net())
    jax.jit(double)(net())
    assert seen == [False, True]
