"""Records as JSON and back: fields that have their default are left out."""

import dataclasses
import functools
import re
import reprlib
import types
import typing
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Literal

from leafwise._findings.records import Place
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
        return _reader(kind)(record)
    except RecordError as error:
        raise RecordError(clean(str(error)).lstrip(".: ")) from None


@functools.cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return what reads a value of a type; its errors begin with the path from there."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in _VALUES:
        return functools.partial(_value, *_VALUES[kind])
    if origin is types.UnionType:
        read = _reader(arguments[0])
        return lambda record: None if record is None else read(record)
    if origin in (dict, list, tuple):
        read, make = _reader(arguments[origin is dict]), typing.cast("Any", origin)
        accepted: Any = dict if origin is dict else (list, tuple)
        return lambda record: make(_parts(accepted, lambda _: read, record))
    if origin is Literal or issubclass(kind, Enum):
        names = {str(value): value for value in arguments or kind}
        read = functools.partial(_value, f"one of {', '.join(names)}", list(names).__contains__)
        return lambda record: names[read(record)]
    make = getattr(kind, "from_json", kind)
    hints = typing.get_type_hints(make, include_extras=True)
    readers = {name: _reader(hint) for name, hint in hints.items() if name != "return"}
    return lambda record: _made(make, _parts(dict, readers.__getitem__, record))


def _value(wanted: str, fits: Callable[[Any], bool], record: Any) -> Any:
    if not fits(record):
        raise RecordError(f": wanted {wanted}, got {reprlib.repr(record)}")
    return record


def _parts(kind: Any, reader_of: Callable[[Any], Callable[[Any], Any]], record: Any) -> Any:
    """Return the parts of a list or an object, by index or name."""
    if not isinstance(record, kind):
        wanted = "an object" if kind is dict else "a list"
        raise RecordError(f": wanted {wanted}, got {reprlib.repr(record)}")
    parts: dict[Any, Any] = {}
    for name, part in record.items() if kind is dict else enumerate(record):
        try:
            parts[name] = reader_of(name)(part)
        except KeyError:
            raise RecordError(f".{name}: is not known") from None
        except RecordError as error:
            step = f".{name}" if kind is dict else f"[{name}]"
            raise RecordError(f"{step}{error}") from None
    return parts if kind is dict else parts.values()


def _made(make: Callable[..., Any], parts: dict[str, Any]) -> Any:
    try:
        return make(**parts)
    except TypeError as error:  # one is missing
        raise RecordError(f": {error}") from None


def _is_shallow(record: Any, depth: int = 0) -> bool:
    """Return whether plain values can be compared and printed by recursion."""
    if not isinstance(record, dict | list):
        return True
    parts = record.values() if isinstance(record, dict) else record
    return depth < _DEEPEST and all(_is_shallow(part, depth + 1) for part in parts)


def _is_number(kind: Any, record: Any) -> bool:
    return isinstance(record, kind) and not isinstance(record, bool) and abs(record) < _MOST


def _is_place(record: Any) -> bool:
    return isinstance(record, str) and re.fullmatch(r"(?s)(.*:\d{1,9})?", record) is not None


_MOST: Final = 2.0**63
_DEEPEST: Final = 200
_VALUES: Final[dict[Any, tuple[str, Callable[[Any], bool]]]] = {
    Any: ("values that are nested less deeply", _is_shallow),
    Place: ("file:line", _is_place),
    bool: ("true or false", lambda record: isinstance(record, bool)),
    float: ("a number", functools.partial(_is_number, int | float)),
    int: ("a whole number", functools.partial(_is_number, int)),
    str: ("text", lambda record: isinstance(record, str)),
}
"""What fits a field of another type than our classes, in words and as a check."""
