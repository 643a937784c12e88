"""The pytree classes of this process: their specs, and the functions registered with JAX."""

import dataclasses
import difflib
import inspect
import os
import types
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import jax

from leafwise._classes import construct
from leafwise._classes.annotations import written_annotations
from leafwise._classes.codegen import Functions
from leafwise._classes.options import OPTIONS, FieldOptions
from leafwise._classes.refusals import native_base
from leafwise._classes.spec import MARK, ClassSpec, FieldSpec, is_decorated, is_static_metadata
from leafwise._objects.classes import (
    REDEFINED,
    ClassMap,
    declared_fields,
    is_a,
    is_tree_node,
    notify_registered,
)
from leafwise._objects.locks import new_lock
from leafwise._objects.source.code import STORING, find_by_name, is_redefinition
from leafwise._statics.key import StaticKey, key_of, table_of, verify
from leafwise.errors import DefinitionError

_SPECS: Final[ClassMap[ClassSpec]] = ClassMap()
_CHECKED: Final[ClassMap[Callable[..., None]]] = ClassMap()
"""The function that turns the checks at each flatten on and off, by class."""


def install(spec: ClassSpec) -> None:
    """Generate the class's functions and register it with JAX."""
    cls = spec.cls
    _SPECS[cls] = spec
    spec.table.set_owner(spec, spec_of)
    if not spec.static_names:
        spec.empty_key = key_of(spec.table, ())  # the table does not keep it alive
    functions = Functions(spec)
    jax.tree_util.register_pytree_with_keys(
        cls, functions.flatten_with_keys, functions.unflatten, functions.flatten
    )
    follow_checking(cls, functions.set_checked)
    notify_registered(cls)


def mark_redefined(cls: type) -> None:
    """Rename the class that a new definition replaces, as JAX prints types that differ."""
    older = find_by_name(cls.__module__, cls.__qualname__)
    if isinstance(older, type) and is_decorated(older) and is_redefinition(older, cls):
        older.__qualname__ = f"{cls.__qualname__} ({REDEFINED})"


def spec_of(cls: type) -> ClassSpec:
    """Return the spec of a decorated class."""
    # A class that was pickled by value (cloudpickle, ``__main__``) arrives decorated but not
    # registered with this process's JAX; it is registered here, before its first instance.
    spec = _SPECS.get(cls)
    if spec is None:
        construct.check_decorated(cls)
        _, many_statics = cls.__dict__[MARK]
        owner: Any = cls
        own_init = not owner.__init__.__code__.co_filename.startswith("<leafwise")
        spec = ClassSpec(cls, _fields_again(cls), has_own_init=own_init, many_statics=many_statics)
        install(spec)
    return spec


def _fields_again(cls: Any) -> tuple[FieldSpec, ...]:
    """Resolve the fields of a class that was decorated in another process."""
    missing = dataclasses.MISSING
    specs: list[FieldSpec] = []
    for definition in dataclasses.fields(cls):
        for name in ("default", "default_factory"):
            if isinstance(getattr(definition, name), type(missing)):
                # `dataclasses.MISSING` pickles by value, and arrives as another object.
                setattr(definition, name, missing)
        static = is_static_metadata(definition.metadata) is True
        options = definition.metadata.get(OPTIONS, FieldOptions())
        specs.append(FieldSpec(cls.__name__, definition.name, static, options, definition))
    return tuple(specs)


def follow_checking(cls: type, set_checked: Callable[..., None]) -> None:
    """Register the function with which `leafwise.debug.check_statics` switches a class."""
    with _CHECKING_LOCK:
        _CHECKED[cls] = set_checked
        if _checking:
            set_checked(checked=True)


_CHECKING_LOCK: Final = new_lock()
_checking: int = 0


def is_checking() -> bool:
    return _checking > 0


def set_checking(*, on: bool) -> None:
    """Turn `leafwise.debug.check_statics` on or off; calls nest."""
    global _checking  # noqa: PLW0603  # one switch for the process, as documented
    with _CHECKING_LOCK:
        _checking += 1 if on else -1
        if _checking == (1 if on else 0):
            for set_checked in _CHECKED.values():
                set_checked(checked=on)


if os.environ.get("LEAFWISE_CHECK_STATICS", "") not in ("", "0"):
    set_checking(on=True)


class Registered(NamedTuple):
    """The `StaticOwner` of a class that `leafwise.register` registered."""

    cls: type
    static_names: tuple[str, ...]
    dynamic_names: tuple[str, ...]


_REGISTERED: Final[ClassMap[Registered]] = ClassMap()


def registered_names(cls: type) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the static and the dynamic field names of a registered class, or None."""
    registered = _REGISTERED.get(cls)
    return None if registered is None else (registered.static_names, registered.dynamic_names)


def field_names(cls: type) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the static and dynamic field names of a class that leafwise flattens, or None."""
    if is_decorated(cls):
        spec = spec_of(cls)
        return spec.static_names, spec.dynamic_names
    return registered_names(cls)


def _already(cls: type) -> str:
    return (
        f"register({cls.__name__}): already registered as a pytree\n"
        f"  fix: leave lw.register out, or remove what registers it"
    )


def register_class(cls: Any, dynamic: tuple[str, ...], static: tuple[str, ...]) -> None:
    """Register `cls` with JAX; see `leafwise.register`."""
    _check_children(cls, dynamic, static)
    table = table_of(cls)
    owner = Registered(cls, static, dynamic)
    paths = [jax.tree_util.GetAttrKey(name) for name in dynamic]
    fields = getattr(cls, "_fields", None) if issubclass(cls, tuple) else None
    positions = None if fields is None else [(*dynamic, *static).index(name) for name in fields]

    def key(self: Any) -> StaticKey:
        static_key = key_of(table, tuple([getattr(self, name) for name in static]))
        if is_checking():
            verify(static_key)
        return static_key

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
        raise DefinitionError(_already(cls)) from error
    table.set_owner(owner)
    _REGISTERED[cls] = owner
    notify_registered(cls)


def _check_children(cls: Any, dynamic: tuple[str, ...], static: tuple[str, ...]) -> None:
    if not inspect.isclass(cls):
        raise DefinitionError(f"register takes a class, got {cls!r} ({type(cls).__name__})")
    name = cls.__name__
    names = [*dynamic, *static]
    twice = [field for field in names if names.count(field) > 1]
    if twice:
        raise DefinitionError(
            f"register({name}): {twice[0]!r} is given twice; it is either dynamic or static"
        )
    if is_tree_node(cls) and not issubclass(cls, tuple):
        raise DefinitionError(_already(cls))
    declared = declared_names(cls)
    if declared is not None and set(declared) != set(names):
        lost = [field for field in declared if field not in names]
        unknown = [field for field in names if field not in declared]
        detail = (
            f"{lost[0]!r} is neither dynamic nor static" if lost else f"no field {unknown[0]!r}"
        )
        raise DefinitionError(f"register({name}): {detail}; {name} has {', '.join(declared)}")
    members = [member for each in cls.__mro__ for member in vars(each).values()]
    codes = [getattr(member, "__code__", None) for member in members if declared is None]
    used = {name for code in codes for name in getattr(code, "co_names", ())}
    used.update(() if declared is not None else written_annotations(cls))
    used.update(each.__name__ for each in members if is_a(each, types.MemberDescriptorType))
    for field in names if used.isdisjoint(STORING) else ():  # else it may set any attribute
        # An attribute that only other code sets is accepted, unless it looks misspelled.
        near = difflib.get_close_matches(field, used.difference(names), 1)
        if near and field not in used and not hasattr(cls, field):
            raise DefinitionError(
                f"register({name}): {name} sets no attribute {field!r}\n  nearest: {near[0]!r}"
            )
    base = native_base(cls)
    is_plain = base is object or (base is tuple and hasattr(cls, "_fields"))
    if not is_plain or hasattr(cls, "__pydantic_fields__"):
        raise DefinitionError(
            f"register({name}): its instances keep their contents outside attributes\n"
            f"  fix: jax.tree_util.register_pytree_node"
        )


def declared_names(cls: Any) -> list[str] | None:
    if dataclasses.is_dataclass(cls) or hasattr(cls, "__attrs_attrs__"):
        return [field.name for field in declared_fields(cls)]
    return list(getattr(cls, "_fields", ())) if issubclass(cls, tuple) else None
