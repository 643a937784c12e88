"""The strategies for testing a library of pytrees, and those of our own property tests."""

import collections
import enum
import functools
import gc
import math
import pickle
import sys
from typing import Any, NamedTuple

import flax.core
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.vendor.pretty import pretty
from tests.property.drawn_classes import DrawnClass, pytree_classes
from tests.property.drawn_functions import DrawnFunction, jitted_functions, total

import leafwise as lw
from leafwise.testing import strategies
from leafwise.testing.strategies import (
    LeafwiseNode,
    NamedNode,
    RegisteredNode,
    pytrees,
    static_values,
)

from .seeking import assert_reaches, drawn, minimal


@lw.pytree
class Holder:
    it: lw.Static[Any]


# -------------------------------------------------------------------------- static values


@given(static_values())
def test_static_values_are_accepted(value: Any) -> None:
    """leafwise takes every one of them, and so does a hash."""
    hash(value)
    jax.tree.structure(Holder(value))


@pytest.mark.slow
def test_static_values_of_every_kind() -> None:
    """Each kind that the documentation names is met, and the values that get confused."""

    def of(*kinds: type) -> Any:
        return lambda value: type(value) in kinds

    assert_reaches(
        static_values(),
        of(bool), of(int), of(float), of(complex), of(np.float32), of(str), of(bytes),
        of(tuple), of(frozenset), of(lw.FrozenMapping), of(functools.partial),
        lambda v: isinstance(v, lw.StaticArray),
        lambda v: isinstance(v, enum.Enum) and isinstance(v, int | str),
        lambda v: isinstance(v, enum.Enum) and not isinstance(v, int | str),
        lambda v: isinstance(v, tuple) and hasattr(v, "_fields"),
        lambda v: hasattr(v, "__dataclass_fields__"),
        lambda v: isinstance(v, np.dtype),
        lambda v: isinstance(v, type),
        lambda v: v is None,
        lambda v: isinstance(v, float) and math.isnan(v),
        lambda v: type(v) is float and v == 0 and math.copysign(1, v) < 0,
        of(range),
        count=800,
    )  # fmt: skip
    if sys.version_info >= (3, 12):
        assert type(minimal(static_values(), of(slice))) is slice


@pytest.mark.slow
def test_static_values_are_equal_and_of_other_types() -> None:
    """Among the values are some that are equal and of another type."""
    kinds = collections.defaultdict(set)
    for value in drawn(static_values(), 400):
        kinds[value].add(type(value))
    assert len(kinds[1]) > 2
    assert sum(len(types) > 1 for types in kinds.values()) > 2


def test_simplest_static_value() -> None:
    """The simplest value is None."""
    assert minimal(static_values()) is None


# --------------------------------------------------------------------------------- trees


@given(pytrees())
def test_trees_round_trip(tree: Any) -> None:
    """Every tree can be flattened, by paths too, and rebuilt, and goes through jit."""
    leaves, structure = jax.tree.flatten(tree)
    assert jax.tree.structure(jax.tree.unflatten(structure, leaves)) == structure
    assert [leaf for _, leaf in jax.tree_util.tree_leaves_with_path(tree)] == leaves or leaves
    for leaf in leaves:
        assert isinstance(leaf, jax.Array | np.ndarray | int | float | bool)
        jax.typeof(leaf)


@pytest.mark.slow
def test_trees_of_every_node() -> None:
    """Each kind of node is met, and each kind of leaf."""

    def holds(kind: type) -> Any:
        def test(tree: Any) -> bool:
            nodes: list[Any] = []
            jax.tree.leaves(tree, is_leaf=lambda node: nodes.append(node) and False)
            return any(type(node) is kind for node in nodes)

        return test

    kinds = [list, tuple, dict, collections.OrderedDict, type(None), NamedNode, LeafwiseNode]
    kinds += [RegisteredNode, np.ndarray, int, float, bool]
    assert_reaches(
        pytrees(),
        *map(holds, kinds),
        lambda tree: any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(tree)),
        lambda tree: len(jax.tree.leaves(tree)) > 3,
        count=300,
    )
    assert jax.tree.leaves(minimal(pytrees())) == []


def test_leaves_of_trees() -> None:
    """Leaves are those that were asked for, and not too many."""
    for tree in drawn(pytrees(st.just("leaf"), max_leaves=3), 100):
        leaves = jax.tree.leaves(tree)
        assert set(leaves) <= {"leaf"}
        assert len(leaves) <= 12
    with pytest.raises(TypeError, match=r"st\.just"):
        pytrees(3)  # type: ignore[arg-type]


def test_nodes_can_be_pickled() -> None:
    """The classes of nodes are found by name."""
    for node in (NamedNode(1, 2), LeafwiseNode(1, 2, "b"), RegisteredNode(1, 2, "b")):
        assert pickle.loads(pickle.dumps(node)) == node  # noqa: S301  # our own


# ----------------------------------------------------------------------------- functions


@pytest.mark.slow
@settings(max_examples=15)
@given(jitted_functions(), pytrees())
def test_functions_compute_the_total(function: DrawnFunction, tree: Any) -> None:
    """Each function takes any tree, sums all leaves, and does not run its body again."""
    result = function(tree)
    assert (result.shape, result.dtype) == ((), jnp.float32)
    assert np.allclose(result, total(tree), rtol=1e-5)
    bodies = function.bodies
    assert bodies > 0
    function(tree)
    assert function.bodies == bodies


def test_total() -> None:
    """Every leaf counts: bools, complex numbers by their real part, keys by their data."""
    tree = [True, 2, 0.5, 1 + 2j, np.int8([1, 2]), jnp.bfloat16(4), None, jax.random.key(9)]
    assert total(tree) == 1 + 2 + 0.5 + 1 + 3 + 4 + 9
    assert total([]) == 0


def test_functions_of_every_make() -> None:
    """Makers, options and compositions are all met, and each draw has a cache of its own."""
    functions = drawn(jitted_functions(), 150)
    assert {each.maker for each in functions} == {"jax.jit", "lw.jit"}
    wanted = {"", "jit", "grad", "vmap", "checkpoint", "scan"}
    assert {each.composition for each in functions} == wanted
    options = {name for each in functions for name in each.options}
    assert options == {
        "keep_unused", "inline", "static_argnames", "static_argnums", "donate_argnames"
    }  # fmt: skip
    assert len({id(each.function) for each in functions}) == len(functions)
    assert functions[0].bodies == 0
    simplest = minimal(jitted_functions())
    assert (repr(simplest), simplest.kind) == ("jax.jit(total)", "jax.jit")
    other = minimal(jitted_functions(), lambda f: f.composition == "grad" and bool(f.options))
    assert repr(other) == "jax.jit(grad(total), keep_unused=True)"
    assert other.kind == "jax.jit of grad"
    assert pretty(other) == repr(other)


# ------------------------------------------------------------------------------- classes


@pytest.mark.nightly
@pytest.mark.slow
def test_classes_of_every_shape() -> None:
    """What the documentation says of fields and classes is met."""

    def field(**wanted: Any) -> Any:
        return lambda drawn: any(
            all(getattr(each, name) == value for name, value in wanted.items())
            for each in drawn.fields
        )

    def says(text: str) -> Any:
        return lambda drawn: text in drawn.source

    assert_reaches(
        pytree_classes(),
        field(static=True, spelling="annotation"),
        field(static=True, spelling="static_field"),
        field(static=True, spelling="metadata"),
        field(static=False, spelling="annotation"),
        field(static=False, spelling="field"),
        field(static=False, spelling="dataclasses.field"),
        field(default="value"),
        field(default="factory"),
        field(default=""),
        field(init=False),
        field(kw_only=True),
        *map(says, ["slots=True", "kw_only=True)\nclass", "many_statics=True", "order=True"]),
        *map(says, ["Generic[T]", "[float]", ": T", "Root", "jax.Array", ": int", "Static[str]"]),
        lambda drawn: any(each.depth != int(each.name[1:] or 0) for each in drawn.fields),
        count=250,
    )


@pytest.mark.slow
@given(pytree_classes(), st.data())
def test_classes_have_instances(made: DrawnClass, data: st.DataObject) -> None:
    """Instances are constructed from given values, from defaults, and from annotations."""
    values = made.values()
    instance = made.construct(values)
    assert {name: getattr(instance, name) for name in values} == values
    needed = {each.name: values[each.name] for each in made.fields if not each.default}
    short = made.construct(needed)
    for each in made.fields:
        expected = each.default_value if each.default else values[each.name]
        assert getattr(short, each.name) == expected
    assert type(data.draw(made.instances())) is made.cls
    assert [*made.static, *made.dynamic] == sorted(
        [each.name for each in made.fields], key=lambda name: name not in made.static
    )
    assert made.source in repr(made)


def test_source_is_the_class() -> None:
    """The code that a counterexample prints makes the same class again."""
    for made in drawn(pytree_classes(), 30):
        names: dict[str, Any] = {"__name__": "elsewhere"}
        exec(DrawnClass.HEADER + made.source, names)  # noqa: S102  # that is the claim
        again = DrawnClass(names["Drawn"], made.fields, made.source)
        instance, other = made.construct(made.values()), again.construct(made.values())
        assert jax.tree.leaves(other) == jax.tree.leaves(instance)


def test_limits_of_classes() -> None:
    """The limits are kept, and senseless ones refused."""
    for made in drawn(pytree_classes(max_fields=2, max_depth=1)):
        assert len(made.fields) <= 2
        assert made.source.count("class ") == 1
    for limits in ({"max_fields": -1}, {"max_fields": 99}, {"max_depth": 0}, {"max_depth": 9}):
        with pytest.raises(ValueError, match="from"):
            pytree_classes(**limits)


@pytest.mark.nightly
@pytest.mark.slow
def test_simplest_class() -> None:
    """A class shrinks to the fields that matter, plainly written."""
    assert minimal(pytree_classes()).source == "@lw.pytree\nclass Drawn:\n    ..."
    found = minimal(pytree_classes(), lambda drawn: len(drawn.static) > 0)
    assert found.source == "@lw.pytree\nclass Drawn:\n    a: lw.Static[Any]"


@pytest.mark.slow
def test_equal_code_is_one_class() -> None:
    """JAX keeps every class for ever, so that equal code must not make another one."""
    before = _drawn_classes()
    sources = {made.source for made in drawn(pytree_classes(max_fields=1, max_depth=1), 100)}
    again = {made.source for made in drawn(pytree_classes(max_fields=1, max_depth=1), 100)}
    assert _drawn_classes() - before <= len(sources | again)


def _drawn_classes() -> int:
    gc.collect()
    # `isinstance` would ask objects of other tests for their class, and one of them raises.
    classes = [each for each in gc.get_objects() if issubclass(type(each), type)]
    return sum(each.__name__ == "Drawn" for each in classes)


def test_a_mapping_of_a_library() -> None:
    """A mapping that is no dict is made from one: flax's FrozenDict."""

    @flax.struct.dataclass
    class State:
        params: flax.core.FrozenDict[str, float]
        bare: flax.core.FrozenDict

    found = drawn(strategies.instances(State))
    for name in ("params", "bare"):
        assert {type(getattr(each, name)) for each in found} == {flax.core.FrozenDict}
        assert any(getattr(each, name) for each in found)


class AnyState(NamedTuple):
    inner: NamedTuple


def test_any_named_tuple() -> None:
    """The annotation ``NamedTuple`` means any of them, as in the states of blackjax."""
    for state in drawn(strategies.instances(AnyState), count=5):
        inner: Any = state.inner
        assert isinstance(inner, tuple)
        assert len(jax.tree.leaves(inner)) == len(inner._fields)


def test_a_mapping_that_is_a_tree() -> None:
    """A mapping of a library is made of a dict, also if no types of its items are said."""
    nnx = pytest.importorskip("flax.nnx")
    holder = make_holder(nnx.State)
    for value in drawn(strategies.instances(holder), count=5):
        assert isinstance(value.state, nnx.State)
        assert len({type(key) for key in value.state}) <= 1
        jax.tree.leaves(value)


def make_holder(kind: Any) -> Any:
    return lw.pytree(type("Holder", (), {"__annotations__": {"state": kind}}))
