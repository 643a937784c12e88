"""`leafwise.register`: classes that one does not own."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import jax

from leafwise._classes.registry import is_checking
from leafwise._objects.class_map import ClassMap
from leafwise._objects.classes import announce
from leafwise._statics.key import StaticKey, key_of, table_of, verify
from leafwise.errors import DefinitionError


@dataclasses.dataclass(frozen=True, slots=True)
class Registered:
    """What a key knows of a registered class."""

    cls: type
    static_names: tuple[str, ...]
    dynamic_names: tuple[str, ...]
    note: str = ""
    spread: Callable[[tuple[Any, ...]], object] | None = None


_REGISTERED: Final[ClassMap[Registered]] = ClassMap()


def registered_names(cls: type) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the static and the dynamic names of a registered class, or None."""
    registered = _REGISTERED.get(cls)
    return None if registered is None else (registered.static_names, registered.dynamic_names)


_ALREADY: Final = "register({}): already registered as a pytree"


def register_class(cls: Any, dynamic: tuple[str, ...], static: tuple[str, ...]) -> None:
    """Register `cls` with JAX; see `leafwise.register`."""
    _check(cls, dynamic, static)
    table = table_of(cls)
    owner = Registered(cls, static, dynamic)
    paths = [jax.tree_util.GetAttrKey(name) for name in dynamic]
    positions = _namedtuple_positions(cls, dynamic, static)

    def key(self: Any) -> StaticKey:
        found = key_of(table, tuple([getattr(self, name) for name in static]))
        if is_checking():
            verify(found)
        return found

    def flatten(self: Any) -> tuple[tuple[Any, ...], StaticKey]:
        return tuple([getattr(self, name) for name in dynamic]), key(self)

    def flatten_with_keys(self: Any) -> tuple[tuple[Any, ...], StaticKey]:
        children, aux = flatten(self)
        return tuple(zip(paths, children, strict=True)), aux

    def unflatten(aux: StaticKey, children: Iterable[Any]) -> Any:
        values = (*children, *aux.values)
        if positions is not None:
            return tuple.__new__(cls, [values[position] for position in positions])
        self = object.__new__(cls)
        for name, value in zip((*dynamic, *static), values, strict=True):
            object.__setattr__(self, name, value)
        return self

    try:
        jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    except ValueError as error:
        raise DefinitionError(_ALREADY.format(cls.__name__)) from error
    table.set_owner(owner)
    _REGISTERED[cls] = owner
    announce(cls)


def _namedtuple_positions(
    cls: Any, dynamic: tuple[str, ...], static: tuple[str, ...]
) -> list[int] | None:
    fields = getattr(cls, "_fields", None)
    if not issubclass(cls, tuple) or fields is None:
        return None
    return [(*dynamic, *static).index(name) for name in fields]


def _check(cls: Any, dynamic: tuple[str, ...], static: tuple[str, ...]) -> None:
    if not inspect.isclass(cls):
        msg = f"register takes a class, got {cls!r} ({type(cls).__name__})"
        raise DefinitionError(msg)
    name = cls.__name__
    names = [*dynamic, *static]
    for given in names:
        if not isinstance(cast("object", given), str) or not given.isidentifier():
            msg = f"register({name}): {given!r} is not the name of an attribute"
            raise DefinitionError(msg)
    twice = [given for given in names if names.count(given) > 1]
    if twice:
        msg = f"register({name}): {twice[0]!r} is given twice; it is either dynamic or static"
        raise DefinitionError(msg)
    if jax.tree_util.is_tree_node(cls) and not issubclass(cls, tuple):
        raise DefinitionError(_ALREADY.format(name))
    declared = _declared(cls)
    if declared is not None and set(declared) != set(names):
        lost = [field for field in declared if field not in names]
        unknown = [given for given in names if given not in declared]
        detail = (
            f"{lost[0]!r} is neither dynamic nor static" if lost else f"no field {unknown[0]!r}"
        )
        msg = f"register({name}): {detail}; {name} has {', '.join(declared)}"
        raise DefinitionError(msg)
    is_namedtuple = issubclass(cls, tuple) and hasattr(cls, "_fields")
    if not is_namedtuple and not (cls.__flags__ & (1 << 9) and cls.__new__ is object.__new__):
        solid = next((b for b in cls.__mro__ if not b.__flags__ & (1 << 9)), object)
        if solid is not object:
            msg = (
                f"register({name}): a {solid.__name__} keeps its content outside of "
                f"attributes\n  fix: jax.tree_util.register_pytree_node"
            )
            raise DefinitionError(msg)


def _declared(cls: Any) -> list[str] | None:
    """Return all fields of a class that declares them, or None."""
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    if issubclass(cls, tuple):
        return list(getattr(cls, "_fields", ()))
    attributes = getattr(cls, "__attrs_attrs__", None)
    return None if attributes is None else [attribute.name for attribute in attributes]
