"""`lw.select`, and what is made of it: masks, labels, and the halves of a tree."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.trees import pytrees

import leafwise as lw


@lw.pytree
class Layer:
    w: Any
    b: Any = lw.field(default=0.0, metadata={"decay": False})
    act: str = lw.static_field(default="relu")


@lw.pytree
class Model:
    encoder: Layer
    layers: list[Layer]
    head: Layer = lw.field(metadata={"trainable": False})
    bias: Any = None
    name: str = lw.static_field(default="m")


def model() -> Model:
    return Model(Layer(1.0), [Layer(2.0), Layer(3.0)], Layer(4.0))


def chosen(where: Any, tree: Any = None) -> list[str]:
    """Return the paths of what is selected, as JAX prints them."""
    found = jax.tree.leaves_with_path(lw.mask(model() if tree is None else tree, where))
    return [jax.tree_util.keystr(path).lstrip(".") for path, flag in found if flag]


WEIGHTS = ["encoder.w", "layers[0].w", "layers[1].w", "head.w"]
BIASES = [name.replace(".w", ".b") for name in WEIGHTS]


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("encoder", ["encoder.w", "encoder.b"]),
        (".encoder.w", ["encoder.w"]),
        ("layers[0]", ["layers[0].w", "layers[0].b"]),
        ("layers[-1].w", ["layers[1].w"]),
        ("layers[*].w", ["layers[0].w", "layers[1].w"]),
        ("*.w", ["encoder.w", "head.w"]),
        ("**.w", WEIGHTS),
        ("layers.**.b", ["layers[0].b", "layers[1].b"]),
        ("encoder.w.**", ["encoder.w"]),
        ("bias", []),
        (lambda leaf: leaf == 3.0, ["layers[1].w"]),
        (True, WEIGHTS + BIASES),
        (False, []),
        (Layer, WEIGHTS + BIASES),
        (list, ["layers[0].w", "layers[0].b", "layers[1].w", "layers[1].b"]),
        (jax.Array, []),
        (lw.select(trainable=False), ["head.w", "head.b"]),
        (lw.select(decay=False), BIASES),
        (lw.select(trainable=False, decay=False), ["head.b"]),
        (lw.select("layers", decay=False), ["layers[0].b", "layers[1].b"]),
        (lw.select("**.w", Layer, float) & lw.select("head"), ["head.w"]),
        (lw.select("head.b") | lw.select("encoder.b"), ["encoder.b", "head.b"]),
        (~lw.select("**.w"), BIASES),
        (~(lw.select("**.w") | lw.select("layers")), ["encoder.b", "head.b"]),
    ],
)
def test_what_is_selected(where: Any, names: list[str]) -> None:
    """Paths, classes, functions, metadata and what they are combined to select these leaves."""
    assert sorted(chosen(where)) == sorted(names)


def test_the_innermost_field_decides() -> None:
    """An entry of an inner field's metadata overrules that of an outer one."""

    @lw.pytree
    class Inner:
        x: Any
        y: Any = lw.field(metadata={"lr": "slow"})

    @lw.pytree
    class Outer:
        inner: Any = lw.field(metadata={"lr": "fast"})
        other: Any = lw.field(metadata={"lr": "slow"})

    tree = Outer([Inner(1, 2)], {"k": 3})
    assert chosen(lw.select(lr="fast"), tree) == ["inner[0].x"]
    assert chosen(lw.select(lr="slow"), tree) == ["inner[0].y", "other['k']"]


def test_metadata_of_other_dataclasses() -> None:
    """Fields of any registered dataclass declare metadata, in the standard library's way."""

    @functools.partial(jax.tree_util.register_dataclass, data_fields=["x", "y"], meta_fields=[])
    @dataclasses.dataclass
    class Plain:
        x: Any = dataclasses.field(metadata={"trainable": False})
        y: Any

    assert chosen(lw.select(trainable=False), [Plain(1, 2)]) == ["[0].x"]


def test_a_mask_is_an_instance_of_the_same_class() -> None:
    """Statics stay, None stays, and no constructor, converter or check runs for a mask."""

    @lw.pytree
    class Checked:
        x: Any = lw.field(converter=jnp.asarray, validator=lambda x: x.ndim == 1)
        y: Any = None
        n: int = lw.static_field(default=3)

        def __post_init__(self) -> None:
            assert isinstance(self.x, jax.Array)

    made = Checked(jnp.ones(2), n=5)
    masked = lw.mask(made, "x")
    assert (type(masked), masked.x, masked.y, masked.n) == (Checked, True, None, 5)
    assert jax.tree.structure(masked) == jax.tree.structure(made)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("encodr.w", ["'encodr.w'", "from 'encodr' on", "a Model", "'encoder.w'"]),
        ("encodr.zzzz", ["nearest: 'encoder'\n"]),
        ("encoder.ww", ["nearest: 'encoder.w'\n"]),
        ("layers[7].w", ["nearest: 'layers[1].w'"]),
        ("layers[*].ww", ["nearest: 'layers[*].w'"]),
        ("layers[2].w", ["from 'layers[2]' on", "[0] to [1]", "nearest: 'layers["]),
        ("layers[*].x", ["Model.layers[0] is a Layer", "nearest: 'layers["]),
        ("encoder.w.x", ["Model.encoder.w is a leaf", "nearest: 'encoder.w'"]),
        ("w", ["the tree is a Model", "nearest: 'encoder.w'"]),
        ("name", ["Model.name is static", "no leaves"]),
        ("**.zzz", ["'**.zzz' leads nowhere", "nearest: "]),
        ("layers['0']", ["Model.layers is a list", "nearest: 'layers["]),
    ],
)
def test_a_path_that_leads_nowhere(where: str, words: list[str]) -> None:
    """A typo selects not nothing, but is an error: where it went wrong, and what is nearest."""
    selections = [where, ~lw.select(where), lw.select("encoder") | lw.select(where)]
    for selection in selections:
        with pytest.raises(lw.errors.PathError) as caught:
            lw.mask(model(), selection)
        missing = [word for word in words if word not in str(caught.value)]
        assert not missing, str(caught.value)


def test_metadata_that_no_field_has() -> None:
    """It is named when the selection is used, with the nearest name or the fix."""
    for where, words in (
        (lw.select(trainabel=False), "'trainabel'\n  nearest: 'trainable'"),
        (
            ~lw.select(where="head.w"),
            "'where'\n  fix: declare where= in its metadata; a path: `lw.",
        ),
    ):
        with pytest.raises(lw.errors.PathError) as caught:
            lw.mask(model(), where)
        assert f"no field of Model has metadata {words}" in caught.value.message
    assert lw.mask([], lw.select(decay=False)) == []


@pytest.mark.parametrize("given", [3, 2.5, jnp.ones(2), np.ones(2)])
def test_what_selects_nothing_at_all(given: Any) -> None:
    """Anything that is not a selection is a TypeError that says what one is."""
    with pytest.raises(TypeError, match="selected by a path, a class, a function"):
        lw.select(given)


def test_and_or_not_are_refused() -> None:
    """`and`, `or` and `not` would drop a condition: the message has the operators."""
    with pytest.raises(TypeError, match=r"`&`, `\|` and `~`"):
        bool(lw.select("a") and lw.select("b"))


@pytest.mark.parametrize(
    "where",
    [
        lw.select("encoder", trainable=False) & ~lw.select("**.b"),
        ~(lw.select(Layer) & lw.select("head")),
        ~lw.select("encoder") | lw.select(True),
        (lw.select("encoder") | lw.select("head")) & lw.select(Layer),
        lw.select({"a": True}),
        lw.select(jax.Array),
    ],
)
def test_a_selection_prints_as_code(where: Any) -> None:
    """The repr of a selection makes an equal one."""
    names = {"select": lw.select, "Layer": Layer, "Array": jax.Array}
    assert eval(repr(where), names) == where  # noqa: S307


@pytest.mark.parametrize("answer", [None, 1, "yes", jnp.array(True), np.ones(2) > 0])
def test_a_function_that_does_not_answer(answer: Any) -> None:
    """A function of a leaf says True or False; anything else is an error with the leaf's path."""
    with pytest.raises(TypeError, match=r"list\[1\].*expected True or False"):
        lw.mask([1, 2], lambda leaf: True if leaf == 1 else answer)


def test_a_function_that_raises() -> None:
    """What a condition raises comes out, with a note that names the leaf."""
    with pytest.raises(ZeroDivisionError) as caught:
        lw.mask({"a": 1, "b": [0]}, lambda leaf: 1 / leaf > 0)
    assert "dict['b'][0]" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        ({"a": True, "b": False}, ["a"]),
        ({"a": False, "b": True}, ["b0", "b1"]),
        ({"a": False, "b": [True, False]}, ["b0"]),
        ({"a": np.bool_(True), "b": lambda leaf: leaf == 3}, ["a", "b1"]),
    ],
)
def test_trees_of_bools(prefix: Any, names: list[str]) -> None:
    """A prefix of bools, or of functions of a leaf, selects as equinox's filters do."""
    flags = lw.mask({"a": 1, "b": [2, 3]}, prefix)
    found = {"a": flags["a"], "b0": flags["b"][0], "b1": flags["b"][1]}
    assert [name for name, flag in found.items() if flag] == names


def test_a_mask_selects_as_itself() -> None:
    """The mask of a selection selects the same leaves, also of a class that can be called."""

    @lw.pytree
    class Callable:
        x: Any
        y: Any

        def __call__(self) -> None:
            pass

        def is_one(self, leaf: Any) -> bool:
            return bool(leaf == 1)

    tree = Callable(1, [1, 2])
    mask = lw.mask(tree, "y")
    assert jax.tree.leaves(lw.mask(tree, mask)) == [False, True, True]
    # A method, which is a pytree as well, is a function here.
    assert jax.tree.leaves(lw.mask(tree, tree.is_one)) == [True, True, False]


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ({"a": True}, "one has ['a'], the other ['a'], ['b']"),
        ({"a": True, "b": (True, False)}, "dict['b']"),
        ({"a": [True], "b": True}, "dict['a']"),
        ([True], "list"),
        (None, "NoneType"),
    ],
)
def test_a_tree_of_bools_that_does_not_fit(prefix: Any, words: str) -> None:
    """A tree that is not a prefix is refused by the path at which it differs."""
    with pytest.raises(lw.errors.TreeError, match="is not a prefix of the tree") as caught:
        lw.mask({"a": 1, "b": [2, 3]}, prefix)
    assert words in str(caught.value)


def test_a_tree_of_something_else() -> None:
    """A tree that holds no bools is refused, by the path of what it holds."""
    with pytest.raises(TypeError, match=r"dict\['b'\].*1 \(int\)"):
        lw.mask({"a": 0, "b": 0}, {"a": True, "b": 1})


def test_labels() -> None:
    """Each leaf has the label of the selection that it is in, or the default."""
    groups = {"slow": "encoder", "off": lw.select(trainable=False)}
    tree = lw.labels(model(), groups, "fast")
    assert tree.name == "m"
    assert jax.tree.leaves(tree) == ["slow"] * 2 + ["fast"] * 4 + ["off"] * 2
    assert lw.labels([], {}) == []


def test_labels_that_meet() -> None:
    """Two labels for a leaf, or none, are errors that name the leaf."""
    with pytest.raises(lw.errors.TreeError, match=r"Model.encoder.w has two labels, 'a' and 'b'"):
        lw.labels(model(), {"a": "encoder", "b": "**.w"}, "c")
    with pytest.raises(lw.errors.TreeError, match=r"Model.layers\[0\].w has no label"):
        lw.labels(model(), {"a": "encoder"})
    for label in (None, ("a",)):
        with pytest.raises(TypeError, match="a label is a leaf"):
            lw.labels(model(), {label: "encoder"}, "c")


@st.composite
def trees_with_masks(draw: Any) -> tuple[Any, Any]:
    """Draw a tree of any kind of node, and which of its leaves to select."""
    tree = draw(st.one_of(pytrees(), st.lists(pytrees(), max_size=3)))
    leaves, structure = jax.tree.flatten(tree)
    flags = draw(st.lists(st.booleans(), min_size=len(leaves), max_size=len(leaves)))
    return tree, structure.unflatten(flags)


def same(one: Any, other: Any) -> bool:
    mine, its = jax.tree.flatten(one), jax.tree.flatten(other)
    leaves = zip(mine[0], its[0], strict=True)
    return mine[1] == its[1] and all(a is b for a, b in leaves)


@pytest.mark.slow
@given(trees_with_masks())
def test_combine_undoes_partition(drawn: tuple[Any, Any]) -> None:
    """The halves hold each leaf once and nothing else; together they are the tree again."""
    tree, flags = drawn
    selected, rest = lw.partition(tree, flags)
    assert same(lw.combine(selected, rest), tree)
    assert same(lw.combine(rest, selected), tree)
    pairs = list(zip(jax.tree.leaves(tree), jax.tree.leaves(flags), strict=True))
    for half, wanted in ((selected, True), (rest, False)):
        expected = [leaf for leaf, flag in pairs if flag is wanted]
        held = jax.tree.leaves(half)
        assert len(held) == len(expected)
        assert all(a is b for a, b in zip(held, expected, strict=True))


def test_none_stands_for_a_subtree() -> None:
    """A None in one tree is filled by whatever another has there, in either order."""
    assert lw.combine({"a": None, "b": [1, None]}, {"a": (2, 3), "b": [None, None]}) == {
        "a": (2, 3),
        "b": [1, None],
    }
    one, other = Model(Layer(1.0), [], Layer(None)), Model(None, None, Layer(2.0, None))
    assert lw.combine(one, other) == Model(Layer(1.0), [], Layer(2.0))
    assert lw.combine(other, one) == Model(Layer(1.0), [], Layer(2.0))


def test_trees_that_do_not_fit() -> None:
    """What cannot be put together is refused by path, and by class and field."""
    one, rest = lw.partition(model(), "encoder")
    cases: list[tuple[Any, str]] = [
        (model(), "Model.encoder.w: two trees have a leaf here: 1.0 (float) and 1.0 (float)"),
        (lw.replace(rest, name="x"), "Model: the trees differ: the static Model.name is 'm'"),
        (
            lw.replace(rest, head=lw.replace(rest.head, act="tanh")),
            "Model.head: the trees differ: the static Layer.act is 'relu' in one, 'tanh'",
        ),
        (lw.replace(rest, layers=rest.layers[:1]), "Model.layers: the trees differ: one has"),
        (lw.replace(rest, layers=tuple(rest.layers)), "a builtins.list in one, a builtins.tuple"),
        (lw.replace(rest, layers=1.0), "a list in"),
        (1.0, "Model: the trees differ"),
    ]
    for other, words in cases:
        for trees in ((one, other), (other, one)):
            with pytest.raises(lw.errors.TreeError) as caught:
                lw.combine(*trees)
            message = str(caught.value)
            assert words in message or trees[0] is other, message


def test_statics_are_compared_with_their_types() -> None:
    """Halves whose statics are `1` and `True` are distinct, as leafwise's keys are."""

    @lw.pytree
    class P:
        x: Any
        n: Any = lw.static_field()

    with pytest.raises(lw.errors.TreeError, match=r"P\.n is 1 in one, True in another"):
        lw.combine(P(1.0, 1), P(None, True))
