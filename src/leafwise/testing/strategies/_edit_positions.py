"""The positions in an instance where one value can be changed, and how to change it.

A child is replaced as JAX does it, by unflatten; a static as a user does it, by calling the
constructor with all other arguments unchanged. Attributes are never set: an instance that its
constructor would not make shows nothing about the class.
"""

import dataclasses
import enum
import functools
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, cast

import jax

from leafwise._objects.frozen import FrozenMapping
from leafwise._objects.interrupts import or_default
from leafwise._trees.combine import unflatten_one
from leafwise._trees.equality import is_distinct
from leafwise._trees.nodes import open_node
from leafwise._trees.roles import FieldNames, field_names_of, field_order
from leafwise._trees.update import Parts, copy_with_parts, parts_of
from leafwise.testing.strategies._constructor import Parameter, call, parameter_for
from leafwise.testing.strategies._leaves import same_leaf

Change = Callable[[Any], Any]
"""Takes a new part, and returns what contains it."""


class Role(enum.Enum):
    """What kind of value is at a position."""

    LEAF = enum.auto()
    STATIC = enum.auto()
    CONTAINER = enum.auto()


class EditPosition(NamedTuple):
    """A position: `make` rebuilds its node with a new value, `around` the whole instance."""

    path: str
    role: Role
    value: Any
    make: Change | None
    around: Change
    owner: Any = None  # the node that has it as the attribute `name`
    name: str = ""

    @property
    def parameter(self) -> Parameter | None:
        """The parameter of the owner's constructor for this value."""
        return parameter_for(type(self.owner), self.name) if self.name else None

    @or_default(None)  # a user's checks
    def put(self, new: Any) -> Any | None:
        """Return the whole instance with a new value here; None if its class refuses it."""
        return None if self.make is None else self.around(self.make(new))


def _itself(new: Any) -> Any:
    return new


def rebuilt(instance: Any) -> Any:
    """Return an instance as unflatten makes it, so that only the edit makes a difference."""
    # What a user's code raises here, the law `round-trip` reports.
    again = or_default(None)(jax.tree.map)(_itself, instance)
    return again if type(again) is type(instance) else instance


def argument_positions(arguments: Any, static: Container[str]) -> Iterator[EditPosition]:
    """Yield all positions in a call's arguments, a named tuple; `static` has the static ones."""
    for name in arguments._fields:
        value = getattr(arguments, name)

        def put(new: Any, name: str = name) -> Any:
            return arguments._replace(**{name: new})

        if name in static:
            yield from _static_positions(value, name, _itself, put)
        else:
            yield from edit_positions(value, name, put)


def is_below(path: str, paths: Iterable[str]) -> bool:
    return any(path == each or path.startswith((f"{each}.", f"{each}[")) for each in paths)


@or_default(list[EditPosition]())  # flatten may raise
def positions_of(tree: Any) -> list[EditPosition]:
    """Return the edit positions of a tree, or none if it cannot be flattened."""
    return list(edit_positions(tree))


def owner_at(tree: Any, path: str) -> Any:
    """Return the node with the last attribute on a path, or the tree itself without one."""
    named = [each for each in positions_of(tree) if each.name and is_below(path, [each.path])]
    return named[-1].owner if named else tree


def path_of(tree: Any, keys: Any, leaf: Any) -> str:
    """Return the path of a leaf, with attributes where JAX's keys are only child indices."""
    if any(isinstance(key, jax.tree_util.FlattenedIndexKey) for key in keys):
        for position in positions_of(tree):
            if position.role is Role.LEAF and position.value is leaf:
                return position.path
    return jax.tree_util.keystr(keys).lstrip(".")


_CONTAINERS: Final = (list, tuple, dict, type(None))


def edit_positions(
    value: Any,
    path: str = "",
    around: Change = _itself,
    owner: Any = None,
    name: str = "",
    *,
    arguments: dict[str, Any] | None = None,
) -> Iterator[EditPosition]:
    """Yield all positions in a pytree, outer ones first; `arguments` are those it was made from."""
    opened = open_node(value)
    cls: Any = type(value)
    role = Role.LEAF if opened is None else Role.CONTAINER if cls in _CONTAINERS else Role.STATIC
    if role is not Role.STATIC or isinstance(value, enum.Enum):  # a node, by `register_static`
        yield EditPosition(path, role, value, _itself, around, owner, name)
    if opened is None:
        return
    has_attributes = cls not in (*_CONTAINERS, jax.tree_util.Partial)
    names = field_names_of(value) if has_attributes else FieldNames((), ())
    node, children = opened
    for place, (step, child) in enumerate(zip(node.steps, children, strict=True)):

        def put(new: Any, place: int = place) -> Any:
            instance = unflatten_one(value, [*children[:place], new, *children[place + 1 :]])
            _check_kept(instance, place, new)
            return around(instance)

        name = _attribute_of(value, names.dynamic, children, place, step)
        where = f"{path}{f'.{name}' if name else step}".lstrip(".")
        yield from edit_positions(child, where, put, value, name)
    arguments = (_arguments_of(value, names.static) or arguments or {}) if names.static else {}
    for name in names.static:
        parameter = parameter_for(cls, name) if arguments else None
        make = functools.partial(_remake, cls, arguments, parameter.name) if parameter else None
        where = f"{path}.{name}".lstrip(".")
        yield from _static_positions(getattr(value, name), where, make, around, value, name)


def _check_kept(made: Any, place: int, new: Any) -> None:
    """Raise if a class converted a child that it was given, as a constructor may."""
    opened = open_node(made)
    kept = opened and opened[1][place]
    structures: list[Any] = [jax.tree_util.tree_structure(tree) for tree in (kept, new)]
    if kept is not new and structures[0] != structures[1]:
        raise ValueError


def _attribute_of(
    value: Any, names: tuple[str, ...], children: Sequence[Any], place: int, step: str
) -> str:
    """Return the attribute that has a child as its value, or an empty text."""
    for name in (step.removeprefix("."), *names[place : place + 1], *names):
        if name in names and getattr(value, name, None) is children[place]:
            return str(name)
    return names[place] if len(names) == len(children) else ""  # flatten converted it


@or_default(None)  # a user's constructor
def _arguments_of(instance: Any, static: tuple[str, ...]) -> dict[str, Any]:
    """Return the attributes from which the constructor recreates an instance, or an empty dict."""
    cls: Any = type(instance)
    named = ((parameter_for(cls, name), name) for name in field_order(instance))
    arguments = {param.name: getattr(instance, name) for param, name in named if param}
    again = call(cls, arguments)
    if any(is_distinct(getattr(instance, name), getattr(again, name)) for name in static):
        return {}
    leaves, others = map(jax.tree_util.tree_leaves, (instance, again))
    return arguments if len(leaves) == len(others) and all(map(same_leaf, leaves, others)) else {}


def _remake(cls: Any, arguments: dict[str, Any], name: str, new: Any) -> Any:
    return call(cls, {**arguments, name: new})


def _static_positions(
    value: Any, path: str, make: Change | None, around: Change, *owner_and_name: Any
) -> Iterator[EditPosition]:
    """Yield the position of a static, and those inside it."""
    yield EditPosition(path, Role.STATIC, value, make, around, *owner_and_name)
    is_record = dataclasses.is_dataclass(value) and not isinstance(value, type)
    is_container = isinstance(value, tuple | dict | FrozenMapping | functools.partial)
    parts = parts_of(value) if is_record or is_container else None
    for step, part in zip(parts.steps, parts.values, strict=True) if parts else ():

        def replace(new: Any, step: str = step) -> Any:
            if is_record:
                changed = dataclasses.replace(cast("Any", value), **{step.removeprefix("."): new})
            else:
                changed = copy_with_parts(value, cast("Parts", parts), {step: new})
            return cast("Change", make)(changed)

        yield from _static_positions(part, path + step, make and replace, around)
