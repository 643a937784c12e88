"""What a user reads when a class cannot be decorated, or an instance not be used so."""

import textwrap
from collections.abc import Callable
from typing import Any, Optional

import jax
import jax.numpy as jnp
import pytest

import leafwise as lw

pytestmark = pytest.mark.message


@lw.pytree
class Base:
    x: Any
    act: lw.Static[str] = "relu"


def refused(name: str, bases: tuple[type, ...] = (), **fields: Any) -> str:
    """Return the message for a class with these annotations."""
    with pytest.raises(lw.errors.DefinitionError) as error:
        lw.pytree(type(name, bases, {"__annotations__": fields}))
    return error.value.message


def test_text_in_full() -> None:
    """A dynamic `str` field: why not, and both spellings that work."""
    assert refused("Params", act=str) == textwrap.dedent("""\
        Params.act: JAX cannot trace a str, so it cannot be a dynamic field
          fix: `act: lw.Static[str]` or `act: str = lw.static_field()`""")


def test_array_in_full() -> None:
    """A static array field: both ways out."""
    assert refused("Params", w=lw.Static[jax.Array]) == (
        "Params.w: a static field cannot hold an array (jax.Array)\n"
        "  fix: make it dynamic: `w: jax.Array`, or, for a constant table, "
        "`w: lw.Static[lw.StaticArray]` or `w: jax.Array = lw.static_field(freeze=True)`"
    )


def test_buried_in_full() -> None:
    """`Optional[Static[str]]`: the right spelling."""
    text = refused("Params", act=Optional[lw.Static[str]])  # noqa: UP045
    assert text.splitlines()[0].startswith("Params.act: Static inside another type has no effect")
    assert text.splitlines()[1] == "  fix: `act: lw.Static[str | None]`"


def test_override_in_full() -> None:
    """An override of a static field that does not say what it is."""
    assert refused("Sub", (Base,), act=int) == (
        "Sub.act: overrides a static field of Base without saying whether it is static\n"
        '  fix: `act: int = lw.static_field(default="relu")` or '
        '`act: int = lw.field(default="relu")` for a dynamic one'
    )


def test_code_of_a_default() -> None:
    """A fix has the default as it would be written, and the converter and the check."""
    assert default_of("relu") == 'default="relu"'
    assert default_of((1, 2)) == "default=(1, 2)"
    assert default_of(jax.nn.gelu) == "default=gelu"
    assert default_of(object()) == "default=..."


def default_of(value: Any) -> str:
    own = {"__annotations__": {"act": str}, "act": lw.field(default=value)}
    with pytest.raises(lw.errors.DefinitionError) as error:
        lw.pytree(type("P", (), own))
    return error.value.message.rpartition("static_field(")[2].removesuffix(")`")


@pytest.mark.parametrize("default", [[1, 2], {}, jnp.zeros(3)], ids=["list", "dict", "array"])
def test_a_default_that_can_change(default: Any) -> None:
    """Instances would share it: dataclasses refuse it, with the fix."""
    own = {"__annotations__": {"a": Any}, "a": default}
    with pytest.raises(ValueError, match=r"for field a is not allowed: use default_factory"):
        lw.pytree(type("P", (), own))


def test_undecorated_in_full() -> None:
    """The undecorated subclass: what JAX would do, and the two lines to write."""

    class Sub(Base):
        pass

    with pytest.raises(lw.errors.DefinitionError) as error:
        Sub(1.0)
    assert error.value.message == textwrap.dedent("""\
        Sub is a subclass of the pytree class Base, but is not decorated itself: JAX would see its instances as opaque leaves
          fix: @lw.pytree
               class Sub(Base): ...""")  # noqa: E501


def test_comparison_in_full() -> None:
    """Comparing tracers: where, and what to do instead."""
    with pytest.raises(lw.errors.TreeError) as error:
        jax.jit(lambda v: Base({"k": v}) == Base({"k": v + 1}))(jnp.ones(3))
    lines = error.value.message.splitlines()
    assert lines[0].startswith("Base.x['k']: == would have to compare traced values (")
    assert lines[-1] == (
        "  fix: compare outside the traced function, or compare leaves with jax.numpy.array_equal"
    )


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
