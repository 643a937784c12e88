"""How each kind of value is looked at, so that a later look can tell whether it changed."""

import collections
import dataclasses
import functools
import hashlib
import types
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

import jax
import numpy as np
from jax.core import Tracer

from leafwise._code import facts_of, is_installed_module
from leafwise._content_names import function_in
from leafwise._introspect import attributes, builtin_base, has_hidden_state
from leafwise._method import BoundMethod
from leafwise._seen import (
    MOST_BYTES,
    MOST_ITEMS,
    PLAIN,
    Itself,
    Kinds,
    Look,
    OfArray,
    Same,
    Seen,
    all_same,
    hidden_of,
    identical,
    is_it,
    sameness,
)


def look(value: Any, *, large: bool = False, holds: bool = True) -> Seen:
    """Look at a value.

    Args:
        value: What a capture holds.
        large: Whether to look into large values, too.
        holds: Whether a function's closure is a part of it.

    Raises:
        Large: It is large, and `large` is False.
    """
    return Look(_KINDS, large=large, holds=holds).see(value)


def _composed(self: Look, value: Any, form: Any, take: Callable[[Any], list[Any]]) -> Seen:
    """Look at the parts that `take` finds in a value."""
    items = take(value)
    parts = [self.see(item) for item in items]
    own = is_it(value)
    if all(part.same is None for part in parts):  # small ones, which may be kept
        whole: Same = lambda now: own(now) and identical(items, take(now))  # noqa: E731
    else:
        sames = [sameness(part, item) for part, item in zip(parts, items, strict=True)]
        whole = lambda now: own(now) and all_same(sames, take(now))  # noqa: E731
    return Seen((form, *[part.form for part in parts]), whole, hidden_of(parts))


def _sequence(self: Look, value: Any) -> Seen:
    self.check_size(len(value), MOST_ITEMS)
    base: Any = builtin_base(type(value)) or list
    return _composed(self, value, _class_form(type(value)), lambda now: list(base.__iter__(now)))


def _mapping(self: Look, value: Mapping[Any, Any]) -> Seen:
    self.check_size(len(value), MOST_ITEMS)
    return _composed(
        self, value, _class_form(type(value)), lambda now: [*now.keys(), *now.values()]
    )


def _set(self: Look, value: Any) -> Seen:
    self.check_size(len(value), MOST_ITEMS)
    own, members = is_it(value), [self.see(each) for each in value]
    copy = list(value) if all(each.same is None for each in members) else None
    forms = sorted((repr(each.form) for each in members), key=str)
    counted = len(value)

    def same(now: Any) -> bool:
        kept = len(now) == counted
        return own(now) and kept and (copy is None or all(map(now.__contains__, copy)))

    return Seen((_class_form(type(value)), tuple(forms)), same, hidden_of(members))


def _numpy_array(self: Look, value: np.ndarray[Any, Any]) -> Seen:
    self.check_size(value.nbytes, MOST_BYTES)
    if value.dtype.hasobject:
        return Seen(Itself(value), is_it(value), "an array of objects")
    own, content = is_it(value), _digest(value)
    same: Same = lambda now: own(now) and _digest(now) == content  # noqa: E731
    return Seen((_class_form(type(value)), *content), same)


def _digest(value: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    data = value.tobytes()
    if len(data) > MOST_BYTES:
        data = hashlib.blake2b(data, digest_size=16).digest()
    return value.dtype, value.shape, data


def _jax_array(_: Look, value: Any) -> Seen:
    return Seen(OfArray(value), is_it(value))


def _tracer(_: Look, value: Any) -> Seen:
    return Seen(Itself(value), is_it(value))  # which never changes


def _generic(_: Look, value: Any) -> Seen:
    return Seen((type(value), repr(value.dtype), value.tobytes()))


def _dtype(_: Look, value: Any) -> Seen:
    return Seen((np.dtype, repr(value)))


def _enum(_: Look, value: Enum) -> Seen:
    return Seen((_class_form(type(value)), value.name))


def _module(_: Look, value: types.ModuleType) -> Seen:
    return Seen((types.ModuleType, value.__name__), is_it(value))


def _function(self: Look, value: types.FunctionType) -> Seen:
    facts = facts_of(value.__code__)
    name = value.__module__, value.__qualname__
    if facts.installed and "<locals>" not in value.__qualname__:
        return Seen((types.FunctionType, *name), is_it(value))
    code = Itself(value.__code__) if facts.form is None else facts.form
    own, plain = is_it(value), value.__code__
    defaults = value.__defaults__, value.__kwdefaults__
    parts = [self.see(each) for each in defaults]
    if self.holds or facts.installed:
        parts += [self.see(held) for held in _held(value)]

    def same(now: Any) -> bool:
        if not own(now) or now.__code__ is not plain:
            return False
        return now.__defaults__ is defaults[0] and now.__kwdefaults__ is defaults[1]

    return Seen((types.FunctionType, code, *[each.form for each in parts]), same, hidden_of(parts))


def _held(function: types.FunctionType) -> list[Any]:
    found: list[Any] = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not assigned yet
            found.append(None)
    return found


def _method(self: Look, value: Any) -> Seen:
    """Look at a bound method, of which each access makes another one."""
    parts = value.__func__, value.__self__
    seen = [self.see(part) for part in parts]
    sames = [sameness(each, part) for each, part in zip(seen, parts, strict=True)]
    kind = type(value)

    def same(now: Any) -> bool:
        return type(now) is kind and all_same(sames, [now.__func__, now.__self__])

    return Seen((kind, *[each.form for each in seen]), same, hidden_of(seen))


def _builtin(self: Look, value: Any) -> Seen:
    owner, name, kind = value.__self__, value.__name__, type(value)
    if owner is None or isinstance(owner, types.ModuleType | type):
        return Seen((kind, getattr(value, "__module__", None), value.__qualname__), is_it(value))
    seen = self.see(owner)
    inside = sameness(seen, owner)
    same: Same = lambda now: (  # noqa: E731
        type(now) is kind and now.__name__ == name and inside(now.__self__)
    )
    return Seen((kind, name, seen.form), same, seen.hidden)


def _partial(self: Look, value: Any) -> Seen:
    return _composed(
        self,
        value,
        _class_form(type(value)),
        lambda now: [now.func, *now.args, *now.keywords.keys(), *now.keywords.values()],
    )


def _class(self: Look, value: type) -> Seen:
    """Look at a class by its name, and at the code of one of the user's."""
    form = _class_form(value)
    if is_installed_module(value.__module__):
        return Seen(form, is_it(value))
    codes: list[Any] = []
    for name, member in list(vars(value).items()):
        code = getattr(function_in(member), "__code__", None)
        if isinstance(code, types.CodeType):
            codes.append((name, facts_of(code).form))
        elif type(member) in PLAIN and not name.startswith("__"):
            codes.append((name, self.see(member).form))
    return Seen((*form, *codes), is_it(value))


def _class_form(kind: type) -> tuple[str, ...]:
    return kind.__module__, kind.__qualname__


def _object(self: Look, value: Any) -> Seen:
    """Look at an object by its class and its attributes, if those are all there is to it."""
    kind: type = type(value)
    wrapped = getattr(value, "__wrapped__", None)
    if callable(value) and callable(wrapped):  # what JAX makes of a function
        inner = self.see(wrapped)
        return Seen((_class_form(kind), inner.form), is_it(value), inner.hidden)
    if dataclasses.is_dataclass(kind) and jax.tree_util.is_tree_node(kind):
        names = [each.name for each in dataclasses.fields(kind)]
        return _composed(
            self, value, _class_form(kind), lambda now: [getattr(now, name) for name in names]
        )
    if has_hidden_state(kind):
        reason = f"a {kind.__qualname__} does not show what it holds"
        return Seen(Itself(value), is_it(value), reason)
    self.check_size(len(attributes(value)), MOST_ITEMS)
    return _composed(self, value, _class_form(kind), _state)


def _state(value: Any) -> list[Any]:
    return [part for pair in attributes(value) for part in pair]


_KINDS: Final[Kinds] = (
    (Tracer, _tracer),
    (jax.Array, _jax_array),
    (np.ndarray, _numpy_array),
    (np.generic, _generic),
    (np.dtype, _dtype),
    (Enum, _enum),
    (type, _class),
    (types.ModuleType, _module),
    (types.FunctionType, _function),
    ((types.MethodType, BoundMethod), _method),  # before partials: some methods are
    ((types.BuiltinFunctionType, types.MethodWrapperType), _builtin),
    (functools.partial, _partial),
    ((list, tuple, collections.deque), _sequence),
    ((dict, types.MappingProxyType), _mapping),
    ((set, frozenset), _set),
    (object, _object),
)
