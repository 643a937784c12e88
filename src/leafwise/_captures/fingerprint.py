"""The fingerprint of all that a function captures, which a program keeps.

A fingerprint keeps no function, no place and nothing large alive. The places and their values are
next to it in a `FingerprintedFunction`, for whoever has the function anyway.
"""

import dataclasses
import functools
import inspect
import math
import struct
import types
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from leafwise._captures.bindings import Binding, bindings_and_callables
from leafwise._captures.fingerprint_kinds import fingerprint, names_written
from leafwise._captures.fingerprinter import PLAIN, ByWeakId, Fingerprinted, Form, OfArray
from leafwise._captures.places import BoundIn, CapturedPlace
from leafwise._objects.attributes import is_tree, of_partial
from leafwise._objects.classes import is_a
from leafwise._objects.code import int_as_float, is_installed_module
from leafwise._objects.describe import DescribeOptions, describe
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import Verbatim, describe_array, shorten

MOST_CAPTURES: Final = 64
"""So many captures of a function are checked at each call; further ones are large."""

_SHOWN: Final = 8
"""So many numbers of an array are shown."""

Key: TypeAlias = tuple[str, str, str, int]
"""A capture: the function that reads it, its name, where it is bound, and its number of those."""


class CaptureState(NamedTuple):
    """One capture in a fingerprint.

    Attributes:
        form: Equal for values that cannot be distinguished; of what is large the identity.
        text: The value, for messages.
        site: The line that reads it: ``train.py:12``.
    """

    form: Any
    text: str
    site: str


Fingerprint: TypeAlias = dict[Key, CaptureState]

GONE: Final = CaptureState(("gone",), "read in another way", "")
"""Stands for a capture that is not read any more."""


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """A place whose value was fingerprinted.

    Attributes:
        binding: The place.
        value: Its value.
        fingerprinted: Its fingerprint.
        key: Its key in the fingerprint.
    """

    binding: Binding
    value: Any
    fingerprinted: Fingerprinted
    key: Key


class FingerprintedFunction(NamedTuple):
    """A fingerprint, and the places that it was taken of.

    Attributes:
        fingerprint: What may be kept with a program.
        probes: What is to be checked at each call.
        callables: Everything callable that the function leads to.
    """

    fingerprint: Fingerprint
    probes: list[Probe]
    callables: list[Any]


def fingerprint_function(
    fun: Callable[..., Any], given: Iterable[Any] = ()
) -> FingerprintedFunction:
    """Fingerprint all that a function captures.

    Args:
        fun: The function.
        given: The classes of its arguments, whose methods it may call, and functions there.

    Returns:
        The fingerprint. What does not show its content is compared by identity.
    """
    fingerprint: Fingerprint = {}
    probes: list[Probe] = []
    bindings, callables = bindings_and_callables(fun, given)
    for binding in bindings:
        if binding.is_written:  # a trace does not depend on its value
            continue
        value = _read(binding)
        key = _key(binding, fingerprint)
        fingerprint[key], fingerprinted = _capture_state(binding, value)
        if not _is_import(binding, value) and len(probes) < MOST_CAPTURES:
            probes.append(Probe(binding, value, fingerprinted, key))
    return FingerprintedFunction(fingerprint, probes, callables)


def captured_by(fn: Callable[..., Any]) -> Fingerprint:
    """Return the fingerprint of a function alone, empty where that cannot be had."""
    try:
        return fingerprint_function(fn).fingerprint
    except Exception:  # noqa: BLE001  # the user's own code
        return {}


def is_unchanged(found: FingerprintedFunction) -> bool:
    """Return whether all captures are as they were fingerprinted; False if that cannot be told."""
    try:
        return len(found.probes) < MOST_CAPTURES and all(map(_is_same, found.probes))
    except Exception:  # noqa: BLE001  # the user's own code
        return False


def _is_same(probe: Probe) -> bool:
    value, known = _read(probe.binding), probe.fingerprinted
    if known.same is None:
        return value is probe.value
    # Of what is large another item may be held, which leads to other captures.
    return known.same(value) and not (known.is_cut and not is_a(value, jax.Array | np.ndarray))


def _read(binding: Binding) -> Any:
    """Return the current value, also of an argument of a partial: its keywords can be assigned."""
    place = binding.place
    keywords = keywords_of(place)
    if keywords is None:
        return binding.read()
    start = functools.partial(keywords.get, place.key[-1], MISSING)
    return dataclasses.replace(place, start=start).read()


def keywords_of(place: CapturedPlace) -> dict[str, Any] | None:
    """Return the dict where a place starts, if that is a keyword of a partial."""
    if place.holder is not BoundIn.PARTIAL or not is_a(place.owner, functools.partial):
        return None
    keywords = of_partial(place.owner)[2]
    return keywords if place.key[-1] in keywords else None


def _key(binding: Binding, others: Fingerprint) -> Key:
    """Return a key that finds the capture in a later fingerprint, also of a redefined function."""
    function = binding.function
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if is_a(function, types.FunctionType):
        name = function.__code__.co_qualname
    number = 0
    while (key := (name, binding.name, str(binding.holder), number)) in others:
        number += 1
    return key


def _capture_state(binding: Binding, value: Any) -> tuple[CaptureState, Fingerprinted]:
    """Return what a fingerprint keeps of a capture, and the fingerprint of its value."""
    if value is MISSING:
        return CaptureState((), "nothing", _line_of(binding)), Fingerprinted(())
    found = int_as_float(value) if _is_written_in_place(binding) else value
    called = binding.is_called or not is_tree(found)
    whole = fingerprint(found, called=called)
    return CaptureState(whole.form, describe_value(value), _line_of(binding)), whole


def _is_written_in_place(binding: Binding) -> bool:
    """Return whether the code that reads a variable of the function around assigns it, too."""
    owner, place = binding.place.owner, binding.place
    if place.holder is not BoundIn.CLOSURE or place.steps:
        return False
    return is_a(owner, types.FunctionType) and place.variable in names_written(owner.__code__)


def describe_value(value: Any) -> str:
    """Return a value for a message."""
    try:
        if is_a(value, np.ndarray | jax.Array) and not is_a(value, Tracer):
            return _describe_array_value(value)
        return shorten(Verbatim(describe(value, DescribeOptions(short=True))), 120)
    except Exception:  # noqa: BLE001  # the user's own code
        return shorten(value, 120)


def _describe_array_value(value: Any) -> str:
    kind = describe_array(value)
    if value.size > _SHOWN or jnp.issubdtype(value.dtype, jax.dtypes.extended):
        return kind
    if is_a(value, jax.Array):
        found: Any = value
        if not (found.is_fully_addressable and found.is_ready()):
            return kind
    return f"{kind} {shorten(np.asarray(value).tolist(), 80)}"


def _line_of(binding: Binding) -> str:
    code = getattr(inspect.unwrap(binding.function), "__code__", None)
    return "" if code is None else f"{code.co_filename}:{binding.line or code.co_firstlineno}"


def _is_import(binding: Binding, value: Any) -> bool:
    """Return whether a name is what an import statement binds, which nobody rebinds."""
    start = binding.place.start()
    if issubclass(type(start), types.ModuleType) and is_installed_module(start.__name__):
        return True
    if binding.holder is not BoundIn.GLOBAL:
        return False
    try:
        module, own = value.__module__, value.__name__
    except Exception:  # noqa: BLE001  # the user's own code, or no name at all
        return False
    last = binding.name.rpartition(".")[2]
    return callable(value) and own == last and is_installed_module(module)


def changed(old: Fingerprint, new: Fingerprint) -> list[Key]:
    """Return the captures that differ, else those that are not read any more, as all leads there.

    An attribute that has become a property is read by another way.
    """
    both = [key for key, entry in new.items() if key in old and bool(old[key].form != entry.form)]
    return both or [key for key, entry in old.items() if key not in new and entry is not GONE]


def describe_changes(old: Fingerprint, new: Fingerprint) -> str:
    """Return what two functions of one code capture that differs, as "`rate`, 0.1 -> 0.2"."""
    found: dict[str, str] = {}
    for key in changed(old, new):
        before, after = format_change(old.get(key, GONE), new.get(key, GONE))
        is_short = len(before) + len(after) <= _LONGEST_CHANGE
        found[f"`{key[1]}`"] = f"{before} -> {after}" if is_short else "another one"
    # What is inside another capture is one of its own, too: the last one says most.
    several = sorted(found.items(), key=lambda each: each[1] == "another one")[:2]
    return " and ".join(f"{name}, {change}" for name, change in several)


_LONGEST_CHANGE: Final = 80


def inner_change(was: CaptureState, now: CaptureState) -> tuple[str, str, str]:
    """Return the first part of a capture that changed: the way to it, its old and new value.

    Args:
        was: The capture as it was.
        now: The capture as it is.

    Returns:
        The way, ``.layers[0].rate`` or empty for the whole, and both values as text; where
        the texts are equal, the later one begins with "another".
    """
    one, other = was.form, now.form
    path = ""
    while isinstance(one, Form) and isinstance(other, Form) and _class_of(one) == _class_of(other):
        mine, its = _named_parts(one), _named_parts(other)
        step = next((each for each in {**mine, **its} if mine.get(each) != its.get(each)), None)
        if step is None:
            break
        path, one, other = path + step, mine.get(step), its.get(step)
    before, after = (_format_form(one), _format_form(other)) if path else (was.text, now.text)
    return path, before, f"another {after}" if before == after else after


def _class_of(form: Form) -> Any:
    return form.kind[:2] if isinstance(form.kind, tuple) else form.kind


def _named_parts(form: Form) -> dict[str, Any]:
    pairs = zip(form.steps, form.parts, strict=False)
    return {step: part for step, part in pairs if step}


def format_change(was: CaptureState, now: CaptureState) -> tuple[str, str]:
    """Return a capture as it was and as it is, as texts that say what differs, if they can."""
    if was.text != now.text:
        return was.text, now.text
    path, before, after = inner_change(was, now)
    if not path:
        return before, after
    return f"{was.text} with `{path}` {before}", f"{now.text} with `{path}` {after}"


def _format_form(form: Any) -> str:
    """Return a value as text, as far as its form shows it."""
    if isinstance(form, OfArray):
        return "an array" if form.value is None else describe_value(form.value)
    if isinstance(form, ByWeakId):
        return f"<{form.kind.__qualname__}>"
    if isinstance(form, Form):
        return _format_parts(form)
    return "nothing" if form is None else _format_plain(form)


def _format_plain(form: Any) -> str:
    match form:
        case (type() as kind, value) if kind is float:
            return repr(struct.unpack("d", value)[0])
        case (type() as kind, value) if kind in PLAIN or kind is np.dtype:
            return shorten(value, 80) if kind in PLAIN else str(value)
        case (type() as kind, str(), bytes() as data) if issubclass(kind, np.generic):
            return shorten(np.frombuffer(data, np.dtype(kind))[0])
        case (_, np.dtype() as dtype, tuple() as shape, bytes() as data, *_):
            return _format_numpy(dtype, shape, data)
        case ((str(), str() as name, *_), str() as member):
            return f"{name}.{member}"
        case (str(), str() as name, *_):
            return name
        case _:
            return "value"


def _format_numpy(dtype: Any, shape: tuple[int, ...], data: bytes) -> str:
    if len(data) != dtype.itemsize * math.prod(shape):  # a digest
        return f"{dtype}[{','.join(map(str, shape))}]"
    return describe_value(np.frombuffer(data, dtype).reshape(shape))


def _format_parts(form: Form) -> str:
    kind = next((each for each in form.kind[1:2] if isinstance(each, str)), "function")
    named = _named_parts(form)
    if kind in ("list", "tuple"):
        inside = ", ".join(map(_format_form, named.values()))
        text = f"[{inside}]" if kind == "list" else f"({inside})"
    elif kind == "dict":
        items = [f"{step[1:-1]}: {_format_form(part)}" for step, part in named.items()]
        text = f"{{{', '.join(items)}}}"
    else:
        return f"<{kind}>"
    return shorten(Verbatim(text), 80)
