"""What a user reads when a class cannot be decorated, or an instance not be used so."""

import enum
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import leafwise as lw

pytestmark = pytest.mark.message


class Mode(enum.Enum):
    UP = 1


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("relu", 'default="relu"'),
        ((1, 2), "default=(1, 2)"),
        (jax.nn.gelu, "default=gelu"),
        (Mode.UP, "default=Mode.UP"),
        ((Mode.UP,), ""),
        (object(), ""),
    ],
    ids=["text", "tuple", "function", "enum", "enum in a tuple", "object"],
)
def test_code_of_a_default(value: Any, code: str) -> None:
    """A fix has the default as it would be written, or none where that is not known."""
    own = {"__annotations__": {"act": str}, "act": lw.field(default=value)}
    with pytest.raises(lw.errors.DefinitionError, match=r"^P\.act") as error:
        lw.pytree(type("P", (), own))
    assert f"static_field({code})`" in error.value.message


@pytest.mark.parametrize("default", [[1, 2], {}, jnp.zeros(3)], ids=["list", "dict", "array"])
def test_a_default_that_can_change(default: Any) -> None:
    """Instances would share it: dataclasses refuse it, with the fix."""
    own = {"__annotations__": {"a": Any}, "a": default}
    with pytest.raises(ValueError, match=r"for field a is not allowed: use default_factory"):
        lw.pytree(type("P", (), own))


def test_fix_of_a_definition_is_code_that_works() -> None:
    """What the messages recommend is accepted."""

    @lw.pytree
    class Params:
        act: lw.Static[str]
        other: str = lw.static_field()
        w: lw.Static[lw.StaticArray] = lw.StaticArray([1])
        frozen: jax.Array = lw.static_field(freeze=True, default=None)
        either: lw.Static[str | None] = None

    assert jax.tree.leaves(Params("a", "b")) == []


def test_a_function_as_the_default_of_a_dynamic_field() -> None:
    """It is a warning at the class statement, with three ways out; no other field has one."""
    own = {"__annotations__": {"act": Callable}, "act": jax.nn.relu}
    with pytest.warns(lw.errors.DynamicFunctionWarning) as caught:
        lw.pytree(type("P", (), own))
    (warning,) = caught
    assert warning.filename == __file__
    text = warning.message
    assert isinstance(text, lw.errors.DynamicFunctionWarning)
    lines = text.message.splitlines()
    assert lines[0].startswith("P.act: its default is a function, and the field is dynamic")
    assert lines[2:] == [
        "  fix: `act: lw.Static[Callable] = relu`,",
        "       or, for arrays in it: `act: Callable = jax.tree_util.Partial(relu)`,",
        "       or, for equinox.filter_jit: `act: Callable = lw.field(default=relu)`",
    ]


@pytest.mark.parametrize(
    "default",
    [jax.tree_util.Partial(jnp.sin), lw.field(default=jnp.sin), lw.static_field(default=jnp.sin)],
    ids=["Partial", "declared", "static"],
)
def test_functions_that_are_meant(default: Any) -> None:
    """What JAX takes, and what is declared, is no warning: warnings are errors here."""
    lw.pytree(type("P", (), {"__annotations__": {"act": Callable}, "act": default}))
