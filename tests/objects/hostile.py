"""Values whose own code raises or lies, that are nested deeply, or that are too long to print."""

import collections
import dataclasses
import decimal
import enum
import fractions
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import leafwise as lw


class HostileError(Exception):
    """What the code of a hostile value raises."""


def boom(*_: Any, **__: Any) -> Any:
    raise HostileError


METHODS = (
    *("__getattr__", "__getattribute__", "__repr__", "__hash__", "__eq__", "__len__", "__bool__"),
    *("__str__", "__iter__", "__call__", "__dir__"),
)
ATTRIBUTES = (
    *("__class__", "__module__", "__name__", "__dict__", "__wrapped__", "__array__", "_fields"),
    *("__jax_array__", "__dataclass_fields__", "__dataclass_params__", "__func__", "__self__"),
    *("__code__", "__attrs_attrs__", "shape", "dtype", "ndim", "size", "nbytes", "aval"),
    *("weak_type", "sharding"),
)


def raising(*names: str, base: type = object, **more: Any) -> Any:
    """Return a class whose attributes and methods of these names raise."""
    body = {name: boom if name in METHODS else property(boom) for name in names}
    return type("Hostile", (base,), {**body, **more})


BY_VALUE = {"__eq__": lambda a, b: type(a) is type(b), "__hash__": lambda _: 1}


class Proxy:
    """Says that it is what it stands for."""

    def __init__(self, value: Any) -> None:
        object.__setattr__(self, "_value", value)

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, "_value")
        return found if name == "_value" else getattr(found, name)

    @property
    def __class__(self) -> Any:
        return type(object.__getattribute__(self, "_value"))

    def __eq__(self, other: object) -> bool:
        return bool(object.__getattribute__(self, "_value") == other)

    def __hash__(self) -> int:
        return hash(object.__getattribute__(self, "_value"))


class RaisingGetattr(type):
    def __getattr__(cls, name: str) -> Any:
        raise HostileError


class RaisingEq(type):
    def __eq__(cls, other: object) -> bool:
        raise HostileError

    __hash__ = type.__hash__


class RaisingRepr(type):
    def __repr__(cls) -> str:
        raise HostileError


class RaisingChecks(type):
    def __instancecheck__(cls, instance: object) -> bool:
        raise HostileError

    def __subclasscheck__(cls, subclass: type) -> bool:
        raise HostileError


class RaisingName(type):
    __name__ = property(boom)  # type: ignore[assignment]


class NoName(type):
    __name__ = property(lambda _: None)  # type: ignore[assignment]


METACLASSES = (RaisingGetattr, RaisingEq, RaisingRepr, RaisingChecks, RaisingName, NoName)


@dataclasses.dataclass(frozen=True)
class Record:
    it: Any


class Box:
    def __init__(self, it: Any) -> None:
        self.it = it


def nested(wrap: Callable[[Any], Any], depth: int, inner: Any = 1.5) -> Any:
    for _ in range(depth):
        inner = wrap(inner)
    return inner


WRAPS: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda it: (it,),
    "list": lambda it: [it],
    "dict": lambda it: {"a": it},
    "frozenset": lambda it: frozenset([it]),
    "FrozenMapping": lambda it: lw.FrozenMapping({"a": it}),
    "partial": lambda it: functools.partial(print, it),
    "record": Record,
    "object": Box,
    "closure": lambda it: lambda: it,
}
LONG = 10**5000

VALUES: dict[str, Callable[[], Any]] = {
    **{
        f"Mock({kind.__name__})": functools.partial(mock.Mock, spec=kind)
        for kind in (
            *(float, int, str, bool, complex, bytes, tuple, list, dict, set, frozenset, range),
            *(slice, type, functools.partial, types.FunctionType, types.ModuleType, enum.Enum),
            *(types.MethodType, np.ndarray, np.float32, np.dtype, Mapping, lw.StaticArray),
            *(lw.FrozenMapping, jax.Array, collections.OrderedDict, type(None)),
        )
    },
    "MagicMock": mock.MagicMock,
    **{
        f"Proxy({value!r:.16})": functools.partial(Proxy, value)
        for value in (
            *(1.0, 1, True, "a", (1, 2), [1], {"a": 1}, {1}, frozenset([1]), None, len, int),
            *(np.ones(3), np.float32(1), jnp.ones(2), functools.partial(len), Record(1)),
            *(lw.StaticArray([1.0]), lw.FrozenMapping(a=1), range(3)),
        )
    },
    **{
        f"{name} {depth} deep": functools.partial(nested, wrap, depth)
        for name, wrap in WRAPS.items()
        for depth in (300, 2000)
    },
    **{
        f"long {number}": functools.partial(lambda value: value, value)
        for number, value in enumerate(
            (
                *(LONG, -LONG, (LONG,), [LONG], frozenset([LONG]), lw.FrozenMapping(a=LONG)),
                *({LONG: 1}, functools.partial(max, LONG), functools.partial(max, a=LONG)),
                *(Record(LONG), Box(LONG), range(LONG), slice(LONG), fractions.Fraction(LONG, 3)),
                *(decimal.Decimal(LONG), type("Int", (int,), {})(LONG)),
            )
        )
    },
    **{f"{name} raises": functools.partial(raising(name)) for name in (*METHODS, *ATTRIBUTES)},
    **{
        f"{name} raises, by value": functools.partial(raising(name, **BY_VALUE))
        for name in (*METHODS, *ATTRIBUTES)
        if name not in BY_VALUE
    },
    **{
        f"{kind.__name__} class": functools.partial(types.new_class, "Of", (), {"metaclass": kind})
        for kind in METACLASSES
    },
    **{
        f"{kind.__name__} instance": types.new_class("Of", (), {"metaclass": kind})
        for kind in METACLASSES
    },
    "array-like raises": raising("shape", "dtype", "__array__"),
    "array-like of functions": type(
        "Odd", (), dict.fromkeys(("__array__", "shape", "dtype"), boom)
    ),
    "array-like of None": type("Odd", (), {"__array__": boom, "shape": None, "dtype": None}),
    "long shape": type("Odd", (), {"__array__": boom, "shape": (LONG,), "dtype": np.dtype("f4")}),
    "names that are none": type(
        "Odd", (), {"__init__": lambda s: vars(s).update(__qualname__=3, __name__=4, __module__=5)}
    ),
    "no module": type("Odd", (), {"__module__": None}),
    "a module's name": lambda: types.new_class(
        "Odd", (), {}, lambda body: body.update(__module__=3)
    ),
    "str": functools.partial(raising("__repr__", "__str__", base=str), "a"),
    "int": functools.partial(raising("__repr__", "__str__", base=int), 1),
    "float": functools.partial(raising("__repr__", "__bool__", base=float), 1.0),
    "tuple": functools.partial(raising("__repr__", "__len__", base=tuple), (1,)),
    "repr of an int": type("Odd", (), {"__repr__": lambda _: 3}),
    "hash of a str": type("Odd", (), {**BY_VALUE, "__hash__": lambda _: "a"}),
    "== of what raises": type("Odd", (), {**BY_VALUE, "__eq__": lambda *_: raising("__bool__")()}),
    "mapping": type(
        "Odd",
        (Mapping,),
        {**dict.fromkeys(("__getitem__", "__iter__", "__len__"), boom), **BY_VALUE},
    ),
}
