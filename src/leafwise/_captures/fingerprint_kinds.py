"""The fingerprint of each kind of value."""

import collections
import dataclasses
import dis
import functools
import hashlib
import keyword
import operator
import pathlib
import types
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from typing import Any, Final, cast

import jax
import numpy as np
from jax.core import Tracer

from leafwise._captures.fingerprinter import (
    MOST_ATTRIBUTES,
    MOST_BYTES,
    MOST_ITEMS,
    ByWeakId,
    Fingerprinted,
    Fingerprinter,
    Form,
    Kinds,
    Names,
    OfArray,
    Same,
    Source,
    as_one,
    check_of,
    combine,
    identity_check,
    identity_source,
    parts_check,
    parts_source,
)
from leafwise._objects.attributes import (
    MACHINERY,
    behind_proxy,
    dict_and_slots,
    dict_of,
    has_hidden_state,
    hides,
    in_class,
    is_first,
    is_frozen,
    is_plain_object,
    keeps_in_dict,
    names_and_values,
    never_changes,
    own_attributes,
    record_fields,
    registry_of,
    slots_of,
    stored_attributes,
    wrapped_by,
)
from leafwise._objects.class_map import ClassMap
from leafwise._objects.classes import is_a
from leafwise._objects.code import facts_of, function_in, int_as_float, is_installed_module
from leafwise._objects.methods import BoundMethod
from leafwise._objects.parts import kind_of
from leafwise._objects.stand_ins import MISSING


def fingerprint(value: Any, *, words: frozenset[str] = frozenset()) -> Fingerprinted:
    """Fingerprint a value; what is large in it, or does not show its content, by identity.

    Args:
        value: The value of a capture.
        words: The names of the attributes that count of a plain object of the user's; all if empty.
    """
    return Fingerprinter(_KINDS, words).fingerprint(value)


def _by_parts(self: Fingerprinter, value: Any) -> Fingerprinted:
    """Fingerprint a value by its content and its parts, as the table of kinds has them."""
    cls, kind = type(value), kind_of(value)
    if kind.name in _SIZED:
        self.check_size(len(value), MOST_ITEMS)
    if is_a(value, str | bytes):
        self.check_size(len(value), MOST_BYTES)
    if kind.name == "buffer":
        self.check_size(memoryview(value).nbytes, MOST_BYTES)
    self.enter()
    content, found = kind.read(value)
    items = [item for _, item in found]
    if kind.name == "plain" and not items:
        return Fingerprinted((*_class_form(cls), *content))
    parts = self.fingerprint_all(items)
    # Of a key there is nothing to say but which it is.
    steps = tuple("" if step.startswith(" key ") else step for step, _ in found)
    form = Form((*_class_form(cls), *content), steps, tuple(part.form for part in parts))
    is_fixed = all(part.is_fixed for part in parts)
    if cls is tuple and len(items) <= _FEW and all(part.same is None for part in parts):
        return combine(form, None, parts)
    if is_fixed and issubclass(cls, tuple) and not hasattr(value, "__dict__"):
        return as_one(form, value)
    inside = parts_check(value, items, parts, kind.values)
    source = _source_of_items(value, items, parts)
    if cls in _OF_PARTS_ALONE:
        return combine(form, inside, parts, source)
    return combine(form, lambda now: inside(now) and kind.content(now) == content, parts, source)


_FEW: Final = 16


def _source_of_items(value: Any, items: list[Any], parts: list[Fingerprinted]) -> Source | None:
    """Return the source of the check of a list, a tuple, a named tuple or a dict."""
    cls: Any = type(value)
    is_tuple = issubclass(cls, tuple) and not hasattr(value, "__dict__")
    if cls is list or (
        is_tuple and cls.__getitem__ is tuple.__getitem__ and cls.__len__ is tuple.__len__
    ):
        ways = [f"[{place}]" for place in range(len(items))]
        return parts_source(value, [*zip(ways, items, parts, strict=True)], size=len(items))
    size = len(items) // 2
    keys = tuple(items[:size])
    if cls is dict and all(type(key) is str and len(key) <= MOST_BYTES for key in keys):
        ways = [f"[{key!r}]" for key in keys]
        read = [*zip(ways, items[size:], parts[size:], strict=True)]
        return parts_source(value, read, size=size, keys=keys)
    return None


_SIZED: Final = frozenset({"list", "tuple", "deque", "set", "frozenset", "dict", "mapping"})
_OF_PARTS_ALONE: Final = frozenset(
    {
        *(list, tuple, dict, set, frozenset, collections.OrderedDict, collections.defaultdict),
        *(collections.deque, types.MappingProxyType, slice, range),
    }
)
"""Types whose content says nothing that can change without the parts."""


def _numpy_array(self: Fingerprinter, value: np.ndarray[Any, Any]) -> Fingerprinted:
    self.check_size(value.nbytes, MOST_BYTES)
    self.check_size(value.size * value.dtype.hasobject, MOST_ITEMS)
    cls, kind, content = type(value), kind_of(value), _digest(value)
    items = list(kind.values(value))
    parts = self.fingerprint_all(items)
    inside = parts_check(value, items, parts, kind.values)
    named = (_class_form(cls), value.dtype, *content)
    form = (*named, *(part.form for part in parts))
    return combine(form, lambda now: inside(now) and _digest(now) == content, parts)


def _digest(value: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    dtype, *content = kind_of(value).content(value)
    brief = [
        hashlib.blake2b(each, digest_size=16).digest()
        if type(each) is bytes and len(each) > MOST_BYTES
        else each
        for each in content
    ]
    return *brief, dtype


def _jax_array(_: Fingerprinter, value: Any) -> Fingerprinted:
    return as_one(OfArray(value), value)


def _tracer(_: Fingerprinter, value: Any) -> Fingerprinted:
    return as_one(ByWeakId(value), value)  # which never changes


def _generic(_: Fingerprinter, value: Any) -> Fingerprinted:
    return Fingerprinted((type(value), *kind_of(value).content(value)))


def _enum(_: Fingerprinter, value: Enum) -> Fingerprinted:
    return Fingerprinted((_class_form(type(value)), value.name))


def _by_text(self: Fingerprinter, value: Any) -> Fingerprinted:
    """Fingerprint a path or a spec, which may keep how it was made, and what it was asked for."""
    if not is_installed_module(type(value).__module__):
        return _object(self, value)
    return as_one((_class_form(type(value)), repr(value)), value)


def _sharding(self: Fingerprinter, value: jax.NamedSharding) -> Fingerprinted:
    """Fingerprint a sharding, which is made again where it is needed, and never changes."""
    steps = (".mesh", ".spec", ".memory_kind")
    parts = value.mesh, value.spec, value.memory_kind
    forms = tuple(self.fingerprint(each).form for each in parts)
    return as_one(Form(_class_form(type(value)), steps, forms), value)


def _module(self: Fingerprinter, value: types.ModuleType) -> Fingerprinted:
    if is_installed_module(value.__name__):
        return as_one((types.ModuleType, value.__name__), value)
    return _by_words(self, value, vars(value))


def _function(self: Fingerprinter, value: types.FunctionType) -> Fingerprinted:
    facts = facts_of(value.__code__)
    name = value.__module__, value.__qualname__
    own, itself, plain = identity_check(value), identity_source(value), value.__code__
    is_shown = facts.installed and registry_of(value) is None
    if is_shown and "<locals>" not in value.__qualname__:
        return as_one((types.FunctionType, *name), value)
    self.enter()
    code = ByWeakId(value.__code__) if facts.form is None else facts.form
    defaults = value.__defaults__, value.__kwdefaults__
    held = _closure_of(value)
    parts = self.fingerprint_apart([*defaults, *held.values()])
    choice = registry_of(value)

    def same(now: Any) -> bool:
        if not own(now) or now.__code__ is not plain:
            return False
        return now.__defaults__ is defaults[0] and now.__kwdefaults__ is defaults[1]

    def source(found: str, names: Names) -> list[str]:
        at = names.local()
        terms = [
            *itself(f"({at} := {found})", names),
            f"{at}.__code__ is {names.of('code', plain)}",
        ]
        if not facts.installed:
            for each, name in zip(defaults, ("__defaults__", "__kwdefaults__"), strict=True):
                terms.append(f"{at}.{name} is {names.of('defaults', each)}")
        return terms

    steps = (".__defaults__", ".__kwdefaults__", *[f" holding {name}" for name in held])
    form = Form((types.FunctionType, code), steps, tuple(each.form for each in parts))
    if choice is None:
        return combine(form, same, parts, source)
    inside = check_of(parts[-1], choice)  # of `functools.singledispatch`
    return combine(form, lambda now: same(now) and inside(registry_of(now)), parts)


def _closure_of(function: types.FunctionType) -> dict[str, Any]:
    """Return what a function closes over, by name; of `functools.singledispatch`, its choice."""
    if (registry := registry_of(function)) is not None:
        return {"registry": registry}
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
    if owner is None or is_a(owner, types.ModuleType | type):
        return as_one((kind, getattr(value, "__module__", None), value.__qualname__), value)
    inner = self.fingerprint(owner)
    inside = check_of(inner, owner)
    same: Same = lambda now: (  # noqa: E731
        type(now) is kind and now.__name__ == name and inside(now.__self__)
    )
    return combine(Form((kind, name), (".__self__",), (inner.form,)), same, [inner])


def _reference(self: Fingerprinter, value: Any) -> Fingerprinted:
    """Fingerprint a weak reference or proxy: what it leads to, if that is the user's."""
    is_proxy = is_a(value, weakref.ProxyTypes)
    find: Callable[[Any], Any] = behind_proxy if is_proxy else type(value).__call__
    found = find(value)
    known = is_a(found, types.MethodType) or not is_installed_module(type(found).__module__)
    if not known:
        return as_one((_class_form(type(value)), ByWeakId(found)), value)
    inner, own = self.fingerprint(found), identity_check(value)
    inside = check_of(inner, found)
    same: Same = lambda now: own(now) and inside(find(now))  # noqa: E731
    return combine(Form(_class_form(type(value)), ("()",), (inner.form,)), same, [inner])


def _class(self: Fingerprinter, value: type) -> Fingerprinted:
    """Fingerprint a class: its name, and the code and the data of one of the user's."""
    form = value.__module__, value.__qualname__
    if is_installed_module(value.__module__):
        return as_one(form, value)
    codes: list[Any] = []
    for name, member in list(vars(value).items()):
        code = getattr(function_in(member), "__code__", None)
        if isinstance(code, types.CodeType):
            codes.append((name, facts_of(code).form))
    data = {name: each for name, each in vars(value).items() if not hasattr(type(each), "__get__")}
    inside = _by_words(self, value, data)
    return inside._replace(form=Form((*form, *codes), inside.form.steps, inside.form.parts))


def _class_form(kind: type) -> tuple[Any, ...]:
    """Return the form of the type of a value: a class of the user's is equal to itself alone."""
    name = kind.__module__, kind.__qualname__
    return name if is_installed_module(kind.__module__) else (*name, ByWeakId(kind))


def _object(self: Fingerprinter, value: Any) -> Fingerprinted:
    """Fingerprint an object: its class and its attributes, if those are all there is to it."""
    kind: type = type(value)
    if hides(value):
        return as_one(ByWeakId(value), value)
    kind_name = kind_of(value).name
    if kind_name not in _BY_ATTRIBUTES or (kind_name != "object" and has_hidden_state(kind)):
        return _by_parts(self, value)
    wrapped = wrapped_by(value) if callable(value) else None
    if wrapped is not None:  # what JAX makes of a function
        inner, is_it = self.fingerprint(wrapped), identity_check(value)
        inside = check_of(inner, wrapped)
        found, itself = Form(_class_form(kind), ("",), (inner.form,)), identity_source(value)

        def source(at: str, names: Names) -> list[str]:
            name = names.local()
            return [
                *itself(f"({name} := {at})", names),
                *inner.terms(f"{name}.__wrapped__", None, names),
            ]

        return combine(found, lambda now: is_it(now) and inside(now.__wrapped__), [inner], source)
    held = stored_attributes(value)
    fields = _counted_fields(kind, held)
    if fields:
        steps = tuple(f".{name}" for name in fields)
        return _composed(self, value, lambda now: [getattr(now, n, MISSING) for n in fields], steps)
    if has_hidden_state(kind) or kind.__module__.partition(".")[0] in MACHINERY:
        return as_one(ByWeakId(value), value)
    if self.words and is_plain_object(kind):
        return _by_words(self, value, held)
    self.check_size(len(held), MOST_ATTRIBUTES)
    own, slots = dict_of(value), slots_of(kind)
    parts_of: Callable[[Any], list[Any]] = functools.partial(dict_and_slots, slots)
    names, first = [*own, *slots], len(own)
    if not own.keys() <= held.keys():  # there are cached properties in it
        parts_of, names, first = names_and_values, sorted(held), len(held)
    composed = _composed(self, value, parts_of)
    named = sorted(
        zip(names, composed.form.parts[first:], strict=True), key=lambda pair: str(pair[0])
    )
    steps = tuple(f".{name}" for name, _ in named)
    form = Form(_class_form(kind), steps, tuple(part for _, part in named))
    return composed._replace(form=form)


def _by_words(self: Fingerprinter, value: Any, held: Mapping[str, Any]) -> Fingerprinted:
    """Fingerprint a plain object, class or module of the user's by the names in code."""
    kind = type(value)
    is_object = not is_a(value, type | types.ModuleType)
    shared = list(_data_of_class(kind, self.words - held.keys())) if is_object else []
    names = [name for name in held if type(name) is str and name in self.words]
    count = len(own_attributes(value) if is_object else vars(value))

    def parts_of(now: Any) -> list[Any]:
        own = own_attributes(now) if is_object else vars(now)
        of_class = (in_class(type(now), name) for name in shared)
        return [*(own.get(name, MISSING) for name in names), *of_class, len(own) == count]

    items = parts_of(value)
    parts = self.fingerprint_all(items)
    steps = tuple(f".{name}" for name in (*names, *shared))
    form = Form(_class_form(kind), steps, tuple(each.form for each in parts[:-1]))
    source = None
    if is_object and keeps_in_dict(kind) and not (slots_of(kind) or shared):
        read = [
            (f"[{name!r}]", item, part)
            for name, item, part in zip(names, items, parts, strict=False)
        ]
        source = parts_source(value, read, size=count, in_dict=True)
    return combine(form, parts_check(value, items, parts, parts_of), parts, source)


def _data_of_class(kind: type, words: frozenset[str]) -> Iterator[str]:
    """Yield the names in code of data that a class of the user's has for its instances."""
    for base in kind.__mro__:
        for name, each in {} if is_installed_module(base.__module__) else vars(base).items():
            if name in words and not name.startswith("__") and not hasattr(type(each), "__get__"):
                yield name


def _composed(
    self: Fingerprinter,
    value: Any,
    parts_of: Callable[[Any], list[Any]],
    steps: tuple[str, ...] = (),
) -> Fingerprinted:
    """Fingerprint an object by the parts that `parts_of` returns; `steps` are the ways to them."""
    self.enter()
    items = parts_of(value)
    parts = self.fingerprint_all(items)
    form = Form(_class_form(type(value)), steps, tuple(part.form for part in parts))
    if never_changes(type(value)) and all(part.is_fixed for part in parts):
        return as_one(form, value)
    source = _source_of_attributes(value, items, parts, steps)
    return combine(form, parts_check(value, items, parts, parts_of), parts, source)


def _source_of_attributes(
    value: Any, items: list[Any], parts: list[Fingerprinted], steps: tuple[str, ...]
) -> Source | None:
    """Return the source of the check of an object, if reading it runs no code of the user's."""
    kind: Any = type(value)
    own, keys = dict_of(value), None
    if not steps:  # all that it has: names, values, and no slots
        first = len(own)
        keys = tuple(own)
        is_all = len(items) == 2 * first and all(map(operator.is_, items, keys))
        if not is_all or any(type(name) is not str for name in keys):
            return None
        items, parts, steps = items[first:], parts[first:], tuple(f".{name}" for name in keys)
    if not keeps_in_dict(kind):
        return None
    is_plain = kind.__getattribute__ is object.__getattribute__
    fields = [name.removeprefix(".") for name in steps]
    by_name = keys is None and is_plain and all(_can_be_written(kind, name) for name in fields)
    way_to = ".{}".format if by_name else "[{!r}]".format
    read: list[tuple[str, Any, Fingerprinted]] = []
    statics: list[tuple[Any, Fingerprinted]] = []
    for name, item, part in zip(fields, items, parts, strict=True):
        if own.get(name, MISSING) is item:
            read.append((way_to(name), item, part))
        else:
            statics.append((item, part))
    if statics:
        in_key = _ways_in_key(own.get(_KEY), way_to(_KEY), statics)
        if in_key is None:
            return None
        read += in_key
    return parts_source(value, read, keys=keys, in_dict=not by_name)


def _ways_in_key(
    key: Any, way: str, statics: list[tuple[Any, Fingerprinted]]
) -> list[tuple[str, Any, Fingerprinted]] | None:
    """Return the ways to the statics of ours: a key has the same ones for ever."""
    found = [(way, None, as_one(None, key))]
    for item, part in statics:
        places = [place for place, each in enumerate(getattr(key, "values", ())) if each is item]
        if not places:
            return None
        if part.same is not None:  # something in it may change
            found.append((f"{way}.values[{places[0]}]", item, part))
    return found


def _can_be_written(kind: type, name: str) -> bool:
    """Return whether an attribute that is in the dict is found with a dot."""
    return name.isidentifier() and not keyword.iskeyword(name) and not is_first(kind, name)


_KEY: Final = "__leafwise_key__"


_BY_ATTRIBUTES: Final = frozenset({"object", "record", "mapping"})
"""The kinds of objects that are read without code of the user's, who may have written it."""


def _counted_fields(kind: Any, held: Collection[str]) -> tuple[str, ...]:
    """Return the fields that are all there is to an object; none if it does not say so.

    That is a dataclass that JAX takes apart: the statics of ours lie elsewhere. And a module of
    flax.linen, which keeps an id and what it last did beside its fields.
    """
    if jax.tree_util.is_tree_node(kind) and dataclasses.is_dataclass(kind):
        fields = tuple(each.name for each in dataclasses.fields(kind))
        return fields if all(name in fields or name.startswith("__") for name in held) else ()
    is_guarded = not is_frozen(kind) and kind.__setattr__ is not object.__setattr__
    return (record_fields(kind) or ()) if is_guarded else ()


_KINDS: Final[Kinds] = (
    (Tracer, _tracer),
    (jax.Array, _jax_array),
    (np.ndarray, _numpy_array),
    (np.void, _by_parts),  # its items can be assigned
    (np.generic, _generic),
    (np.dtype, _by_parts),
    (Enum, _enum),
    (type, _class),
    (types.ModuleType, _module),
    ((pathlib.PurePath, jax.P), _by_text),
    (jax.NamedSharding, _sharding),
    (types.FunctionType, _function),
    ((types.MethodType, BoundMethod), _method),  # before partials: some methods are
    ((types.BuiltinFunctionType, types.MethodWrapperType), _builtin),
    ((weakref.ReferenceType, *weakref.ProxyTypes), _reference),
    (object, _object),
)
