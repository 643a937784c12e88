"""The law of round trips, for classes of every shape: flatten and unflatten lose nothing."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from .drawn_classes import DrawnClass, pytree_classes


@given(pytree_classes())
def test_leaves_and_paths_are_the_dynamic_fields_in_order(made: DrawnClass) -> None:
    """Leaves come in field order, with the paths that attribute access has; nothing is added."""
    values = made.values()
    instance = made.construct(values)
    pairs, structure = jax.tree.flatten_with_path(instance)
    assert [path for path, _ in pairs] == [(jax.tree_util.GetAttrKey(n),) for n in made.dynamic]
    for (_, leaf), name in zip(pairs, made.dynamic, strict=True):
        assert leaf is getattr(instance, name)
        assert leaf == values[name]
    assert jax.tree.structure(instance) == structure
    assert jax.tree.leaves(instance) == [leaf for _, leaf in pairs]
    names = [field.name for field in dataclasses.fields(instance)]
    assert names == [field.name for field in made.fields]


@given(pytree_classes())
def test_unflatten_takes_any_leaf(made: DrawnClass) -> None:
    """Sentinels, None, structs and tracers go in and come out as they are."""
    instance = made.construct(made.values())
    structure = jax.tree.structure(instance)
    strange = [object(), None, jax.ShapeDtypeStruct((2,), jnp.float32), ..., "text"]
    children = [strange[i % len(strange)] for i in range(len(made.dynamic))]
    rebuilt = jax.tree.unflatten(structure, children)
    assert type(rebuilt) is made.cls
    for name, child in zip(made.dynamic, children, strict=True):
        assert getattr(rebuilt, name) is child
    for field in made.fields:
        if field.static:
            assert getattr(rebuilt, field.name) is getattr(instance, field.name)
    outer = jax.tree.structure(rebuilt, is_leaf=lambda node: any(node is c for c in children))
    assert outer == structure


@given(pytree_classes())
def test_tree_map_is_the_identity_on_statics(made: DrawnClass) -> None:
    """`tree.map` of the identity is an equal instance; of a function, one with mapped leaves."""
    values = made.values()
    instance = made.construct(values)
    assert jax.tree.map(lambda leaf: leaf, instance) == instance
    mapped = jax.tree.map(lambda leaf: (leaf,), instance)
    for field in made.fields:
        expected = values[field.name] if field.static else (values[field.name],)
        assert getattr(mapped, field.name) == expected


@pytest.mark.slow
@given(pytree_classes())
def test_tracers_pass_through(made: DrawnClass) -> None:
    """Inside jit the fields hold tracers, and statics are what they were."""
    values = made.values()
    instance = made.construct(values)

    @jax.jit
    def program(p: Any) -> Any:
        for field in made.fields:
            value = getattr(p, field.name)
            if field.static:
                assert value == values[field.name]
            else:
                assert isinstance(value, jax.core.Tracer)
        return jax.tree.map(lambda leaf: leaf + 1, p)

    result = program(instance)
    assert type(result) is made.cls
    assert jax.tree.structure(result) == jax.tree.structure(instance)
    assert [float(v) for v in jax.tree.leaves(result)] == [v + 1 for v in jax.tree.leaves(instance)]


@given(pytree_classes(), st.data())
def test_each_static_is_in_the_treedef(made: DrawnClass, data: st.DataObject) -> None:
    """Another value in any one static field is another treedef, equal values are the same."""
    instance = made.construct(made.values())
    same = made.construct(made.values())
    assert jax.tree.structure(same) == jax.tree.structure(instance)
    assert same == instance
    assert hash(same) == hash(instance)
    statics = [field.name for field in made.fields if field.static and field.init]
    if statics:
        name = data.draw(st.sampled_from(statics))
        other = made.construct(made.values() | {name: "another"})
        assert jax.tree.structure(other) != jax.tree.structure(instance)
        assert other != instance
        assert jax.tree.leaves(other) == jax.tree.leaves(instance)
