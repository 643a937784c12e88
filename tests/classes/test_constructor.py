"""What a constructor says of itself, to whoever checks types at run time or decorates it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from dataclasses import InitVar
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import pytest

import leafwise as lw

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]  # noqa: TC004  # the point


def from_text(text: str) -> jax.Array:
    return jnp.asarray(float(text))


@lw.pytree
class Params:
    x: jax.Array
    converted: jax.Array = lw.field(converter=from_text, default="1")
    anything: jax.Array = lw.field(converter=jnp.asarray, default=1)
    builtin: str = lw.static_field(converter=str, default="")
    frozen: tuple[int, ...] = lw.static_field(freeze=True, default=())
    missing: Missing | None = None
    own: Params | None = None
    scale: InitVar[int] = 1

    def __post_init__(self, scale: int) -> None:
        pass


def test_types_are_evaluated() -> None:
    """Strings are evaluated where all names are known; a converter says what it takes."""
    types = Params.__init__.__annotations__
    assert types == {
        "x": jax.Array, "converted": str, "anything": Any, "builtin": Any, "frozen": Any,
        "missing": "Missing | None", "own": Params | None, "scale": int, "return": None,
    }  # fmt: skip
    assert dataclasses.fields(Params)[0].type == "jax.Array"
    assert inspect.signature(Params).parameters["x"].annotation is jax.Array


def test_local_names_and_copies() -> None:
    """Names local to a function are found, and the class itself is the one that is made."""
    Local = jax.Array  # noqa: N806  # a type

    @lw.pytree(slots=True)
    class Node:
        x: Local
        next: Node | None = None

    assert Node.__init__.__annotations__["x"] is jax.Array
    assert Node.__init__.__annotations__["next"] == Node | None
    first = Node

    @lw.pytree  # type: ignore[no-redef]
    class Node:
        next: Node | None = None

    assert Node.__init__.__annotations__["next"] == Node | None
    assert Node is not first


def test_own_constructor_keeps_its_globals() -> None:
    """The wrapper of a constructor finds names where it was written, and runs all the same."""

    @lw.pytree
    class Own:
        x: Any
        n: lw.Static[int]

        def __init__(self, x: Params, n: int = 2) -> None:
            self.x, self.n = x, n

    assert Own.__init__.__globals__ is globals()
    assert (Own(1).n, Own(1, n=3).n) == (2, 3)
    assert str(inspect.signature(Own)) == "(x: 'Params', n: 'int' = 2) -> 'None'"


def wrapped(cls: Any) -> Any:
    """Wrap the constructor that a class has or inherits, as a checker of types does."""
    inner = cls.__init__

    @functools.wraps(inner)
    def checked(*args: Any, **kwargs: Any) -> None:
        inner(*args, **kwargs)

    cls.__init__ = checked
    return cls


def test_wrapped_inherited_constructor() -> None:
    """A decorator that took the constructor of a base is refused; what a user writes is not."""

    @lw.pytree
    class Base:
        x: Any

    words = r"(?s)Sub: a decorator below @lw\.pytree .*Base"
    with pytest.raises(lw.errors.DefinitionError, match=words):
        lw.pytree(wrapped(type("Sub", (Base,), {})))

    @lw.pytree
    class Written(Base):
        y: Any = 1

        @functools.wraps(Base.__init__)
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)

    assert (Written(2).x, Written(2).y) == (2, 1)

    @wrapped
    @lw.pytree
    class Above(Base):
        y: Any = 1

    assert (Above(2, 3).y, lw.replace(Above(2, 3), y=4).y) == (3, 4)
