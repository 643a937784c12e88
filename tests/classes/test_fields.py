"""`field`, `static_field`, the marks of other libraries, converters and validators."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw


def _flax_field(**options: Any) -> Any:
    struct = pytest.importorskip("flax.struct", reason="has no wheel for Python 3.15")
    return struct.field(**options)


STATIC_DECLARATIONS: list[Callable[[], Any]] = [
    lw.static_field,
    lambda: eqx.field(static=True),
    lambda: _flax_field(pytree_node=False),
    lambda: dataclasses.field(metadata={"static": True}),
    lambda: dataclasses.field(metadata={"pytree_node": False}),
    lambda: dataclasses.field(metadata={"static": True, "pytree_node": False}),
]
if hasattr(jax.tree, "static"):  # since JAX 0.9
    STATIC_DECLARATIONS.append(jax.tree.static)
DYNAMIC_DECLARATIONS: list[Callable[[], Any]] = [
    lw.field,
    eqx.field,
    lambda: _flax_field(pytree_node=True),
    dataclasses.field,
    lambda: dataclasses.field(metadata={"static": False, "pytree_node": True}),
]


@pytest.mark.parametrize(
    ("declare", "leaves"),
    [
        *((declare, []) for declare in STATIC_DECLARATIONS),
        *((declare, [1]) for declare in DYNAMIC_DECLARATIONS),
    ],
)
def test_declarations_of_any_library(declare: Callable[[], Any], leaves: list[int]) -> None:
    """Static metadata is honoured, whichever library wrote it; all else is a child."""
    cls: Any = lw.pytree(type("P", (), {"__annotations__": {"a": int}, "a": declare()}))
    assert jax.tree.leaves(cls(1)) == leaves
    assert (jax.tree.structure(cls(1)) == jax.tree.structure(cls(2))) is bool(leaves)


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


@pytest.mark.parametrize("kind", [bool, np.bool_, np.array, jnp.array], ids=range(4))
@pytest.mark.parametrize("declare", [lw.field, lw.static_field])
def test_check_that_answers_false(declare: Any, kind: Any) -> None:
    """A False of any kind is a `FieldCheckError` naming class, field and value."""

    def positive(value: Any) -> Any:
        return kind(value > 0)

    @lw.pytree
    class P:
        x: Any = declare(validator=positive)

    assert P(1).x == 1
    with pytest.raises(
        lw.errors.FieldCheckError, match=r"P\.x: its validator positive refused -1 \(int\)"
    ):
        P(-1)
    assert issubclass(lw.errors.FieldCheckError, ValueError)


@pytest.mark.parametrize("verdict", [np.zeros(3), jnp.ones((1, 2)), np.zeros(0)])
def test_array_of_answers_is_refused(verdict: Any) -> None:
    """An answer for each element is refused; the message says how to make one of them."""

    @lw.pytree
    class P:
        x: Any = lw.field(validator=lambda _: verdict)

    with pytest.raises(lw.errors.FieldCheckError, match=r"add \.all\(\)") as error:
        P(1.0)
    assert "P.x" in "".join(error.value.__notes__)


@pytest.mark.parametrize("what", ["converter", "validator"])
def test_error_inside_names_the_field(what: str) -> None:
    """The user's own error comes out, with a note that names class, field and value."""

    def fails(_value: Any) -> None:
        raise KeyError("boom")

    body = {"__annotations__": {"x": Any}, "x": lw.field(**{what: fails})}
    cls = lw.pytree(type("P", (), body))
    with pytest.raises(KeyError, match="boom") as error:
        cls(3)
    assert error.value.__notes__ == [f"in the {what} of field P.x, given 3 (int)"]


def test_must_be_callable() -> None:
    """`converter=` and `validator=` that cannot be called are refused where they are written."""
    with pytest.raises(TypeError, match="converter= takes a function of one value, got 3"):
        lw.field(converter=3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="validator= takes a function of one value, got 'x'"):
        lw.static_field(validator="x")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"fix: wrap what takes more: validator=lambda"):
        lw.field(validator=lambda instance, attribute, value: value > 0)  # as attrs calls it
