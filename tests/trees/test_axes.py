"""`lw.axes`: trees for in_axes, shardings and masks, with the statics of a tree."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from tests.kit.trees import pytrees

import leafwise as lw


@lw.pytree
class Layer:
    w: Any = lw.field(converter=jnp.asarray, validator=lambda w: w.ndim > 0)
    b: Any = None
    act: str = lw.static_field(default="relu")


@lw.pytree
class Params:
    x: Any
    encoder: Layer
    layers: Any = ()
    s: Any = 1.0
    n: int = lw.static_field(default=3)
    paths: Any = 0.0


def params() -> Params:
    return Params(jnp.ones((4, 2)), Layer(jnp.ones((2, 4))), [Layer(jnp.ones(2))])


def test_an_instance_of_the_same_class() -> None:
    """Named fields get theirs, all other children the default; statics are those of the tree."""
    tree = lw.replace(params(), n=7)
    made = lw.axes(tree, None, x=0, encoder=1)
    assert type(made) is Params
    assert (made.x, made.encoder, made.layers, made.s, made.n) == (0, 1, None, None, 7)
    assert lw.axes(tree, 5).layers == 5
    assert jax.tree.structure(lw.axes(tree, 0)) == jax.tree.structure(
        Params(0, 0, 0, 0, n=7, paths=0)  # type: ignore[arg-type]
    )


def test_deeper_in_the_tree() -> None:
    """A path opens the nodes on its way; their other children get the default."""
    made = lw.axes(params(), "d", {"encoder.w": 0, "layers[-1].b": 1, "paths": 2}, x=3)
    assert type(made.encoder) is type(made.layers[0]) is Layer
    assert (made.encoder.w, made.encoder.b, made.encoder.act) == (0, "d", "relu")
    assert (made.layers[0].w, made.layers[0].b) == ("d", 1)
    assert (made.paths, made.x, made.s) == (2, 3, "d")


def test_vmap_in_and_out() -> None:
    """One tree serves as in_axes and as out_axes; None and whole subtrees are prefixes."""
    tree = params()
    spread = lw.axes(tree, None, {"encoder.w": 1}, x=0)
    made = jax.vmap(lambda p: p, in_axes=(spread,), out_axes=spread)(tree)
    assert jax.tree.map(jnp.shape, made) == jax.tree.map(jnp.shape, tree)
    moved = jax.vmap(lambda p: p, in_axes=(spread,), out_axes=lw.axes(tree, None, x=1, encoder=0))
    assert (moved(tree).x.shape, moved(tree).encoder.w.shape) == ((2, 4), (4, 2))
    assert moved(tree).n == 3


@pytest.mark.parametrize(
    ("paths", "fields", "words"),
    [
        ({}, {"y": 0}, ["'y' leads nowhere", "the tree is a Params", "nearest"]),
        ({}, {"n": 0}, ["Params.n is static", "copied from the tree"]),
        ({"encoder.act": 0}, {}, ["Layer.act is static"]),
        ({"encoder.c": 0}, {}, ["Params.encoder is a Layer: it has w, b\n"]),
        ({"layers[1].w": 0}, {}, ["Params.layers", "nearest: 'layers[0].w'"]),
        ({"x[0]": 0}, {}, ["Params.x is float32[4,2], which has no parts"]),
        ({"layers[*].w": 0}, {}, ["lw.axes takes the path of one place, not a pattern"]),
    ],
)
def test_names_that_lead_nowhere(paths: Any, fields: Any, words: list[str]) -> None:
    """Unknown and static names are refused, with the nearest valid path."""
    with pytest.raises(lw.errors.PathError) as caught:
        lw.axes(params(), None, paths, **fields)
    assert not [word for word in words if word not in str(caught.value)], str(caught.value)


def test_names_that_meet() -> None:
    """A field and a path inside it contradict each other."""
    with pytest.raises(lw.errors.TreeError, match=r"'encoder' and 'encoder\.w' overlap"):
        lw.axes(params(), None, {"encoder.w": 0}, encoder=1)
    with pytest.raises(TypeError, match=r"lw\.axes takes a mapping"):
        lw.axes(params(), None, 3)  # type: ignore[arg-type]


@given(pytrees())
def test_any_tree(tree: Any) -> None:
    """Of any tree the axes are a prefix: each leaf below gets the default."""
    made = lw.axes(tree, 7)
    spread = jax.tree.broadcast(made, tree)
    assert jax.tree.leaves(spread) == [7] * len(jax.tree.leaves(tree))


def test_other_nodes() -> None:
    """Dicts, tuples, classes with many statics, and single leaves."""

    @lw.pytree(many_statics=True)
    class Many:
        x: Any
        n: int = lw.static_field(default=1)

    tree = {"a": (1, 2), "b": [Many(1, 5)]}
    made = lw.axes(tree, None, {"['a'][1]": 0, "['b'][0].x": 1})
    assert made == {"a": (None, 0), "b": [Many(1, 5)]}
    assert lw.axes(3, 4) == 4
    assert lw.axes(None, 4) is None
    with pytest.raises(lw.errors.PathError, match="it has x\n"):
        lw.axes(Many(1), y=0)


class System:
    """A class whose aux_data is the treedef of its children, which depends on where None is."""

    def __init__(self, a: Any, b: Any) -> None:
        self.a = a
        self.b = b


jax.tree_util.register_pytree_node(
    System,
    lambda system: jax.tree.flatten({"a": system.a, "b": system.b}),
    lambda treedef, leaves: System(**jax.tree.unflatten(treedef, leaves)),
)


@pytest.mark.parametrize(
    ("tree", "arguments", "words"),
    [
        (System(1.0, 2.0), (None, {"a": 0}), "the tree is a System, which flattens"),
        (
            {"s": System(1.0, 2.0)},
            (0, {"['s'][<flat index 1>]": None}),
            "dict['s'] is a System, which",
        ),
    ],
)
def test_a_class_that_none_makes_another_node_of(tree: Any, arguments: Any, words: str) -> None:
    """It is named, and how it differs: JAX takes no such tree for a prefix."""
    assert jax.tree.leaves(lw.axes(tree, 0)) == [0] * len(jax.tree.leaves(lw.axes(tree, 0)))
    with pytest.raises(lw.errors.TreeError) as caught:
        lw.axes(tree, *arguments)
    assert words in str(caught.value)
    assert "one has .a, .b, the other" in str(caught.value)
