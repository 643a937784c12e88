"""The law of round trips, for classes of every shape: flatten and unflatten lose nothing."""

import dataclasses
import functools
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leafwise.testing import check_pytree

HEADER: Final = """\
import dataclasses
from typing import Any, Generic, TypeVar
import jax
import leafwise as lw
T = TypeVar("T")
"""
OPTIONS: Final = ("slots=True", "kw_only=True", "many_statics=True", "order=True")
# How a field is declared, of an annotation and of options.
STATIC: Final = (
    "lw.Static[{}]{}",
    "{} = lw.static_field({})",
    "{} = dataclasses.field({}, metadata={{'static': True}})",
)
DYNAMIC: Final = ("{}{}", "{} = lw.field({})", "{} = dataclasses.field({})")
SELDOM: Final = st.sampled_from([False] * 4 + [True])


class DrawnField(NamedTuple):
    name: str
    static: bool
    code: str  # what follows the name
    default: Any  # None if there is none; that of an overriding field is another one
    init: bool
    kw_only: bool
    is_override: bool


class DrawnClass(NamedTuple):
    """A pytree class, its fields with inherited ones first, and its source."""

    cls: Any
    fields: tuple[DrawnField, ...]
    source: str

    @property
    def dynamic(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields if not field.static)

    def values(self) -> dict[str, Any]:
        """Return a value for each field, all different; the default where there is no parameter."""
        return {
            field.name: (f"{field.name} 1" if field.static else 1.0 + index)
            if field.init
            else field.default
            for index, field in enumerate(self.fields)
        }

    def construct(self, values: dict[str, Any]) -> Any:
        """Return an instance with those of these values that the constructor takes."""
        return self.cls(**{field.name: values[field.name] for field in self.fields if field.init})

    def __repr__(self) -> str:
        """Return the source, so that a counterexample can be run."""
        return f"<{self.cls.__name__} of\n{self.source}>"


@st.composite
def pytree_classes(draw: st.DrawFn) -> DrawnClass:
    """Draw a pytree class and those that it derives from, of which it may override fields."""
    fields: dict[str, DrawnField] = {}
    generic = draw(st.booleans())
    base, source = "Generic[T]" if generic else "", ""
    for level in range(draw(st.integers(1, 3))):
        options = draw(st.lists(st.sampled_from(OPTIONS), max_size=2, unique=True))
        # Not in the order of the alphabet, which flatten might take for that of the fields.
        names = [f"{name}{level}" for name in "cadb"[: draw(st.integers(0, 4))]]
        names += [name for name in fields if draw(SELDOM)]
        source += f"@lw.pytree({', '.join(options)})\nclass Level{level}({base}):\n    ...\n"
        for name in names:
            fields[name] = draw(drawn_fields(name, level, fields, generic=generic))
            source += f"    {name}: {fields[name].code}\n"
            if "kw_only=True" in options:
                fields[name] = fields[name]._replace(kw_only=True)
        arguments = draw(st.sampled_from(["[T]", "[float]"])) if generic and not level else ""
        base = f"Level{level}{arguments}"
    return DrawnClass(class_of(source), tuple(fields.values()), source)


@st.composite
def drawn_fields(
    draw: st.DrawFn, name: str, level: int, fields: dict[str, DrawnField], *, generic: bool
) -> DrawnField:
    """Draw a field that a class adds to these, or overrides."""
    old = fields.get(name)
    # A field turns static, or dynamic, once in a line of classes.
    static = old.static if old and old.is_override else draw(st.booleans())
    annotations = ["Any", "int", "str"] if static else ["Any", "float", "jax.Array"]
    annotations += ["T"] * (generic and not level and not static)
    # An overriding field stays where it was: it has a default, or none, as before.
    init = old.init if old else not draw(SELDOM)
    has_default = old.default is not None if old else not init or draw(st.booleans())
    is_late = any(each.default is not None and not each.kw_only for each in fields.values())
    kw_only = init and (old.kw_only if old else (is_late and not has_default) or draw(SELDOM))
    default = (f"default of {level}" if static else 0.5 + level) if has_default else None
    options = ["init=False"] * (not init) + ["kw_only=True"] * kw_only
    spellings = STATIC if static else DYNAMIC
    if old and not static:  # what it overrides was perhaps static: it must say which it is
        spellings = DYNAMIC[1:2]
    elif options:
        spellings = spellings[1:]
    spelling = draw(st.sampled_from(spellings))
    if has_default and spelling in (STATIC[0], DYNAMIC[0]):
        options = [f" = {default!r}"]
    elif has_default:
        options.append(
            draw(st.sampled_from(["default=", "default_factory=lambda: "])) + f"{default!r}"
        )
    code = spelling.format(draw(st.sampled_from(annotations)), ", ".join(options))
    return DrawnField(name, static, code.replace("(, ", "("), default, init, kw_only, bool(old))


@functools.lru_cache(maxsize=1000)  # JAX keeps every class that was ever registered
def class_of(source: str) -> Any:
    namespace: dict[str, Any] = {"__name__": "drawn_classes"}
    exec(HEADER + source, namespace)  # noqa: S102  # drawn above
    return list(namespace.values())[-1]


@given(pytree_classes())
def test_leaves_and_paths_are_the_dynamic_fields_in_order(drawn: DrawnClass) -> None:
    """Leaves come in field order, with the paths that attribute access has; nothing is added."""
    values = drawn.values()
    instance = drawn.construct(values)
    pairs, structure = jax.tree.flatten_with_path(instance)
    assert [path for path, _ in pairs] == [(jax.tree_util.GetAttrKey(n),) for n in drawn.dynamic]
    for (_, leaf), name in zip(pairs, drawn.dynamic, strict=True):
        assert leaf is getattr(instance, name)
        assert leaf == values[name]
    assert jax.tree.structure(instance) == structure
    assert jax.tree.leaves(instance) == [leaf for _, leaf in pairs]
    names = [field.name for field in dataclasses.fields(instance)]
    assert names == [field.name for field in drawn.fields]


@given(pytree_classes())
def test_unflatten_takes_any_leaf(drawn: DrawnClass) -> None:
    """Sentinels, None, structs and tracers go in and come out as they are."""
    instance = drawn.construct(drawn.values())
    structure = jax.tree.structure(instance)
    strange = [object(), None, jax.ShapeDtypeStruct((2,), jnp.float32), ..., "text"]
    children = [strange[i % len(strange)] for i in range(len(drawn.dynamic))]
    rebuilt = jax.tree.unflatten(structure, children)
    assert type(rebuilt) is drawn.cls
    for name, child in zip(drawn.dynamic, children, strict=True):
        assert getattr(rebuilt, name) is child
    for field in drawn.fields:
        if field.static:
            assert getattr(rebuilt, field.name) is getattr(instance, field.name)
    outer = jax.tree.structure(rebuilt, is_leaf=lambda node: any(node is c for c in children))
    assert outer == structure


LAWS: Final = ("round-trip", "any-leaf", "identity-map", "transformations")


@pytest.mark.slow
@settings(suppress_health_check=[*HealthCheck])
@given(pytree_classes())
def test_laws(drawn: DrawnClass) -> None:
    """Flatten, `tree.map` and `jit` lose nothing: leaves, tracers and statics come back."""
    instances = st.just(drawn.construct(drawn.values()))
    check_pytree(instances, laws=LAWS, settings=settings(max_examples=2, database=None))


@given(pytree_classes(), st.data())
def test_each_static_is_in_the_treedef(drawn: DrawnClass, data: st.DataObject) -> None:
    """Another value in any one static field is another treedef, equal values are the same."""
    instance = drawn.construct(drawn.values())
    same = drawn.construct(drawn.values())
    assert jax.tree.structure(same) == jax.tree.structure(instance)
    assert same == instance
    assert hash(same) == hash(instance)
    statics = [field.name for field in drawn.fields if field.static and field.init]
    if statics:
        name = data.draw(st.sampled_from(statics))
        other = drawn.construct(drawn.values() | {name: "another"})
        assert jax.tree.structure(other) != jax.tree.structure(instance)
        assert other != instance
        assert jax.tree.leaves(other) == jax.tree.leaves(instance)
