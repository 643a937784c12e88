"""Reading static values by content: functions by what they are made of, not by which they are.

Two functions have equal forms if they have the same code, defaults, attributes and closures,
all the way down, and the code finds the same under the global names that it reads. Code of
installed packages is taken to find the same at all times, and a function that such a package
has under a name is itself. What cannot be compared is refused by its path.
"""

import collections
import functools
import operator
import struct
import sys
import types
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._objects.attributes import attributes, has_hidden_state, is_itself
from leafwise._objects.code import (
    Chain,
    CodeFacts,
    contents,
    facts_of,
    find_all,
    function_in,
    is_importable,
    own_bases,
    resolve,
)
from leafwise._objects.methods import BoundMethod
from leafwise._objects.stand_ins import MISSING, ById
from leafwise._objects.text import shorten
from leafwise._statics import findings
from leafwise._statics.content_reading import ContentCanonicaliser, Kept, attributes_of
from leafwise._statics.form import CANONICAL, Canonicaliser, CanonicalOf, canonicalise
from leafwise._statics.guards import items

_MOST_BYTES: Final = 1 << 16


def read_by_content(reading: Canonicaliser, value: Any, path: str) -> None:
    """Add the form of `value` by content to a reading, and what guards it."""
    content = ContentCanonicaliser(_content_readers())
    try:
        canonicalise(content, value, path)
        content.finish()
    except RecursionError:
        content.find(findings.uncomparable(path, value, "it is nested too deeply"))
    reading.take_over(content)
    reading.push(Kept(content.kept))
    reading.guards.append((content.owned, content.around))


_Content: TypeAlias = Any
"""A `ContentCanonicaliser`, in a table for all kinds of readings."""


def _read_function(reading: _Content, value: types.FunctionType, path: str) -> None:
    facts = facts_of(value.__code__)
    if facts.installed and is_importable(value):
        reading.push(ById(value))
        return
    reading.node(value, lambda: _read_function_parts(reading, value, facts, path))


def _read_function_parts(
    reading: ContentCanonicaliser, value: types.FunctionType, facts: CodeFacts, path: str
) -> None:
    if facts.form is None:
        reason = "its code holds constants that no source code can spell"
        reading.find(findings.uncomparable(path, value, reason))
    if facts.rebinds and not facts.installed:
        reason = f"it assigns {facts.rebinds[0]!r} whenever it runs, so it never stays the same"
        reading.find(findings.uncomparable(path, value, reason))
    reading.push(id(types.FunctionType), facts.form)
    reading.push(value.__name__, value.__qualname__, value.__module__)
    reading.noting.add_attributes(value)
    (reading.around if facts.installed else reading.noting).add_function(value)
    _read_globals(reading, value, facts, path)
    canonicalise(reading, value.__defaults__, f"{path}.__defaults__")
    _read_named(reading, value.__kwdefaults__ or {}, f"{path}.__kwdefaults__")
    cells = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True))
    for name, cell in cells.items():
        where = f"{path}.__closure__[{name!r}]"
        if name in facts.rebinds and (number := _number_in(cell)):
            # optax's cosine_decay_schedule turns its own int into a float, once.
            reading.push(*number)
            reading.noting.add(_number_in, cell)
        else:
            _read_cell(reading, cell, where)
    if facts.takes and not facts.installed:
        held = {name: contents(cell) for name, cell in cells.items()}
        _read_chains(reading, held, facts.takes, path)
    for name, item in sorted(vars(value).items()):
        reading.push(name)
        canonicalise(reading, item, f"{path}.{name}")


def _read_named(reading: Canonicaliser, named: Mapping[str, Any], path: str) -> None:
    reading.push(len(named))
    for name, item in named.items():
        reading.push(name)
        canonicalise(reading, item, f"{path}[{name!r}]")


def _read_cell(reading: _Content, cell: types.CellType, path: str) -> None:
    def read_parts() -> None:
        held = contents(cell)
        reading.push(id(types.CellType))
        if held is MISSING:
            reading.push(MISSING)
            reading.noting.add(_in_a_tuple, cell)
        else:
            reading.noting.add_cell(cell, held)
            canonicalise(reading, held, path)

    # Which cells are shared does not count, as no code may assign them: copies by
    # cloudpickle do not share them any more.
    reading.inside(cell, path, read_parts)


def _number_in(cell: types.CellType) -> tuple[Any, ...]:
    """Return a number, an int as the float that it is equal to; empty for anything else."""
    held = contents(cell)
    exact = type(held) is float or (type(held) is int and abs(held) < _FLOATS_END)
    return (float, struct.pack("d", held)) if exact else ()


_FLOATS_END: Final = 1 << 53
"""From here on there are ints that no float is equal to."""


def _in_a_tuple(cell: types.CellType) -> tuple[Any, ...]:
    return (contents(cell),)


def _read_globals(
    reading: ContentCanonicaliser, value: types.FunctionType, facts: CodeFacts, path: str
) -> None:
    """Read what the code finds under global names."""
    names = value.__globals__
    module = names.get("__name__")
    if facts.installed:
        own: Any = getattr(sys.modules.get(cast("str", module)), "__dict__", {})
        wanted = {chain[0] for chain in facts.reads}
        same = own is names or all(own.get(n, own) is names.get(n, own) for n in wanted)
        reading.push(module if same else ById(names))
        return
    if facts.sees_all:
        reading.push(ById(names))
    _read_chains(reading, names, facts.reads, f"{path}.__globals__")


def _read_chains(
    reading: ContentCanonicaliser, names: Mapping[str, Any], chains: tuple[Chain, ...], path: str
) -> None:
    reading.around.add(functools.partial(find_all, chains), names)
    for chain in chains:
        found = resolve(names, chain)
        reading.push(chain[0])
        if found is MISSING:
            reading.push(MISSING)
        else:
            reading.look_around(found, f"{path}[{'.'.join(chain)!r}]")


def _read_method(reading: _Content, value: types.MethodType | BoundMethod, path: str) -> None:
    reading.push(id(type(value)))
    canonicalise(reading, value.__func__, f"{path}.__func__")
    _read_receiver(reading, value.__self__, f"{path}.__self__")


def _read_receiver(reading: _Content, value: Any, path: str) -> None:
    if is_itself(value) and not has_hidden_state(type(value)):
        _read_object(reading, value, path)
    else:
        canonicalise(reading, value, path)


def _read_builtin(reading: _Content, value: Any, path: str) -> None:
    owner = value.__self__
    if owner is None:
        reading.push(ById(value))
        return
    if isinstance(owner, types.ModuleType | type):
        reading.push(value.__qualname__)
        _read_other(reading, owner, f"{path}.__self__")
        return
    reading.push(id(type(value)), value.__name__)
    reading.deep += 1
    _read_receiver(reading, owner, f"{path}.__self__")
    reading.deep -= 1


def _read_reduced(reading: Canonicaliser, value: Any, path: str) -> None:
    reading.push(id(type(value)))
    canonicalise(reading, value.__reduce__()[1:], path)


def _read_object(reading: _Content, value: Any, path: str) -> None:
    """Read an object by its class and its attributes."""
    kind: type = type(value)

    def read_parts() -> None:
        reading.push(id(kind))
        reading.noting.add(attributes_of(value), value)
        for name, item in attributes(value):
            reading.push(name)
            canonicalise(reading, item, f"{path}.{name}")
        reading.push(None)

    reading.node(value, read_parts)
    _read_classes(reading, kind, path)


def _read_classes(reading: ContentCanonicaliser, cls: type, path: str) -> None:
    for base in own_bases(cls):
        _read_class(reading, base, f"{path}.{base.__name__}")


def _read_class(reading: ContentCanonicaliser, cls: type, path: str) -> None:
    """Read what the code of a class finds by name, and what it could assign on the class."""

    def read_parts() -> None:
        reading.around.add(lambda each: items(vars(each)), cls)
        for name, member in vars(cls).items():
            if name not in _OF_EVERY_CLASS:
                reading.push(name)
                reading.look_around(function_in(member), f"{path}.{name}")

    reading.push(ById(cls))
    reading.node(cls, read_parts)


_OF_EVERY_CLASS: Final = frozenset(
    {
        *("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__slots__"),
        *("__slotnames__", "__annotations_cache__", "__annotate_func__"),  # made when asked for
    }
)


def _read_jax_array(reading: ContentCanonicaliser, value: Any, path: str) -> None:
    if value.is_deleted() or not value.is_fully_addressable or value.nbytes > _MOST_BYTES:
        reason = "only arrays of at most 64 KiB, all of them on this host, are compared"
        reading.find(findings.uncomparable(path, value, reason))
        return
    is_key = jnp.issubdtype(value.dtype, jax.dtypes.extended)
    data = np.asarray(jax.random.key_data(value) if is_key else value)
    where = value.sharding if value.committed else None
    weak = bool(getattr(value, "weak_type", False))  # which a PRNG key does not have
    reading.push(id(jax.Array), str(value.dtype), value.shape, weak, where)
    reading.push(data.tobytes())


def _read_numpy_array(reading: ContentCanonicaliser, value: Any, path: str) -> None:
    def read_parts() -> None:
        reading.push(id(np.ndarray), repr(value.dtype), value.shape, value.tobytes())
        reading.noting.add(lambda array: (repr(array.dtype), *array.shape, array.tobytes()), value)

    if type(value) is not np.ndarray or value.dtype.hasobject or value.nbytes > _MOST_BYTES:
        reason = "only NumPy arrays of at most 64 KiB, of numbers, are compared"
        reading.find(findings.uncomparable(path, value, reason))
    else:
        reading.node(value, read_parts)


def _read_items(reading: _Content, value: Any, path: str) -> None:
    """Read a list or the like, inside a function."""
    if not reading.deep:
        _read_other(reading, value, path)
        return

    def read_parts() -> None:
        reading.push(id(type(value)), len(value))
        reading.noting.add(tuple, value)
        for index, item in enumerate(value):
            canonicalise(reading, item, f"{path}[{index}]")
        if isinstance(value, collections.deque):
            reading.push(value.maxlen)

    reading.node(value, read_parts)


def _read_dict(reading: _Content, value: Any, path: str) -> None:
    if not reading.deep:
        _read_other(reading, value, path)
        return

    def read_parts() -> None:
        reading.push(id(type(value)), len(value))
        reading.noting.add(items, value)
        for key, item in value.items():
            canonicalise(reading, key, f"{path} key {shorten(key, 40)}")
            canonicalise(reading, item, f"{path}[{shorten(key, 40)}]")
        if isinstance(value, collections.defaultdict):
            canonicalise(reading, cast("Any", value).default_factory, f"{path}.default_factory")

    reading.node(value, read_parts)


def _read_set(reading: _Content, value: Any, path: str) -> None:
    if not reading.deep:
        _read_other(reading, value, path)
        return

    def read_parts() -> None:
        reading.noting.add(tuple, value)
        CANONICAL[frozenset](reading, value, path)

    reading.node(value, read_parts)


def _read_identity(reading: Canonicaliser, value: Any, _path: str) -> None:
    reading.push(ById(value))


def _read_other(reading: _Content, value: Any, path: str) -> None:
    """Read a value of a type that is in no table."""
    reading.kept.append(value)
    _read_classes(reading, value if isinstance(value, type) else type(value), path)
    if isinstance(value, type | types.ModuleType | Enum | np.ufunc):
        reading.push(ById(value))
    elif isinstance(value, jax.Array) and not findings.is_tracer(value) and reading.deep:
        _read_jax_array(reading, value, path)
    elif isinstance(value, np.ndarray) and reading.deep:
        _read_numpy_array(reading, value, path)
    elif not is_itself(value):
        CANONICAL[object](reading, value, path)
    elif (problem := findings.refused(path, value)) is not None:
        reading.find(problem)
    elif is_importable(value):
        reading.push(ById(value))
    elif has_hidden_state(type(value)):
        reason = f"a {type(value).__name__} does not show all that it holds"
        reading.find(findings.uncomparable(path, value, reason))
    elif callable(value):
        _read_object(reading, value, path)
    else:
        reading.read_as_itself(value, path)


@functools.cache
def _content_readers() -> dict[type, CanonicalOf]:
    """Return what reads a value of each type by content, and under `object` all others."""
    return {
        **CANONICAL,
        types.FunctionType: _read_function,
        types.CellType: _read_cell,
        types.MethodType: _read_method,
        BoundMethod: _read_method,
        types.BuiltinFunctionType: _read_builtin,
        types.MethodWrapperType: _read_builtin,
        **dict.fromkeys(
            (types.MethodDescriptorType, types.WrapperDescriptorType, types.ModuleType),
            _read_identity,
        ),
        type: _read_other,
        **dict.fromkeys(
            (operator.itemgetter, operator.attrgetter, operator.methodcaller), _read_reduced
        ),
        **dict.fromkeys((list, collections.deque, bytearray), _read_items),
        **dict.fromkeys((dict, collections.OrderedDict, collections.defaultdict), _read_dict),
        set: _read_set,
        object: _read_other,
    }
