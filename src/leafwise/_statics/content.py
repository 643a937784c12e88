"""Static values by content: functions by what they consist of, not by their identity.

Two functions have equal forms if they have the same code, defaults, attributes and closures,
recursively, and their code finds the same values under the global names that it reads. The globals
of installed packages are assumed not to change, and a function importable from such a package is
compared by identity. What cannot be compared is rejected with its path, except globals and
attributes of objects, which are then compared by identity.
"""

import functools
import types
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

import jax
import numpy as np

from leafwise._objects.attributes import (
    WEAK,
    has_hidden_state,
    is_installed,
    is_itself,
    own_attributes,
    registry_of,
    wrapped_by,
)
from leafwise._objects.methods import BoundMethod
from leafwise._objects.parts import Part, kind_of
from leafwise._objects.source.code import (
    OF_EVERY_CLASS,
    facts_of,
    function_in,
    is_importable,
    is_installed_module,
    own_bases,
)
from leafwise._objects.source.names import Chain, Root, chains_within, value_of
from leafwise._objects.stand_ins import MISSING, ById
from leafwise._statics import findings
from leafwise._statics.fold import Fold, Guards, Policy, Position, Reader
from leafwise._statics.form import READERS, consists_of_parts, read_parts
from leafwise._statics.reached import REACHED


class Kept:
    """The objects whose ids are in a form, kept alive with it; all instances are equal."""

    __slots__ = ("values",)

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kept)

    def __hash__(self) -> int:
        return hash(Kept)


def read_by_content(fold: Fold, value: Any, path: str) -> None:
    """Add the tokens of `value` by content, and guards for what it consists of."""
    content = Fold(_POLICY, None if fold.paths is None else [])
    content.own, content.outer = Guards(), Guards()
    content.add(value, path)
    fold.tokens += content.tokens
    fold.paths = fold.paths and [*fold.paths, *(content.paths or ())]
    fold.push(path, Kept(content.kept))
    fold.findings += content.findings
    fold.guards.append((content.own, content.outer))


def _watch(fold: Fold, value: Any, path: str) -> bool:
    # Guards take the place of the digests that keys record.
    if not fold.enter(value, path):
        return False
    if not consists_of_parts(type(value)):  # its own == decides
        fold.push(path, hash(value))
        fold.guard.add(lambda target: (hash(target),), value)
    elif not isinstance(value, tuple) or type(value).__dictoffset__:
        fold.outer.add(_content_and_parts, value)
    return True


def _refuse(fold: Fold, value: Any, path: str, reason: str) -> tuple[()]:
    """Reject a value that cannot be compared, or compare it by identity if that is enough."""
    if fold.position >= Position.ATTRIBUTE:
        return _read_itself(fold, value, path)
    fold.findings.append(findings.uncomparable(path, value, reason))
    return ()


def _read_itself(fold: Fold, value: Any, path: str) -> tuple[()]:
    fold.push(path, ById(value))
    return ()


def _read_as_key(fold: Fold, value: Any, path: str) -> Sequence[Part]:
    """Read a value as keys do; if they reject something in it, its identity may be enough."""
    if fold.position >= Position.ATTRIBUTE:
        fold.or_itself(value, path)
    return READERS[object](fold, value, path)


def _items(mapping: Mapping[Any, Any]) -> tuple[Any, ...]:
    return (*mapping, *mapping.values())


def _content_and_parts(value: Any) -> tuple[Any, ...]:
    content, parts = kind_of(value).read(value)
    return *content, *[part for _, part in parts]


def _of_function(value: types.FunctionType) -> tuple[Any, ...]:
    named = _items(value.__kwdefaults__ or {})
    return value.__code__, value.__defaults__, *named, *_items(value.__dict__)


def _found(chains: tuple[Chain, ...], function: types.FunctionType) -> list[Any]:
    return [value_of(chain, function) for chain in chains]


def _held(fold: Fold, value: Any, path: str) -> bool:
    """Return whether to read a mutable value, which is read only once; its parts become `HELD`."""
    is_new = fold.enter(value, path, is_shared=True)
    fold.position = max(fold.position, Position.HELD)
    return is_new


def _read_function(fold: Fold, value: types.FunctionType, path: str) -> Sequence[Part]:
    is_dispatching = registry_of(value) is not None
    if is_installed(value) and is_importable(value) and not is_dispatching:
        return _read_itself(fold, value, path)
    if not _held(fold, value, path):
        return ()
    parts = read_parts(fold, value, path)
    if is_dispatching:
        return parts
    facts = facts_of(value.__code__)
    fold.guard.add_cells(value)
    if is_installed(value):
        return parts
    if facts.rebinds:
        reason = f"it assigns {facts.rebinds[0]!r} whenever it runs, so it never stays the same"
        _refuse(fold, value, path, reason)
    if facts.sees_all:
        fold.push(path, ById(value.__globals__))
    chains = chains_within(value.__code__)
    fold.guard.add(_of_function, value)
    fold.outer.add(functools.partial(_found, chains), value)
    for chain, item in zip(chains, _found(chains, value), strict=True):
        if item is MISSING:
            fold.push(path, MISSING)
        elif chain.root is not Root.CELL or chain.steps:  # a cell itself is already read
            fold.defer(item, f"{path}.__globals__[{chain.name!r}]", is_named=True)
    return parts


def _read_callable(fold: Fold, value: Any, path: str) -> Sequence[Part]:
    """Read a partial or a C method, which may also hold mutable values such as lists."""
    reader: Reader = READERS.get(type(value), read_parts)
    parts = reader(fold, value, path)
    fold.position = max(fold.position, Position.HELD)
    return parts


def _read_method(fold: Fold, value: types.MethodType | BoundMethod, path: str) -> Sequence[Part]:
    fold.push(path, id(type(value)))
    function, receiver = (".__func__", value.__func__), value.__self__
    if not is_itself(receiver) or has_hidden_state(type(receiver)):
        return [function, (".__self__", receiver)]
    position = fold.position
    parts = _read_object(fold, receiver, f"{path}.__self__")
    fold.position = position
    return [function, *((f".__self__{step}", part) for step, part in parts)]


def _read_other(fold: Fold, value: Any, path: str) -> Sequence[Part]:
    cls, kind = type(value), kind_of(value).name
    is_static = fold.position is Position.STATIC
    is_open = not is_static and cls.__hash__ is None
    fold.kept.append(value)
    _read_classes(fold, value if isinstance(value, type) else cls, path)
    if isinstance(value, (type, types.ModuleType, Enum, np.ufunc, *WEAK)):
        return _read_itself(fold, value, path)
    if kind in ("array", "jax.Array") and not is_static:
        return _read_array(fold, value, path)
    if is_open and kind in ("list", "dict", "set", "deque", "mapping", "buffer", "cell"):
        return _read_container(fold, value, path)
    if not (is_itself(value) or (is_open and kind == "object")):
        return _read_as_key(fold, value, path)
    if is_static and (problem := findings.refused(path, value)):
        fold.findings.append(problem)
        return ()
    if is_importable(value):
        function = wrapped_by(value)  # in a cache, which may be cleared
        if function is not None and not is_installed(function):
            fold.defer(function, f"{path}.__wrapped__", is_named=True)
        return _read_itself(fold, value, path)
    if has_hidden_state(cls):
        return _refuse(fold, value, path, f"a {cls.__name__} holds more than its attributes show")
    if is_open or callable(value) or not is_installed_module(cls.__module__):
        return _read_object(fold, value, path)
    return _read_itself(fold, value, path)


def _read_container(fold: Fold, value: Any, path: str) -> Sequence[Part]:
    if not _held(fold, value, path):
        return ()
    fold.guard.add(_content_and_parts, value)
    return read_parts(fold, value, path)


def _read_array(fold: Fold, value: Any, path: str) -> Sequence[Part]:
    if is_numpy := type(value) is np.ndarray:
        fits = not value.dtype.hasobject
    else:
        fits = isinstance(value, jax.Array) and not value.is_deleted()
        fits = fits and value.is_fully_addressable
    if fits and value.nbytes <= REACHED.most_bytes:
        return (_read_container if is_numpy else read_parts)(fold, value, path)
    reason = "only numeric arrays of at most 64 KiB that are entirely on this host are compared"
    return _refuse(fold, value, path, reason)


def _read_object(fold: Fold, value: Any, path: str) -> Sequence[Part]:
    cls = type(value)
    _read_classes(fold, cls, path)
    if not _held(fold, value, path):
        return ()
    content, parts = kind_of(value).read(value)
    fold.guard.add(lambda held: _items(own_attributes(held)), value)
    fold.push(path, id(cls), content)
    if callable(value):
        return parts
    for step, part in parts:
        fold.defer(part, path + step)
    return ()


def _read_classes(fold: Fold, cls: type, path: str) -> None:
    """Read the members of a class and its bases, and what their code reads."""
    for base in own_bases(cls):
        fold.push(path, ById(base))
        if not fold.enter(base, path, is_shared=True):
            continue
        fold.outer.add(lambda target: _items(vars(target)), base)
        for name, member in vars(base).items():
            if name not in OF_EVERY_CLASS:
                fold.push(path, name)
                fold.defer(function_in(member), f"{path}.{base.__name__}.{name}", is_named=True)


_POLICY: Final = Policy(
    {
        **READERS,
        types.FunctionType: _read_function,
        **dict.fromkeys((types.MethodType, BoundMethod), _read_method),
        **dict.fromkeys(
            (
                *(functools.partial, jax.tree_util.Partial),
                *(types.BuiltinFunctionType, types.MethodWrapperType),
            ),
            _read_callable,
        ),
        **dict.fromkeys(
            (types.MethodDescriptorType, types.WrapperDescriptorType, types.ModuleType),
            _read_itself,
        ),
        types.MappingProxyType: _read_container,
        **dict.fromkeys((type, object), _read_other),
    },
    _watch,
)
