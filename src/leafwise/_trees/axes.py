"""`axes`: trees for in_axes, shardings and masks, with the statics of a tree."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar

from leafwise._trees.combine import unflatten_one
from leafwise._trees.nodes import Node, only_spreads, open_node
from leafwise._trees.paths import Steps
from leafwise._trees.requests import Request, by_place, nowhere, only, requests_of

T = TypeVar("T")

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


def axes(tree: T, default: Any = None, /, paths: Mapping[Any, Any] = _NONE, **fields: Any) -> T:
    """Return a tree for ``in_axes``, ``out_axes``, shardings or masks, with a tree's statics.

    JAX wants such a tree to be of the same structure, static values included, or a prefix of
    it. This one is: an instance of the same class, with the statics of `tree` and other
    children; no constructor, converter or check of a leafwise class runs.

    Args:
        tree: Any tree.
        default: What all children get that are not named; each stands for a whole subtree.
        paths: What is deeper in the tree, by path: ``{"encoder.w": 0}``. The siblings on the
            way get `default`.
        **fields: What the fields of `tree` get, by name.

    Returns:
        The tree.

    Raises:
        PathError: A name or path leads nowhere, or to a static value.
        TreeError: Two of them meet.
        TypeError: `paths` is no mapping from paths.

    Example:
        >>> axes({"w": 1.0, "b": 2.0}, paths={"['w']": 0})
        {'b': None, 'w': 0}
    """
    requests = [Request(name, (f".{name}",), value) for name, value in fields.items()]
    requests += requests_of(paths, "lw.axes")
    made: T = _axes(tree, requests, (), tree, default)
    return made


def _axes(value: Any, requests: Sequence[Request], path: Steps, tree: Any, default: Any) -> Any:
    whole = only(requests, len(path))
    if whole is not None:
        return whole.value
    if path and not requests:
        return default
    opened = open_node(value)
    if opened is None and not requests:
        return default
    node, children = opened if opened is not None else (None, ())
    steps = () if node is None else node.steps

    def lost(request: Request) -> Exception:
        there = None if node is None else _shown(node, children)
        step, why = request.steps[len(path)], ""
        if node is not None and step in node.names:
            why = f"{type(value).__name__}{step} is static: it is copied from the tree"
        return nowhere(
            request, path, value, steps=there, tree=tree, paths=lambda: _paths(tree), why=why
        )

    places = by_place(requests, len(path), steps, lost)
    made = [
        _axes(child, places.get(place, ()), (*path, steps[place]), tree, default)
        for place, child in enumerate(children)
    ]
    return unflatten_one(value, made)


def _shown(node: Node, children: Sequence[Any]) -> list[str]:
    pairs = zip(node.steps, children, strict=True)
    return [step for step, child in pairs if not only_spreads(type(child))]


def _paths(tree: Any) -> Iterator[Steps]:
    """Yield the paths to all nodes and leaves, outer ones first."""
    todo: list[tuple[Steps, Any]] = [((), tree)]
    for path, value in todo:  # which grows
        yield path
        opened = open_node(value)
        if opened is not None:
            node, children = opened
            pairs = zip(node.steps, children, strict=True)
            todo += [((*path, step), part) for step, part in pairs if not only_spreads(type(part))]
