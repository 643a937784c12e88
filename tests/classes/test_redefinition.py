"""Notebooks: a cell that defines a class runs twice."""

import itertools
import sys
import types
from collections.abc import Iterator
from typing import Any

import jax
import pytest

import leafwise as lw

SOURCE = """
import leafwise as lw
from typing import Any

@lw.pytree
class Cell:
    x: Any
    a: lw.Static[int] = 1
"""


COUNT = itertools.count()


@pytest.fixture
def notebook() -> Iterator[types.ModuleType]:
    """A module whose source can be run again, as a notebook's `__main__`."""
    module = types.ModuleType(f"notebook_for_a_test_{next(COUNT)}")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def run(module: types.ModuleType, source: str = SOURCE) -> Any:
    """Execute a cell and return its class."""
    exec(source, module.__dict__)  # noqa: S102  # what a notebook does
    return module.Cell


def test_redefining_works(notebook: types.ModuleType) -> None:
    """The new class works, and so do instances of the old one."""
    old = run(notebook)
    before = old(1.0)
    new = run(notebook)
    assert new is not old
    assert jax.tree.leaves(new(1.0)) == [1.0]
    assert jax.tree.map(lambda v: v + 1, before).x == 2.0
    assert type(jax.jit(lambda p: p)(before)) is old
    assert type(jax.jit(lambda p: p)(new(1.0))) is new


def test_changed_definition(notebook: types.ModuleType) -> None:
    """A field added or made static in the new cell counts for new instances only."""
    old = run(notebook)
    before = old(1.0)
    new = run(notebook, SOURCE.replace("x: Any", "x: lw.Static[Any]\n    y: Any = 5"))
    assert jax.tree.leaves(new(1.0)) == [5]
    assert jax.tree.leaves(before) == [1.0]


def test_old_and_new_are_told_apart(notebook: types.ModuleType) -> None:
    """Mixing old and new instances is a mismatch, and JAX's message says which is which."""
    before = run(notebook)(1.0)
    after = run(notebook)(1.0)
    assert jax.tree.structure(before) != jax.tree.structure(after)
    assert before != after
    with pytest.raises(ValueError, match="old definition, redefined since") as error:
        jax.tree.map(lambda a, b: a, before, after)
    text = str(error.value)
    assert "Cell" in text
    with pytest.raises(ValueError, match="old definition"):
        jax.tree.map(lambda a, b: a, after, before)


def test_mixing_in_cond_says_so(notebook: types.ModuleType) -> None:
    """`lax.cond` with an old and a new instance names the redefinition too."""
    before = run(notebook)(1.0)
    after = run(notebook)(1.0)
    with pytest.raises(TypeError, match="old definition"):
        jax.lax.cond(True, lambda: before, lambda: after)


def test_one_definition_says_nothing(notebook: types.ModuleType) -> None:
    """Without a redefinition there is no such note, and names are what was written."""
    cls = run(notebook)
    assert "definition" not in repr(jax.tree.structure(cls(1.0)))
    assert cls.__qualname__ == "Cell"
    assert repr(cls(1.0)) == "Cell(x=1.0, a=1)"


def test_class_factory() -> None:
    """A function that makes classes makes equals: their instances print alike."""

    def make(n: int) -> Any:
        @lw.pytree
        class Made:
            x: Any
            a: lw.Static[int] = n

        return Made

    one, two = make(1), make(2)
    assert repr(one(0.5)) == repr(two(0.5)).replace("a=2", "a=1")
    assert jax.tree.structure(one(0.5, 1)) != jax.tree.structure(two(0.5, 1))


def test_decorating_again_is_no_redefinition(notebook: types.ModuleType) -> None:
    """Decorating the same class twice leaves its name alone."""
    cls = run(notebook)
    assert lw.pytree(cls) is cls
    assert "definition" not in repr(jax.tree.structure(cls(1.0)))
