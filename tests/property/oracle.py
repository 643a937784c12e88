"""Which statics are the same: the rule of sound keys, written down naively.

It knows nothing of how leafwise reads values.
"""

import dataclasses
import datetime
import decimal
import functools
import struct
import types
from typing import Any

import numpy as np

import leafwise as lw

from .zoo import Kept, Real, Text, Whole, Wider


def same(a: Any, b: Any) -> bool:
    """Return whether two statics are the same type and value all the way down."""
    if type(a) is not type(b):
        return False
    if a is b:
        return True
    kind = type(a)
    if kind in (int, bool, str, bytes, decimal.Decimal):
        return repr(a) == repr(b)
    if kind is float:
        return struct.pack("d", a) == struct.pack("d", b)
    if kind is complex:
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, np.generic):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if kind is lw.StaticArray:
        left, right = np.asarray(a), np.asarray(b)
        return (left.dtype, left.shape, left.tobytes()) == (
            right.dtype,
            right.shape,
            right.tobytes(),
        )
    if kind is range:
        return (a.start, a.stop, a.step) == (b.start, b.stop, b.step)
    if kind is slice:
        return all(same(getattr(a, n), getattr(b, n)) for n in ("start", "stop", "step"))
    if kind is datetime.datetime:
        return (a.isoformat(), a.fold) == (b.isoformat(), b.fold) and same(a.tzinfo, b.tzinfo)
    if kind is frozenset:
        return _same_members(a, b)
    if kind is lw.FrozenMapping:
        left, right = list(a.items()), list(b.items())
        return _all_same(left, right) if len(left) == len(right) else False
    if kind is functools.partial:
        named = tuple(a.keywords.items()), tuple(b.keywords.items())
        return _all_same((a.func, a.args, named[0], vars(a)), (b.func, b.args, named[1], vars(b)))
    if kind is types.MethodType:
        return a.__func__ is b.__func__ and same(a.__self__, b.__self__)
    if kind in (Text, Whole, Real):
        return kind.__mro__[1].__eq__(a, b) and same(a.state, b.state)
    if isinstance(a, np.dtype) and a.names:
        return a == b and _all_same(*[dict(each["f"].metadata or {}) for each in (a, b)])
    if kind is dict:
        return _all_same(list(a.items()), list(b.items()))
    if isinstance(a, tuple):
        return _all_same(a, b)
    if kind in (Kept, Wider):
        return same(dict(sorted(vars(a).items())), dict(sorted(vars(b).items())))
    if dataclasses.is_dataclass(a) and not isinstance(a, type):
        return all(
            same(getattr(a, field.name), getattr(b, field.name)) for field in dataclasses.fields(a)
        )
    return bool(a == b)  # by its own ==, which is identity where there is none


def _all_same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        a, b = list(a.items()), list(b.items())
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def _same_members(a: frozenset[Any], b: frozenset[Any]) -> bool:
    left = list(b)
    for member in a:
        match = next((i for i, other in enumerate(left) if same(member, other)), None)
        if match is None:
            return False
        del left[match]
    return not left
