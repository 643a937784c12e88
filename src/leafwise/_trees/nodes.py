"""The nodes of a pytree: their classes, their statics by name, and the steps to children."""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Any, Final

import jax

from leafwise._classes.foreign import key_in
from leafwise._classes.options import By
from leafwise._objects.attributes import instance_with
from leafwise._objects.interrupts import or_default
from leafwise._objects.locks import cached_property
from leafwise._objects.stand_ins import MISSING
from leafwise._statics.key import StaticKey, content_names
from leafwise._trees.leaves import LEAF_TYPES
from leafwise._trees.paths import Steps, field_name, name_in, step_of

_REGISTRY: Final = jax.tree_util.default_registry

Statics = tuple[tuple[str, ...], tuple[Any, ...]]
"""The names of statics, and their values."""


class Node:
    """One node of a pytree, without the values of its leaves."""

    __slots__ = (
        *("_keys", "_names", "_steps", "aux", "children", "cls", "data", "start", "stop", "values"),
    )

    def __init__(  # noqa: PLR0917  # made for each node: positions are faster
        self,
        cls: type,
        aux: Any,
        statics: Statics | None,
        keys: Sequence[Any],
        children: list["Node | int"],
        start: int,
        stop: int,
        data: dict[str, Any] | None = None,
    ) -> None:
        self.cls = cls
        self.aux = aux  # JAX compares it with `!=`
        self.data = {} if data is None else data  # by the next step of a path
        self._names = None if statics is None else statics[0]
        self.values: tuple[Any, ...] = aux.values if statics is None else statics[1]
        self._keys = keys
        self._steps: tuple[str, ...] | None = None
        self.children = children  # nodes, or the indices of leaves in the whole tree
        self.start = start  # the index of its first leaf
        self.stop = stop  # one past the index of its last leaf

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its statics, each the next step of a path: ``.n``."""
        if self._names is None:
            self._names = tuple(f".{name}" for name in self.aux.owner.static_names)
        return self._names

    @property
    def steps(self) -> tuple[str, ...]:
        """The next step of the path to each child: ``.a``, ``[0]``, ``['k']``."""
        if self._steps is None:
            self._steps = tuple([step_of(key) for key in self._keys])
        return self._steps

    @property
    def names_children(self) -> bool:
        """Whether JAX or the class has names for its children."""
        return not any(isinstance(key, jax.tree_util.FlattenedIndexKey) for key in self._keys)

    @property
    def is_keyed(self) -> bool:
        """Whether its aux_data is a leafwise key, which also compares types."""
        return isinstance(self.aux, StaticKey)

    def compared_by(self, name: str) -> By | None:
        """Return how functions in a static are compared, or None without a leafwise key."""
        if not self.is_keyed:
            return None
        return "content" if name[1:] in content_names(self.aux.owner) else "identity"

    def is_hash_node(self, place: int) -> bool:
        """Return whether a child only carries bits of the statics (``many_statics=True``)."""
        child = self.children[place]
        return isinstance(child, Node) and is_hash_node_type(child.cls)


def is_hash_node_type(cls: type) -> bool:
    """Return whether nodes of a class only carry bits of their parent's statics."""
    return cls.__module__ == "leafwise._statics.hash_nodes"


def walk(root: Node | int) -> Iterator[tuple[Steps, Node | int]]:
    """Yield all nodes and leaves with their paths, outer ones first."""
    todo: list[tuple[Steps, Node | int]] = [((), root)]
    while todo:
        path, part = todo.pop()
        yield path, part
        if isinstance(part, Node):
            todo += [
                ((*path, part.steps[place]), child)
                for place, child in enumerate(part.children)
                if not part.is_hash_node(place)
            ][::-1]


class FlatTree:
    """A flattened tree: its leaves and, on demand, its nodes and paths."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree
        flat: tuple[list[Any], Any] = jax.tree_util.tree_flatten(tree)
        self.leaves, self.treedef = flat

    @cached_property
    def root(self) -> Node | int:
        """The tree as nodes and indices of leaves."""
        return TreeWalk(lambda leaf: leaf).node_or_leaf(self.tree)

    @cached_property
    def paths(self) -> list[Steps]:
        return [path for path, part in walk(self.root) if isinstance(part, int)]

    def name_of(self, leaf: int) -> str:
        """Return the name of a leaf by its index: ``Model.encoder.w``."""
        return name_in(self.tree, self.paths[leaf])


class TreeWalk:
    """A walk over trees that collects their leaves."""

    def __init__(self, record: Callable[[Any], Any], plain: AbstractSet[type] = LEAF_TYPES) -> None:
        self.leaves: list[Any] = []
        self._record = record
        self._plain = plain

    def node_or_leaf(self, value: Any) -> Node | int:
        """Walk one subtree and return its node, or the index of a leaf."""
        leaves, plain, found = self.leaves, self._plain, list[Node | int]()
        todo: list[tuple[Any, list[Node | int] | None]] = [(value, found)]
        while todo:  # no recursion: JAX takes trees of thousands of levels
            part, siblings = todo.pop()
            if siblings is None:  # a node, after everything in it
                part.stop = len(leaves)
                continue
            is_plain = type(part) in plain
            level: Any = None if is_plain else _REGISTRY.flatten_one_level_with_keys(part)
            if level is None:
                siblings.append(len(leaves))
                leaves.append(self._record(part))
                continue
            pairs, aux = level
            node = _node(part, pairs, aux, len(leaves))
            siblings.append(node)
            todo.append((node, None))
            todo += [(child, node.children) for _, child in pairs][::-1]
        return found[0]


def open_node(value: Any) -> tuple[Node, Sequence[Any]] | None:
    """Return a value's own node and the values of its children, or None for a leaf."""
    level: Any = _REGISTRY.flatten_one_level_with_keys(value)
    if level is None:
        return None
    pairs, aux = level
    return _node(value, pairs, aux, 0), [child for _, child in pairs]


def _node(value: Any, pairs: Sequence[tuple[Any, Any]], aux: Any, start: int) -> Node:
    """Return the node of a value, to which its children are still to be added."""
    cls: type = type(value)
    key = aux if isinstance(aux, StaticKey) else key_in(value)
    if key is not None:
        keys: Sequence[Any] = [each for each, _ in pairs]
        return Node(cls, key, None, keys, [], start, start)
    keys = _keys_of(value, cls, pairs)
    statics = _statics_of(value, cls, aux, keys)
    data = _named_data(value, aux) if statics is _NOTHING else None
    return Node(cls, aux, statics, keys, [], start, start, data)


def _named_data(value: Any, aux: Any) -> dict[str, Any] | None:
    """Return statics by name if aux_data lists them after their names, as in flax.nnx."""
    # `(("w",), ("act", "n"), ("tanh", 3))`: names of children, names of statics, the statics
    own: Any = getattr(value, "__dict__", {})
    parts = [part for part in aux if isinstance(part, tuple)] if isinstance(aux, tuple) else []
    for names, items in pairwise(parts):
        data = dict(zip(map(str, names), items, strict=False))
        if data and all(own.get(name, MISSING) is item for name, item in data.items()):
            return {f".{name}": item for name, item in data.items()}
    return None


def _keys_of(value: Any, cls: type, pairs: Sequence[tuple[Any, Any]]) -> Sequence[Any]:
    """Return JAX's keys of the children, or steps as strings where JAX has no names."""
    keys: list[Any] = [key for key, _ in pairs]
    fields = getattr(cls, "_fields", None)
    if fields is not None and issubclass(cls, tuple) and len(fields) == len(pairs):
        # Before 0.11 JAX names every child of a namedtuple after the first.
        return [f".{name}" for name in fields]
    if cls is jax.tree_util.Partial:
        return [".args", ".keywords"]
    if keys and type(keys[0]) is jax.tree_util.FlattenedIndexKey:
        return _child_names(value, [child for _, child in pairs]) or keys
    return keys


@or_default(list[str]())  # a flatten that computes, so names cannot be found
def _child_names(instance: Any, children: list[Any]) -> list[str]:
    """Return the steps to children that were registered without names, if they can be found."""
    # A copy, made without the constructor, gets a new object in each attribute that is a child, to
    # be found among its children. The names are those of one instance: another of its class may
    # have other attributes, or flatten them in another order.
    cls: Any = type(instance)
    is_dataclass, ids = dataclasses.is_dataclass(cls), set(map(id, children))
    fields = [it.name for it in dataclasses.fields(cls)] if is_dataclass else vars(instance)
    values = {field: getattr(instance, field) for field in fields}
    objects = {field: object() for field, value in values.items() if id(value) in ids}
    steps = {id(item): f".{field}" for field, item in objects.items()}
    flat, _ = _REGISTRY.flatten_one_level(instance_with(cls, values | objects))
    names = [steps[id(child)] for child in flat]
    return names if len(names) == len(children) else []


_NOTHING: Final[Statics] = ((), ())


def _statics_of(value: Any, cls: type, aux: Any, keys: Sequence[Any]) -> Statics:
    """Return the statics of a node by name, where names can be found."""
    if aux is None or cls is dict:
        return _NOTHING
    if dataclasses.is_dataclass(cls):
        children = {field_name(step_of(key)) for key in keys}
        fields = () if None in children else dataclasses.fields(cls)
        names = [field.name for field in fields if field.name not in children]
        pairs = [(name, getattr(value, name, MISSING)) for name in names]
        found = [(f".{name}", item) for name, item in pairs if item is not MISSING]
        return tuple(name for name, _ in found), tuple(item for _, item in found)
    if cls is jax.tree_util.Partial:
        return (".func",), (aux,)
    if cls is defaultdict:
        return (".default_factory",), (aux[0],)
    return _NOTHING
