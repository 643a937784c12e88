"""Treedefs in static fields, and an `==` of a library that is taken at its word."""

import collections
import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any, Self

import jax
import pytest

from .judge import ByContent, P

pytestmark = pytest.mark.hazard


@dataclasses.dataclass(frozen=True)
class Depth:
    n: Any


@jax.tree_util.register_pytree_node_class
class Node:
    """A pytree with aux_data."""

    def __init__(self, aux_data: Any) -> None:
        self.aux_data = aux_data

    def tree_flatten(self) -> tuple[tuple[int], Any]:
        """Return one leaf."""
        return (1,), self.aux_data

    @classmethod
    def tree_unflatten(cls, aux_data: Any, _: Any) -> Self:
        """Return a node."""
        return cls(aux_data)


TREES: dict[str, Callable[[Any], Any]] = {
    "aux_data": Node,
    "dataclass": lambda n: Node(Depth(n)),
    "dict in aux_data": lambda n: Node({"n": n}),
    "OrderedDict": lambda n: collections.OrderedDict([(n, 1)]),
    "pytree class": lambda n: P(1, n),
    "partial": lambda n: jax.tree_util.Partial(max, Node(n)),
}


@pytest.mark.parametrize("cls", [P, ByContent])
@pytest.mark.parametrize("name", TREES)
def test_treedefs(cls: Any, name: str) -> None:
    """Those of equal trees are one program; the types and bits of aux_data count."""
    structure = jax.tree.structure
    make = TREES[name]
    one = structure(cls(1, structure(make(1))))
    assert structure(cls(1, structure(make(1)))) == one
    assert structure(cls(1, (structure(make(1)),))) != one
    for other in (True, 1.0, 2):
        assert structure(cls(1, structure(make(other)))) != one


def test_jax_takes_treedefs_as_equal() -> None:
    """The hazard is JAX's, whose treedefs compare aux_data by its own `==`."""
    structure = jax.tree.structure
    equal = [name for name, make in TREES.items() if structure(make(1)) == structure(make(True))]
    assert equal == [name for name in TREES if name != "pytree class"]


def test_an_equality_of_the_standard_library() -> None:
    """Paths of Windows that differ in case are equal, and one program, as the docs say."""
    paths = [pathlib.PureWindowsPath(name) for name in ("A", "a")]
    assert paths[0] == paths[1]
    assert str(paths[0]) != str(paths[1])
    assert jax.tree.structure(P(1, paths[0])) == jax.tree.structure(P(1, paths[1]))
