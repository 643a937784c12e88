"""The law of round trips, for classes of every shape: flatten and unflatten lose nothing."""

import copy
import dataclasses
import types
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from hypothesis import given
from hypothesis import strategies as st

import leafwise as lw


class Shape(NamedTuple):
    """How one field is declared."""

    name: str
    static: bool
    spelling: str
    default: bool
    init: bool
    kw_only: bool


class Made(NamedTuple):
    """A generated class.

    Attributes:
        cls: The class.
        shapes: Its fields in dataclass order, those of bases first.
    """

    cls: Any
    shapes: list[Shape]

    @property
    def dynamic(self) -> list[str]:
        return [shape.name for shape in self.shapes if not shape.static]

    def construct(self, values: dict[str, Any]) -> Any:
        """Construct from values by name, and set what the constructor does not take."""
        arguments = {s.name: values[s.name] for s in self.shapes if s.init}
        return self.cls(**arguments)


@st.composite
def shapes(draw: st.DrawFn, names: tuple[str, ...]) -> list[Shape]:
    """Draw the fields that one class body declares."""
    found = []
    for name in names:
        static = draw(st.booleans())
        spelling = draw(st.sampled_from(["annotation", "field", "metadata"]))
        init = draw(st.integers(0, 4)) > 0
        kw_only = draw(st.booleans())
        default = draw(st.booleans()) or not init
        found.append(Shape(name, static, spelling, default, init, kw_only))
    return draw(st.permutations(found))


def body(fields: list[Shape], *, force_keywords: bool) -> Any:
    """Return what fills the namespace of a class with these fields."""

    def fill(namespace: dict[str, Any]) -> None:
        annotations: dict[str, Any] = {}
        for shape in fields:
            annotations[shape.name] = Any
            options: dict[str, Any] = {"init": shape.init}
            if shape.default:
                options["default"] = f"default {shape.name}" if shape.static else 0.5
            options["kw_only"] = shape.kw_only or force_keywords
            if shape.static and shape.spelling == "annotation":
                annotations[shape.name] = lw.Static[Any]
                namespace[shape.name] = dataclasses.field(**options)
            elif shape.static and shape.spelling == "field":
                namespace[shape.name] = lw.static_field(**options)
            elif shape.static:
                namespace[shape.name] = dataclasses.field(metadata={"static": True}, **options)
            else:
                namespace[shape.name] = lw.field(**options)
        namespace["__annotations__"] = annotations
        namespace["__module__"] = __name__

    return fill


@st.composite
def classes(draw: st.DrawFn) -> Made:
    """Draw a decorated class, possibly derived from another one."""
    slots = draw(st.booleans())
    count = draw(st.integers(0, 5))
    own = draw(shapes(tuple("abcde"[:count])))
    bases: tuple[Any, ...] = ()
    inherited: list[Shape] = []
    if draw(st.booleans()):
        inherited = draw(shapes(tuple("pqr"[: draw(st.integers(0, 3))])))
        base = types.new_class("Base", (), {}, body(inherited, force_keywords=True))
        bases = (lw.pytree(slots=draw(st.booleans()))(base),)
    cls = types.new_class("Drawn", bases, {}, body(own, force_keywords=True))
    return Made(lw.pytree(slots=slots)(cls), [*inherited, *own])


def value_of(shape: Shape, number: int) -> Any:
    """Return what the constructor is given for a field."""
    if not shape.init:
        return f"default {shape.name}" if shape.static else 0.5
    return f"{shape.name} {number}" if shape.static else float(number)


def draw_values(made: Made, number: int = 1) -> dict[str, Any]:
    return {s.name: value_of(s, number + i) for i, s in enumerate(made.shapes)}


@given(classes())
def test_leaves_and_paths_are_the_dynamic_fields_in_order(made: Made) -> None:
    """Leaves come in field order, with the paths that attribute access has; nothing is added."""
    values = draw_values(made)
    instance = made.construct(values)
    pairs, structure = jax.tree.flatten_with_path(instance)
    assert [path for path, _ in pairs] == [(jax.tree_util.GetAttrKey(n),) for n in made.dynamic]
    assert all(leaf is values[name] for (_, leaf), name in zip(pairs, made.dynamic, strict=True))
    assert jax.tree.structure(instance) == structure
    assert jax.tree.leaves(instance) == [leaf for _, leaf in pairs]
    assert [field.name for field in dataclasses.fields(instance)] == [s.name for s in made.shapes]


@given(classes())
def test_unflatten_takes_any_leaf(made: Made) -> None:
    """Sentinels, None, structs and tracers go in and come out as they are."""
    instance = made.construct(draw_values(made))
    structure = jax.tree.structure(instance)
    strange = [object(), None, jax.ShapeDtypeStruct((2,), jnp.float32), ..., "text"]
    children = [strange[i % len(strange)] for i in range(len(made.dynamic))]
    rebuilt = jax.tree.unflatten(structure, children)
    assert type(rebuilt) is made.cls
    for name, child in zip(made.dynamic, children, strict=True):
        assert getattr(rebuilt, name) is child
    for shape in made.shapes:
        if shape.static:
            assert getattr(rebuilt, shape.name) is getattr(instance, shape.name)
    outer = jax.tree.structure(rebuilt, is_leaf=lambda node: node is not rebuilt)
    assert outer == structure


@given(classes())
def test_tree_map_is_the_identity_on_statics(made: Made) -> None:
    """`tree.map` of the identity is an equal instance; of a function, one with mapped leaves."""
    values = draw_values(made)
    instance = made.construct(values)
    assert jax.tree.map(lambda leaf: leaf, instance) == instance
    mapped = jax.tree.map(lambda leaf: (leaf,), instance)
    for shape in made.shapes:
        expected = values[shape.name] if shape.static else (values[shape.name],)
        assert getattr(mapped, shape.name) == expected


@given(classes())
def test_tracers_pass_through(made: Made) -> None:
    """Inside of jit the fields hold tracers, and statics are what they were."""
    values = draw_values(made)
    instance = made.construct(values)

    @jax.jit
    def program(p: Any) -> Any:
        for shape in made.shapes:
            field = getattr(p, shape.name)
            assert (
                field == values[shape.name] if shape.static else isinstance(field, jax.core.Tracer)
            )
        return jax.tree.map(lambda leaf: leaf + 1, p)

    result = program(instance)
    assert type(result) is made.cls
    assert jax.tree.structure(result) == jax.tree.structure(instance)
    assert [float(v) for v in jax.tree.leaves(result)] == [v + 1 for v in jax.tree.leaves(instance)]


@given(classes(), st.data())
def test_each_static_is_in_the_treedef(made: Made, data: st.DataObject) -> None:
    """Another value in any one static field is another treedef, equal values are the same."""
    instance = made.construct(draw_values(made))
    same = made.construct(draw_values(made))
    assert jax.tree.structure(same) == jax.tree.structure(instance)
    assert same == instance
    assert hash(same) == hash(instance)
    statics = [shape.name for shape in made.shapes if shape.static and shape.init]
    if statics:
        name = data.draw(st.sampled_from(statics))
        other = made.construct(draw_values(made) | {name: "another"})
        assert jax.tree.structure(other) != jax.tree.structure(instance)
        assert other != instance
        assert jax.tree.leaves(other) == jax.tree.leaves(instance)


@given(classes())
def test_copies_are_equal(made: Made) -> None:
    """`copy` and `deepcopy` give equal instances of the same class."""
    instance = made.construct(draw_values(made))
    for twin in (copy.copy(instance), copy.deepcopy(instance)):
        assert type(twin) is made.cls
        assert twin == instance
        assert jax.tree.structure(twin) == jax.tree.structure(instance)


@given(classes())
def test_all_leaves_none(made: Made) -> None:
    """None is a node without leaves, as everywhere in JAX."""
    instance = made.construct(draw_values(made))
    emptied = jax.tree.map(lambda _: None, instance)
    assert jax.tree.leaves(emptied) == []
    assert all(getattr(emptied, name) is None for name in made.dynamic)


@given(classes())
def test_structures_nest(made: Made) -> None:
    """An instance is a node like any other: in containers, and in fields of another."""
    instance = made.construct(draw_values(made))
    tree = {"a": [instance, 1.0], "b": (instance,)}
    mapped = jax.tree.map(lambda leaf: leaf, tree)
    assert mapped == tree
    if made.dynamic:
        doubled = jax.tree.map(lambda leaf: [leaf, leaf], instance)
        outer, inner = jax.tree.structure(instance), jax.tree.structure([0, 0])
        assert jax.tree.transpose(outer, inner, doubled) == [instance, instance]
