"""The fingerprint of all that a function captures, or has read in a trace; a program keeps it.

A fingerprint keeps no function, no place and nothing large alive. The places and their values are
next to it in a `FingerprintedFunction`, for whoever has the function anyway.
"""

import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from leafwise._captures.bindings import Binding, alone, bindings_of, reachable
from leafwise._captures.forms import Exact, Fingerprinted, Form, by_identity, check_of, fingerprint
from leafwise._captures.observe import Run
from leafwise._captures.places import GONE, BoundIn, CapturedPlace
from leafwise._display.reasons import Change, Passing, how_to_pass
from leafwise._objects.attributes import is_plain_object, never_changes
from leafwise._objects.classes import is_a
from leafwise._objects.code import facts_of, int_as_float
from leafwise._objects.describe import DescribeOptions, describe
from leafwise._objects.stand_ins import MISSING, Verbatim
from leafwise._objects.text import describe_array, shorten

_SHOWN: Final = 8  # numbers of an array

Key: TypeAlias = tuple[Any, ...]
"""A capture: equal for one place, whoever reads it."""


class CaptureState(NamedTuple):
    """One capture in a fingerprint."""

    form: Any
    """Equal for values that cannot be distinguished; of what is large the identity."""
    text: str
    """The value, for messages."""
    name: str
    reader: str
    holder: str
    site: str
    """The line that reads it: ``train.py:12``."""
    is_around: bool
    """Whether it is a function, or the object of a method: what these read is captured, too."""


Fingerprint: TypeAlias = dict[Key, CaptureState]


class Probe(NamedTuple):
    """A place whose value was fingerprinted: what is to be checked at each call."""

    place: CapturedPlace
    value: Any
    fingerprinted: Fingerprinted


class FingerprintedFunction(NamedTuple):
    """A fingerprint, and the places that it was taken of."""

    fingerprint: Fingerprint
    probes: list[Probe]


def fingerprint_bindings(bindings: Iterable[Binding]) -> FingerprintedFunction:
    """Fingerprint what is in some places now, without objects that nobody has any more."""
    found: Fingerprint = {}
    probes: list[Probe] = []
    for binding in bindings:
        value = GONE if binding.is_fixed else binding.place.read()
        if value is not GONE:
            found[binding.place.key], fingerprinted = _capture_state(binding, value)
            probes.append(Probe(binding.place, value, fingerprinted))
    return FingerprintedFunction(found, probes)


def captured_by(fn: Callable[..., Any]) -> Fingerprint:
    """Return what a function captures by the names in its code, with keys of that code."""
    try:
        runs = reachable(fn) or ([alone(fn)] if type(fn) is types.FunctionType else [])
        found = fingerprint_bindings(bindings_of(runs, fn)).fingerprint.values()
    except Exception:  # noqa: BLE001  # the user's own code
        return {}
    return {(each.reader, each.name, each.holder): each for each in found}


def _capture_state(binding: Binding, value: Any) -> tuple[CaptureState, Fingerprinted]:
    """Return what a fingerprint keeps of a capture, and the fingerprint of its value."""
    place, code, kind = binding.place, binding.code, type(value)
    text = "nothing" if value is MISSING else describe_value(value)  # a mock keeps what it is asked
    is_variable = place.holder is BoundIn.CLOSURE and not place.steps and code is not None
    is_rebound = is_variable and place.variable in facts_of(code).rebinds
    found = fingerprint(int_as_float(value) if is_rebound else value, words=binding.words)
    if binding.itself and (is_plain_object(kind) or never_changes(kind)):
        found = by_identity(value, found.form)
    line = "" if code is None else f"{code.co_filename}:{binding.line or code.co_firstlineno}"
    is_around = binding.itself or (callable(value) and not is_a(value, type))
    names = place.name, binding.reader, str(place.holder), line
    return CaptureState(found.form, text, *names, is_around), found


def describe_value(value: Any) -> str:
    """Return a value for a message."""
    try:
        if is_a(value, Tracer) or not is_a(value, np.ndarray | jax.Array):
            return shorten(Verbatim(describe(value, DescribeOptions(short=True))), 120)
        array: Any = value
        is_there = not is_a(value, jax.Array) or (array.is_fully_addressable and array.is_ready())
        is_number = not jnp.issubdtype(array.dtype, jax.dtypes.extended)
        is_shown = is_there and is_number and array.size <= _SHOWN
        numbers = f" {shorten(np.asarray(array).tolist(), 80)}" if is_shown else ""
        return describe_array(value) + numbers
    except Exception:  # noqa: BLE001  # the user's own code
        return shorten(value, 120)


def changed(old: Fingerprint, new: Fingerprint) -> list[Key]:
    """Return the captures that differ, of those that both have."""
    return [key for key, each in new.items() if key in old and bool(old[key].form != each.form)]


def describe_changes(old: Fingerprint, new: Fingerprint) -> list[Change]:
    """Return what two functions of one code capture that differs, four at most."""
    changes: dict[str, Change] = {}
    for key in sorted(changed(old, new), key=lambda key: new[key].is_around):
        was, now = old[key], new[key]
        every = [("", *format_change(was, now))]
        if now.is_around:
            # What a function differs in is a capture of its own, if it can be named.
            inner = _inner_changes(was.form, now.form)
            held = [each for each in inner if _HOLDS in each[0] and "<function>" not in each]
            every = held or [("", "", "")] * (not changes)
        for path, *texts in every:
            name = path.rpartition(_HOLDS)[2] or now.name
            is_exact = isinstance(now.form, Exact)
            how = how_to_pass(now.form.value) if is_exact else Passing.ARGUMENT
            before, after = texts if len("".join(texts)) <= _LONGEST_CHANGE else ("", "")
            is_function, holder = now.is_around and not path, now.name if path else ""
            changes.setdefault(name, Change(name, before, after, is_function, holder, how))
    # What is inside another capture is one of its own, too: the last one says most.
    return sorted(changes.values(), key=lambda one: not (one.before or one.is_function))[:4]


_LONGEST_CHANGE: Final = 80
_HOLDS: Final = " holding "


def format_change(was: CaptureState, now: CaptureState) -> tuple[str, str]:
    """Return a capture as it was and as it is, as texts that say what differs, if they can."""
    path, before, after = inner_change(was, now)
    if not path:
        return before, after
    return f"{was.text} with `{path}` {before}", f"{now.text} with `{path}` {after}"


def inner_change(was: CaptureState, now: CaptureState) -> tuple[str, str, str]:
    """Return both texts of a capture; of the part that differs, if they are equal, and its path."""
    if was.text != now.text:
        return "", was.text, now.text
    path, before, after = next(_inner_changes(was.form, now.form))
    return (path, before, after) if path else ("", was.text, f"another {now.text}")


def _inner_changes(one: Any, other: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the paths of the innermost parts of two forms that differ, and both texts."""
    mine, its, steps = dict[str, Any](), dict[str, Any](), list[str]()
    if isinstance(one, Form) and isinstance(other, Form) and one.text == other.text:
        mine, its = one.named(), other.named()
        steps = [step for step in {**mine, **its} if mine.get(step) != its.get(step)]
    for step in steps:
        yield from _inner_changes(mine.get(step), its.get(step), path + step)
    if not steps:
        before, after = _format_form(one), _format_form(other)
        yield path, before, f"another {after}" if before == after else after


def _format_form(form: Any) -> str:
    """Return a value as text, as far as its form shows it."""
    if isinstance(form, Exact):
        is_class = isinstance(form.value, type)
        return form.value.__qualname__ if is_class else describe_value(form.value)
    return "nothing" if form is None else form.text


# What one trace has read outside its arguments. It keeps nothing of that alive.

Source: TypeAlias = tuple[str, int]
"""The file and the first line of a function."""


class Observation:
    """The places that the functions that ran in a trace read, and what was there at its end."""

    def __init__(
        self, runs: list[Run], root: Callable[..., Any], reused: Iterable[Binding] = ()
    ) -> None:
        self.bindings = {each.place.key: each for each in (*bindings_of(runs, root), *reused)}
        found = fingerprint_bindings(self.bindings.values())
        self.fingerprint = found.fingerprint
        self.words = frozenset[str]().union(*(each.words for each in self.bindings.values()))
        self._checks = {probe.place.key: check_of(probe.fingerprinted) for probe in found.probes}
        self._around: dict[types.CodeType, set[types.CodeType]] = {}
        for run in runs:
            self._around.setdefault(run.code, {run.code}).update(run.inside)

    def read_in(self, source: Source) -> list[Binding]:
        """Return the bindings read by a function of this trace or by code run inside it.

        Those that every function of the trace reads are among them.
        """
        inside = {
            code for code, around in self._around.items() if source in map(file_and_line, around)
        }
        if not inside:
            return []
        return [entry for entry in self.bindings.values() if entry.code in inside or entry.itself]

    def is_unchanged(self) -> bool:
        """Return whether all places have what they had."""
        differing: list[Binding] = []
        for key, check in self._checks.items():
            binding = self.bindings[key]
            try:
                is_same = check(binding.place.read())
            except Exception:  # noqa: BLE001  # another kind of value
                is_same = False
            if not is_same:
                differing.append(binding)
        now = fingerprint_bindings(differing).fingerprint
        return not changed(self.fingerprint, now)


def file_and_line(code: types.CodeType) -> Source:
    """Return where the function of a code stands."""
    return code.co_filename, code.co_firstlineno


def union(observations: Iterable[Observation | None]) -> list[Binding]:
    """Return the places of several traces, each once."""
    found: dict[Key, Binding] = {}
    for each in observations:
        found.update({} if each is None else each.bindings)
    return list(found.values())
