"""`lw.pytree`: bare, with options, and what it refuses."""

import copy
import dataclasses
import doctest
import inspect
import pickle
import sys
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import pytest

import leafwise as lw


@lw.pytree
class Params:
    """The class that the specification begins with."""

    x_array: jax.Array
    a: int = lw.static_field(default=2)
    act: lw.Static[str] = "relu"


@lw.pytree(kw_only=True)
class Keyword:
    x: Any
    a: lw.Static[int] = 1


@lw.pytree(order=True)
class Ordered:
    x: float
    a: lw.Static[int] = 1


def test_is_a_frozen_dataclass() -> None:
    """A pytree class is a dataclass: fields, frozen-ness and parameters are there."""
    assert dataclasses.is_dataclass(Params)
    assert [field.name for field in dataclasses.fields(Params)] == ["x_array", "a", "act"]
    assert Params.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert Params.__match_args__ == ("x_array", "a", "act")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "change",
    [dataclasses.replace, lw.replace, getattr(copy, "replace", lw.replace)],  # since Python 3.13
    ids=["dataclasses", "leafwise", "copy"],
)
def test_replace(change: Any) -> None:
    """Each way to replace a field makes a changed instance of the class."""
    old = Params(jnp.ones(3))
    new = change(old, a=5)
    assert type(new) is Params
    assert (new.a, new.act, old.a) == (5, "relu", 2)
    assert new.x_array is old.x_array
    assert jax.tree.structure(new) == jax.tree.structure(Params(jnp.ones(3), 5))


def test_signature() -> None:
    """`inspect.signature` shows names, kinds, defaults and annotations."""
    signature = inspect.signature(Params)
    assert list(signature.parameters) == ["x_array", "a", "act"]
    assert signature.parameters["a"].default == 2
    assert signature.parameters["act"].default == "relu"
    assert signature.parameters["x_array"].default is inspect.Parameter.empty
    assert signature.parameters["a"].annotation is int
    keyword = inspect.signature(Keyword).parameters["x"]
    assert keyword.kind is inspect.Parameter.KEYWORD_ONLY


def test_order() -> None:
    """`order=True` compares field tuples; without it, `<` is a TypeError."""
    assert Ordered(1.0) < Ordered(2.0)
    assert Ordered(1.0, 1) <= Ordered(1.0, 2)
    assert [each.x for each in sorted([Ordered(3.0), Ordered(1.0)])] == [1.0, 3.0]
    with pytest.raises(TypeError):
        Keyword(x=1.0) < Keyword(x=2.0)  # type: ignore[operator]  # noqa: B015
    with pytest.raises(TypeError):
        Ordered(1.0) < Keyword(x=2.0)  # type: ignore[operator]  # noqa: B015


def test_doctest_finds_methods() -> None:
    """Examples in methods run, also of jitted ones."""

    @lw.pytree
    class P:
        x: float

        def plain(self) -> None:
            """Do nothing.

            >>> 1
            1
            """

        @jax.jit
        def jitted(self) -> None:
            """Do nothing.

            >>> 1
            1
            """

    found = doctest.DocTestFinder().find(P, "P", module=sys.modules[__name__])
    assert {each.name for each in found if each.examples} == {"P.plain", "P.jitted"}
    method = vars(P)["plain"]
    assert pickle.loads(pickle.dumps(type(method))) is type(method)  # noqa: S301


def test_eq_false() -> None:
    """`eq=False` leaves identity, and its hash."""

    @lw.pytree(eq=False)
    class P:
        x: Any

    one = P(1.0)
    assert one == one  # noqa: PLR0124
    assert one != P(1.0)
    assert hash(one) == object.__hash__(one)


def test_frozen_false_says_why() -> None:
    """There is no mutable variant, and the error says why and what to do."""
    with pytest.raises(lw.errors.DefinitionError) as error:
        lw.pytree(frozen=False)  # type: ignore[call-overload]
    assert "there is no mutable pytree class" in str(error.value)
    assert "stale program" in str(error.value)
    assert "lw.replace(obj, x=...)" in str(error.value)
    assert lw.pytree(frozen=True)(type("P", (), {}))


def test_decorating_twice_is_idempotent() -> None:
    """A decorated class comes back as it is."""
    assert lw.pytree(Params) is Params
    assert lw.pytree()(Params) is Params


BUILTINS = (int, tuple, dict, list, Exception)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: 1, "pytree decorates a class"),
        (3, "pytree decorates a class"),
        (dataclasses.make_dataclass("Plain", ["x"], frozen=True), "Plain: a dataclass already"),
        (jax.tree_util.register_static(type("P", (), {})), "P: a pytree already"),
        *((type("P", (base,), {}), f"a subclass of {base.__name__}") for base in BUILTINS),
        *(
            (type("P", (), {name: lambda *_: None}), name)
            for name in ("__setattr__", "__delattr__")
        ),
    ],
)
def test_what_cannot_be_decorated(made: Any, words: str) -> None:
    """What is not a class, is one of JAX's, keeps content in no field, or is not frozen."""
    with pytest.raises(lw.errors.DefinitionError, match=words):
        lw.pytree(made)


def test_what_options_leave_to_the_class() -> None:
    """`repr=False` and `init=False` leave what it inherits; statics are validated all the same."""
    base = type("Base", (), {"__annotations__": {"x": Any, "a": lw.Static[Any]}, "a": 1})
    cls: Any = lw.pytree(init=False)(type("P", (lw.pytree(repr=False)(base),), {}))
    assert jax.tree.leaves(cls(1.0)) == [1.0]
    assert repr(lw.pytree(base)(1.0)).startswith("<")
    with pytest.raises(lw.errors.StaticFieldError, match=r"P\.a"):
        cls(1.0, a=[])
    with pytest.raises(TypeError, match=r"P has no field 'b': it has x, a"):
        lw.replace(cls(1.0), b=1)


def test_adds_nothing_that_a_user_would_notice() -> None:
    """Fields, annotations, leaves and public attributes are those that were written."""

    @lw.pytree
    class P:
        x: Any
        a: lw.Static[int] = 1

    # IPython asks for names with one underscore.
    assert [name for name in dir(P(1.0)) if not name.startswith(("__", "_repr_"))] == ["a", "x"]
    assert [field.name for field in dataclasses.fields(P)] == ["x", "a"]
    assert list(P.__annotations__) == ["x", "a"]
    assert P.__name__ == "P"
    assert P.__module__ == __name__


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
def test_replace_method(cls: Any) -> None:
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


def test_replace_method_under_jit() -> None:
    """It is a method like another one: in a trace, and jitted itself."""
    assert jax.jit(State.moved)(State(jnp.ones(()))).x == 2
    assert jax.jit(State(1).replace)(x=3.0).x == 3.0  # type: ignore[attr-defined]


def test_replace_method_that_the_class_has() -> None:
    """A method of the class's own stays, as its `__init__` and `__repr__` do."""

    @lw.pytree(replace=True)
    class Params:
        w: Any

        def replace(self, w: Any) -> str:
            return f"own {w}"

    assert Params(1).replace(2) == "own 2"
    below: Any = lw.pytree(type("Below", (Params,), {}))
    assert below(1).replace(2) == "own 2"
