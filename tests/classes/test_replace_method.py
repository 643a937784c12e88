"""`pytree(replace=True)`, and what a class without it says of `.replace`."""

import copy
import pickle
import traceback
from typing import Any, ClassVar, Generic, TypeVar

import jax
import jax.numpy as jnp
import pytest

import leafwise as lw

T = TypeVar("T")


@lw.pytree(replace=True)
class State:
    x: Any
    n: lw.Static[int] = 2

    def moved(self) -> Any:
        return self.replace(x=self.x + 1)  # type: ignore[attr-defined]


@lw.pytree
class Below(State):
    y: Any = 0


@lw.pytree(replace=True, slots=True)
class Slotted(Generic[T]):
    x: T
    n: lw.Static[int] = 2


@lw.pytree
class Plain:
    x: Any
    n: lw.Static[int] = 2


@pytest.mark.parametrize("cls", [State, Below, Slotted, Slotted[int]], ids=str)
def test_method(cls: Any) -> None:
    """`.replace` changes fields as `lw.replace` does, for subclasses, slots and generics too."""
    state = cls(1)
    assert state.replace(x=2, n=3) == lw.replace(state, x=2, n=3) == cls(2, 3)
    assert type(state.replace(x=2)) is type(state)
    for made in (copy.copy(state), pickle.loads(pickle.dumps(state))):  # noqa: S301
        assert made.replace(n=3) == cls(1, 3)
    with pytest.raises(lw.errors.UnhashableStaticError, match=rf"{type(state).__name__}\.n"):
        state.replace(n=[3])
    with pytest.raises(TypeError, match=r"no field 'z' .*it has x, n|no field 'z': it has x, n"):
        state.replace(z=1)


def test_method_under_jit() -> None:
    """It is a method like another one: in a trace, and jitted itself."""
    assert jax.jit(State.moved)(State(jnp.ones(()))).x == 2
    assert jax.jit(State(1).replace)(x=3.0).x == 3.0  # type: ignore[attr-defined]
    assert [path for path, _ in jax.tree.leaves_with_path(State(1))] == [
        (jax.tree_util.GetAttrKey("x"),)
    ]


def test_method_that_the_class_has() -> None:
    """A method of the class's own stays, as its `__init__` and `__repr__` do."""

    @lw.pytree(replace=True)
    class Params:
        w: Any

        def replace(self, w: Any) -> str:
            return f"own {w}"

    assert Params(1).replace(2) == "own 2"

    @lw.pytree
    class Below(Params):
        pass

    assert Below(1).replace(2) == "own 2"


def test_field_of_the_name() -> None:
    """A field `replace` would hide the method, in the class and below it, and is refused."""
    for base, options in ((object, {"replace": True}), (State, {})):
        cls = type("Params", (base,), {"__annotations__": {"replace": Any}})
        with pytest.raises(lw.errors.DefinitionError, match=r"Params\.replace: a field"):
            lw.pytree(**options)(cls)  # type: ignore[call-overload]

    @lw.pytree(replace=True)
    class Declared:
        w: Any
        replace: ClassVar[Any]

    assert Declared(1).replace(w=2).w == 2


# ------------------------------------------------------------------------ without it


def test_message_without_the_method() -> None:
    """The error says what to write, with a field of the class; Python suggests nothing else."""
    with pytest.raises(AttributeError) as caught:
        Plain(1).replace(x=2)  # type: ignore[attr-defined]
    assert str(caught.value) == (
        "'Plain' object has no attribute 'replace'\n"
        "  fix: lw.replace(obj, x=...), or @lw.pytree(replace=True)"
    )
    assert "Did you mean" not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(AttributeError, match="type object 'Plain' has no attribute 'replace'\n"):
        _ = Plain.replace  # type: ignore[attr-defined]


def test_own_getattr_is_asked() -> None:
    """A `__getattr__` of the class answers, as for any name that is not found."""

    @lw.pytree
    class Params:
        w: Any

        def __getattr__(self, name: str) -> str:
            return f"asked for {name}"

        def __dir__(self) -> list[str]:
            return ["w"]

    assert Params(1).replace == "asked for replace"
    assert dir(Params(1)) == ["w"]


def test_field_or_method_of_the_name() -> None:
    """A field or method called `replace` is what it would be, also one of a later base."""

    @lw.pytree
    class Field(Plain):
        replace: Any = None

    @lw.pytree(slots=True)
    class Static(Plain):
        replace: lw.Static[int] = 7

    class Mixin:
        def replace(self) -> str:
            return "of the mixin"

    @lw.pytree
    class Mixed(Plain, Mixin):
        pass

    @lw.pytree
    class Method(Plain):
        def replace(self) -> str:
            return "own"

    assert (Field(1, 2, 3).replace, Static(1).replace) == (3, 7)
    assert jax.tree.leaves(Field(1, 2, 3)) == [1, 3]
    assert (Mixed(1).replace(), Method(1).replace()) == ("of the mixin", "own")
    assert "replace" in dir(Mixed(1))
