"""The attributes of an object as it holds them, found without running code of the user's."""

import functools
import types
from typing import Any

from leafwise._objects.attributes import in_class, own_attributes
from leafwise._objects.content_names import ABSENT


def held_by(value: Any) -> dict[str, Any]:
    """Return the attributes of an object; none of a dict that is its own attributes."""
    found = own_attributes(value)
    if isinstance(value, dict) and len(found) == len(value) and vars(value) is value:
        return {}
    # What a cached_property has stored was there before, only not yet asked for.
    return {
        name: item
        for name, item in found
        if not isinstance(in_class(type(value), name), functools.cached_property)
    }


def state(value: Any) -> list[Any]:
    held = sorted(held_by(value).items(), key=lambda pair: str(pair[0]))
    return [*[name for name, _ in held], *[item for _, item in held]]


def state_steps(value: Any) -> tuple[str, ...]:
    names = sorted(map(str, held_by(value)))
    return (*[""] * len(names), *[f".{name}" for name in names])


def dict_of(value: Any) -> dict[str, Any]:
    try:
        own: Any = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return own if type(own) is dict else {}


def slots_of(kind: type) -> dict[str, types.MemberDescriptorType]:
    found: dict[str, types.MemberDescriptorType] = {}
    for base in kind.__mro__:
        for name, raw in vars(base).items():
            if isinstance(raw, types.MemberDescriptorType) and "__slots__" in vars(base):
                found.setdefault(name, raw)
    return found


def dict_and_slots(slots: dict[str, types.MemberDescriptorType], value: Any) -> list[Any]:
    own = dict_of(value)
    found = [*own, *own.values()]
    for slot in slots.values():
        try:
            found.append(slot.__get__(value))
        except AttributeError:  # it is not set
            found.append(ABSENT)
    return found
