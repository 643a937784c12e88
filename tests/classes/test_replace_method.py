"""`pytree(replace=True)`."""

import copy
import pickle
from typing import Any, Generic, TypeVar

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


@pytest.mark.parametrize("cls", [State, Below, Slotted, Slotted[int]], ids=str)
def test_method(cls: Any) -> None:
    """`.replace` changes fields as `lw.replace` does, for subclasses, slots and generics too."""
    state = cls(1)
    assert state.replace(x=2, n=3) == lw.replace(state, x=2, n=3) == cls(2, 3)
    assert type(state.replace(x=2)) is type(state)
    for made in (copy.copy(state), pickle.loads(pickle.dumps(state))):  # noqa: S301
        assert made.replace(n=3) == cls(1, 3)
    with pytest.raises(lw.errors.StaticFieldError, match=rf"{type(state).__name__}\.n"):
        state.replace(n=[3])
    with pytest.raises(TypeError, match=r"no field 'z' .*it has x, n|no field 'z': it has x, n"):
        state.replace(z=1)


def test_method_under_jit() -> None:
    """It is a method like another one: in a trace, and jitted itself."""
    assert jax.jit(State.moved)(State(jnp.ones(()))).x == 2
    assert jax.jit(State(1).replace)(x=3.0).x == 3.0  # type: ignore[attr-defined]


def test_method_that_the_class_has() -> None:
    """A method of the class's own stays, as its `__init__` and `__repr__` do."""

    @lw.pytree(replace=True)
    class Params:
        w: Any

        def replace(self, w: Any) -> str:
            return f"own {w}"

    assert Params(1).replace(2) == "own 2"
    below: Any = lw.pytree(type("Below", (Params,), {}))
    assert below(1).replace(2) == "own 2"
