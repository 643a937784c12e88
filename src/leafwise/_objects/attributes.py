"""What an object holds: its attributes, the functions behind them, and what its class guarantees.

No user code runs: no property and no ``__getattr__``. What the predicates say of a value, or of its
class, where C is a plain class, F a frozen dataclass, and M a module of flax.linen::

                            [1]  array  lambda  class  enum  C()  F()  M()
    is_data                 yes  yes                   yes
    has_hidden_state        yes  yes    yes     yes
    compares_by_identity                yes     yes    yes   yes
    is_itself                           yes     yes          yes
    is_plain_object                                          yes
    is_frozen                                                     yes
    never_changes                                                 yes  yes
"""

import dataclasses
import datetime
import decimal
import fractions
import functools
import inspect
import struct
import types
import uuid
import weakref
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, cast

import jax
import numpy as np

from leafwise._objects.classes import is_a, is_tree_node, module_of, per_class, read
from leafwise._objects.interrupts import or_default
from leafwise._objects.methods import JittedFunction
from leafwise._objects.source.code import (
    facts_of,
    function_in,
    is_importable,
    is_installed_module,
    names_of,
)
from leafwise._objects.stand_ins import MISSING


class MemberKind(Enum):
    VALUE = "value"  # or `MISSING`
    METHOD = "method"  # a user's function that takes the object, or its class, when called
    PROPERTY = "property"  # a user's function that runs when the name is read; or a descriptor
    HIDDEN = "hidden"  # known only by running code, or defined by a package: it counts as a whole


class Member(NamedTuple):
    """What an attribute name refers to, found without running user code."""

    kind: MemberKind
    value: Any = MISSING
    is_of_class: bool = False


HIDDEN: Final = Member(MemberKind.HIDDEN)


def member_of(value: Any, name: str) -> Member:
    """Return the member behind `value.name`, without running user code."""
    is_class = is_a(value, type)
    own = in_class(value, name) if is_class else dict_of(value).get(name, MISSING)
    raw = in_class(type(value), name)
    # `self.rate = 0.1`; for a class, its own members: `Config.rate`, `Config.make`
    if own is not MISSING and not hasattr(type(raw), "__set__"):
        kind = MemberKind.METHOD if is_class and is_a(own, classmethod) else MemberKind.VALUE
        return Member(kind, function_in(own) if is_class else own)
    if raw is not MISSING:
        return _from_class(raw, value)
    # `def __getattr__(self, name)`, and `def __getattr__(name)` of a module
    of_module = is_a(value, types.ModuleType) and "__getattr__" in vars(value)
    may_answer = of_module or in_class(type(value), "__getattr__") is not MISSING
    return HIDDEN if may_answer else Member(MemberKind.VALUE)


def _from_class(raw: Any, value: Any) -> Member:
    descriptor: Any = type(raw)
    is_value = is_a(raw, staticmethod | type | types.BuiltinFunctionType)
    # `rate = 0.1`, `class Inner: ...`, `act = staticmethod(relu)`
    if is_value or not hasattr(descriptor, "__get__"):
        return Member(MemberKind.VALUE, function_in(raw), not is_a(raw, staticmethod))
    getter = in_class(descriptor, "__get__")
    runs_code = is_a(raw, property | classmethod) or callable(raw)
    is_static = is_a(raw, property) and _of_code(raw.fget).startswith("<leafwise ")
    # `__slots__ = ("rate",)`, a static field of `@lw.pytree`
    if is_static or (is_a(getter, types.WrapperDescriptorType) and not runs_code):
        try:
            return Member(MemberKind.VALUE, raw.__get__(value, type(value)))
        except AttributeError:  # an unset slot, or a static of an unfinished instance
            return Member(MemberKind.VALUE)
    # `rate = Descriptor()`, whose `__get__` the user wrote
    if is_a(getter, types.FunctionType) and not is_installed(getter):
        return Member(MemberKind.PROPERTY, raw)
    # `@property def rate(self)`, `@classmethod def make(cls)`, `@jax.jit def step(self)`
    functions = (function for function in functions_behind(raw) if not is_installed(function))
    function = next(functions, None)
    is_property = is_a(raw, property | functools.cached_property)
    kind = MemberKind.PROPERTY if is_property else MemberKind.METHOD
    return HIDDEN if function is None else Member(kind, function)


def in_class(cls: type, name: str) -> Any:
    """Return what a class or a base has under a name, with no descriptor applied; or `MISSING`."""
    for base in cls.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return MISSING


def is_plain(value: Any, name: str) -> bool:
    """Return whether reading an attribute, if it exists, runs no user code."""
    own: Any = type(value).__getattribute__
    is_default = type(own) is types.WrapperDescriptorType
    return is_default and member_of(value, name).kind is MemberKind.VALUE


def keeps_in_dict(kind: Any) -> bool:
    """Return whether instances have exactly the attributes in their ``__dict__``."""
    if kind is types.SimpleNamespace:  # its ``__dict__`` is a member descriptor
        return True
    if type(in_class(kind, "__dict__")) is not types.GetSetDescriptorType:
        return False
    own = kind.__getattribute__  # equinox has one for its methods
    return own is object.__getattribute__ or is_installed_module(getattr(own, "__module__", ""))


def hides_attributes(kind: type) -> bool:
    """Return whether reading any attribute of an instance runs user code."""
    own: Any = kind.__getattribute__
    return is_a(own, types.FunctionType) and not is_installed(own)


WEAK: Final = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)
"""Containers that lose their items when these are garbage-collected."""

MACHINERY: Final = frozenset(
    {"threading", "_thread", "queue", "logging", "concurrent", "multiprocessing", "asyncio"}
)
"""Modules whose objects change on their own, and hold no configuration."""


def dict_of(value: Any) -> dict[str, Any]:
    """Return the ``__dict__`` of an object, bypassing ``__getattribute__``; empty without one."""
    try:
        own: Any = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return own if isinstance(own, dict) else {}


@per_class
def slots_of(kind: type) -> dict[str, types.MemberDescriptorType]:
    spaces = [vars(base) for base in reversed(kind.__mro__) if "__slots__" in vars(base)]
    members = [pair for space in spaces for pair in space.items()]
    return {name: raw for name, raw in members if is_a(raw, types.MemberDescriptorType)}


def own_attributes(value: Any) -> dict[str, Any]:
    """Return what an object holds in its ``__dict__`` and in slots, by name."""
    held = dict(dict_of(value))
    for name, slot in slots_of(type(value)).items():
        try:
            held.setdefault(name, slot.__get__(value))
        except AttributeError:  # it is not set
            continue
    return held


def stored_attributes(value: Any) -> dict[str, Any]:
    """Return `own_attributes` without caches; empty for a dict that is its own ``__dict__``."""
    held, kind = own_attributes(value), type(value)
    if is_a(value, dict) and dict_of(value) is value:
        return {}
    cached = _cached_names(kind)
    return {name: item for name, item in held.items() if name not in cached} if cached else held


def attributes(value: Any) -> list[tuple[str, Any]]:
    return sorted(stored_attributes(value).items(), key=lambda pair: str(pair[0]))


def instance_with(cls: type, values: Mapping[str, Any]) -> Any:
    """Return an instance with these attributes, made without running code of its class."""
    instance: Any = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(instance, name, value)
    return instance


@per_class
def _cached_names(kind: type) -> frozenset[str]:
    """Return the names under which instances cache computed values, as `cached_property` does."""
    names = {name for base in kind.__mro__ for name in vars(base)}
    cached = {name for name in names if is_a(in_class(kind, name), functools.cached_property)}
    for base in kind.__mro__:
        getter: Any = vars(base).get("__getattr__")
        if _of_code(getter).startswith(_ATTRS):  # attrs turns cached properties into slots
            cached.update(getter.__globals__.get("cached_properties", ()))
    return frozenset(cached)


@per_class
def has_hidden_state(kind: type) -> bool:
    """Return whether instances may hold state outside their attributes, as those of C types do."""
    own = len(slots_of(kind)) + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    size = object.__basicsize__ + own * struct.calcsize("P")
    return kind.__itemsize__ != 0 or kind.__basicsize__ > size


def name_of(value: Any) -> str:
    """Return the name of a callable, without the scopes around it."""
    while is_a(value, functools.partial):
        value = of_partial(value)[0]
    kind: type = type(value)
    if not is_installed_module(module_of(kind)):
        return kind.__qualname__.rpartition("<locals>.")[2]
    name = read(value, "__qualname__", None) or read(value, "__name__", None)
    return (name if isinstance(name, str) else kind.__qualname__).rpartition("<locals>.")[2]


def of_partial(value: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    cls: Any = functools.partial  # a subclass may have something else under these names
    return cls.func.__get__(value), cls.args.__get__(value), cls.keywords.__get__(value)


def functions_in(value: Any) -> tuple[Any, ...]:
    """Return the functions that a package's callable or descriptor holds."""
    if is_a(value, JittedFunction):  # the rest is not user code
        return (value.__wrapped__,)
    parts = [wrapped_by(value), function_in(value)]
    for item in own_attributes(value).values():
        parts += items_in(item)
    functions = {id(part): part for part in parts if part is not value and is_callable(part)}
    return tuple(functions.values())


def items_in(value: Any) -> list[Any]:
    """Return the items of a container; for any other value, the value itself."""
    if type(value) is dict or type(value) is types.MappingProxyType:
        return list(value.values())
    return list(value) if type(value) is list or type(value) is tuple else [value]


def functions_behind(member: Any) -> tuple[types.FunctionType, ...]:
    """Return the Python functions behind a class member, without wrappers from packages."""
    if is_a(member, types.FunctionType):
        return (user_function(member),)
    if is_a(member, type) or not hasattr(type(member), "__get__"):
        return ()
    behind = functions_in(member)
    return tuple(user_function(inner) for inner in behind if is_a(inner, types.FunctionType))


def registry_of(function: types.FunctionType) -> Mapping[type, Any] | None:
    """Return the functions that a user's `singledispatch` function chooses from, or None."""
    is_own = function.__code__ is _DISPATCHER and not is_installed_module(function.__module__)
    registry = vars(function).get("registry") if is_own else None
    return registry if type(registry) is types.MappingProxyType else None


_DISPATCHER: Final = cast("types.FunctionType", functools.singledispatch(len)).__code__

DISPATCH: Final = frozenset({"register", "dispatch", "registry", "_clear_cache"})
"""The attributes of a function of `functools.singledispatch`, next to ``__wrapped__``."""


def user_function(function: types.FunctionType) -> types.FunctionType:
    """Return the user's function inside a package's wrapper, such as flax's for methods."""
    inner: Any = function
    while is_a(inner, types.FunctionType) and is_installed(inner):
        inner = wrapped_by(inner)
    return inner if is_a(inner, types.FunctionType) else function


def wrapped_by(value: Any) -> Any:
    """Return the function in the ``__wrapped__`` of a package's wrapper, or None."""
    wrapped = inspect.getattr_static(value, "__wrapped__", None)
    by_package = is_a(wrapped, property) and is_installed_module(module_of(type(value)))
    if by_package or is_a(wrapped, types.GetSetDescriptorType):  # defined in C, as in wrapt
        wrapped = getattr(value, "__wrapped__", None)
    return wrapped if is_callable(wrapped) else None


def is_callable(value: Any) -> bool:
    return callable(value) and not is_a(value, type)


def is_bound_method(value: Any) -> bool:
    """Return whether a value is a bound method of a package's own type, as in equinox."""
    is_known = is_installed_module(module_of(type(value)))
    return is_known and {"__func__", "__self__"} <= dict_of(value).keys()


def is_installed(function: Any) -> bool:
    """Return whether a function's code is from an installed package, whatever its names say."""
    if not is_a(function, types.FunctionType):
        return is_installed_module(module_of(type(function)))
    module = function.__globals__.get("__name__")
    return facts_of(function.__code__).installed or is_installed_module(module)


def is_of_package(value: Any) -> bool:
    """Return whether a function or class can be imported from an installed package."""
    is_class = is_a(value, type)
    if not is_installed_module(module_of(value if is_class else type(value))):
        return False
    return is_class or (is_installed_module(names_of(value)[0]) and is_importable(value))


def is_data(value: Any) -> bool:
    """Return whether a value counts as a whole, whichever of its attributes is read."""
    return is_a(value, _DATA) or type(value) in _CONTAINERS


_DATA: Final = (
    *(str, bytes, int, float, complex, bool, type(None), np.generic, np.ndarray, np.dtype),
    *(jax.Array, Enum, range, slice, *weakref.ProxyTypes),
)
_CONTAINERS: Final = frozenset({list, tuple, dict, set, frozenset, bytearray})


@or_default(default=False)  # a user's flatten
def is_tree(value: Any) -> bool:
    return not jax.tree_util.all_leaves((value,))


def is_itself(value: Any) -> bool:
    """Return whether a value's class defines neither ``==`` nor a hash, like most classes."""
    kind: Any = type(value)
    return compares_by_identity(kind) and kind.__hash__ is object.__hash__


def compares_by_identity(kind: Any) -> bool:
    return kind.__eq__ is object.__eq__


def builtin_base(kind: type) -> type | None:
    """Return the builtin base class whose ``==`` a class inherits, or None."""
    bases = (base for base in _BASES if issubclass(kind, base) and kind.__eq__ is base.__eq__)
    return next(bases, None)


_BASES: Final = (
    *(str, bytes, int, float, complex, tuple, frozenset),
    *(datetime.datetime, datetime.date, datetime.time, datetime.timedelta),
    *(decimal.Decimal, fractions.Fraction, uuid.UUID),
)


@per_class
def record_fields(kind: Any) -> tuple[str, ...] | None:
    """Return the fields of a frozen dataclass, attrs, msgspec or pydantic class, or None."""
    # None, too, if it defines its own ``==``, unless it is a pytree.
    for mark, fields_of in _RECORDS.items():
        declared: Any = read(kind, mark, None)
        if declared is not None:
            return fields_of(kind, declared)
    return None


def _dataclass_fields(kind: Any, params: Any) -> tuple[str, ...] | None:
    """Return the fields of ``@dataclass(frozen=True)``, or of a module of equinox or flax.linen."""
    fields = dataclasses.fields(kind)
    if not has_generated_eq(kind):  # `class Net(eqx.Module)`, which guards its attributes itself
        is_record = never_changes(kind) and is_tree_node(kind)
    elif params.frozen:  # `@dataclass(frozen=True)`
        is_record = True
    else:  # `class Net(nn.Module)` of flax.linen
        fields, is_record = tuple(field for field in fields if field.compare), params.unsafe_hash
    return tuple(field.name for field in fields) if is_record else None


def _msgspec_fields(kind: Any, config: Any) -> tuple[str, ...] | None:
    """Return the fields of ``class Config(msgspec.Struct, frozen=True)``."""
    is_generated = config.eq and type(kind.__eq__) is types.WrapperDescriptorType
    return read(kind, "__struct_fields__") if is_generated and config.frozen else None


def _pydantic_fields(kind: Any, fields: Any) -> tuple[str, ...] | None:
    """Return the fields of ``class Config(pydantic.BaseModel, frozen=True)``."""
    is_generated = str(read(kind.__eq__, "__module__", None)).startswith("pydantic.")
    config: Any = read(kind, "model_config", {})
    private: Any = read(kind, "__private_attributes__", {})
    return (*fields, *private) if is_generated and config.get("frozen") else None


def _attrs_fields(kind: Any, attributes: Any) -> tuple[str, ...] | None:
    """Return the fields of ``@attrs.frozen``, or those compared by ``@attrs.define(hash=True)``."""
    is_closed = is_frozen(kind)
    names = tuple(attribute.name for attribute in attributes if is_closed or attribute.eq)
    is_hashed = is_closed or _of_code(kind.__hash__).startswith(_ATTRS)
    return names if is_hashed and _of_code(kind.__eq__).startswith(_ATTRS) else None


_RECORDS: Final[Mapping[str, Callable[[Any, Any], tuple[str, ...] | None]]] = {
    "__dataclass_params__": _dataclass_fields,
    "__struct_config__": _msgspec_fields,
    "__pydantic_fields__": _pydantic_fields,
    "__attrs_attrs__": _attrs_fields,
}
"""The function that returns the fields of a class, by the attribute that marks its library."""


def is_frozen(kind: Any) -> bool:
    params = read(kind, "__dataclass_params__", None)
    if params is not None:
        return bool(params.frozen)
    return getattr(kind.__setattr__, "__name__", "") == "_frozen_setattrs"


def never_changes(kind: Any) -> bool:
    """Return whether a class rejects assignment, like a frozen dataclass or an equinox module."""
    guards = kind.__setattr__ is not object.__setattr__
    return is_frozen(kind) or (dataclasses.is_dataclass(kind) and guards)


def is_plain_object(kind: type) -> bool:
    """Return whether a class is the user's own, and neither a record nor a pytree."""
    if any(map(is_installed_module, map(module_of, kind.__mro__[:-1]))):
        return False
    is_record = dataclasses.is_dataclass(kind) or record_fields(kind) is not None
    return not is_record and not is_tree_node(kind)


def has_generated_eq(kind: Any) -> bool:
    return _of_code(kind.__eq__, "co_qualname") == _generated()[0]


def has_generated_init(kind: Any) -> bool:
    """Return whether the constructor of a dataclass or attrs class was generated for it."""
    init = inspect.unwrap(kind.__init__)  # chex and equinox wrap it
    if dataclasses.is_dataclass(kind):
        is_own = _of_code(init, "co_qualname") != _generated()[1]
        return cast("Any", kind).__dataclass_params__.init and not is_own
    return _of_code(init).startswith(_ATTRS)


_ATTRS: Final = "<attrs gen"
"""The start of the file names that attrs gives to generated code."""


def _of_code(function: Any, name: str = "co_filename") -> str:
    return getattr(getattr(function, "__code__", None), name, "")


@functools.cache
def _generated() -> tuple[str, str]:
    """Return the qualified names of a generated ``==`` and constructor in this Python."""
    kind: Any = dataclasses.make_dataclass("kind", ["x"], frozen=True)
    return _of_code(kind.__eq__, "co_qualname"), _of_code(kind.__init__, "co_qualname")
