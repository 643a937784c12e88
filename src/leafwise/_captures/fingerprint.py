"""The fingerprint of all that a function captures, which a program keeps.

A fingerprint keeps no function, no place and nothing large alive. The places and their values are
next to it in a `FingerprintedFunction`, for whoever has the function anyway.
"""

import types
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from leafwise._captures.bindings import Binding, alone, bindings_of, reachable
from leafwise._captures.forms import (
    ByWeakId,
    Exact,
    Fingerprinted,
    Form,
    OfArray,
    by_identity,
    fingerprint,
)
from leafwise._captures.places import GONE, BoundIn
from leafwise._objects.attributes import is_plain_object, never_changes
from leafwise._objects.classes import is_a
from leafwise._objects.code import facts_of, int_as_float
from leafwise._objects.describe import DescribeOptions, describe
from leafwise._objects.stand_ins import MISSING
from leafwise._objects.text import Verbatim, describe_array, shorten

_SHOWN: Final = 8
"""So many numbers of an array are shown."""

Key: TypeAlias = tuple[Any, ...]
"""A capture: equal for one place, whoever reads it."""


class CaptureState(NamedTuple):
    """One capture in a fingerprint.

    Attributes:
        form: Equal for values that cannot be distinguished; of what is large the identity.
        text: The value, for messages.
        name: The place, as the code spells it.
        reader: The function that reads it.
        holder: Where it is bound.
        site: The line that reads it: ``train.py:12``.
        is_around: Whether it is a function, or the object of a method: what these read are
            captures of their own.
    """

    form: Any
    text: str
    name: str = ""
    reader: str = ""
    holder: str = ""
    site: str = ""
    is_around: bool = False


Fingerprint: TypeAlias = dict[Key, CaptureState]


class Probe(NamedTuple):
    """A place whose value was fingerprinted.

    Attributes:
        binding: The place.
        value: Its value.
        fingerprinted: Its fingerprint.
    """

    binding: Binding
    value: Any
    fingerprinted: Fingerprinted


class FingerprintedFunction(NamedTuple):
    """A fingerprint, and the places that it was taken of.

    Attributes:
        fingerprint: What may be kept with a program.
        probes: What is to be checked at each call.
    """

    fingerprint: Fingerprint
    probes: list[Probe]


def fingerprint_bindings(bindings: Iterable[Binding]) -> FingerprintedFunction:
    """Fingerprint what is in some places now.

    What does not show its content is compared by identity. An object that nobody has any more is
    left out.
    """
    found: Fingerprint = {}
    probes: list[Probe] = []
    for binding in bindings:
        value = GONE if binding.is_fixed else binding.read()
        if value is GONE:
            continue
        found[binding.key], fingerprinted = _capture_state(binding, value)
        probes.append(Probe(binding, value, fingerprinted))
    return FingerprintedFunction(found, probes)


def captured_by(fn: Callable[..., Any]) -> Fingerprint:
    """Return the fingerprint of a function by the names in its code, empty where there is none.

    The keys are equal for functions of one code.
    """
    try:
        runs = reachable(fn) or ([alone(fn)] if type(fn) is types.FunctionType else [])
        found = fingerprint_bindings(bindings_of(runs, fn)).fingerprint.values()
    except Exception:  # noqa: BLE001  # the user's own code
        return {}
    counts: Counter[Any] = Counter()
    by_name: Fingerprint = {}
    for each in found:
        key = each.reader, each.name, each.holder
        by_name[*key, counts[key]] = each
        counts[key] += 1
    return by_name


def _capture_state(binding: Binding, value: Any) -> tuple[CaptureState, Fingerprinted]:
    """Return what a fingerprint keeps of a capture, and the fingerprint of its value."""
    if value is MISSING:
        whole, text = by_identity((), value), "nothing"
    else:
        found = int_as_float(value) if _is_written_in_place(binding) else value
        text = describe_value(value)  # first: a mock keeps what it was asked for
        whole = fingerprint(found, words=binding.words)
        kind = type(value)
        if binding.itself and (is_plain_object(kind) or never_changes(kind)):
            whole = by_identity(whole.form, value)
    names = binding.name, binding.reader, str(binding.place.holder), _line_of(binding)
    is_around = binding.itself or (callable(value) and not is_a(value, type))
    return CaptureState(whole.form, text, *names, is_around), whole


def _is_written_in_place(binding: Binding) -> bool:
    """Return whether the code that reads a variable of the function around assigns it, too."""
    place, code = binding.place, binding.code
    if place.holder is not BoundIn.CLOSURE or place.steps or code is None:
        return False
    return place.variable in facts_of(code).rebinds


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
    code = binding.code
    return "" if code is None else f"{code.co_filename}:{binding.line or code.co_firstlineno}"


def changed(old: Fingerprint, new: Fingerprint) -> list[Key]:
    """Return the captures that differ, of those that both have."""
    return [key for key, each in new.items() if key in old and bool(old[key].form != each.form)]


def describe_changes(old: Fingerprint, new: Fingerprint) -> str:
    """Return what two functions of one code capture that differs, as "`rate`, 0.1 -> 0.2"."""
    found: dict[str, str] = {}
    for key in changed(old, new):
        before, after = format_change(old[key], new[key])
        is_short = len(before) + len(after) <= _LONGEST_CHANGE
        found[f"`{new[key].name}`"] = f"{before} -> {after}" if is_short else "another one"
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
    if form is None:
        return "nothing"
    if isinstance(form, OfArray):
        return "an array" if form.value is None else describe_value(form.value)
    if isinstance(form, Exact):
        is_class = isinstance(form.value, type)
        return form.value.__qualname__ if is_class else describe_value(form.value)
    if isinstance(form, ByWeakId):
        return f"<{form.kind.__qualname__}>"
    if not isinstance(form, Form):
        return "value"
    kind = next((each for each in form.kind[1:2] if isinstance(each, str)), "function")
    named = {step: _format_form(part) for step, part in _named_parts(form).items()}
    match kind:
        case "list":
            text = f"[{', '.join(named.values())}]"
        case "tuple":
            text = f"({', '.join(named.values())})"
        case "dict":
            text = f"{{{', '.join(f'{step[1:-1]}: {part}' for step, part in named.items())}}}"
        case _:
            return f"<{kind}>"
    return shorten(Verbatim(text), 80)
