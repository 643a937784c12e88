"""The law of round trips, for classes of every shape: flatten and unflatten lose nothing."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leafwise.testing import check_pytree

_STATIC_SPELLINGS: Final = ("annotation", "static_field", "metadata")
_DYNAMIC_SPELLINGS: Final = ("annotation", "field", "dataclasses.field")


_HEADER: Final = """\
import dataclasses
from typing import Any, Generic, TypeVar
import jax
import leafwise as lw
T = TypeVar("T")
"""


@dataclasses.dataclass(frozen=True)
class DrawnField:
    """How a field of a drawn class is declared."""

    name: str
    static: bool
    annotation: str = "Any"  # as code, without `lw.Static`
    spelling: str = "annotation"  # or a call, or "metadata": what makes it static or dynamic
    default: str = ""  # or "value" or "factory"
    init: bool = True
    kw_only: bool = False
    depth: int = 0  # the number of the class that declares it, 0 for the one without bases

    @property
    def default_value(self) -> Any:
        """The default, or what a factory makes; that of an overriding class is another one."""
        if self.annotation == "int":
            return 7 + self.depth
        if self.annotation == "str" or (self.static and self.annotation == "Any"):
            return f"default {self.name}" + "'" * self.depth
        return 0.5 + self.depth

    @property
    def code(self) -> str:
        """The line that declares the field."""
        marked = self.static and self.spelling == "annotation"
        annotation = f"lw.Static[{self.annotation}]" if marked else self.annotation
        options = list(self._options())
        call = {"static_field": "lw.static_field", "field": "lw.field"}.get(
            self.spelling, "dataclasses.field"
        )
        if self.spelling == "annotation" and set(options) <= {f"default={self.default_value!r}"}:
            value = f" = {self.default_value!r}" if self.default else ""
            return f"{self.name}: {annotation}{value}"
        if self.spelling == "metadata":
            options.append("metadata={'static': True}")
        return f"{self.name}: {annotation} = {call}({', '.join(options)})"

    def _options(self) -> Iterator[str]:
        if self.default == "value":
            yield f"default={self.default_value!r}"
        elif self.default == "factory":
            yield f"default_factory=lambda: {self.default_value!r}"
        if not self.init:
            yield "init=False"
        if self.kw_only:
            yield "kw_only=True"


class DrawnClass:
    """A pytree class that `pytree_classes` has drawn; `fields` has inherited ones first."""

    def __init__(self, cls: Any, fields: tuple[DrawnField, ...], source: str) -> None:
        self.cls = cls
        self.fields = fields
        self.source = source

    @property
    def dynamic(self) -> tuple[str, ...]:
        """The names of the dynamic fields, in order."""
        return tuple(field.name for field in self.fields if not field.static)

    def values(self) -> dict[str, Any]:
        """Return a value for each field by name, all different.

        A field that the constructor does not take has its default.
        """
        found: dict[str, Any] = {}
        for index, field in enumerate(self.fields):
            if not field.init:
                found[field.name] = field.default_value
            elif field.annotation == "int":
                found[field.name] = 1 + 10 * index
            elif field.static:
                found[field.name] = f"{field.name} 1"
            else:
                found[field.name] = float(1 + index)
        return found

    def construct(self, values: dict[str, Any]) -> Any:
        """Return an instance with those of these values that the constructor takes."""
        taken = {field.name for field in self.fields if field.init}
        return self.cls(**{name: value for name, value in values.items() if name in taken})

    def __repr__(self) -> str:
        """Return the source, so that a counterexample can be run."""
        return f"<{self.cls.__name__} of\n{self.source}>"


_NAMES: Final = "abcd"
_CLASS_NAMES: Final = ("Drawn", "Base", "Root")
_OPTIONS: Final[tuple[str, ...]] = ("slots=True", "kw_only=True", "many_statics=True", "order=True")


_SELDOM: Final = st.sampled_from([False] * 4 + [True])


@st.composite
def pytree_classes(draw: st.DrawFn) -> DrawnClass:
    """Draw a pytree class, decorated with `leafwise.pytree`, and the classes that it derives from.

    A subclass may override inherited fields. JAX keeps every class that was ever registered: so
    equal code is decorated once, as long as it is among the last 1000.
    """
    generic = draw(st.booleans())
    bodies: list[tuple[Sequence[str], list[DrawnField]]] = []
    known: dict[str, DrawnField] = {}
    while len(bodies) < len(_CLASS_NAMES):
        fields = draw(_bodies(known, len(bodies), generic=generic))
        options = draw(st.lists(st.sampled_from(_OPTIONS), max_size=2, unique=True))
        fields = _in_order(known, fields, positional="kw_only=True" not in options)
        known.update({field.name: field for field in fields})
        bodies.append((options, fields))
        if not draw(st.booleans()):
            break
    arguments = draw(st.sampled_from(["[T]", "[float]"])) if generic else ""
    parts: list[str] = []
    for level, (said, declared) in enumerate(bodies):
        name, base = _CLASS_NAMES[len(bodies) - 1 - level], "Generic[T]" if generic else ""
        if level:
            base = _CLASS_NAMES[len(bodies) - level] + (arguments if level == 1 else "")
        parts.append(_class_code(name, base, said, declared))
    source = "\n\n".join(parts)
    return DrawnClass(_made(source), tuple(known.values()), source)


@st.composite
def _bodies(
    draw: st.DrawFn, known: dict[str, DrawnField], level: int, *, generic: bool
) -> list[DrawnField]:
    """Draw the fields that one class body declares, in their order."""
    fresh = [f"{name}{level or ''}" for name in _NAMES[: draw(st.integers(0, len(_NAMES)))]]
    overridden = [name for name in known if draw(_SELDOM)]
    fields = [draw(_fields(name, level, generic=generic, like=None)) for name in fresh]
    fields += [draw(_fields(name, level, generic=generic, like=known[name])) for name in overridden]
    return draw(st.permutations(fields)) if level % 2 else fields


@st.composite
def _fields(
    draw: st.DrawFn, name: str, level: int, *, generic: bool, like: DrawnField | None
) -> DrawnField:
    # A field turns static, or dynamic, once in a line of classes; its name says where it began.
    turned = like is not None and like.depth != int(name[1:] or 0)
    static = like.static if like is not None and turned else draw(st.booleans())
    kinds = ["Any", "int", "str"] if static else ["Any", "float", "jax.Array"]
    if generic and not static and like is None:
        kinds.append("T")
    annotation = draw(st.sampled_from(kinds))
    # What a dynamic field overrides was perhaps static: it must say which it is.
    dynamic = _DYNAMIC_SPELLINGS if like is None else ("field",)
    spelling = draw(st.sampled_from(_STATIC_SPELLINGS if static else dynamic))
    default = draw(st.sampled_from(["", "value", "factory"]))
    init = not draw(_SELDOM)
    if not init and not default:
        default = "value"
    kw_only = draw(st.booleans()) and init
    return DrawnField(name, static, annotation, spelling, default, init, kw_only, level)


def _in_order(
    known: dict[str, DrawnField], fields: list[DrawnField], *, positional: bool
) -> list[DrawnField]:
    """Return the fields so that no positional one without default follows one with it."""
    merged = known | {field.name: field for field in fields}
    own = {field.name for field in fields}
    seen = False
    for name, field in merged.items():
        by_position = field.init and not field.kw_only and (positional or name not in own)
        if by_position and seen and not field.default:
            # An inherited one stands where it stood: only its default was overridden before.
            merged[name] = dataclasses.replace(field, kw_only=True)
            own.add(name)
        seen = seen or (by_position and bool(field.default))
    return [merged[name] for name in merged if name in own]


def _class_code(name: str, base: str, options: Sequence[str], fields: list[DrawnField]) -> str:
    decorator = f"@lw.pytree({', '.join(options)})" if options else "@lw.pytree"
    head = f"class {name}({base}):" if base else f"class {name}:"
    body = [f"    {field.code}" for field in fields] or ["    ..."]
    return "\n".join([decorator, head, *body])


@functools.lru_cache(maxsize=1000)
def _made(source: str) -> Any:
    """Return the class ``Drawn`` of a source."""
    namespace: dict[str, Any] = {"__name__": "drawn_classes"}
    exec(_HEADER, namespace)  # noqa: S102  # code of this module
    exec(source, namespace)  # noqa: S102  # drawn above
    return namespace["Drawn"]


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


LAWS: Final = ("round-trip", "any-leaf", "identity-map", "transformations")


@pytest.mark.slow
@settings(suppress_health_check=[*HealthCheck])
@given(pytree_classes())
def test_laws(made: DrawnClass) -> None:
    """Flatten, `tree.map` and `jit` lose nothing: leaves, tracers and statics come back."""
    instances = st.just(made.construct(made.values()))
    check_pytree(instances, laws=LAWS, settings=settings(max_examples=2, database=None))


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
