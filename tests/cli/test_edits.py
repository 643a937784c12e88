"""Edits: each changes one field, in the way it says, and nothing else."""

import enum
import math
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
from leafwise._trees.roles import names_of
from leafwise.testing._recompilation import promised
from leafwise.testing.strategies import EditKind, edits
from leafwise.testing.strategies._edit_positions import edit_positions
from leafwise.testing.strategies._edits import LEAF_EDITS, options_of, twins

from .asked import changes, report_of, verdicts


class Level(enum.IntEnum):
    LOW = 0
    HIGH = 1


class Mode(enum.StrEnum):
    FAST = "fast"


class Color(enum.Enum):
    RED = 1
    BLUE = 2


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


@given(leaf=LEAVES)
def test_an_edit_of_a_leaf_does_what_it_says(leaf: Any) -> None:
    """Of values, shape, dtype and weak type, an edit changes the one that it names."""
    before = jax.typeof(leaf)
    made = {kind: other for kind, make in LEAF_EDITS.items() if (other := make(leaf)) is not None}
    assert {"leaf value", "shape", "dtype"} <= set(made)
    assert ("weak type" in made) >= (before.dtype in (jnp.float32, jnp.int32, jnp.complex64))
    for kind, other in made.items():
        after = jax.typeof(other)
        changed = {
            "shape": before.shape != after.shape,
            "dtype": before.dtype != after.dtype,
            "weak type": before.weak_type != after.weak_type,
        }
        assert changed == {each: each == kind for each in changed}, kind
        if kind is EditKind.LEAF_VALUE:
            assert type(other) is type(leaf) or isinstance(leaf, jax.Array)
            assert np.asarray(leaf).tobytes() != np.asarray(other).tobytes()


@given(shape=hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=2))
def test_an_array_without_elements_has_no_other_values(shape: tuple[int, ...]) -> None:
    """What has no elements is not said to get other ones."""
    assume(0 in shape)
    found = options_of(edit_positions(jnp.zeros(shape)))
    assert EditKind.LEAF_VALUE not in found
    assert {"shape", "dtype"} <= set(found)


@given(s=STATICS, data=st.data())
def test_a_static_edit_is_another_key(s: Any, data: st.DataObject) -> None:
    """A static edit has another key, with the same leaves, and promises a retrace."""
    four = Four(1.0, s, 2, 0)
    edit = data.draw(edits(four, kinds=["static value", "static type"], at="s"))
    assert promised(edit) is Outcome.RETRACE
    before, after = lw.signature(four), lw.signature(edit.edited)
    assert before.treedef != after.treedef
    assert lw.explain(before, after).outcome is Outcome.RETRACE
    assert jax.tree.leaves(edit.edited) == jax.tree.leaves(four)


NUMBERS = st.one_of(
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.just(10**400),
    st.floats(),
    st.text(max_size=3),
    st.tuples(st.integers(), st.text(max_size=2)),
    st.sampled_from([Level.LOW, Level.HIGH, Mode.FAST, Color.RED, np.float64(0.5), np.float64(2)]),
    st.none(),
)


@given(value=NUMBERS)
def test_twins_are_equal_and_of_another_type(value: Any) -> None:
    """A twin is ``==`` to the value, of another type, and has another key."""
    found = list(twins(value))
    assert all(twin == value == twin and type(twin) is not type(value) for twin in found)
    keys = [jax.tree.structure(Four(0, each, 0, 0)) for each in (value, *found)]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("values", "has_twins"),
    [
        ([True, 0, -3, 2.0, 0.5, -0.0, math.inf, "", "a", (), (1, "a"), *Level, *Mode], True),
        ([None, b"a", Color.RED, 1j, frozenset()], False),
    ],
)
def test_what_has_twins(values: list[Any], has_twins: bool) -> None:
    """Booleans, numbers, text, tuples and enum members of these have a twin; others have none."""
    for value in values:
        assert bool(list(twins(value))) is has_twins, value


def test_words() -> None:
    """The words of an edit show both values; what the constructor computes is not edited."""

    @lw.pytree
    class P:
        x: jax.Array = lw.field(default_factory=lambda: jnp.zeros(3))
        y: float = 2.0
        k: jax.Array = lw.field(default_factory=lambda: jax.random.key(0))
        o: jax.Array | None = None
        n: lw.Static[int] = 2
        m: lw.Static[str] = "a"
        twice: int = lw.static_field(init=False)

        def __post_init__(self) -> None:
            self.twice = self.n * 2

    words = changes(report_of(P))
    assert list(words)[:2] == [("x", "value"), ("x", "shape")]
    assert words["x", "value"] == "float32[3], other elements"
    assert words["x", "shape"] == "float32[3] -> float32[4]"
    assert list(dict.fromkeys(field for field, _ in words)) == [*"xykonm", "twice"]
    assert words["y", "value"].startswith("2.0 -> ")
    assert words["k", "shape"] == "key<fry>[] -> key<fry>[2]"
    assert words["o", "structure"] == "None -> 1.0"
    assert words["n", "value"] == "2 -> 0"
    assert words["n", "type"] == "2 -> 2.0 (float)"
    assert words["m", "type"] == "'a' -> 'a' (StrSubclass)"


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
