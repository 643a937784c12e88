"""`combine`, which joins the parts of a tree, and `axes`, which builds ``in_axes`` trees."""

import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

import jax

from leafwise._objects.text import got, shorten
from leafwise._trees.equality import jax_equal
from leafwise._trees.nodes import FlatTree, Node, is_hash_node_type, open_node, walk
from leafwise._trees.paths import (
    Request,
    Steps,
    format_node,
    group_by_part,
    name_in,
    requests_of,
    whole_request,
)
from leafwise.errors import PathError, TreeError

T = TypeVar("T")

_is_none: Final = functools.partial(operator.is_, None)
"""Faster than a lambda, as it runs no Python code; JAX calls it for every node."""


def combine(tree: T, *trees: T) -> T:
    """Join the trees that `partition` returned; its inverse.

    It takes any number of trees with the same structure, each with None where it has no leaf,
    including those from `equinox.partition` and `equinox.filter`. It works under every
    transformation, so a function of one part can be differentiated.

    Args:
        tree: A tree.
        *trees: More trees. None in one tree can stand for a leaf, or for a whole subtree,
            of another.

    Returns:
        The tree with the leaves of all trees, and None where all of them have None.

    Raises:
        TreeError: Two trees have a leaf at the same place, or differ in class, static values
            or structure. The message names the place.

    Examples:
        >>> combine({"w": 1.0, "b": None}, {"w": None, "b": 2.0})
        {'b': 2.0, 'w': 1.0}
    """
    every = (tree, *trees)
    flat: list[tuple[list[Any], Any]] = [
        jax.tree_util.tree_flatten(each, is_leaf=_is_none) for each in every
    ]
    leaves, structure = flat[0]
    for more, other in flat[1:]:
        if structure != other or len(more) != len(leaves):
            break
        if any(one is not None and new is not None for one, new in zip(leaves, more, strict=True)):
            break
        leaves = [new if one is None else one for one, new in zip(leaves, more, strict=True)]
    else:
        return cast("T", structure.unflatten(leaves))
    return cast("T", _merge(every, (), tree))


def _merge(parts: Sequence[Any], path: Steps, root: Any) -> Any:
    """Join parts that differ in structure, or raise an error that names the place."""
    present = [part for part in parts if part is not None]
    if len(present) < 2:  # noqa: PLR2004  # a single one is the result
        return present[0] if present else None
    opened = [open_node(part) for part in present]
    if all(each is None for each in opened):
        one, other = map(got, present[:2])
        raise TreeError(
            f"{name_in(root, path)}: two trees have a leaf here: {one} and {other}\n"
            f"  fix: combine what lw.partition returned: a leaf in one is None in the others"
        )
    nodes = [each and each[0] for each in opened]
    for part, node in zip(present[1:], nodes[1:], strict=True):
        if reason := _difference(present[0], nodes[0], part, node):
            raise TreeError(f"{name_in(root, path)}: the trees differ: {reason}")
    steps = () if nodes[0] is None else nodes[0].steps
    columns = zip(*[each[1] for each in opened if each is not None], strict=True)
    pairs = zip(steps, columns, strict=True)
    return unflatten_one(
        present[0], [_merge(column, (*path, step), root) for step, column in pairs]
    )


def unflatten_one(value: Any, children: Sequence[Any]) -> Any:
    """Return a copy of a node with other children, without running a leafwise constructor."""
    is_child = functools.partial(operator.is_not, value)
    structure: Any = jax.tree_util.tree_structure(value, is_leaf=is_child)
    return structure.unflatten(children)


def _difference(one: Any, node: Node | None, other: Any, its: Node | None) -> str | None:
    """Return how two nodes differ, apart from their children, or None if they do not."""
    if node is None or its is None:
        leaf, tree = (one, its) if node is None else (other, node)
        name = tree.cls.__name__ if tree is not None else "leaf"
        return f"{got(leaf)} in one, a {name} in the other"
    if node.cls is not its.cls:
        return f"a {_named(node.cls)} in one, a {_named(its.cls)} in the other"
    if node.names == its.names:
        for name, mine, theirs in zip(node.names, node.values, its.values, strict=True):
            if jax_equal(mine, theirs) is not True or type(mine) is not type(theirs):
                field = f"{node.cls.__name__}{name}"
                return f"the static {field} is {shorten(mine)} in one, {shorten(theirs)} in another"
    if node.steps != its.steps:
        mine, theirs = (", ".join(each.steps) or "nothing" for each in (node, its))
        return f"one has {mine}, the other {theirs}"
    if jax_equal(node.aux, its.aux) is not True:
        return f"aux_data {shorten(node.aux)} in one, {shorten(its.aux)} in another"
    return None


def _named(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def mismatch(prefix: Any, tree: Any, root: Any, path: Steps = ()) -> str | None:
    """Return where and why `prefix` is not a prefix of `tree`, or None if it is."""
    mine, theirs = open_node(prefix), open_node(tree)
    if mine is None:
        return None
    if reason := _difference(prefix, mine[0], tree, theirs and theirs[0]):
        return f"{name_in(root, path)}: {reason}"
    pairs = zip(mine[0].steps, mine[1], theirs[1] if theirs is not None else (), strict=True)
    for step, part, whole in pairs:
        if not is_hash_node_type(type(part)):
            found = mismatch(part, whole, root, (*path, step))
            if found is not None:
                return found
    return None


NO_PATHS: Final[Mapping[Any, Any]] = MappingProxyType({})


def axes(tree: T, default: Any = None, /, paths: Mapping[Any, Any] = NO_PATHS, **fields: Any) -> T:
    """Return a tree for ``in_axes``, ``out_axes``, shardings or masks, with a tree's statics.

    JAX requires such a tree to have the same structure, static values included, or to be a
    prefix of it. This function returns one: an instance of the same class, with the statics of
    `tree` and other children. Leafwise constructors, converters and validators do not run.

    Args:
        tree: Any tree.
        default: The value of all children that are not named; each stands for a whole subtree.
        paths: Values deeper in the tree, by path: ``{"encoder.w": 0}``. The siblings along the
            path get `default`.
        **fields: Values for the fields of `tree`, by name.

    Returns:
        The tree.

    Raises:
        PathError: A name or path leads nowhere, or to a static value.
        TreeError: One path or name is part of another.
        TypeError: `paths` is not a mapping from paths.

    Examples:
        >>> axes({"w": 1.0, "b": 2.0}, paths={"['w']": 0})
        {'b': None, 'w': 0}
    """
    requests = [Request(name, (f".{name}",), value) for name, value in fields.items()]
    requests += requests_of(paths, "lw.axes")
    return cast("T", _axes(tree, requests, (), tree, default))


def _axes(value: Any, requests: Sequence[Request], path: Steps, tree: Any, default: Any) -> Any:
    if whole := whole_request(requests, len(path)):
        return whole.value
    if path and not requests:
        return default
    opened = open_node(value)
    group = functools.partial(group_by_part, requests, path, value, tree=tree, paths=_paths(tree))
    if opened is None:
        group(None)  # raises for any request
        return default
    node, children = opened
    try:
        places = group(node.steps, statics=node.names)
    except PathError:
        if default is None:  # no name would help
            _same_node(value, node, [None] * len(children), path, tree)
        raise
    made = [
        _axes(child, places.get(place, ()), (*path, node.steps[place]), tree, default)
        for place, child in enumerate(children)
    ]
    return _same_node(value, node, made, path, tree)


def _same_node(value: Any, node: Node, children: Sequence[Any], path: Steps, tree: Any) -> Any:
    """Return a node with other children; raise if that changes its steps, statics or aux_data."""
    made = unflatten_one(value, children)
    opened = None if node.is_keyed else open_node(made)
    reason = opened and _difference(value, node, made, opened[0])
    if reason:
        raise TreeError(
            f"{format_node(tree, path, node.cls)}, which flattens differently where a "
            f"child is None or a number: {reason}\n"
            f"  fix: make its flatten return children and aux_data that do not depend on values"
        )
    return made


def _paths(tree: Any) -> Iterator[Steps]:
    for path, _ in walk(FlatTree(tree).root):
        yield path
