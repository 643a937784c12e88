"""`edits`: every kind of change, one at a time, to what a class's attributes become."""

import dataclasses
import functools
from typing import Any, Literal, NamedTuple

import attrs
import equinox as eqx
import flax.core
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import event, find, given, settings
from hypothesis import strategies as st
from tests.kit.inside import (
    edit_positions,
    exchange,
    field_names_of,
    is_distinct,
    is_kept,
    same_leaf,
)
from tests.testing.strategies.seeking import drawn

import leafwise as lw
from leafwise.testing import check_pytree
from leafwise.testing.strategies import Edit, EditKind, edits

from . import specimens
from .specimens import Config, Mode, Nested, Params

LIBRARIES = [
    specimens.Params,
    specimens.Slotted,
    specimens.Flax,
    specimens.Equinox,
    specimens.Plain,
    specimens.Jdc,
    specimens.Hand,
]


def made(cls: Any) -> Any:
    return cls(jnp.ones(3), 1.0) if cls is specimens.Params else cls(jnp.ones(3))


EXAMPLES = settings(max_examples=100, deadline=None, database=None, derandomize=True)
BIG = Nested(Params(jnp.ones(3), 0.5), [1.0, 2.0], {"a": np.ones(2), "b": None})


@pytest.mark.parametrize("kind", EditKind)
@pytest.mark.parametrize("cls", LIBRARIES, ids=lambda cls: cls.__name__)
def test_every_kind_is_reachable(cls: Any, kind: EditKind) -> None:
    """For a class of any library, each kind of edit is found, also when all may be drawn."""
    found = find(edits(made(cls)), lambda edit: edit.kind is kind, settings=EXAMPLES)
    assert type(found.edited) is cls
    assert str(found).startswith(f"{found.path}: {kind}: ")


MINIMAL = {
    EditKind.LEAF_VALUE: "inner.w: leaf value: float32[3], other elements",
    EditKind.STATIC_VALUE: "inner.act: static value: 'relu' -> ''",
    EditKind.STATIC_TYPE: "inner.act: static type: 'relu' -> 'relu' (StrSubclass)",
    EditKind.SHAPE: "inner.w: shape: float32[3] -> float32[4]",
    EditKind.DTYPE: "inner.w: dtype: float32[3] -> int16[3]",
    EditKind.WEAK_TYPE: "inner.w: weak type: float32[3] -> float32[3] weak",
    EditKind.ARRAY_KIND: "inner.w: kind of array: float32[3] (ArrayImpl) -> float32[3] (ndarray)",
    EditKind.CONTAINER: "inner.w: container: ",
}


@pytest.mark.parametrize("kind", EditKind)
def test_edits_shrink(kind: EditKind) -> None:
    """Where every edit of a kind will do, a simple one is found, always the same."""
    found = find(edits(BIG, kinds=[kind]), lambda _: True, settings=EXAMPLES)
    assert str(found).startswith(MINIMAL[kind])
    wanted = edits(BIG, kinds=["static value"], at="inner.n")
    assert find(wanted, lambda edit: edit.after > 20, settings=EXAMPLES).after == 21


AVALS = (EditKind.SHAPE, EditKind.DTYPE, EditKind.WEAK_TYPE)


@pytest.mark.slow
@EXAMPLES
@given(edits(BIG))
def test_an_edit_changes_one_thing(edit: Edit[Nested[Any]]) -> None:
    """At its path stands the new value; all else is the same object, and the original stays."""
    event(edit.kind)
    assert (BIG.extra, set(BIG.scale)) == ([1.0, 2.0], {"a", "b"})
    before = {position.path: position for position in edit_positions(BIG)}
    after = {position.path: position for position in edit_positions(edit.edited)}
    assert before[edit.path].value is edit.before
    assert after[edit.path].value is edit.after
    for path, position in before.items():
        above = edit.path.startswith(path) and path != edit.path
        below = path.startswith(edit.path) and path != edit.path
        if path != edit.path and not above and not below:
            assert after[path].value is position.value, path


@EXAMPLES
@given(edits(BIG))
def test_an_edit_is_of_its_kind(edit: Edit[Any]) -> None:
    """The kind says exactly what differs: of an aval one thing, of a static type or value."""
    a, b = edit.before, edit.after
    if edit.kind is EditKind.STATIC_VALUE:
        assert is_distinct(a, b)
    elif edit.kind is EditKind.STATIC_TYPE:
        assert a == b
        assert type(a) is not type(b)
    elif edit.kind is EditKind.CONTAINER:
        assert jax.tree.structure(a) != jax.tree.structure(b)
    else:
        mine, its = jax.typeof(a), jax.typeof(b)
        differ = {
            EditKind.SHAPE: mine.shape != its.shape,
            EditKind.DTYPE: mine.dtype != its.dtype,
            EditKind.WEAK_TYPE: mine.weak_type != its.weak_type,
        }
        assert [kind for kind in AVALS if differ[kind]] == [edit.kind] * (edit.kind in AVALS)
        if edit.kind is EditKind.LEAF_VALUE:
            assert type(a) is type(b)
            assert not same_leaf(a, b)
        if edit.kind is EditKind.ARRAY_KIND:
            assert type(a) is not type(b)
            np.testing.assert_array_equal(a, b)


class Deep(NamedTuple):
    a: int
    b: str


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ((1, (2, "x")), "s[1][0]"),
        (Deep(1, "x"), "s.b"),
        (Config(3, "note"), "s.depth"),
        (Config(3, "note"), "s.note"),
        (lw.FrozenMapping({"k": 1}), "s['k']"),
        (functools.partial(jnp.add, 1, out=2), "s.args[0]"),
        (functools.partial(jnp.add, 1, out=2), "s.keywords['out']"),
        (Mode.TRAIN, "s"),
        (np.dtype("float32"), "s"),
        (jnp.tanh, "s"),
        (lw.StaticArray([1, 2]), "s"),
        (frozenset({1}), "s"),
        (None, "s"),
        (b"x", "s"),
        (np.float32(2), "s"),
    ],
    ids=lambda each: each if isinstance(each, str) and each[0] == "s" else type(each).__name__,
)
def test_statics_of_every_type(value: Any, path: str) -> None:
    """A static of any type has other values, inside it as well, and none of them is it."""

    @lw.pytree
    class Holder:
        s: Any = lw.static_field()

    x = Holder(value)
    edit = find(edits(x, kinds=["static value"], at=path), lambda _: True, settings=EXAMPLES)
    assert edit.path == path
    assert jax.tree.structure(edit.edited) != jax.tree.structure(x)
    loose = value is None or callable(value) or isinstance(value, np.dtype)
    assert loose or type(edit.edited.s) is type(value)


def test_converters_decide_what_is_stored() -> None:
    """An edit of a converted field is what the class makes of it; what it undoes is no edit."""
    x = specimens.Converted([1.0, 2.0], n=2)
    values = drawn(edits(x, kinds=["static type", "static value"]))
    assert {type(edit.after) for edit in values} == {int}
    assert all(edit.kind is EditKind.STATIC_VALUE for edit in values)


def test_a_converter_of_equinox_decides_as_well() -> None:
    """No instance has a static that its converter would have changed."""

    class Net(eqx.Module):
        n: int = eqx.field(static=True, converter=int)

    static = next(each for each in edit_positions(Net(1)) if each.path == "n")
    assert type(static.put(2.0).n) is int
    few = settings(EXAMPLES, max_examples=10)
    check_pytree(st.just(Net(1)), laws=["static-types"], settings=few)


def test_literals_are_kept_to() -> None:
    """A field whose annotation lists its values takes no other one."""

    @lw.pytree
    class Choice:
        x: float
        act: lw.Static[Literal["relu", "tanh", 1]] = "relu"
        only: lw.Static[Literal[3]] = 3

    values = {(edit.path, edit.after) for edit in drawn(edits(Choice(1.0), kinds=["static value"]))}
    assert values == {("act", "tanh"), ("act", 1)}


def test_kinds_and_places() -> None:
    """`kinds` and `at` narrow down what is drawn."""
    wanted = edits(BIG, kinds=[EditKind.LEAF_VALUE, "dtype"], at=["inner.lr", "extra"])
    for edit in drawn(wanted):
        assert edit.kind in (EditKind.LEAF_VALUE, EditKind.DTYPE)
        assert edit.path in ("inner.lr", "extra[0]", "extra[1]")


def test_any_pytree() -> None:
    """A tree of plain containers can be edited, and so can one leaf."""
    assert (
        find(edits([1.0, {"k": 2}], kinds=["leaf value"]), lambda e: "k" in e.path).path
        == "[1]['k']"
    )
    assert find(edits(1.0, kinds=["leaf value"]), lambda _: True).edited == 0.0
    key = jax.random.key(0)
    assert jax.random.key_data(find(edits(key), lambda e: e.kind == "leaf value").edited)[1] == 1


class Left(eqx.Module):
    w: jax.Array
    rate: float = 0.5
    depth: int = eqx.field(static=True, default=2)

    def __init__(self, w: jax.Array) -> None:
        self.w = w


@jax.tree_util.register_dataclass
@dataclasses.dataclass(init=False)
class Read:
    w: jax.Array
    rate: float = 0.5

    def __init__(self, w: jax.Array) -> None:
        self.w = w


def test_a_default_that_is_left_to_the_class() -> None:
    """Equinox flattens what an instance holds; JAX reads the defaults of a dataclass as well."""
    x = jnp.ones(3)
    assert jax.tree.leaves(Left(x)) == [x]
    assert [each.path for each in edit_positions(Left(x))] == ["w"]
    assert jax.tree.leaves(Read(x)) == [x, 0.5]
    assert [each.path for each in edit_positions(Read(x))] == ["w", "rate"]


def test_bad_input() -> None:
    """A class, an unknown kind, a wrong path, and nothing to change are distinguished."""
    with pytest.raises(TypeError, match=r"got the class Params\n  fix: instances\(Params\)"):
        edits(Params)
    with pytest.raises(ValueError, match=r"'shapes' is not a valid EditKind"):
        edits(BIG, kinds=["shapes"])
    with pytest.raises(ValueError, match=r"nothing is at 'inner.x'; choose from inner.w, inner.lr"):
        edits(BIG, at="inner.x")
    with pytest.raises(ValueError, match=r"no edit of the kind static value at inner.w"):
        edits(BIG, kinds=["static value"], at="inner.w")
    with pytest.raises(ValueError, match=r"there is no edit of the kind shape"):
        edits(specimens.Leafless(), kinds=["shape"])


@pytest.mark.parametrize("cls", LIBRARIES)
def test_exchange(cls: Any) -> None:
    """One attribute differs, the rest are the same objects, and the original stays."""
    x = made(cls)
    changed = exchange(x, "n", 7)
    assert (changed.n, x.n != 7, changed.w is x.w, type(changed)) == (7, True, True, cls)
    assert jax.tree.structure(changed) != jax.tree.structure(x)
    assert jax.tree.leaves(exchange(x, "w", 2.0))[0] == 2.0


def test_tuples_and_attrs() -> None:
    """Namedtuples and attrs classes have their own lists of fields; a cache is not a static."""
    frozen = flax.core.FrozenDict({"a": jnp.ones(2)})
    assert "_hash" not in field_names_of(frozen).static
    assert not is_kept(frozen, "_hash")

    class Pair(NamedTuple):
        a: float
        b: float

    assert field_names_of(Pair(1.0, 2.0)).dynamic == ("a", "b")
    assert exchange(Pair(1.0, 2.0), "b", 3.0) == Pair(1.0, 3.0)

    @attrs.frozen(slots=True)
    class Frozen:
        x: float
        n: int = 2

    lw.register(Frozen, dynamic=["x"], static=["n"])
    assert field_names_of(Frozen(1.0)) == (("n",), ("x",))
    assert exchange(Frozen(1.0), "n", 3).n == 3


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

    assert field_names_of(Converts(value, 3)) == (("n",), ("x",))
