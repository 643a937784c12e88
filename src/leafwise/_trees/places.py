"""The leaves of one tree, and where they stand."""

import functools
from collections.abc import Iterator
from typing import Any

import jax

from leafwise._trees.leaves import LEAF_TYPES
from leafwise._trees.nodes import Node, Walk
from leafwise._trees.paths import Steps, name_in


class Places:
    """The leaves of one tree, and where they stand.

    Attributes:
        tree: The tree.
        leaves: Its leaves, in JAX's order.
        structure: Its structure.
    """

    def __init__(self, tree: Any) -> None:
        """Flatten the tree; what else is needed is found when it is asked for."""
        self.tree = tree
        flat: tuple[list[Any], Any] = jax.tree_util.tree_flatten(tree)
        self.leaves, self.structure = flat

    @functools.cached_property
    def root(self) -> Node | int:
        """The tree as nodes and places of leaves."""
        return Walk(_itself, LEAF_TYPES).node_or_leaf(self.tree)

    @functools.cached_property
    def paths(self) -> list[Steps]:
        """The paths of all leaves."""
        return [path for path, part in self.walk() if isinstance(part, int)]

    def walk(self) -> Iterator[tuple[Steps, Node | int]]:
        """Yield all nodes and leaves with their paths, outer ones first."""
        todo: list[tuple[Steps, Node | int]] = [((), self.root)]
        while todo:
            path, part = todo.pop()
            yield path, part
            if isinstance(part, Node):
                steps = part.steps
                todo += [
                    ((*path, steps[place]), child)
                    for place, child in enumerate(part.children)
                    if not part.is_spread(place)
                ][::-1]

    def name(self, steps: Steps) -> str:
        """Return ``Model.encoder.w``, for a message."""
        return name_in(self.tree, steps)

    def name_of(self, leaf: int) -> str:
        """Return ``Model.encoder.w`` for a leaf, by its place."""
        return self.name(self.paths[leaf])


def _itself(leaf: Any) -> Any:
    return leaf
