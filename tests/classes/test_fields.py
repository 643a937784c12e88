"""`field`, `static_field`, and the static marks of other libraries."""

import dataclasses
from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import leafwise as lw


def _flax_field(**options: Any) -> Any:
    struct = pytest.importorskip("flax.struct", reason="has no wheel for Python 3.15")
    return struct.field(**options)


STATIC_DECLARATIONS: dict[str, Callable[[], Any]] = {
    "leafwise": lw.static_field,
    "equinox": lambda: eqx.field(static=True),
    "flax": lambda: _flax_field(pytree_node=False),
    "metadata static": lambda: dataclasses.field(metadata={"static": True}),
    "metadata pytree_node": lambda: dataclasses.field(metadata={"pytree_node": False}),
    "metadata both": lambda: dataclasses.field(metadata={"static": True, "pytree_node": False}),
}
if hasattr(jax.tree, "static"):  # since JAX 0.9
    STATIC_DECLARATIONS["jax.tree.static"] = jax.tree.static
DYNAMIC_DECLARATIONS: dict[str, Callable[[], Any]] = {
    "leafwise": lw.field,
    "equinox": eqx.field,
    "flax": lambda: _flax_field(pytree_node=True),
    "dataclasses": dataclasses.field,
    "metadata": lambda: dataclasses.field(metadata={"static": False, "pytree_node": True}),
}


@pytest.mark.parametrize("library", STATIC_DECLARATIONS)
def test_static_of_any_library(library: str) -> None:
    """Static metadata is honoured, whichever library wrote it."""
    cls = lw.pytree(
        type("P", (), {"__annotations__": {"a": int}, "a": STATIC_DECLARATIONS[library]()})
    )
    assert jax.tree.leaves(cls(1)) == []
    assert jax.tree.structure(cls(1)) != jax.tree.structure(cls(2))


@pytest.mark.parametrize("library", DYNAMIC_DECLARATIONS)
def test_dynamic_of_any_library(library: str) -> None:
    """What no metadata calls static is a child."""
    cls = lw.pytree(
        type("P", (), {"__annotations__": {"a": int}, "a": DYNAMIC_DECLARATIONS[library]()})
    )
    assert jax.tree.leaves(cls(1)) == [1]


def test_static_field_writes_the_common_metadata() -> None:
    """`static_field` and `Static[...]` write what other libraries read, beside one's own."""

    @lw.pytree
    class P:
        a: int = lw.static_field(metadata={"unit": "m"})
        b: lw.Static[int] = 1

    a, b = dataclasses.fields(P)
    assert (a.metadata["static"], a.metadata["pytree_node"]) == (True, False)
    assert (b.metadata["static"], b.metadata["pytree_node"]) == (True, False)
    assert a.metadata["unit"] == "m"


@pytest.mark.parametrize(
    "metadata", [{"static": False}, {"pytree_node": True}, {"static": 0, "pytree_node": False}]
)
def test_static_field_with_dynamic_metadata(metadata: dict[str, Any]) -> None:
    """`static_field` whose metadata says dynamic is refused where it is written."""
    with pytest.raises(lw.errors.DefinitionError, match="contradicts itself"):
        lw.static_field(metadata=metadata)


def test_defaults() -> None:
    """Defaults and factories work; the class shows a dynamic default, as in dataclasses."""

    @lw.pytree
    class P:
        x: Any = 1.0
        y: Any = lw.field(default=2.0)
        z: Any = lw.field(default_factory=lambda: jnp.ones(2))
        a: lw.Static[int] = 3
        b: Any = lw.static_field(default_factory=tuple)

    p, q = P(), P()
    assert (p.x, p.y, p.a, p.b) == (1.0, 2.0, 3, ())
    assert p.z is not q.z
    assert P(z=5).z == 5
    assert P(None, None).x is None
    assert P.x == 1.0
    assert not hasattr(P, "z")
    assert isinstance(P.a, property)


def test_init_false_is_carried_through_flatten() -> None:
    """Fields with `init=False`, static or dynamic, survive flatten, jit and tree.map."""

    @lw.pytree
    class P:
        x: jax.Array
        n: Any = lw.static_field(init=False)
        twice: Any = lw.field(init=False)
        made: Any = lw.field(init=False, default_factory=lambda: jnp.zeros(1))
        same: Any = lw.static_field(init=False, default="d")

        def __post_init__(self) -> None:
            self.n = self.x.shape[0]
            self.twice = self.x * 2

    p = jax.jit(lambda p: jax.tree.map(lambda v: v, p))(P(jnp.ones(3)))
    assert (p.n, p.same, p.twice.shape, p.made.shape) == (3, "d", (3,), (1,))
    assert jax.tree.structure(P(jnp.ones(3))) != jax.tree.structure(P(jnp.ones(4)))
    traces: list[int] = []
    count = jax.jit(lambda p: traces.append(p.n) or p.x.sum())
    count(P(jnp.ones(3)))
    count(P(jnp.ones(4)))
    assert traces == [3, 4]
    with pytest.raises(TypeError):
        P(jnp.ones(3), n=3)  # type: ignore[call-arg]


def test_init_var() -> None:
    """An `InitVar` reaches `__post_init__` in order and is no field."""

    @lw.pytree
    class P:
        x: Any
        scale: InitVar[float]
        a: lw.Static[int] = 1
        shift: InitVar[float] = 0.5

        def __post_init__(self, scale: float, shift: float) -> None:
            self.x = self.x * scale + shift

    assert P(2.0, 3.0).x == 6.5
    assert [field.name for field in dataclasses.fields(P)] == ["x", "a"]
    assert jax.tree.leaves(P(2.0, 3.0, shift=0.0)) == [6.0]
    assert dataclasses.replace(P(2.0, 3.0), scale=1.0, shift=0.0).x == 6.5
    assert lw.replace(P(2.0, 3.0), scale=1.0, shift=0.0).x == 6.5


def test_kw_only_marker() -> None:
    """Fields below `KW_ONLY` are keyword-only, and leaves keep field order."""

    @lw.pytree
    class P:
        x: Any = 1.0
        _: KW_ONLY
        y: Any
        a: lw.Static[int]

    p = P(y=2.0, a=3)
    assert jax.tree.leaves(p) == [1.0, 2.0]
    with pytest.raises(TypeError):
        P(1.0, 2.0, 3)  # type: ignore[misc]


AWKWARD = [
    *["self", "self_", "key", "keys", "cls", "children", "children_", "values", "type", "id"],
    *["aux", "leaves", "hash", "repr", "object", "tuple", "held", "fields", "name", "found"],
    *["lw_found", "lw_entry", "lw_mine", "lw_cls", "lw_set", "lw_table", "_private", "T", "is_set"],
]


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("name", AWKWARD)
def test_any_name_is_a_field(name: str, static: bool) -> None:
    """No field name collides with what leafwise, builtins or generated code use."""
    declare = lw.static_field if static else lw.field
    body = {"__annotations__": {"x": Any, name: Any}, name: declare(converter=lambda v: v)}
    p = lw.pytree(slots=static)(type("P", (), body))(1.0, 5)
    assert getattr(p, name) == 5
    again = jax.tree.map(lambda v: v + 1, p)
    assert again.x == 2.0
    assert getattr(again, name) == (5 if static else 6)
    assert p == lw.replace(p)
    assert repr(p).endswith(f"P(x=1.0, {name}=5)")


CONTRADICTIONS: dict[str, tuple[Any, Any, str]] = {
    "both": (int, {"static": True, "pytree_node": True}, "its metadata contradicts itself"),
    "neither": (int, {"static": False, "pytree_node": False}, "its metadata contradicts itself"),
    "annotation": (lw.Static[int], {"pytree_node": True}, "the annotation says static"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions(name: str) -> None:
    """Metadata that says both, or not what the annotation says, is an error of the field."""
    kind, metadata, words = CONTRADICTIONS[name]
    declared = dataclasses.field(metadata=metadata)
    with pytest.raises(lw.errors.DefinitionError, match=rf"P\.a: {words}"):
        lw.pytree(type("P", (), {"__annotations__": {"a": kind}, "a": declared}))
