"""Annotations as strings: what stands in them is found, wherever it was imported."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import KW_ONLY, InitVar
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import jax
import jax.numpy as jnp
import pytest

import leafwise as lw
from leafwise import Static
from leafwise import Static as Fixed

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]  # noqa: TC004  # the point


T = TypeVar("T")


class Inner(Generic[T]):
    pass


@lw.pytree
class Module:
    x: jax.Array
    a: lw.Static[int] = 1
    b: Static[str] = "b"
    c: Fixed[str | None] = None
    d: int = lw.static_field(default=4)
    kind: ClassVar[str] = "k"
    scale: InitVar[float] = 1.0
    _: KW_ONLY
    e: Static[int] = 5

    def __post_init__(self, scale: float) -> None:
        self.x = self.x * scale


def test_marks_are_found_in_strings() -> None:
    """Each way to write `Static` in a string annotation is seen."""
    made = Module(jnp.ones(3), scale=2.0)
    assert isinstance(dataclasses.fields(Module)[0].type, str)
    assert [leaf.tolist() for leaf in jax.tree.leaves(made)] == [[2.0] * 3]
    base = jax.tree.structure(made)
    for change in ({"a": 2}, {"b": "c"}, {"c": "c"}, {"d": 5}, {"e": 6}):
        assert jax.tree.structure(Module(jnp.ones(3), **change)) != base  # type: ignore[arg-type]


def test_plain_dataclass_does_not_see_them() -> None:
    """The hazard is real: the annotation means nothing to `register_dataclass`."""

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class P:
        a: Static[int] = 1

    assert jax.tree.leaves(P()) == [1]


def test_locally_imported_mark() -> None:
    """A `Static` that only the enclosing function imported is found."""
    from leafwise import Static as Local

    @lw.pytree
    class P:
        x: Any
        a: Local[str] = "a"

    assert jax.tree.leaves(P(1.0)) == [1.0]


def test_locally_imported_module() -> None:
    """The library itself, imported by another name in a function, is found."""
    import leafwise as local_name

    @local_name.pytree(kw_only=True)
    class P:
        x: Any
        a: local_name.Static[str] = "a"

    assert jax.tree.leaves(P(x=1.0)) == [1.0]


def test_mark_in_a_function_in_a_function() -> None:
    """The scopes of all enclosing functions are looked at."""
    from leafwise import Static as Outer

    def inner() -> Any:
        def innermost() -> Any:
            @lw.pytree
            class P:
                a: Outer[str] = "a"

            return P

        return innermost()

    assert jax.tree.leaves(inner()()) == []


def test_mark_of_an_enclosing_class() -> None:
    """A name in the body of an enclosing class is found."""

    class Outside:
        Mine = Static

        @lw.pytree
        class P:
            a: Mine[str] = "a"  # type: ignore[name-defined]  # noqa: F821

    assert jax.tree.leaves(Outside.P()) == []


def test_local_types_in_annotations() -> None:
    """A type that exists only in a function can stand in an annotation."""

    class Local(str):
        __slots__ = ()

    with pytest.raises(lw.errors.DefinitionError, match=r"P\.a: JAX cannot trace"):

        @lw.pytree
        class P:
            a: Local


def test_name_for_type_checkers_only() -> None:
    """A name that is imported for type checkers only does not hide the mark beside it."""

    @lw.pytree
    class P:
        x: Missing
        a: Static[Missing] = 1
        b: lw.Static[dict[str, Missing] | None] = None

    assert jax.tree.leaves(P(1.0)) == [1.0]


def test_mark_that_cannot_be_found() -> None:
    """A field that says `Static` through an unknown name is an error, not a leaf."""
    with pytest.raises(lw.errors.DefinitionError, match=r"P\.a: cannot tell whether it is static"):

        @lw.pytree
        class P:
            a: nowhere.Static[int] = 1  # type: ignore[name-defined]  # noqa: F821


def test_text_in_strings_must_be_static() -> None:
    """The rules for text and arrays hold for string annotations."""
    with pytest.raises(lw.errors.DefinitionError, match=r"P\.a: JAX cannot trace a str"):

        @lw.pytree
        class P:
            a: str

    with pytest.raises(
        lw.errors.DefinitionError, match=r"Q\.a: a static field cannot hold an array"
    ):

        @lw.pytree
        class Q:
            a: Static[jax.Array]


def test_buried_mark_in_a_string() -> None:
    """`Optional[Static[...]]` is refused in a string too."""
    with pytest.raises(
        lw.errors.DefinitionError, match=r"`a: lw.Static\[typing.Optional\[str\]\]`"
    ):

        @lw.pytree
        class P:
            a: typing.Optional[Static[str]]  # noqa: UP045  # the point


def test_inherited_string_annotations() -> None:
    """A subclass in another scope keeps what its base resolved."""

    def base() -> Any:
        from leafwise import Static as Hidden

        @lw.pytree
        class Base:
            x: Any
            a: Hidden[str] = "a"

        return Base

    @lw.pytree
    class P(base()):  # type: ignore[misc]
        y: Any = 2.0

    assert jax.tree.leaves(P(1.0)) == [1.0, 2.0]


def test_slots_with_string_annotations() -> None:
    """`slots=True` makes a new class, and the marks are still found."""

    @lw.pytree(slots=True)
    class P:
        x: Any
        a: Static[str] = "a"

    assert jax.tree.leaves(P(1.0)) == [1.0]


def test_default_of_the_name_of_a_type() -> None:
    """A field named like a type does not hide that type from its own annotation."""

    @lw.pytree
    class P:
        int: int = 1  # noqa: A003  # the point
        str: Static[str] = "a"  # noqa: A003  # the point
        x: int = 2  # noqa: A003  # the point

    assert jax.tree.leaves(P()) == [1, 2]


def test_a_generic_class_in_a_string() -> None:
    """A string may subscript a user's generic class, with a type variable inside."""

    @lw.pytree
    class Outer(Generic[T]):
        it: lw.Static[Inner[list[T]] | None]
        x: Inner[list[int]] | None = None

    assert jax.tree.leaves(Outer(None, 1.0)) == [1.0]
