"""What a function's captures held at one time: the fingerprint that a program keeps.

A fingerprint keeps no function, no place and nothing large alive. Where to look, and what was
found there, is beside it in a `FingerprintedFunction`, for whoever has the function anyway.
"""

import dataclasses
import functools
import inspect
import math
import struct
import types
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from leafwise._captures.look import fingerprint, names_written, settled
from leafwise._captures.places import CapturedPlace
from leafwise._captures.seen import PLAIN, ByWeakId, Fingerprinted, Form, OfArray
from leafwise._captures.walk import Binding, BoundIn, bindings_of
from leafwise._objects.attributes import wrapped_by
from leafwise._objects.code import is_installed_module
from leafwise._objects.describe import DescribeOptions, describe
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import Verbatim, describe_array, shorten

MOST_CAPTURES: Final = 64
"""So many captures of a function are checked at each call; further ones are large."""

_SHOWN: Final = 8
"""So many numbers of an array are shown."""

Key: TypeAlias = tuple[str, str, str, int]
"""A capture: the function that reads it, its name, where it is bound, and which one of those."""


class CaptureState(NamedTuple):
    """One capture in a fingerprint.

    Attributes:
        form: Equal for values that cannot be told apart; None if it is large.
        large: The same of a large one, where those were looked into, too.
        words: The value, for messages.
        site: The line that reads it: ``train.py:12``.
        hidden: Why changes inside it cannot be seen; empty if they can.
    """

    form: Any
    large: Any
    words: str
    site: str
    hidden: str


Fingerprint: TypeAlias = dict[Key, CaptureState]


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """A place that was looked at.

    Attributes:
        binding: The place.
        value: What was there.
        seen: What it was made of; None if only its identity is compared.
        key: What finds it in the fingerprint.
    """

    binding: Binding
    value: Any
    seen: Fingerprinted | None
    key: Key


class FingerprintedFunction(NamedTuple):
    """A fingerprint, and what was looked at for it.

    Attributes:
        fingerprint: What may be kept with a program.
        places: What is to be checked at each call.
    """

    fingerprint: Fingerprint
    places: list[Probe]


def fingerprint_function(fun: Callable[..., Any], *, large: bool = False) -> FingerprintedFunction:
    """Look at all that a function captures.

    Args:
        fun: The function.
        large: Whether to look into large values, too.

    Returns:
        What was found. What cannot be looked at is compared by identity.
    """
    fingerprint: Fingerprint = {}
    places: list[Probe] = []
    for binding in _captured(fun):
        value = _read(binding)
        entry, seen = _entry(binding, value, large=large)
        key = _key(binding, fingerprint)
        fingerprint[key] = entry
        if not _is_import(binding, value) and (large or len(places) < MOST_CAPTURES):
            places.append(Probe(binding, value, seen, key))
    return FingerprintedFunction(fingerprint, places)


def _read(binding: Binding) -> Any:
    """Look again; also at an argument of a partial, whose keywords can be assigned."""
    place = binding.place
    keywords = keywords_of(place)
    if keywords is None:
        return binding.read()
    start = functools.partial(keywords.get, place.key[-1], MISSING)
    return dataclasses.replace(place, start=start).read()


def keywords_of(place: CapturedPlace) -> dict[str, Any] | None:
    """Return the dict where a place starts, if that is a keyword of a partial."""
    if place.holder is not BoundIn.PARTIAL or not isinstance(place.owner, functools.partial):
        return None
    keywords: dict[str, Any] = place.owner.keywords
    return keywords if place.key[-1] in keywords else None


def _captured(fun: Callable[..., Any]) -> Iterator[Binding]:
    """Yield the captures that decide what a trace comes to."""
    for binding in bindings_of(fun):
        if not binding.is_written:
            yield binding


def _key(binding: Binding, taken: Fingerprint) -> Key:
    """Return what finds a capture again, also when its function was defined anew."""
    name = getattr(binding.function, "__qualname__", type(binding.function).__qualname__)
    number = 0
    while (key := (name, binding.name, str(binding.holder), number)) in taken:
        number += 1
    return key


def _entry(
    binding: Binding, value: Any, *, large: bool
) -> tuple[CaptureState, Fingerprinted | None]:
    """Look at one capture; return what to keep, and what to compare with."""
    if value is MISSING:
        return CaptureState((), (), "nothing", _site(binding), ""), Fingerprinted(())
    # What a captured function reads in turn are captures of their own.
    holds = type(value) is not types.FunctionType and wrapped_by(value) is None
    found = settled(value) if _is_written_in_place(binding) else value
    seen = small = fingerprint(found, holds=holds)
    if large and small.is_cut:
        seen = fingerprint(found, large=True, holds=holds)
    hidden = seen.hidden or (_LARGE if seen.is_cut else "")
    more = seen.form if large else None
    return CaptureState(small.form, more, words_of(value), _site(binding), hidden), seen


_LARGE: Final = "it is large"


def _is_written_in_place(binding: Binding) -> bool:
    """Return whether the code that reads a variable of the function around assigns it, too."""
    owner, place = binding.place.owner, binding.place
    if place.holder is not BoundIn.CLOSURE or place.steps:
        return False
    return isinstance(owner, types.FunctionType) and place.variable in names_written(owner.__code__)


def words_of(value: Any) -> str:
    """Return a value for a message."""
    try:
        if isinstance(value, np.ndarray | jax.Array) and not isinstance(value, Tracer):
            return _array_words(value)
        return shorten(Verbatim(describe(value, DescribeOptions(short=True))), 120)
    except Exception:  # noqa: BLE001  # the user's own code
        return shorten(value, 120)


def _array_words(value: Any) -> str:
    kind = describe_array(value)
    if value.size > _SHOWN or jnp.issubdtype(value.dtype, jax.dtypes.extended):
        return kind
    if isinstance(value, jax.Array):
        found: Any = value
        if not (found.is_fully_addressable and found.is_ready()):
            return kind
    return f"{kind} {shorten(np.asarray(value).tolist(), 80)}"


def _site(binding: Binding) -> str:
    code = getattr(inspect.unwrap(binding.function), "__code__", None)
    return "" if code is None else f"{code.co_filename}:{binding.line or code.co_firstlineno}"


def _is_import(binding: Binding, value: Any) -> bool:
    """Return whether a name is what an import statement binds, which nobody binds anew."""
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
    """Return the captures that are in both and differ."""
    return [key for key, entry in new.items() if key in old and _differ(old[key], entry)]


def _differ(old: CaptureState, new: CaptureState) -> bool:
    if old.large is not None and new.large is not None:
        return bool(old.large != new.large)
    return bool(old.form != new.form)


def completed(old: Fingerprint, new: Fingerprint) -> Fingerprint:
    """Return an unchanged fingerprint with what a closer look has seen of large values."""
    return {
        key: new[key] if entry.large is None and key in new else entry for key, entry in old.items()
    }


def inner_change(was: CaptureState, now: CaptureState) -> tuple[str, str, str]:
    """Return the first part of a capture that changed: the way to it, its old and new value.

    Args:
        was: The capture as it was.
        now: The capture as it is.

    Returns:
        The way, ``.layers[0].rate`` or empty for the whole, and both values in words; where
        the words are the same, the later ones begin with "another".
    """
    deep = was.large is not None and now.large is not None
    one, other = (was.large, now.large) if deep else (was.form, now.form)
    path = ""
    while isinstance(one, Form) and isinstance(other, Form) and _class_of(one) == _class_of(other):
        mine, its = _named_parts(one), _named_parts(other)
        step = next((each for each in {**mine, **its} if mine.get(each) != its.get(each)), None)
        if step is None:
            break
        path, one, other = path + step, mine.get(step), its.get(step)
    before, after = (_said(one), _said(other)) if path else (was.words, now.words)
    return path, before, f"another {after}" if before == after else after


def _class_of(form: Form) -> Any:
    return form.kind[:2] if isinstance(form.kind, tuple) else form.kind


def _named_parts(form: Form) -> dict[str, Any]:
    pairs = zip(form.steps, form.parts, strict=False)
    return {step: part for step, part in pairs if step}


def words_of_change(was: CaptureState, now: CaptureState) -> tuple[str, str]:
    """Return a capture as it was and as it is, in words that tell what differs, if they can."""
    if was.words != now.words:
        return was.words, now.words
    path, before, after = inner_change(was, now)
    if not path:
        return before, after
    return f"{was.words} with `{path}` {before}", f"{now.words} with `{path}` {after}"


def _said(form: Any) -> str:
    """Return what a form tells of a value."""
    if isinstance(form, OfArray):
        return "an array" if form.value is None else words_of(form.value)
    if isinstance(form, ByWeakId):
        return f"<{form.kind.__qualname__}>"
    if isinstance(form, Form):
        return _said_of_parts(form)
    return "nothing" if form is None else _said_of_one(form)


def _said_of_one(form: Any) -> str:
    match form:
        case (type() as kind, value) if kind is float:
            return repr(struct.unpack("d", value)[0])
        case (type() as kind, value) if kind in PLAIN or kind is np.dtype:
            return shorten(value, 80) if kind in PLAIN else str(value)
        case (type() as kind, str(), bytes() as data) if issubclass(kind, np.generic):
            return shorten(np.frombuffer(data, np.dtype(kind))[0])
        case (_, np.dtype() as dtype, tuple() as shape, bytes() as data):
            return _said_of_numpy(dtype, shape, data)
        case ((str(), str() as name), str() as member):
            return f"{name}.{member}"
        case (str(), str() as name, *_):
            return name
        case _:
            return "value"


def _said_of_numpy(dtype: Any, shape: tuple[int, ...], data: bytes) -> str:
    if len(data) != dtype.itemsize * math.prod(shape):  # a digest
        return f"{dtype}[{','.join(map(str, shape))}]"
    return words_of(np.frombuffer(data, dtype).reshape(shape))


def _said_of_parts(form: Form) -> str:
    kind = next((each for each in form.kind[1:2] if isinstance(each, str)), "function")
    named = _named_parts(form)
    if kind in ("list", "tuple"):
        inside = ", ".join(map(_said, named.values()))
        text = f"[{inside}]" if kind == "list" else f"({inside})"
    elif kind == "dict":
        items = [f"{step[1:-1]}: {_said(part)}" for step, part in named.items()]
        text = f"{{{', '.join(items)}}}"
    else:
        return f"<{kind}>"
    return shorten(Verbatim(text), 80)
