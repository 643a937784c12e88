"""Records as JSON and back: fields that have their default are left out, files are made short."""

import dataclasses
import functools
import re
import reprlib
import types
import typing
from collections.abc import Callable
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
    """A record is not what `to_json` writes, as ``events[3].start: wanted a number, got 'x'``."""


def from_json(kind: Any, record: Any) -> Any:
    """Return the value of type `kind` from a record made by `to_json`; check what it holds."""
    try:
        return _read(kind, record, "")
    except RecordError as error:
        raise RecordError(clean(str(error)).lstrip(".: ")) from None


def _read(kind: Any, record: Any, path: str) -> Any:
    if (value := _VALUES.get(kind)) is not None:
        wanted, fits = value
        _check(fits(record), wanted, record, path)
        return shortened(record) if kind is Place else record
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if record is None else _read(arguments[0], record, path)
    if origin in (list, tuple):
        _check(isinstance(record, list | tuple), "a list", record, path)
        parts = (_read(arguments[0], part, f"{path}[{at}]") for at, part in enumerate(record))
        return list(parts) if origin is list else tuple(parts)
    if origin is Literal or (origin is None and issubclass(kind, Enum)):
        names = {str(value): value for value in arguments or kind}
        _check(record in list(names), f"one of {', '.join(names)}", record, path)
        return names[record]
    _check(isinstance(record, dict), "an object", record, path)
    if origin is dict:
        return {name: _read(arguments[1], part, f"{path}.{name}") for name, part in record.items()}
    make, types_by_name = _constructor(kind)
    for name in record.keys() - types_by_name:
        raise RecordError(f"{path}.{name}: is not known")
    try:
        return make(
            **{
                name: _read(types_by_name[name], part, f"{path}.{name}")
                for name, part in record.items()
            }
        )
    except TypeError as error:  # one is missing
        raise RecordError(f"{path}: {error}") from None


@functools.cache
def _constructor(kind: Any) -> tuple[Any, dict[str, Any]]:
    """Return what makes a value of a class from the fields of its record, and their types."""
    make = getattr(kind, "from_json", kind)
    return make, typing.get_type_hints(make, include_extras=True)


def _check(is_right: bool, wanted: str, record: Any, path: str) -> None:  # noqa: FBT001
    if not is_right:
        raise RecordError(f"{path}: wanted {wanted}, got {reprlib.repr(record)}")


def _is_shallow(record: Any, depth: int = 0) -> bool:
    """Return whether plain values can be compared and printed by recursion."""
    if not isinstance(record, dict | list):
        return True
    parts = record.values() if isinstance(record, dict) else record
    return depth < _DEEPEST and all(_is_shallow(part, depth + 1) for part in parts)


def _is_number(kind: Any, record: Any) -> bool:
    return isinstance(record, kind) and not isinstance(record, bool) and abs(record) < _MOST


_MOST: Final = 2.0**63
_DEEPEST: Final = 200
_VALUES: Final[dict[Any, tuple[str, Callable[[Any], bool]]]] = {
    Any: ("values that are nested less deeply", _is_shallow),
    Place: (
        "file:line",
        lambda record: isinstance(record, str) and bool(re.fullmatch(r"(?s)(.*:\d{1,9})?", record)),
    ),
    bool: ("true or false", lambda record: isinstance(record, bool)),
    float: ("a number", functools.partial(_is_number, int | float)),
    int: ("a whole number", functools.partial(_is_number, int)),
    str: ("text", lambda record: isinstance(record, str)),
}
"""What fits a field of another type than our classes, in words and as a check."""
