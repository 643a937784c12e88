"""The fingerprint of each kind of value."""

import collections
import dataclasses
import dis
import functools
import hashlib
import types
import weakref
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, cast

import jax
import numpy as np
from jax.core import Tracer

from leafwise._captures.fingerprinter import (
    MOST_ATTRIBUTES,
    MOST_BYTES,
    MOST_ITEMS,
    PLAIN,
    ByWeakId,
    Fingerprinted,
    Fingerprinter,
    Form,
    Kinds,
    OfArray,
    Same,
    check_of,
    combine,
    identity_check,
    parts_check,
)
from leafwise._objects.attributes import (
    dict_and_slots,
    dict_of,
    has_hidden_state,
    hides,
    names_and_values,
    slots_of,
    steps_of_values,
    stored_attributes,
    wrapped_by,
)
from leafwise._objects.class_map import ClassMap
from leafwise._objects.code import facts_of, function_in, is_installed_module
from leafwise._objects.methods import BoundMethod
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import shorten


def fingerprint(value: Any, *, large: bool = False, closures: bool = True) -> Fingerprinted:
    """Fingerprint a value; what is large in it, or does not show its content, by identity.

    Args:
        value: The value of a capture.
        large: Whether to compare the content of large values, too.
        closures: Whether a function's closure is a part of it.
    """
    return Fingerprinter(_KINDS, large=large, closures=closures).fingerprint(value)


def _composed(
    self: Fingerprinter,
    value: Any,
    kind: Any,
    parts_of: Callable[[Any], list[Any]],
    steps: tuple[str, ...] = (),
) -> Fingerprinted:
    """Fingerprint a value by the parts that `parts_of` returns; `steps` are the ways to them."""
    self.enter()
    items = parts_of(value)
    parts = self.fingerprint_all(items)
    form = Form(kind, steps, tuple(part.form for part in parts))
    return combine(form, parts_check(value, items, parts, parts_of), parts)


def _sequence(self: Fingerprinter, value: Any) -> Fingerprinted:
    self.check_size(len(value), MOST_ITEMS)
    kind: Any = type(value)
    base: Any = next(each for each in (list, tuple, collections.deque) if issubclass(kind, each))
    steps = tuple(f"[{place}]" for place in range(len(value)))
    if kind is base:
        parts_of: Callable[[Any], list[Any]] = lambda now: list(base.__iter__(now))  # noqa: E731
        return _composed(self, value, _class_form(kind), parts_of, steps)
    names = getattr(kind, "_fields", ())
    steps = tuple(f".{name}" for name in names) if len(names) == len(steps) else steps
    return _composed(
        self,
        value,
        _class_form(kind),
        lambda now: [*base.__iter__(now), *names_and_values(now)],
        (*steps, *steps_of_values(value)),
    )


def _mapping(self: Fingerprinter, value: Any) -> Fingerprinted:
    self.check_size(len(value), MOST_ITEMS)
    kind: Any = type(value)
    keys: Any = value.keys() if kind is types.MappingProxyType else dict.keys(value)
    steps = _steps_of(list(keys))
    if kind in (dict, types.MappingProxyType):
        return _composed(
            self, value, _class_form(kind), lambda now: [*now.keys(), *now.values()], steps
        )
    return _composed(
        self,
        value,
        _class_form(kind),
        lambda now: [*dict.keys(now), *dict.values(now), *names_and_values(now)],
        (*steps, *steps_of_values(value)),
    )


def _steps_of(keys: list[Any]) -> tuple[str, ...]:
    """Return the ways to keys, which have none, and to values."""
    ways = [f"[{shorten(key, 40) if type(key) in PLAIN else '...'}]" for key in keys]
    return (*[""] * len(keys), *ways)


def _set(self: Fingerprinter, value: Any) -> Fingerprinted:
    self.check_size(len(value), MOST_ITEMS)
    own, members = identity_check(value), self.fingerprint_all(list(value))
    copy = list(value) if all(each.same is None for each in members) else None
    forms = sorted((repr(each.form) for each in members), key=str)
    counted = len(value)

    def same(now: Any) -> bool:
        kept = len(now) == counted
        return own(now) and kept and (copy is None or all(map(now.__contains__, copy)))

    return combine((_class_form(type(value)), tuple(forms)), same, members)


def _numpy_array(self: Fingerprinter, value: np.ndarray[Any, Any]) -> Fingerprinted:
    self.check_size(value.nbytes, MOST_BYTES)
    if value.dtype.hasobject:
        return Fingerprinted(ByWeakId(value), identity_check(value), "an array of objects")
    own, content = identity_check(value), _digest(value)
    same: Same = lambda now: own(now) and _digest(now) == content  # noqa: E731
    return Fingerprinted((_class_form(type(value)), *content), same)


def _digest(value: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    data = value.tobytes()
    if len(data) > MOST_BYTES:
        data = hashlib.blake2b(data, digest_size=16).digest()
    return value.dtype, value.shape, data


def _jax_array(_: Fingerprinter, value: Any) -> Fingerprinted:
    return Fingerprinted(OfArray(value), identity_check(value))


def _tracer(_: Fingerprinter, value: Any) -> Fingerprinted:
    return Fingerprinted(ByWeakId(value), identity_check(value))  # which never changes


def _generic(_: Fingerprinter, value: Any) -> Fingerprinted:
    return Fingerprinted((type(value), repr(value.dtype), value.tobytes()))


def _dtype(_: Fingerprinter, value: Any) -> Fingerprinted:
    return Fingerprinted((np.dtype, repr(value)))


def _enum(_: Fingerprinter, value: Enum) -> Fingerprinted:
    return Fingerprinted((_class_form(type(value)), value.name))


def _module(_: Fingerprinter, value: types.ModuleType) -> Fingerprinted:
    return Fingerprinted((types.ModuleType, value.__name__), identity_check(value))


def _function(self: Fingerprinter, value: types.FunctionType) -> Fingerprinted:
    facts = facts_of(value.__code__)
    name = value.__module__, value.__qualname__
    own, plain = identity_check(value), value.__code__
    if facts.installed and "<locals>" not in value.__qualname__:
        return Fingerprinted((types.FunctionType, *name), own)
    number = self.number_of(value)
    if number is not None:  # two functions of a package may share a third
        return Fingerprinted((types.FunctionType, number), own)
    self.enter()
    code = ByWeakId(value.__code__) if facts.form is None else facts.form
    defaults = value.__defaults__, value.__kwdefaults__
    held = _closure_of(value) if self.closures or facts.installed else {}
    parts = self.fingerprint_all([*defaults, *held.values()])

    def same(now: Any) -> bool:
        if not own(now) or now.__code__ is not plain:
            return False
        return now.__defaults__ is defaults[0] and now.__kwdefaults__ is defaults[1]

    steps = (".__defaults__", ".__kwdefaults__", *[f" holding {name}" for name in held])
    form = Form((types.FunctionType, code), steps, tuple(each.form for each in parts))
    return combine(form, same, parts)


def _closure_of(function: types.FunctionType) -> dict[str, Any]:
    """Return what a function closes over, by name."""
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            value = None
        found[name] = int_as_float(value) if name in names_written(function.__code__) else value
    return found


_WRITTEN: Final[ClassMap[frozenset[str]]] = ClassMap()


def names_written(code: types.CodeType) -> frozenset[str]:
    """Return the variables of the enclosing function that code assigns."""
    return _WRITTEN.setdefault(cast("Any", code), lambda: _find_written(code))


def _find_written(code: types.CodeType) -> frozenset[str]:
    stores = {each.argval for each in dis.get_instructions(code) if each.opname == "STORE_DEREF"}
    return frozenset(stores.intersection(code.co_freevars))


def int_as_float(value: Any) -> Any:
    """Return an `int` as the `float` that code makes of a variable in place, as optax does."""
    return float(value) if type(value) is int and abs(value) < _EXACT else value


_EXACT: Final = 1 << 53
"""Below this, distinct `int` values are distinct as `float`."""


def _method(self: Fingerprinter, value: Any) -> Fingerprinted:
    """Fingerprint a bound method by its parts: each access makes another object."""
    self.enter()
    items = [value.__func__, value.__self__]
    parts = self.fingerprint_all(items)
    of_function, of_self = map(check_of, parts, items)
    kind = type(value)

    def same(now: Any) -> bool:
        return type(now) is kind and of_function(now.__func__) and of_self(now.__self__)

    form = Form(_class_form(kind), (".__func__", ".__self__"), tuple(each.form for each in parts))
    return combine(form, same, parts)


def _builtin(self: Fingerprinter, value: Any) -> Fingerprinted:
    owner, name, kind = value.__self__, value.__name__, type(value)
    if owner is None or isinstance(owner, types.ModuleType | type):
        return Fingerprinted(
            (kind, getattr(value, "__module__", None), value.__qualname__), identity_check(value)
        )
    inner = self.fingerprint(owner)
    inside = check_of(inner, owner)
    same: Same = lambda now: (  # noqa: E731
        type(now) is kind and now.__name__ == name and inside(now.__self__)
    )
    return combine(Form((kind, name), (".__self__",), (inner.form,)), same, [inner])


def _partial(self: Fingerprinter, value: Any) -> Fingerprinted:
    names = list(value.keywords)
    return _composed(
        self,
        value,
        _class_form(type(value)),
        lambda now: [now.func, *now.args, *now.keywords.keys(), *now.keywords.values()],
        (
            ".func",
            *[f".args[{place}]" for place in range(len(value.args))],
            *[""] * len(names),
            *[f".keywords[{name!r}]" for name in names],
        ),
    )


def _reference(self: Fingerprinter, value: Any) -> Fingerprinted:
    """Fingerprint a weak reference: what it leads to, if that is the user's."""
    found = value()
    if found is None or is_installed_module(type(found).__module__):
        return Fingerprinted((_class_form(type(value)), ByWeakId(found)), identity_check(value))
    inner, own = self.fingerprint(found), identity_check(value)
    inside = check_of(inner, found)
    same: Same = lambda now: own(now) and inside(now())  # noqa: E731
    return combine(Form(_class_form(type(value)), ("()",), (inner.form,)), same, [inner])


def _class(self: Fingerprinter, value: type) -> Fingerprinted:
    """Fingerprint a class: its name, and the code of one of the user's."""
    form = _class_form(value)
    if is_installed_module(value.__module__):
        return Fingerprinted(form, identity_check(value))
    codes: list[Any] = []
    for name, member in list(vars(value).items()):
        code = getattr(function_in(member), "__code__", None)
        if isinstance(code, types.CodeType):
            codes.append((name, facts_of(code).form))
        elif type(member) in PLAIN and not name.startswith("__"):
            codes.append((name, self.fingerprint(member).form))
    return Fingerprinted((*form, *codes), identity_check(value))


def _class_form(kind: type) -> tuple[str, ...]:
    return kind.__module__, kind.__qualname__


def _object(self: Fingerprinter, value: Any) -> Fingerprinted:
    """Fingerprint an object: its class and its attributes, if those are all there is to it."""
    kind: type = type(value)
    if hides(value):
        reason = f"a {kind.__qualname__} answers for its attributes itself"
        return Fingerprinted(ByWeakId(value), identity_check(value), reason)
    wrapped = wrapped_by(value) if callable(value) else None
    if wrapped is not None:  # what JAX makes of a function
        inner, is_it = self.fingerprint(wrapped), identity_check(value)
        inside = check_of(inner, wrapped)
        found = Form(_class_form(kind), ("",), (inner.form,))
        return combine(found, lambda now: is_it(now) and inside(now.__wrapped__), [inner])
    held = stored_attributes(value)
    fields = _fields_of_node(kind)
    if fields and all(name in fields or name.startswith("__") for name in held):
        return _composed(
            self,
            value,
            _class_form(kind),
            lambda now: [getattr(now, name, MISSING) for name in fields],
            tuple(f".{name}" for name in fields),
        )
    if has_hidden_state(kind) or kind.__module__.partition(".")[0] in _MACHINERY:
        reason = f"a {kind.__qualname__} does not show what it holds"
        return Fingerprinted(ByWeakId(value), identity_check(value), reason)
    self.check_size(len(held), MOST_ATTRIBUTES)
    own, slots = dict_of(value), slots_of(kind)
    parts_of: Callable[[Any], list[Any]] = functools.partial(dict_and_slots, slots)
    names, first = [*own, *slots], len(own)
    if not own.keys() <= held.keys():  # there are cached properties in it
        parts_of, names, first = names_and_values, sorted(held), len(held)
    composed = _composed(self, value, _class_form(kind), parts_of)
    named = sorted(
        zip(names, composed.form.parts[first:], strict=True), key=lambda pair: str(pair[0])
    )
    steps = tuple(f".{name}" for name, _ in named)
    form = Form(_class_form(kind), steps, tuple(part for _, part in named))
    return composed._replace(form=form)


def _fields_of_node(kind: Any) -> tuple[str, ...]:
    """Return the fields of a dataclass that JAX takes apart: the statics of ours lie elsewhere."""
    if not jax.tree_util.is_tree_node(kind) or not dataclasses.is_dataclass(kind):
        return ()
    return tuple(each.name for each in dataclasses.fields(kind))


_MACHINERY: Final = frozenset(
    {"threading", "_thread", "queue", "logging", "concurrent", "multiprocessing", "asyncio"}
)
"""The modules whose objects change by themselves, and configure nothing."""


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
    (weakref.ReferenceType, _reference),
    ((list, tuple, collections.deque), _sequence),
    ((dict, types.MappingProxyType), _mapping),
    ((set, frozenset), _set),
    (object, _object),
)
