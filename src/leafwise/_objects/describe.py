"""The text of static values in the repr of a key, which JAX prints in its messages.

Keys that differ should not look the same. So a class that cannot be imported shows where it comes
from, an object that is compared by identity shows its address, and a truncated text ends with a
digest of the whole.
"""

import dataclasses
import datetime as dt
import math
import operator
import re
import struct
import types
import uuid
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, Final, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from leafwise._objects.attributes import (
    attributes,
    compares_by_identity,
    in_class,
    is_installed,
    record_fields,
)
from leafwise._objects.classes import is_a, module_of, read
from leafwise._objects.frozen import FrozenMapping, StaticArray
from leafwise._objects.methods import BoundMethod
from leafwise._objects.parts import kind_of
from leafwise._objects.source.code import contents, is_importable
from leafwise._objects.stand_ins import MISSING, Verbatim
from leafwise._objects.text import describe_array, shorten

_MOST_ITEMS: Final = 20
_LONGEST: Final = 200
_NAN_BITS: Final = struct.pack("d", math.nan)


class DescribeOptions(NamedTuple):
    digest: int = 0  # the hash of the key it belongs to, shown where the text is truncated
    home: str | None = None  # the module whose classes are shown without one; None for all
    short: bool = False  # whether texts of distinct values may be equal: no digests, no addresses
    by_content: bool = False  # whether functions are compared by content
    above: tuple[int, ...] = ()  # the records around it, by id: a Flax module is in its submodules

    @property
    def mark(self) -> str:
        """The suffix of a text that does not show everything."""
        return "" if self.short else f" #{self.digest:08x}"


_DEFAULT: Final = DescribeOptions()
_SHOWN: Final = 8  # numbers of an array


def describe(value: Any, options: DescribeOptions = _DEFAULT) -> str:
    """Return a text for a static value that distinguishes it from others."""
    try:
        return _described(value, options)
    except Exception:  # noqa: BLE001  # user code, or nested too deeply
        return shorten(value) + options.mark


def describe_value(value: Any) -> str:
    try:
        if is_a(value, Tracer) or not is_a(value, np.ndarray | jax.Array):
            return shorten(Verbatim(describe(value, DescribeOptions(short=True))), 120)
        array: Any = value
        is_there = not is_a(value, jax.Array) or (array.is_fully_addressable and array.is_ready())
        is_number = not jnp.issubdtype(array.dtype, jax.dtypes.extended)
        is_shown = is_there and is_number and array.size <= _SHOWN
        numbers = f" {shorten(np.asarray(array).tolist(), 80)}" if is_shown else ""
        return describe_array(value) + numbers
    except Exception:  # noqa: BLE001  # the user's own code
        return shorten(value, 120)


def _described(value: Any, options: DescribeOptions) -> str:
    kind: type = type(value)
    if kind in _SAY_ALL:
        return _cut(value, options)
    for kinds, format_kind in _FORMATS:
        if is_a(value, kinds):
            return format_kind(value, options)
    table = kind_of(value)
    base, _ = table.attributes or (table, None)
    is_record = dataclasses.is_dataclass(kind) or record_fields(kind) is not None
    if is_record or base.name in _OF_PARTS:
        return _by_parts(value, options)
    # An alias such as list[int] has the name of its origin.
    name = MISSING if module_of(kind) in ("types", "typing") else read(value, "__qualname__")
    # Our own class names mean nothing to a reader: a function under `lw.jit` is jitted.
    what = "jitted function" if module_of(kind).startswith("leafwise._jit") else kind.__qualname__
    text = f"<{what} {name}>" if type(name) is str else shorten(value)
    has_plain_repr = cast("Any", kind).__repr__ is object.__repr__
    is_itself = compares_by_identity(kind)
    if (has_plain_repr or kind is memoryview) and not is_itself:  # it would show an address
        text = f"<{_class_name(kind, options)}{options.mark}>"
    if options.short:
        return f"<{kind.__name__}>" if has_plain_repr and name is MISSING else text
    text += "" if is_importable(kind) else f" of {_class_name(kind, options)}"
    return _at(text, value) if is_itself else text


def _at(text: str, value: Any) -> str:
    return f"{text} (compared by identity, at 0x{id(value):x})"


def _subclass(value: Any, options: DescribeOptions) -> str:
    """Return the repr of an instance of a builtin's subclass, which may hide anything."""
    return f"{shorten(value)} of {_class_name(type(value), options)}{options.mark}"


def _scalar(value: Any, options: DescribeOptions) -> str:
    if value.dtype.type is not type(value):
        return _subclass(value, options)
    text = _cut(value, options)
    text = text if "(" in text else f"{type(value).__name__}({text})"  # bfloat16's is only a number
    is_nan = value.dtype.kind in "fc" and bool(value != value)  # noqa: PLR0124
    return text + options.mark * is_nan  # NaNs of all bit patterns look the same


def _dtype(value: "np.dtype[Any]", options: DescribeOptions) -> str:
    has_parts = any(part is not None for _, part in kind_of(value).parts(value))
    return _cut(value, options) + options.mark * has_parts


_PLAIN: Final = (int, bool, str, bytes, complex, type(None), type(...))
_TIMES: Final = (dt.datetime, dt.date, dt.time, dt.timedelta)
_SAY_ALL: Final = (
    *(*_PLAIN, *_TIMES, Decimal, Fraction, uuid.UUID, StaticArray, range, slice),
    *(np.iinfo, jax.numpy.iinfo, operator.itemgetter, operator.attrgetter, operator.methodcaller),
)
"""Classes whose repr describes an instance completely."""


def _cut(value: object, options: DescribeOptions) -> str:
    """Return the repr, with the digest if it is truncated or raises."""
    try:
        text = repr(value)
    except ValueError:  # an int of thousands of digits
        return shorten(value) + options.mark
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...{options.mark}"


def _float(value: float, options: DescribeOptions) -> str:
    if type(value) is not float:
        return _subclass(value, options)
    bits = struct.pack("d", value)
    if value != value and bits != _NAN_BITS:  # noqa: PLR0124  # NaN
        return f"nan(bits 0x{bits[::-1].hex()})"
    return repr(value)


def _function(value: Any, options: DescribeOptions) -> str:
    if not is_a(value, types.FunctionType) and kind_of(value).values(value):  # [].append
        return f"{describe(value.__self__, options)}.{value.__name__}"
    if options.by_content and is_a(value, types.FunctionType):
        pairs = zip(value.__code__.co_freevars, map(contents, value.__closure__ or ()), strict=True)
        plain = [(name, item) for name, item in pairs if is_a(item, (*_PLAIN, float))]
        shown = [f", {name}={_cut(item, options)}" for name, item in plain]
        return f"<function {value.__qualname__}{''.join(shown)}, #{options.digest:08x}>"
    return _named(value, f"<function {value.__qualname__}>", options)


def _method(value: types.MethodType | BoundMethod, options: DescribeOptions) -> str:
    name = getattr(value.__func__, "__name__", shorten(value.__func__))
    return f"{describe(value.__self__, options)}.{name}"


def _by_parts(value: Any, options: DescribeOptions) -> str:
    """Return the class and its parts: those of its kind, and attributes by name."""
    cls, kind = type(value), kind_of(value)
    if id(value) in options.above:
        return f"<this {cls.__name__}>"
    inside = options._replace(above=(*options.above, id(value)))
    base, attributes_of = kind.attributes or (kind, attributes)
    content, parts = base.read(value)
    total = content[0] if base.name in _IN_BRACES else len(parts)
    if base.name in _MAPPINGS:
        pairs = zip(parts[: min(total, _MOST_ITEMS)], parts[total:], strict=False)
        items = [": ".join(describe(part, inside) for _, part in pair) for pair in pairs]
    elif not kind.is_ordered:
        items = sorted(describe(part, inside) for _, part in parts)[:_MOST_ITEMS]
    else:
        items = [_named_part(step, part, inside) for step, part in parts[:_MOST_ITEMS]]
    named = [(name, part) for name, part in attributes_of(value) if part is not MISSING]
    if base.name in _MAPPINGS:
        # Its items are usually in a dict, and a package's ``==`` and hash read nothing else.
        asks = not all(is_installed(in_class(cls, name)) for name in ("__eq__", "__hash__"))
        named = [(name, part) for name, part in named if asks and type(part) is not dict]
    if total > len(items):
        half = _MOST_ITEMS // 2
        items = [*items[:half], f"... {total - half} more{options.mark}"]
    if base.name in _IN_BRACES:
        items = [f"{{{', '.join(items)}}}"]
    if cls is FrozenMapping:
        return items[0]
    text = ", ".join([*items, *(_named_part(f".{name}", part, inside) for name, part in named)])
    if cls is tuple:
        return f"({text}{',' * (total == 1)})"
    is_bare = base.name in _MAPPINGS and not named
    text = _class_name(cls, options) + (text if is_bare else f"({text})")
    is_itself = compares_by_identity(cls) and base.name == "object" and record_fields(cls) is None
    return _at(text, value) if is_itself and not options.short else text


def _named_part(step: str, part: Any, options: DescribeOptions) -> str:
    """Return a part as an argument of a call: ``x=1`` for an attribute or a keyword."""
    name = re.fullmatch(r"\.(?!func$)(?:keywords\['(.*)'\]|(\w+))", step)
    return (f"{name[1] or name[2]}=" if name else "") + describe(part, options)


_FORMATS: Final[tuple[tuple[Any, Callable[[Any, DescribeOptions], str]], ...]] = (
    (type, lambda cls, options: _named(cls, f"{module_of(cls)}.{cls.__qualname__}", options)),
    (Enum, lambda value, options: f"{_class_name(type(value), options)}.{value.name}"),
    (np.dtype, _dtype),
    (np.generic, _scalar),  # before the builtins that some scalars derive from
    (float, _float),
    ((*_PLAIN, *_TIMES, Decimal, Fraction, uuid.UUID), _subclass),
    ((jax.Array, np.ndarray), lambda value, _options: describe_array(value)),
    ((types.FunctionType, types.BuiltinFunctionType, types.MethodWrapperType), _function),
    (types.ModuleType, lambda value, _options: f"<module {value.__name__}>"),
    ((types.MethodType, BoundMethod), _method),  # before partials: `BoundMethod` is one
)
_MAPPINGS: Final = ("dict", "mapping")
_IN_BRACES: Final = (*_MAPPINGS, "frozenset")
_OF_PARTS: Final = (*_IN_BRACES, "tuple", "partial")


def _named(value: Any, text: str, options: DescribeOptions) -> str:
    """Return a text, with the address if the function or class cannot be imported."""
    if options.short or is_importable(value) or is_a(value, types.BuiltinFunctionType):
        return text
    return _at(text, value)


def _class_name(kind: type, options: DescribeOptions) -> str:
    """Return a class's name, with a mark if other classes may have the same name."""
    module, own = module_of(kind), kind.__qualname__
    away = options.home is not None and module not in (options.home, "builtins", "functools")
    name = f"{module}.{own}" if away else own
    if options.short or is_importable(kind):
        return name.rpartition("<locals>.")[2] if options.short else name
    why = "local" if "<locals>" in own else "redefined"
    return f"{name.rpartition('<locals>.')[2]}<{why} class, at 0x{id(kind):x}>"
