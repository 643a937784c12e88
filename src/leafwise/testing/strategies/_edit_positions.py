"""The positions in an instance where one thing can be changed, and changing it there."""

import contextlib
import dataclasses
import enum
import functools
from collections.abc import Callable, Container, Iterable, Iterator
from enum import Enum, auto
from typing import Any, Final, NamedTuple

import jax

from leafwise._classes.spec import is_decorated
from leafwise._objects.frozen import FrozenMapping
from leafwise._trees.roles import Names, exchange, field_order, names_of, prepared_by

_REGISTRY: Final = jax.tree_util.default_registry
_DEEPEST: Final = 30

Put = Callable[[Any], Any]
"""Takes a value for a position, and returns the whole instance with it."""


class Role(Enum):
    """What is at a position."""

    LEAF = auto()
    STATIC = auto()
    CONTAINER = auto()


class EditPosition(NamedTuple):
    """One position in an instance.

    Attributes:
        path: Its path: ``layers[0].w``.
        role: What is there.
        value: The value there.
        put: Returns the whole instance with another value there.
        holder: The class whose attribute it is, if it is one.
        name: The attribute's name; empty if it is none.
    """

    path: str
    role: Role
    value: Any
    put: Put
    holder: type | None = None
    name: str = ""


def edit_positions(tree: Any, towards: str = "") -> Iterator[EditPosition]:
    """Yield all positions of a pytree, outer ones first: leaves, statics and containers.

    Args:
        tree: The pytree.
        towards: A path: other attributes of the pytree than the one on the way need not come.
    """
    yield from _positions(tree, "", lambda new: new, (None, ""), _DEEPEST, towards)


def is_below(path: str, paths: Iterable[str]) -> bool:
    """Return whether a path is one of others, or below one."""
    return any(path == each or path.startswith((f"{each}.", f"{each}[")) for each in paths)


def owner_at(tree: Any, path: str) -> type | None:
    """Return the class of the node whose attribute a path leads to, or leads through last."""
    try:
        above = [
            position
            for position in edit_positions(tree)
            if position.holder and is_below(path, [position.path])
        ]
    except Exception:  # noqa: BLE001  # a flatten that is at fault
        return None
    return max(above, key=lambda position: len(position.path)).holder if above else None


def path_of(tree: Any, keys: Any, leaf: Any) -> str:
    """Return the path of a leaf by attributes, where JAX's key path has only numbers of children.

    Args:
        tree: The pytree.
        keys: The key path of the leaf.
        leaf: The leaf; of one that is there twice, the first is named.
    """
    if any(isinstance(key, jax.tree_util.FlattenedIndexKey) for key in keys):
        with contextlib.suppress(Exception):  # a flatten that is at fault
            for position in edit_positions(tree):
                if position.role is Role.LEAF and position.value is leaf:
                    return position.path
    return jax.tree_util.keystr(keys).lstrip(".")


def argument_positions(arguments: Any, static: Container[str]) -> Iterator[EditPosition]:
    """Yield all positions in a call's arguments.

    Args:
        arguments: A namedtuple of them.
        static: The names of those that are static.
    """
    for name in arguments._fields:
        put = functools.partial(_put_argument, arguments, name)
        walk = _static_positions if name in static else _positions
        yield from walk(getattr(arguments, name), name, put, (None, ""), _DEEPEST)


def _put_argument(arguments: Any, name: str, new: Any) -> Any:
    return arguments._replace(**{name: new})


_Owner = tuple[type | None, str]


def _positions(  # noqa: PLR0917  # it is its own caller
    value: Any, path: str, put: Put, owner: _Owner, depth: int, towards: str = ""
) -> Iterator[EditPosition]:
    level: Any = _REGISTRY.flatten_one_level_with_keys(value)
    if level is None:
        yield EditPosition(path, Role.LEAF, value, put, *owner)
        return
    if type(value) in (list, tuple, dict, type(None)):
        yield EditPosition(path, Role.CONTAINER, value, put, *owner)
    if isinstance(value, enum.Enum):  # `register_static` makes a node of it
        yield EditPosition(path, Role.STATIC, value, put, *owner)
    if not depth:
        return
    names = names_of(value) if not isinstance(value, _CONTAINERS) else Names((), ())
    if not names.dynamic:
        yield from _children(value, level[0], path, put, depth)
    for name in field_order(value):
        where = f"{path}.{name}".lstrip(".")
        is_aside = towards and not is_below(towards, [where])
        if is_aside or (name not in names.static and name not in names.dynamic):
            continue
        owner = (type(value), name)
        inner = functools.partial(_put_attribute, put, value, name)
        held = getattr(value, name)
        if name in names.static:
            inner = functools.partial(_put_converted, inner, type(value), name)
            yield from _static_positions(held, where, inner, owner, depth - 1)
        else:
            yield from _positions(held, where, inner, owner, depth - 1)


_CONTAINERS: Final = (list, tuple, dict, type(None), jax.tree_util.Partial)
"""Nodes whose children are not attributes."""


def _children(value: Any, pairs: Any, path: str, put: Put, depth: int) -> Iterator[EditPosition]:
    """Yield the positions in a node whose children are not attributes."""
    structure: Any = jax.tree_util.tree_structure(value, is_leaf=lambda part: part is not value)
    children = [child for _, child in pairs]
    for place, (key, child) in enumerate(pairs):
        where = f"{path}{_step(value, key, place)}".lstrip(".")
        inner = functools.partial(_put_child, put, structure, children, place)
        yield from _positions(child, where, inner, (None, ""), depth - 1)


def _step(value: Any, key: Any, place: int) -> str:
    fields = getattr(value, "_fields", None)
    if isinstance(value, tuple) and fields is not None:  # JAX 0.10 names all after the first
        return f".{fields[place]}"
    return jax.tree_util.keystr((key,))


def _put_attribute(put: Put, holder: Any, name: str, new: Any) -> Any:
    field = prepared_by(type(holder), name)
    return put(exchange(holder, name, new if field is None else field.prepare(new)))


def _put_converted(put: Put, cls: type, name: str, new: Any) -> Any:
    """Put what a converter of equinox makes of a static: no instance holds anything else."""
    fields: dict[str, Any] = {} if is_decorated(cls) else getattr(cls, "__dataclass_fields__", {})
    converter = fields[name].metadata.get("converter") if name in fields else None
    return put(new if converter is None else converter(new))


def _put_child(put: Put, structure: Any, children: list[Any], place: int, new: Any) -> Any:
    return put(structure.unflatten([*children[:place], new, *children[place + 1 :]]))


def _static_positions(
    value: Any, path: str, put: Put, owner: _Owner, depth: int
) -> Iterator[EditPosition]:
    """Yield a static, and the statics inside it."""
    yield EditPosition(path, Role.STATIC, value, put, *owner)
    if not depth:
        return
    for step, part, change in _parts(value):
        inner = functools.partial(_put_part, put, change)
        yield from _static_positions(part, path + step, inner, (None, ""), depth - 1)


def _put_part(put: Put, change: Put, new: Any) -> Any:
    return put(change(new))


def _parts(value: Any) -> Iterator[tuple[str, Any, Put]]:
    """Yield the parts of a static: the step to each, the part, and what exchanges it."""
    kind: Any = type(value)
    if issubclass(kind, tuple) and (kind is tuple or hasattr(kind, "_make")):
        names = getattr(kind, "_fields", None)
        for place, item in enumerate(value):
            step = f"[{place}]" if names is None else f".{names[place]}"
            yield step, item, functools.partial(_with_item, value, place)
    elif kind is FrozenMapping:
        for key, item in value.items():
            yield f"[{key!r}]", item, functools.partial(_with_entry, value, key)
    elif kind is functools.partial:
        arguments = [*enumerate(value.args), *value.keywords.items()]
        for key, item in arguments:
            where = "args" if isinstance(key, int) else "keywords"
            yield f".{where}[{key!r}]", item, functools.partial(_with_argument, value, key)
    elif dataclasses.is_dataclass(kind) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        for name in filter(functools.partial(hasattr, value), names):
            yield f".{name}", getattr(value, name), functools.partial(_with_field, value, name)


def _with_item(value: Any, place: int, new: Any) -> Any:
    items = [*value[:place], new, *value[place + 1 :]]
    return tuple(items) if type(value) is tuple else type(value)._make(items)


def _with_entry(value: Any, key: Any, new: Any) -> Any:
    return FrozenMapping({**value, key: new})


def _with_argument(value: Any, key: Any, new: Any) -> Any:
    if isinstance(key, int):
        arguments = (*value.args[:key], new, *value.args[key + 1 :])
        return functools.partial(value.func, *arguments, **value.keywords)
    return functools.partial(value.func, *value.args, **{**value.keywords, key: new})


def _with_field(value: Any, name: str, new: Any) -> Any:
    try:  # its constructor first: it may keep more than its fields, a hash for one
        return dataclasses.replace(value, **{name: new})
    except Exception:  # noqa: BLE001  # the user's own code; a field that is not init
        return exchange(value, name, new)
