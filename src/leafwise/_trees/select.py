"""`select`, which selects leaves by path, class, function, metadata, or a tree of bools.

`mask`, `labels` and `partition` are built from a selection.
"""

import dataclasses
import difflib
import functools
import operator
import types
import typing
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar, cast

import jax
import numpy as np

from leafwise._objects.classes import declared_fields
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import got, shorten
from leafwise._trees.combine import mismatch
from leafwise._trees.nodes import FlatTree, Node, walk
from leafwise._trees.paths import (
    ANY,
    DEEP,
    Steps,
    format_children,
    format_node,
    name_in,
    nowhere,
    parse,
    place_of,
)
from leafwise.errors import PathError, TreeError

T = TypeVar("T")


class Selection:
    """A selection of leaves, made by `select`, that applies to any tree.

    Combine selections with ``&``, ``|`` and ``~``.
    """

    __slots__ = ()

    def select(self, flat: FlatTree) -> list[bool]:  # for each leaf whether it is selected
        raise NotImplementedError  # subclasses implement it

    def __and__(self, other: "Selection") -> "Selection":
        return Joined(self, _condition(other), both=True)

    def __or__(self, other: "Selection") -> "Selection":
        return Joined(self, _condition(other), both=False)

    def __invert__(self) -> "Selection":
        return Not(self)

    def __bool__(self) -> bool:
        """Raise, because ``and``, ``or`` and ``not`` would drop one of the selections."""
        raise TypeError(
            f"{self!r} has no truth value\n  fix: combine selections with `&`, `|` and `~`"
        )


def _mark(flags: list[bool], part: Node | int, *, flag: bool = True) -> None:
    if isinstance(part, int):
        flags[part] = flag
    else:
        flags[part.start : part.stop] = [flag] * (part.stop - part.start)


@dataclasses.dataclass(frozen=True, slots=True)
class AtPath(Selection):
    """Selects the leaves at and below a path."""

    text: str
    steps: Steps

    def __repr__(self) -> str:
        return f"select({self.text!r})"

    def select(self, flat: FlatTree) -> list[bool]:
        search = _Search(self.steps, len(flat.leaves))
        search.visit(flat.root, (), 0)
        if not search.hit:
            raise self._error(flat, search)
        return search.flags

    def _error(self, flat: FlatTree, search: "_Search") -> PathError:
        wrong, path, part = search.furthest
        here = part.steps if isinstance(part, Node) else ()
        paths = (steps for steps, _ in walk(flat.root))
        if isinstance(part, int):
            why = f"{name_in(flat.tree, path)} is a leaf, which has no parts"
        elif self.steps[wrong] in part.names:
            why = f"{part.cls.__name__}{self.steps[wrong]} is static, so it has no leaves"
        else:
            why = f"{format_node(flat.tree, path, part.cls)}: {format_children(here)}"
        return nowhere(self.text, self.steps, wrong, why, siblings=here, paths=paths)


class _Search:
    def __init__(self, pattern: Steps, leaves: int) -> None:
        self.pattern = pattern
        self.flags = [False] * leaves
        self.hit = False
        self.furthest: tuple[int, Steps, Any] = (-1, (), None)

    def visit(self, part: Node | int, path: Steps, at: int) -> None:
        """Continue from a node or leaf with step `at` of the pattern."""
        if at == len(self.pattern):
            self.hit = True
            _mark(self.flags, part)
            return
        step = self.pattern[at]
        if at > self.furthest[0]:
            self.furthest = at, path, part
        if step == DEEP:
            self.visit(part, path, at + 1)
            if isinstance(part, Node):
                self._visit_children(part, path, at)
        elif isinstance(part, Node):
            if step == ANY:
                self.hit |= not part.children  # an empty list is not a mistake
                self._visit_children(part, path, at + 1)
            elif (place := place_of(part.steps, step)) is not None:
                self.visit(part.children[place], (*path, part.steps[place]), at + 1)

    def _visit_children(self, part: Node, path: Steps, at: int) -> None:
        for place, child in enumerate(part.children):
            if not part.is_hash_node(place):
                self.visit(child, (*path, part.steps[place]), at)


@dataclasses.dataclass(frozen=True, slots=True)
class OfClass(Selection):
    """Selects all leaves in instances of a class, and leaves of that type."""

    kind: Any

    def __repr__(self) -> str:
        return f"select({_named(self.kind)})"

    def select(self, flat: FlatTree) -> list[bool]:
        flags = [isinstance(leaf, self.kind) for leaf in flat.leaves]
        for _, part in walk(flat.root):
            if isinstance(part, Node) and issubclass(part.cls, self.kind):
                _mark(flags, part)
        return flags


def _answers(
    test: Callable[[Any], Any], leaves: list[Any], flat: FlatTree, start: int
) -> list[bool]:
    """Return a function's result for each leaf; `start` is the index of the first leaf."""
    answers: list[bool] = []
    name = _named(test)
    for place, leaf in enumerate(leaves, start):
        try:
            answer = test(leaf)
        except Exception as error:  # a user's condition
            error.add_note(f"in the condition {name} for the leaf {flat.name_of(place)}")
            raise
        answers.append(_as_bool(answer, f"{name} returned", flat, place))
    return answers


def _named(thing: Any) -> str:
    name = str(getattr(thing, "__qualname__", None) or shorten(thing))
    return name.removeprefix("jaxlib._jax.")  # where older JAX defines `jax.Array`


def _as_bool(flag: Any, whence: str, flat: FlatTree, leaf: int) -> bool:
    if not isinstance(flag, bool | np.bool_):
        raise TypeError(f"{flat.name_of(leaf)}: {whence} {got(flag)}, expected True or False")
    return bool(flag)


@dataclasses.dataclass(frozen=True, slots=True)
class ByMetadata(Selection):
    """Selects by the innermost field on a leaf's path that has an entry in its metadata."""

    key: str
    value: Any

    def __repr__(self) -> str:
        return f"select({self.key}={self.value!r})"

    def select(self, flat: FlatTree) -> list[bool]:
        flags = [False] * len(flat.leaves)
        known: set[str] = set()
        nodes = [part for _, part in walk(flat.root) if isinstance(part, Node)]
        for node in nodes:  # outer ones first, so that inner ones override them
            fields = field_metadata(node.cls)
            for step, child in zip(node.steps, node.children, strict=True) if fields else ():
                entries = fields.get(step, {})
                known.update(key for key in entries if isinstance(key, str))
                if self.key in entries:
                    _mark(flags, child, flag=bool(entries[self.key] == self.value))
        if self.key not in known and flat.leaves:  # an empty list is not a mistake
            near = difflib.get_close_matches(self.key, known, 1)
            fix = f"declare {self.key}= in its metadata; a path: `lw.select('encoder.w')`"
            raise PathError(
                f"no field of {type(flat.tree).__name__} has metadata {self.key!r}\n"
                f"  {f'nearest: {near[0]!r}' if near else f'fix: {fix}'}"
            )
        return flags


def field_metadata(cls: Any) -> dict[str, Mapping[Any, Any]]:
    """Return the metadata of a class's fields, by step; fields without any are left out."""
    return {f".{field.name}": field.metadata for field in declared_fields(cls) if field.metadata}


@dataclasses.dataclass(frozen=True, slots=True)
class LikeTree(Selection):
    """Selects by a prefix of the tree whose leaves are bools or functions of a leaf."""

    prefix: Any

    def __repr__(self) -> str:
        return f"select({_named(self.prefix)})"

    def select(self, flat: FlatTree) -> list[bool]:
        # A bound method of a pytree is both a function and a tree. It can be a tree of bools only
        # for a tree of its own type.
        if callable(self.prefix) and type(self.prefix) is not type(flat.tree):
            return _answers(self.prefix, flat.leaves, flat, 0)
        flattened: tuple[list[Any], Any] = jax.tree_util.tree_flatten(self.prefix)
        leaves, structure = flattened
        try:
            parts = structure.flatten_up_to(flat.tree)
        except (ValueError, TypeError, KeyError) as error:
            why = mismatch(self.prefix, flat.tree, flat.tree)
            raise TreeError(
                f"the tree of bools is not a prefix of the tree: {why or error}"
            ) from error
        flags: list[bool] = []
        for flag, part in zip(leaves, parts, strict=True):
            below = jax.tree_util.tree_leaves(part)
            if not isinstance(flag, bool) and callable(flag):
                flags += _answers(flag, below, flat, len(flags))
            elif below:
                flag = _as_bool(flag, "the tree of bools has", flat, len(flags))  # noqa: PLW2901
                flags += [flag] * len(below)
        return flags


@dataclasses.dataclass(frozen=True, slots=True)
class Joined(Selection):
    """Selects the leaves that both of two conditions select, or that either does."""

    one: Selection
    other: Selection
    both: bool

    def __repr__(self) -> str:
        return f"{self.one!r} & {self.other!r}" if self.both else f"({self.one!r} | {self.other!r})"

    def select(self, flat: FlatTree) -> list[bool]:
        join = operator.and_ if self.both else operator.or_
        return list(map(join, self.one.select(flat), self.other.select(flat)))


@dataclasses.dataclass(frozen=True, slots=True)
class Not(Selection):
    """Selects the leaves that a condition does not select."""

    one: Selection

    def __repr__(self) -> str:
        is_joined = isinstance(self.one, Joined) and self.one.both
        return f"~({self.one!r})" if is_joined else f"~{self.one!r}"

    def select(self, flat: FlatTree) -> list[bool]:
        return [not flag for flag in self.one.select(flat)]


def select(*conditions: Any, **metadata: Any) -> Selection:
    """Select leaves of a tree: by path, by class, by a function, or by field metadata.

    Args:
        *conditions: Each is one of

            - a path, as leafwise prints it: the leaves at and below it. ``*`` matches any
              one step, ``**`` any number of steps: ``"layers[*].w"``, ``"**.bias"``.
            - a class: all leaves in instances of it, and leaves of that type.
            - a function of one leaf that returns a bool, such as `equinox.is_inexact_array`.
            - a bool: all leaves, or none.
            - a tree of bools and functions, a prefix of the tree, as in `equinox.filter`.
            - a selection.
        **metadata: Entries of field metadata, such as ``trainable=False``. The innermost field
            on the path to a leaf that has such an entry decides; without one, the leaf is
            not selected.

    Returns:
        The selection of the leaves that meet all of these conditions.

    Raises:
        PathError: A path cannot be parsed or, when the selection is used, leads nowhere in
            the tree; or none of its fields has such metadata.
        TypeError: No condition was passed, or one of an unsupported type.

    Examples:
        >>> select("encoder", jax.Array) & ~select("encoder.layers[*].b")
        select('encoder') & select(Array) & ~select('encoder.layers[*].b')
    """
    found = [_condition(each) for each in conditions]
    found += [ByMetadata(key, value) for key, value in metadata.items()]
    if not found:
        raise TypeError("select() takes a path, a class, a function, metadata, or several of them")
    return functools.reduce(operator.and_, found)


def _condition(selector: Any) -> Selection:
    if isinstance(selector, Selection):
        return selector
    if isinstance(selector, str):
        return AtPath(selector, parse(selector))
    if isinstance(selector, type | types.UnionType) or typing.get_origin(selector) is typing.Union:
        return OfClass(selector)
    is_test = callable(selector) or isinstance(selector, bool | np.bool_)
    if is_test or not jax.tree_util.all_leaves([selector]):
        return LikeTree(selector)
    raise TypeError(
        f"leaves are selected by a path, a class, a function of a leaf, a bool or a tree of "
        f"bools, got {got(selector)}"
    )


def mask(tree: T, where: Any) -> T:
    """Return a tree of the same structure with True at the selected leaves, False at others.

    For `optax.masked`, ``optax.add_decayed_weights(mask=...)``, `equinox.partition`. The statics
    are kept. Leafwise constructors, converters and validators do not run.

    Args:
        tree: Any tree.
        where: A selection made by `select`, or anything that it takes.

    Returns:
        A tree of bools. For a function of the tree alone: ``functools.partial(mask, where=...)``.

    Raises:
        PathError: A path leads nowhere in the tree.
        TreeError: A tree of bools is not a prefix of the tree.
        TypeError: A function returns something other than a bool.

    Examples:
        >>> mask({"w": 1.0, "b": 2.0}, "['w']")
        {'b': False, 'w': True}
    """
    flat = FlatTree(tree)
    return cast("T", flat.treedef.unflatten(_condition(where).select(flat)))


def labels(tree: T, groups: Mapping[Any, Any], default: Hashable = None) -> T:
    """Return a tree of the same structure with a label at each leaf.

    For `optax.multi_transform`.

    Args:
        tree: Any tree.
        groups: The selection of each label's leaves: ``{"head": select("head")}``.
        default: The label of all other leaves; with None, a leaf without a label is an error.

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
    marks: list[Any] = [MISSING] * len(flat.leaves)
    for label, selection in groups.items():
        if not jax.tree_util.all_leaves([label]) or label is None:
            raise TypeError(f"labels: a label is a leaf, such as a string, got {got(label)}")
        for place, flag in enumerate(_condition(selection).select(flat)):
            if flag and marks[place] is not MISSING:
                raise TreeError(
                    f"{flat.name_of(place)} has two labels, {marks[place]!r} and {label!r}\n"
                    f"  fix: exclude one selection from the other: `select(...) & ~select(...)`"
                )
            marks[place] = label if flag else marks[place]
    left = [place for place, label in enumerate(marks) if label is MISSING]
    if left and default is None:
        raise TreeError(
            f"{flat.name_of(left[0])} has no label: none of {shorten(list(groups))} selects it\n"
            f'  fix: labels(tree, groups, default="...")'
        )
    found = [default if label is MISSING else label for label in marks]
    return cast("T", flat.treedef.unflatten(found))


def partition(tree: T, where: Any) -> tuple[T, T]:
    """Split a tree into the selected leaves and the rest, each with None for the other's leaves.

    Both have the statics of the tree. A function of one part, under `jax.jit`, does not
    retrace when the other changes. `combine` joins them, as does `equinox.combine`.

    Args:
        tree: Any tree.
        where: A selection made by `select`, or anything that it takes.

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
    pairs = list(zip(_condition(where).select(flat), flat.leaves, strict=True))
    selected: T = flat.treedef.unflatten([leaf if flag else None for flag, leaf in pairs])
    rest: T = flat.treedef.unflatten([None if flag else leaf for flag, leaf in pairs])
    return selected, rest
