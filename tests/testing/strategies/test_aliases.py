"""Aliases that contain themselves are drawn to a small depth, wherever they were written."""

import itertools
import sys
import types
from collections.abc import Callable
from typing import Any

import jax
import pytest

import leafwise as lw
from leafwise.testing.strategies._annotations import strategy_for
from leafwise.testing.strategies._constructor import FieldContext
from leafwise.testing.strategies._find import find

from .seeking import drawn
from .test_annotations import of

_NUMBERS = itertools.count()
HEADER = """
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NewType, Optional, TypedDict, TypeVar, Union
import jax
"""

Module = Callable[[str], Any]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Module:
    """Run source as a module of a name of its own."""

    def run(source: str) -> Any:
        made: Any = types.ModuleType(f"aliases_{next(_NUMBERS)}")
        monkeypatch.setitem(sys.modules, made.__name__, made)
        exec(HEADER + source, vars(made))  # noqa: S102  # written here
        return made

    return run


def depth(value: Any) -> int:
    """Return how many containers are inside one another."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if not isinstance(value, list | tuple):
        return 0
    return 1 + max(map(depth, value), default=0)


def assert_drawn(annotation: Any) -> None:
    """Fail unless values are nested, not deep, and flat where all are to be alike."""
    values = drawn(of(annotation), 40)
    assert 1 < max(map(depth, values)) <= 6
    jax.tree.leaves(values)
    where = FieldContext("Asked.it", dict)
    assert depth(find(strategy_for(annotation, where), lambda _: True)) <= 2


TREES = [
    'Tree = Union[jax.Array, Iterable["Tree"], Mapping[Any, "Tree"]]',
    'Tree = Union[float, list["Tree"], dict[str, "Tree"]]',
    'Tree = Union[float, Sequence["Optional[Tree]"], tuple["Tree", "Tree"]]',
    'Tree = list["Tree"]',
    'Tree = dict[str, Union[float, "Tree"]]',
    'T = TypeVar("T")\nGeneric = Union[T, list["Generic[T]"]]\nTree = Generic[float]',
    'Other = Union[float, dict[str, "Tree"]]\nTree = Union[float, list["Other"]]',
    'Third = list["Tree"]\nOther = dict[str, "Third"]\nTree = Union[float, "Other"]',
    'Tree = NewType("Tree", list["Tree"])',
    'class Tree(TypedDict):\n    w: float\n    parts: "list[Tree]"',
    'class Tree(TypedDict, total=False):\n    w: float\n    part: "Tree"',
]


@pytest.mark.parametrize("source", TREES)
def test_in_the_same_module(source: str, module: Module) -> None:
    """The names in an alias are found where the class is."""
    home = module(source)
    made = type("Asked", (), {"__module__": home.__name__})
    where = FieldContext("Asked.it", made, varied=True)
    values = drawn(strategy_for(home.Tree, where), 40)
    assert 1 < max(map(depth, values)) <= 6
    jax.tree.leaves(values)


@pytest.mark.parametrize("source", TREES)
def test_from_another_module(source: str, module: Module) -> None:
    """They are found where the alias was written, although the class's module lacks them."""
    assert_drawn(module(source).Tree)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of Python 3.12")
@pytest.mark.parametrize(
    "source",
    [
        "type Tree = float | list[Tree] | dict[str, Tree]",
        "type Tree = list[Tree]",
        "type Of[X] = X | list[Of[X]]\ntype Tree = Of[float]",
        "type Of[X] = X | list[Of[X]]\nTree = Of[Of[float]]",
        "type Grows[X] = X | list[Grows[tuple[X, X]]]\nTree = Grows[float]",
        "type Other = float | list[Tree]\ntype Tree = float | dict[str, Other]",
        "type Tree = float | list['Tree']",
        "type Tree = Union[jax.Array, Mapping[Any, 'Tree']]",
    ],
)
def test_type_statements(source: str, module: Module) -> None:
    """Those of Python 3.12 are followed as deep."""
    assert_drawn(module(source).Tree)


def test_alias_types_before_the_syntax(module: Module) -> None:
    """`TypeAliasType` of typing_extensions may hold text."""
    extensions = pytest.importorskip("typing_extensions")
    home = module("Tree = None")
    home.Tree = extensions.TypeAliasType("Tree", "Union[jax.Array, list['Tree']]")
    assert_drawn(home.Tree)


def test_a_name_that_is_nowhere(module: Module) -> None:
    """What is left of an alias is drawn; without anything left, the field is named."""
    assert all(
        isinstance(each, float)
        for each in drawn(of(module('Tree = Union[float, list["Gone"]]').Tree))
    )
    with pytest.raises(lw.errors.CannotBuildError, match=r"Asked\.it: .* cannot be resolved"):
        drawn(of(module('Tree = list["Gone"]').Tree))


def test_an_alias_without_an_end(module: Module) -> None:
    """It has no value, which is said."""
    with pytest.raises(lw.errors.CannotBuildError, match=r"Asked\.it: .* without end"):
        drawn(of(module('Tree = tuple["Tree", int]').Tree))
