"""The fields of a registered class, and instances that differ in one of them."""

import dataclasses
from typing import Any

from leafwise._instance import rebuild
from leafwise._register import registered_names
from leafwise._registry import spec_of
from leafwise._spec import FieldSpec, is_decorated


def names_of(cls: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the static and of the dynamic fields of a class."""
    registered = registered_names(cls)
    if registered is not None:
        return registered
    spec = spec_of(cls)
    return spec.static_names, spec.dynamic_names


def field_order(cls: Any) -> list[str]:
    """Return the fields in order of declaration."""
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    static, dynamic = names_of(cls)
    return [*dynamic, *static]


def exchange(base: Any, name: str, value: Any) -> Any:
    """Return the instance with one field exchanged; its constructor does not run.

    A constructor may compute other fields from this one: these stay as they are, since
    a retrace must be due to this field alone.
    """
    cls = type(base)
    static, dynamic = names_of(cls)
    values = {each: getattr(base, each) for each in (*dynamic, *static)} | {name: value}
    if is_decorated(cls):
        return rebuild(cls, values)
    if issubclass(cls, tuple):
        return base._replace(**{name: value})
    made = object.__new__(cls)
    for each, stored in values.items():
        object.__setattr__(made, each, stored)
    return made


def prepared_by(cls: Any, name: str) -> FieldSpec | None:
    """Return the field, if its own converter and check alone decide what is stored."""
    if not is_decorated(cls):
        return None
    spec = spec_of(cls)
    if spec.has_own_init or hasattr(cls, "__post_init__"):
        return None
    return next((field for field in spec.fields if field.name == name), None)


def stored_value(made: Any, name: str, given: Any) -> Any:
    """Return what a class has made of an argument.

    It is read from the instance, whose statics stand behind the key, only where a
    constructor of the user's could have changed it: the key is what is under test.
    """
    field = prepared_by(type(made), name)
    return getattr(made, name) if field is None else field.prepare(given)
