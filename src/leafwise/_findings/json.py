"""Records as JSON and back: fields that have their default are left out, files are made short."""

import dataclasses
import functools
import types
import typing
from enum import Enum
from typing import Any, Final, Literal

from leafwise._findings.records import Place, shortened
from leafwise._findings.words import clean


def to_json(value: Any) -> Any:
    """Return a value as plain values, which `json.dumps` takes."""
    if hasattr(value, "as_dict"):
        return value.as_dict()
    if dataclasses.is_dataclass(value):
        return {
            field.name: to_json(part)
            for field in dataclasses.fields(value)
            if not _is_default(field, part := getattr(value, field.name))
        }
    if isinstance(value, list):
        return list(map(to_json, value))
    return value


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    make = field.default_factory
    return bool(value == (field.default if make is dataclasses.MISSING else make()))


class RecordError(ValueError):
    """A record is not what `to_json` writes."""


def from_json(kind: Any, record: Any) -> Any:
    """Return the value of type `kind` from a record made by `to_json`."""
    try:
        return _read(kind, record)
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # cut off, or edited
        raise RecordError(f"not a record: {clean(repr(error))}") from error


def _read(kind: Any, record: Any) -> Any:
    if kind is Place:
        return shortened(record)
    if kind in _PLAIN:
        return record
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if record is None else _read(arguments[0], record)
    if origin in (list, tuple):
        return origin([_read(arguments[0], part) for part in record])
    if origin is Literal or (origin is None and issubclass(kind, Enum)):
        return {str(value): value for value in arguments or kind}[record]
    if origin is dict:
        return {name: _read(arguments[1], part) for name, part in record.items()}
    make, types_by_name = _constructor(kind)
    return make(**{name: _read(types_by_name[name], part) for name, part in record.items()})


@functools.cache
def _constructor(kind: Any) -> tuple[Any, dict[str, Any]]:
    """Return what makes a value of a class from the fields of its record, and their types."""
    make = getattr(kind, "from_json", kind)
    return make, typing.get_type_hints(make, include_extras=True)


_PLAIN: Final = (Any, bool, float, int, str)
