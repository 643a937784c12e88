"""Static values that are equal and of another type."""

import enum
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


class StrSubclass(str):
    """Text that is equal to a str, and not one."""

    __slots__ = ()
    __repr__ = str.__repr__


class TupleSubclass(tuple[Any, ...]):
    """Items that are equal to a tuple, and not one."""

    __slots__ = ()


def twins(value: Any) -> Iterator[Any]:
    """Yield values that are equal (``==``) to `value` and of another type."""
    for convert in _conversions(value):
        try:
            twin = convert(value)
        except (OverflowError, ValueError):  # no such number
            continue
        if type(twin) is not type(value) and twin == value:
            yield twin


def _conversions(value: Any) -> list[Callable[[Any], Any]]:
    if isinstance(value, enum.Enum):
        return [lambda member: member.value] if isinstance(value, int | str) else []
    if isinstance(value, bool):
        return [int]
    if isinstance(value, int):
        return [float, np.int64]
    if isinstance(value, float):
        return [int, np.float64, float]
    if type(value) is str:
        return [StrSubclass]
    return [TupleSubclass] if type(value) is tuple else []
