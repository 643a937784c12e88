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
    """The new class works with its own fields, and so do instances of the old one."""
    old = run(notebook)
    before = old(1.0)
    new = run(notebook, SOURCE.replace("x: Any", "x: lw.Static[Any]\n    y: Any = 5"))
    assert new is not old
    assert jax.tree.leaves(new(1.0)) == [5]
    assert jax.tree.map(lambda v: v + 1, before).x == 2.0
    assert type(jax.jit(lambda p: p)(before)) is old
    assert type(jax.jit(lambda p: p)(new(1.0))) is new


def test_old_and_new_are_distinct(notebook: types.ModuleType) -> None:
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


def layer(size: int) -> Any:
    @lw.pytree
    class Layer:
        x: Any
        n: int = lw.static_field(default=size)

    return Layer


def test_two_classes_of_one_factory_are_not_redefined() -> None:
    """Neither replaces the other: both keep their names, also in messages, in either order."""
    small, large = layer(8), layer(64)
    name = f"{__name__}.layer.<locals>.Layer"
    for one, other in ((large(1.0), small(1.0)), (small(1.0), large(1.0))):
        assert "redefined" not in repr(one) + repr(other) + repr([type(one), type(other)])
        assert str(*lw.diff(one, other)) == f"the tree (class): {name} -> another {name}"
        assert "recreate" not in str(lw.signature(one).explain(lw.signature(other)))


def test_a_base_of_the_same_name_keeps_it(notebook: types.ModuleType) -> None:
    """`from lib import Cell`, then `class Cell(Cell)`, replaces no definition."""
    notebook.Cell = base = run(types.ModuleType("lib"))  # type: ignore[attr-defined]
    run(notebook, SOURCE.replace("class Cell", "class Cell(Cell)"))
    assert "redefined" not in base.__qualname__


def test_a_diff_names_a_redefined_class(notebook: types.ModuleType) -> None:
    """Also between two old definitions, and in either order."""
    cells = [run(notebook)(1.0) for _ in range(3)]
    for one, other in itertools.permutations(cells, 2):
        (reason,) = lw.diff(one, other)
        assert "old definition, redefined since" in str(reason)
        assert "recreate the instances" in str(lw.signature(one).explain(lw.signature(other)))
