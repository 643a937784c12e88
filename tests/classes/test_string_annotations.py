"""Annotations as strings: what stands in them is found, wherever it was imported."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import KW_ONLY, InitVar
from typing import Any, ClassVar, Generic, TypeVar

import jax
import jax.numpy as jnp
import pytest

import leafwise as lw
from leafwise import Static
from leafwise import Static as Fixed

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


def test_mark_that_cannot_be_found() -> None:
    """A field that says `Static` through an unknown name is an error, not a leaf."""
    with pytest.raises(lw.errors.DefinitionError, match=r"P\.a: cannot tell whether it is static"):

        @lw.pytree
        class P:
            a: nowhere.Static[int] = 1  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("future", ["from __future__ import annotations\n", ""])
@pytest.mark.parametrize("annotation", ["lw.static[int]", "lw.Statik[int]", "Statik[int]"])
def test_a_mark_that_is_misspelled(annotation: str, future: str) -> None:
    """It is refused with the right name where Python does not evaluate it."""
    if not future and sys.version_info < (3, 14):
        pytest.skip("Python itself refuses it")
    source = f"{future}import leafwise as lw\n@lw.pytree\nclass P:\n    n: {annotation} = 2"
    missing = annotation.replace("lw.", "leafwise.").removesuffix("[int]")
    words = f"P.n: cannot tell whether it is static, as {missing!r} .*\n  fix: `n: lw.Static[int]`"
    with pytest.raises(lw.errors.DefinitionError, match=words.replace("[", r"\[")):
        exec(compile(source, "misspelled", "exec", dont_inherit=True), {"__name__": __name__})  # noqa: S102

    def step(n: Any) -> None:
        """It is a static argument."""

    step.__annotations__["n"] = annotation
    with pytest.raises(lw.errors.DefinitionError, match=r"fix: `n: lw\.Static\[int\]`"):
        lw.jit(step)(1)


def test_default_of_the_name_of_a_type() -> None:
    """A field named like a type does not hide that type from its own annotation."""

    @lw.pytree
    class P:
        int: int = 1  # noqa: A003  # the point
        str: Static[str] = "a"  # noqa: A003  # the point
        x: int = 2  # noqa: A003  # the point

    assert jax.tree.leaves(P()) == [1, 2]


STRINGS: dict[str, tuple[dict[str, str], list[str]]] = {
    "for type checkers only": (
        {"x": "Missing", "a": "Static[Missing]", "b": "lw.Static[dict[str, Missing] | None]"},
        ["x"],
    ),
    "in quotes, twice": ({"x": "Missing", "a": "'lw.Static[Missing]'"}, ["x"]),
    "names near to it": ({"x": "State[int]", "y": "jax.Stats[int]"}, ["x", "y"]),
    "generic classes": (
        {"a": "lw.Static[Inner[list[T]] | None]", "x": "Inner[list[int]] | None"},
        ["x"],
    ),
}


@pytest.mark.parametrize("name", STRINGS)
def test_which_are_dynamic(name: str) -> None:
    """A name that is not there, or that only looks like the mark, hides no mark and is none."""
    annotations, dynamic = STRINGS[name]
    cls: Any = lw.pytree(type("P", (), {"__annotations__": annotations}))
    assert jax.tree.leaves(cls(*annotations)) == dynamic
