"""Paths: the texts that name places, and the steps that they are made of."""

from typing import Any

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.trees import NamedNode, pytrees

import leafwise as lw
from leafwise._trees.nodes import FlatTree
from leafwise._trees.paths import ANY, DEEP, format_path, parse, place_of, steps_of

NAMES = st.from_regex(r"[A-Za-z_]\w{0,5}", fullmatch=True)
KEYS = st.one_of(
    st.integers(),
    st.text(max_size=8),
    st.binary(max_size=4),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.tuples(st.integers(), st.text("a[]'\".", max_size=4)),
)
STEPS = st.one_of(NAMES.map(lambda name: f".{name}"), KEYS.map(lambda key: f"[{key!r}]"))


@pytest.mark.slow
@given(st.lists(STEPS | st.sampled_from([ANY, DEEP]), max_size=6).map(tuple))
def test_a_printed_path_is_read_back(steps: tuple[str, ...]) -> None:
    """Printing a path and reading it gives the same steps, whatever the keys of dicts are."""
    assert parse(format_path(steps)) == steps


@given(pytrees())
def test_the_paths_of_a_tree_lead_to_its_leaves(tree: Any) -> None:
    """Each leaf is found by its printed path, and by JAX's own key path."""
    leaves = jax.tree.leaves_with_path(tree)
    places = FlatTree(tree)
    assert len(places.paths) == len(leaves)
    for place, (key_path, _) in enumerate(leaves):
        wanted = [at == place for at in range(len(leaves))]
        assert jax.tree.leaves(lw.mask(tree, format_path(places.paths[place]))) == wanted
        changed = lw.update(tree, {key_path: "new"}) if key_path else "new"
        assert [leaf == "new" for leaf in map(str, jax.tree.leaves(changed))] == wanted


@given(pytrees())
def test_paths_are_those_of_signatures(tree: Any) -> None:
    """`lw.signature` names leaves as these paths do."""
    named = lw.signature(tree).leaves
    assert list(named) == [f"args[0]{''.join(path)}" for path in FlatTree(tree).paths]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("", ()),
        ("a", (".a",)),
        (".a.b", (".a", ".b")),
        ("a[0].b", (".a", "[0]", ".b")),
        ("[0][1]", ("[0]", "[1]")),
        ("a['b c'].d", (".a", "['b c']", ".d")),
        ('a["b"]', (".a", "['b']")),
        ("a[ 0 ]", (".a", "[0]")),
        ("a['x]'][1]", (".a", "['x]']", "[1]")),
        ("a[(1, [2])]", (".a", "[(1, [2])]")),
        ("a[<Key.ONE: 1>].b", (".a", "[<Key.ONE: 1>]", ".b")),
        ("*", (ANY,)),
        ("**", (DEEP,)),
        ("a[*].b", (".a", ANY, ".b")),
        ("a.*.b", (".a", ANY, ".b")),
        ("**.b", (DEEP, ".b")),
        ("a['*']", (".a", "['*']")),
        ("größe.__self__", (".größe", ".__self__")),
    ],
)
def test_what_is_read(text: str, steps: tuple[str, ...]) -> None:
    """A path is read as Python would read it, with two wildcards."""
    assert parse(text) == steps


@pytest.mark.parametrize(
    "text", [".", "a.", "a..b", "a[", "a[]", "a]", "[0]b", "a*", "a.***", " a", "a.[0]"]
)
def test_what_is_not_a_path(text: str) -> None:
    """What is not a path is refused, with the place where it cannot be read."""
    with pytest.raises(lw.errors.PathError, match="is not a path") as caught:
        parse(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("path", [3, None, ("a",), (0,), ["a"], jax.tree_util.DictKey("a")])
def test_what_is_neither_text_nor_key_path(path: Any) -> None:
    """Anything else in place of a path is a TypeError that says what a path is."""
    with pytest.raises(TypeError, match="a path is a string"):
        steps_of(path)


def test_negative_indices_count_from_the_end() -> None:
    """`[-1]` is the last of a sequence, but a key where a dict has that key."""
    assert place_of(("[0]", "[1]", "[2]"), "[-1]") == 2
    assert place_of(("[0]", "[1]"), "[-3]") is None
    assert place_of(("[-1]", "[0]"), "[-1]") == 0
    assert place_of(("[0]", "[5]"), "[-1]") is None
    assert place_of(("['a']", "['b']"), "[-1]") is None


def test_names_where_jax_has_none() -> None:
    """Namedtuples and partials are addressed by name, also where a JAX key is a mere number."""
    tree = [NamedNode(1, 2), jax.tree_util.Partial(max, 3, key=4)]
    assert list(map(format_path, FlatTree(tree).paths)) == [
        "[0].left",
        "[0].right",
        "[1].args[0]",
        "[1].keywords['key']",
    ]
    key_path, _ = jax.tree.leaves_with_path(tree)[-1]
    assert lw.update(tree, {key_path: 9})[1].keywords == {"key": 9}
