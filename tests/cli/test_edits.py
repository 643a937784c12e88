"""Edits: each changes one field, in the way it says, and nothing else."""

import enum
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import leafwise as lw
from leafwise._compare.reasons import Outcome
from leafwise._trees.roles import field_order, names_of
from leafwise.cli import fields
from leafwise.cli.changes import Builder
from leafwise.cli.fields import edits_of
from leafwise.testing._recompilation import promised
from leafwise.testing.strategies import Edit, EditKind
from leafwise.testing.strategies._statics import twins

from .asked import report_of, verdicts


class Level(enum.IntEnum):
    LOW = 0
    HIGH = 1


class Mode(enum.StrEnum):
    FAST = "fast"


class Color(enum.Enum):
    RED = 1


@lw.pytree
class Four:
    x: Any
    s: lw.Static[Any]
    y: Any
    t: lw.Static[Any]


DTYPES = ["float32", "float16", "bfloat16", "int32", "int8", "uint8", "bool", "complex64"]


def _weak(number: Any, shape: tuple[int, ...]) -> jax.Array:
    return jnp.broadcast_to(jnp.asarray(number), shape)


def _arrays(module: Any) -> st.SearchStrategy[Any]:
    shapes = hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3)
    numbers = st.sampled_from([0, 1, 100, -1, 255, 1e30, math.inf, math.nan])

    def make(dtype: str, shape: tuple[int, ...], number: float) -> Any:
        with np.errstate(all="ignore"):
            array = np.full(shape, number).astype(jnp.dtype(dtype))
        return array if module is np else jnp.asarray(array)

    return st.builds(make, st.sampled_from(DTYPES), shapes, numbers).filter(
        lambda array: bool(np.size(array))
    )


SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.floats(width=32),
    st.complex_numbers(width=64),
    st.builds(np.float32, st.floats(width=32)),
    st.builds(np.int8, st.integers(-128, 127)),
)
WEAK = st.builds(_weak, st.sampled_from([1, 1.0, 1e20]), st.sampled_from([(), (2,), (2, 3)]))
LEAVES = SCALARS | _arrays(np) | _arrays(jnp) | WEAK
STATICS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.sampled_from([Level.LOW, Mode.FAST, Color.RED, np.float64(0.5), np.int64(2)]),
    st.tuples(st.integers(), st.text(max_size=2)),
    st.frozensets(st.integers(), max_size=2),
)


def built(x: Any, s: Any, y: Any, t: Any) -> Builder:
    """Return a builder whose instance has these values."""
    return Builder(Four, Four(x, s, y, t))


def few(builder: Builder, name: str) -> list[tuple[int, Any]]:
    """Return three values, and the instances with them."""
    return [(value, builder.remake(name, value)) for value in range(3)]


def first(others: list[Any], wanted: Callable[[Any], bool]) -> Any:
    """Search in a list: Hypothesis does not search within its own tests."""
    for each in others:
        if wanted(each):
            return each
    raise LookupError


def all_edits(builder: Builder) -> list[Edit[Any]]:
    """Return the edits of all fields that can be made."""
    names = names_of(builder.base)
    found: list[Edit[Any]] = []
    for name in field_order(builder.base):
        found += [edit for edit in edits_of(builder, name, names) if isinstance(edit, Edit)]
    return found


def made(builder: Builder) -> list[Edit[Any]]:
    """Return the edits, whose values are searched among a few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Builder, "others", few)
        patch.setattr(fields, "simplest", first)
        return all_edits(builder)


@given(leaf=LEAVES)
def test_an_edit_of_a_leaf_does_what_it_says(leaf: Any) -> None:
    """Of values, shape, dtype and weak type, an edit changes the one that it names."""
    builder = built(leaf, 0, 0, 0)
    for edit in made(builder):
        if edit.path != "x":
            continue
        before, after = jax.typeof(leaf), jax.typeof(edit.edited.x)
        changed = {
            "shape": before.shape != after.shape,
            "dtype": before.dtype != after.dtype,
            "weak type": before.weak_type != after.weak_type,
        }
        expected = {kind: kind == edit.kind for kind in changed}
        assert changed == expected, (edit.kind, edit.change)
        if edit.kind is EditKind.LEAF_VALUE:
            assert type(edit.edited.x) is type(leaf) or isinstance(leaf, jax.Array)
            assert np.asarray(leaf).tobytes() != np.asarray(edit.edited.x).tobytes()


@given(leaf=LEAVES)
def test_a_number_has_all_edits(leaf: Any) -> None:
    """Every numeric leaf gets another value, shape and dtype; the promises fit the kinds."""
    found = {edit.kind: edit for edit in made(built(leaf, 0, 0, 0)) if edit.path == "x"}
    assert {"leaf value", "shape", "dtype"} <= set(found)
    aval = jax.typeof(leaf)
    if aval.dtype in (jnp.float32, jnp.int32, jnp.complex64):
        assert "weak type" in found
    for kind, edit in found.items():
        assert promised(edit) is (Outcome.REUSE if kind == "leaf value" else Outcome.RETRACE)
        assert edit.change


@given(shape=hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=2))
def test_an_array_without_elements_has_no_other_values(shape: tuple[int, ...]) -> None:
    """What has no elements is not said to get other ones."""
    assume(0 in shape)
    found = {edit.kind for edit in made(built(jnp.zeros(shape), 0, 0, 0)) if edit.path == "x"}
    assert "leaf value" not in found
    assert {"shape", "dtype"} <= found


@given(s=STATICS)
def test_a_static_edit_is_another_key(s: Any) -> None:
    """A static edit has another key, with the same leaves, and promises a retrace."""
    builder = built(1.0, s, 2, 0)
    found = [edit for edit in made(builder) if edit.path == "s"]
    assert [edit.kind for edit in found][:1] == [EditKind.STATIC_VALUE]
    for edit in found:
        assert edit.kind in (EditKind.STATIC_VALUE, EditKind.STATIC_TYPE)
        assert promised(edit) is Outcome.RETRACE
        before, after = lw.signature(builder.base), lw.signature(edit.edited)
        assert before.treedef != after.treedef
        assert lw.explain(before, after).outcome is Outcome.RETRACE
        leaves = [jax.typeof(leaf) for leaf in jax.tree.leaves(edit.edited)]
        assert leaves == [jax.typeof(leaf) for leaf in jax.tree.leaves(builder.base)]


NUMBERS = st.one_of(
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.just(10**400),
    st.floats(),
    st.text(max_size=3),
    st.tuples(st.integers(), st.text(max_size=2)),
    st.sampled_from([Level.LOW, Level.HIGH, Mode.FAST, Color.RED, np.float64(0.5), np.float64(2)]),
    st.none(),
    st.binary(max_size=2),
)


@given(value=NUMBERS)
def test_twins_are_equal_and_of_another_type(value: Any) -> None:
    """A twin is ``==`` to the value, in both directions, and of another type."""
    for twin in twins(value):
        assert twin == value
        assert value == twin
        assert type(twin) is not type(value)


@given(value=NUMBERS)
def test_twins_have_other_keys(value: Any) -> None:
    """A twin is a good static value, and never shares a key with the value."""
    before = jax.tree.structure(Four(0, value, 0, 0))
    keys = [jax.tree.structure(Four(0, twin, 0, 0)) for twin in twins(value)]
    assert before not in keys
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    "value",
    [True, 0, -3, 2.0, 0.5, -0.0, math.inf, "", "a", (), (1, "a"), Level.LOW, Mode.FAST],
    ids=repr,
)
def test_what_has_twins(value: Any) -> None:
    """Booleans, numbers, text, tuples and enum members of these have a twin."""
    assert list(twins(value))


@pytest.mark.parametrize("value", [None, b"a", Color.RED, 1j, frozenset()], ids=repr)
def test_what_has_no_twin(value: Any) -> None:
    """Values that no other type equals have none."""
    assert not list(twins(value))


def test_computed_fields_change_along() -> None:
    """What the constructor computes from a field is what it computes from the other value."""

    @lw.pytree
    class Derived:
        n: lw.Static[int]
        twice: int = lw.static_field(init=False)

        def __post_init__(self) -> None:
            self.twice = self.n * 2

    builder = Builder(Derived)
    found = {edit.path: edit.edited for edit in all_edits(builder)}
    assert list(found) == ["n"]
    assert found["n"].twice == 2 * found["n"].n


def test_words() -> None:
    """The words of an edit show both values."""

    @lw.pytree
    class P:
        x: jax.Array = lw.field(default_factory=lambda: jnp.zeros(3))
        y: float = 2.0
        k: jax.Array = lw.field(default_factory=lambda: jax.random.key(0))
        o: jax.Array | None = None
        n: lw.Static[int] = 2
        m: lw.Static[str] = "a"

    found = all_edits(Builder(P))
    assert [(edit.path, edit.kind, edit.change) for edit in found][:2] == [
        ("x", "leaf value", "float32[3], other elements"),
        ("x", "shape", "float32[3] -> float32[4]"),
    ]
    words = {(edit.path, edit.kind): edit.change for edit in found}
    assert list(dict.fromkeys(field for field, _ in words)) == ["x", "y", "k", "o", "n", "m"]
    assert words["y", "leaf value"].startswith("2.0 -> ")
    assert words["k", "shape"] == "key<fry>[] -> key<fry>[2]"
    assert words["o", "container"] == "None -> float32[3]"
    assert words["n", "static value"] == "2 -> 0"
    assert words["n", "static type"] == "2 -> 2.0 (float)"
    assert words["m", "static type"] == "'a' -> 'a' (StrSubclass)"


@pytest.mark.parametrize("value", [0.5, np.ones(2, "int32"), (0.5, 1)])
def test_a_leaf_that_flatten_converts(value: Any) -> None:
    """It is dynamic, though no object in its place becomes a leaf; aux_data is static."""

    @jax.tree_util.register_pytree_node_class
    class Converts:
        def __init__(self, x: Any, n: int) -> None:
            self.x, self.n = x, n

        def tree_flatten(self) -> Any:
            leaves = jax.tree.map(lambda leaf: np.asarray(leaf).astype("float32"), self.x)
            return (leaves, np.ones(self.n)), self.n

        @classmethod
        def tree_unflatten(cls, n: Any, children: Any) -> Any:
            return cls(children[0], n)

    assert names_of(Converts(value, 3)) == (("n",), ("x",))


def test_a_shape_that_the_constructor_refuses() -> None:
    """No instance has it: the change is skipped, and the class is not to blame."""

    class Sized:
        def __init__(self, x: jax.Array, y: jax.Array) -> None:
            if np.shape(x) != np.shape(y):
                raise ValueError
            self.x, self.y = x, y

    def flatten(it: Sized) -> Any:
        return (it.x, it.y), None

    def unflatten(_: None, xs: Any) -> Any:
        return Sized(*xs)

    jax.tree_util.register_pytree_node(Sized, flatten, unflatten)
    seen = verdicts(report_of(Sized))
    assert seen["x", "value"] == "ok"
    assert seen["x", "shape"] == "skipped"
