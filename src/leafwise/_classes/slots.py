"""A copy of a class, with ``__slots__``."""

import types
from typing import Any

_DROPPED = ("__dict__", "__weakref__")


def with_slots(cls: type, fields: list[str], hidden: tuple[str, ...]) -> Any:
    """Return a copy of a class whose fields live in slots, as `dataclasses` makes one.

    Unlike in `dataclasses`, zero-argument ``super()`` and ``__class__`` keep working in its
    methods. ``__init_subclass__`` runs a second time, without the class's keywords.

    Args:
        cls: The class.
        fields: The names of the fields that get slots; its own ``__slots__`` stay.
        hidden: The names of further slots.
    """
    bases = cls.__mro__[1:]
    nearest = {name: value for base in reversed(bases) for name, value in vars(base).items()}
    inherited = {
        name
        for base in bases
        for name in _slots_of(base)
        if isinstance(nearest.get(name), types.MemberDescriptorType | None)  # else it is hidden
    }
    declared = _slots_of(cls)
    wanted = dict.fromkeys((*declared, *fields, *hidden, "__weakref__"))
    has_weakref = any(base.__weakrefoffset__ for base in bases)
    slots = tuple(
        name
        for name in wanted
        if name not in inherited and not (name == "__weakref__" and has_weakref)
    )
    namespace = {
        name: value
        for name, value in cls.__dict__.items()
        if name not in fields and name not in declared and name not in _DROPPED
    }
    namespace["__slots__"] = slots
    qualname = cls.__qualname__
    made = type(cls)(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = qualname
    for value in namespace.values():
        _point_to(value, cls, made)
    return made


def _slots_of(base: type) -> tuple[str, ...]:
    slots = base.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _point_to(value: Any, old: type, new: type) -> None:
    """Let the ``__class__`` cell of a method refer to the new class."""
    functions = [value]
    if isinstance(value, property):
        functions = [value.fget, value.fset, value.fdel]
    for function in functions:
        function = getattr(function, "__func__", function)  # noqa: PLW2901  # class, static
        function = getattr(function, "func", function)  # noqa: PLW2901  # cached_property
        while isinstance(function, types.FunctionType):
            _point_cells(function, old, new)
            function = getattr(function, "__wrapped__", None)  # noqa: PLW2901  # decorated


def _point_cells(function: types.FunctionType, old: type, new: type) -> None:
    for cell in function.__closure__ or ():
        try:
            if cell.cell_contents is old:
                cell.cell_contents = new
        except ValueError:  # not bound yet
            continue
