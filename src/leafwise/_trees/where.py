"""`where`, a selection of leaves; and the masks, labels and two halves that are made from one."""

import dataclasses
import types
import typing
from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np

from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import got, shorten
from leafwise._trees.conditions import (
    AtPath,
    ByMetadata,
    ByTest,
    Condition,
    Joined,
    LikeTree,
    Not,
    OfClass,
)
from leafwise._trees.nodes import FlatTree
from leafwise._trees.paths import parse
from leafwise.errors import TreeError

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Where:
    """A selection of leaves, made by `where`, for any tree.

    Selections are combined with ``&``, ``|`` and ``~``.
    """

    condition: Condition

    def __and__(self, other: "Where") -> "Where":
        """Return the selection of what both select."""
        if not isinstance(other, Where):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        return Where(Joined(self.condition, other.condition, both=True))

    def __or__(self, other: "Where") -> "Where":
        """Return the selection of what one of them selects."""
        if not isinstance(other, Where):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        return Where(Joined(self.condition, other.condition, both=False))

    def __invert__(self) -> "Where":
        """Return the selection of everything else."""
        return Where(Not(self.condition))

    def __bool__(self) -> bool:
        """Refuse: ``and``, ``or`` and ``not`` would drop one of the selections."""
        raise TypeError(
            f"{self!r} has no truth value\n  fix: combine selections with `&`, `|` and `~`"
        )

    def __repr__(self) -> str:
        """Return the selection as it is written."""
        return repr(self.condition)


def where(*conditions: Any, **metadata: Any) -> Where:
    """Select leaves of a tree: by path, by class, by a function, by fields' metadata.

    Args:
        *conditions: Each is one of

            - a path, as leafwise prints it: what stands there, and all below. ``*`` is any
              one step, ``**`` any number of them: ``"layers[*].w"``, ``"**.bias"``.
            - a class: all that stands in an instance of it, and leaves of that type.
            - a function of one leaf that returns a bool, as `equinox.is_inexact_array`.
            - a bool: everything, or nothing.
            - a tree of bools and functions, a prefix of the tree, as `equinox.filter` takes.
            - a selection.
        **metadata: Entries of fields' metadata, as ``trainable=False``. The innermost field
            on the way to a leaf that has such an entry decides; where none has, the leaf is
            not selected.

    Returns:
        The selection of the leaves that all of them select.

    Raises:
        PathError: A path cannot be read. When the selection is used: it leads nowhere in the
            tree.
        TypeError: There is no condition, or one that is none of these.

    Examples:
        >>> where("encoder", jax.Array) & ~where("encoder.layers[*].b")
        where('encoder') & where(Array) & ~where('encoder.layers[*].b')
    """
    found = [_condition(each) for each in conditions]
    found += [ByMetadata(key, value) for key, value in metadata.items()]
    if not found:
        raise TypeError("where() selects by something: a path, a class, a function, metadata")
    every = found[0]
    for each in found[1:]:
        every = Joined(every, each, both=True)
    return Where(every)


def _condition(given: Any) -> Condition:
    if isinstance(given, Where):
        return given.condition
    if isinstance(given, str):
        return AtPath(given, parse(given))
    if isinstance(given, bool | np.bool_):
        return LikeTree(given)
    origin = typing.get_origin(given)
    if isinstance(given, type | types.UnionType) or origin is typing.Union:
        return OfClass(given)
    if origin is not None:
        raise TypeError(
            f"isinstance cannot test for {given}\n  fix: pass the class itself: {origin.__name__}"
        )
    if not jax.tree_util.all_leaves([given]):
        return LikeTree(given)
    if callable(given):
        return ByTest(given)
    raise TypeError(
        f"leaves are selected by a path, a class, a function of a leaf, a bool or a tree of "
        f"bools: got {got(given)}"
    )


def _select(flat: FlatTree, selection: Any) -> list[bool]:
    condition = _condition(selection)
    # A bound method of a pytree is a tree and a function. Only for a tree of its own type can it
    # be a tree of bools.
    as_tree = type(selection) is type(flat.tree)
    if isinstance(condition, LikeTree) and callable(selection) and not as_tree:
        condition = ByTest(selection)
    return condition.select(flat)


def mask(tree: T, where: Any) -> T:
    """Return a tree of the same structure with True at the selected leaves, False at others.

    For `optax.masked`, ``optax.add_decayed_weights(mask=...)``, `equinox.partition`. Classes
    keep their statics; no constructor, converter or check of a leafwise class runs.

    Args:
        tree: Any tree.
        where: A selection made by `where`, or anything that it takes.

    Returns:
        A tree of bools. As a function of a tree alone: ``functools.partial(mask, where=...)``.

    Raises:
        PathError: A path leads nowhere in the tree.
        TreeError: A tree of bools is not a prefix of the tree.
        TypeError: A function returns something other than a bool.

    Examples:
        >>> mask({"w": 1.0, "b": 2.0}, "['w']")
        {'b': False, 'w': True}
    """
    flat = FlatTree(tree)
    made: T = flat.treedef.unflatten(_select(flat, where))
    return made


def labels(tree: T, groups: Mapping[Any, Any], default: Hashable = None) -> T:
    """Return a tree of the same structure with a label at each leaf.

    For `optax.multi_transform`.

    Args:
        tree: Any tree.
        groups: The selection of each label's leaves: ``{"head": where("head")}``.
        default: The label of all other leaves; None if there are to be none.

    Returns:
        A tree of labels.

    Raises:
        TreeError: A leaf has two labels, or none.
        PathError: A path leads nowhere in the tree.
        TypeError: A label is None or a tree.

    Examples:
        >>> labels({"w": 1.0, "b": 2.0}, {"slow": "['w']"}, default="fast")
        {'b': 'fast', 'w': 'slow'}
    """
    flat = FlatTree(tree)
    given: list[Any] = [MISSING] * len(flat.leaves)
    for label, selection in groups.items():
        if not jax.tree_util.all_leaves([label]) or label is None:
            raise TypeError(f"labels: a label is a leaf, as a text is: got {got(label)}")
        for place, flag in enumerate(_select(flat, selection)):
            if flag and given[place] is not MISSING:
                raise TreeError(
                    f"{flat.name_of(place)} has two labels, {given[place]!r} and {label!r}\n"
                    f"  fix: leave out of one what the other has: `lw.where(...) & ~lw.where(...)`"
                )
            given[place] = label if flag else given[place]
    left = [place for place, label in enumerate(given) if label is MISSING]
    if left and default is None:
        raise TreeError(
            f"{flat.name_of(left[0])} has no label: none of {shorten(list(groups))} selects it\n"
            f'  fix: labels(tree, groups, default="...")'
        )
    made: T = flat.treedef.unflatten([default if label is MISSING else label for label in given])
    return made


def partition(tree: T, where: Any) -> tuple[T, T]:
    """Split a tree into the selected leaves and the rest, each with None for the other's.

    Both have the statics of the tree, so that a function of one part, under `jax.jit`, does
    not retrace when the other changes. `combine` puts them together; `equinox.combine`
    does, too.

    Args:
        tree: Any tree.
        where: A selection made by `where`, or anything that it takes.

    Returns:
        The tree of the selected leaves, and the tree of all others.

    Raises:
        PathError: A path leads nowhere in the tree.
        TreeError: A tree of bools is not a prefix of the tree.
        TypeError: A function returns something other than a bool.

    Examples:
        >>> partition({"w": 1.0, "b": 2.0}, "['w']")
        ({'b': None, 'w': 1.0}, {'b': 2.0, 'w': None})
    """
    flat = FlatTree(tree)
    pairs = list(zip(_select(flat, where), flat.leaves, strict=True))
    selected: T = flat.treedef.unflatten([leaf if flag else None for flag, leaf in pairs])
    rest: T = flat.treedef.unflatten([None if flag else leaf for flag, leaf in pairs])
    return selected, rest
