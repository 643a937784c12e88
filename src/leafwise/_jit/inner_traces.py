"""The traces that JAX keeps of functions that are called inside another one.

It keeps the trace of a loop's body, or of a function under `jax.jit` or `jax.checkpoint`, as long
as that lives, and any new trace of a function around takes it up. So what these functions captured
when they were last fingerprinted is kept here: before a trace, the traces of those whose captures
have changed are forgotten.
"""

import functools
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from leafwise._captures.fingerprint import CaptureState, FingerprintedFunction, changed
from leafwise._captures.fingerprinter import ByWeakId
from leafwise._captures.places import CapturedPlace
from leafwise._captures.waiting_methods import names_in
from leafwise._jax.compat import forget_traces_of, traced_functions
from leafwise._jax.stack import running_calls
from leafwise._jit.callee import function_behind
from leafwise._objects.attributes import (
    functions_in,
    in_class,
    is_bound_method,
    is_installed,
    wrapped_by,
)
from leafwise._objects.locks import new_lock

_MOST_PLACES: Final = 512
"""A function that has read more places than these, of so many instances, counts as new."""

_Places: TypeAlias = dict[Any, tuple[CaptureState, bool, Callable[[], Any] | None]]
"""What a function found in each place when it was last traced, whether JAX has traces with other
values, too, and what holds the value."""

_LOCK: Final = new_lock()
_KNOWN: Final[weakref.WeakKeyDictionary[Callable[..., Any], _Places]] = weakref.WeakKeyDictionary()


def forget_old_traces(
    current: FingerprintedFunction, fun: Callable[..., Any], *, traced: bool
) -> set[int]:
    """Let JAX forget the traces that may be of other values than the current ones.

    Those of functions that are new, if one of them reads something, and of what wraps them:
    others may have called them. If one of the functions that `fun` leads to finds other values
    than before, or has other code: those of all functions but JAX's own, since what calls it
    need not be known; but of functions under `lw.jit`, which check for themselves, those that
    `fun` leads to. Never those of `fun` itself, nor of what is being traced around it.

    Args:
        current: The captures before `fun` is traced.
        fun: The function that JAX traces.
        traced: Whether JAX has kept earlier traces of it.

    Returns:
        The ids of those of these functions that `fun` leads to. From here on they count as traced
        with the current values.
    """
    new, differs = _exchange_all(current, fun, traced=traced)
    if not new and not differs:
        return set()
    around = {id(call.fun) for call in running_calls()}
    others = [each for each in current.callables if each is not fun and not _is_of_package(each)]
    called = set(map(id, others))
    forgotten: dict[int, Any] = {}
    for each in traced_functions() or ():
        if id(each) in around or _is_of_jax(each):
            continue
        behind = _functions_behind(each)
        own, is_ours = set(map(id, behind)), hasattr(type(each), "program_log")
        if is_ours and any(one is fun for one in behind):
            continue
        checks = is_ours and own.isdisjoint(called)
        is_wrapper = type(each) is types.FunctionType and is_installed(each)
        may_call = differs or (bool(new) and is_wrapper)  # equinox hands it the user's function
        if not own.isdisjoint(new) or (may_call and not checks):
            forgotten[id(each)] = each
    forget_traces_of(forgotten.values())
    return called if differs else new


def _functions_behind(value: Any) -> list[Any]:
    """Return the functions that run when one is called that JAX has traced; none if it is gone."""
    try:
        return [innermost(value), *map(innermost, functions_in(value))]
    except Exception:  # noqa: BLE001  # an object of the user's, or one of which nothing is left
        return []


def _is_of_jax(value: Any) -> bool:
    """Return whether it is a function of JAX itself, as `jnp.where` is, that calls no other."""
    return type(value) is types.FunctionType and str(value.__module__).partition(".")[0] == "jax"


def _exchange_all(
    current: FingerprintedFunction, fun: Callable[..., Any], *, traced: bool
) -> tuple[set[int], bool]:
    """Note what all functions find; return the ids of new ones, and whether one finds others."""
    new: set[int] = set()
    reads_something = differs = False
    with _LOCK:
        for reader, key, now, owner in _reads(current):
            is_own = reader is fun
            found = _exchange(reader, key, now, owner, keeps=traced and is_own)
            if found is not None:
                # What `fun` itself reads goes into its new trace, but what it calls may read it.
                differs = differs or found.is_other or (found.is_mixed and not is_own)
            elif not is_own and key[-1] not in (_ITSELF, _HANDED):
                new.add(id(reader))
                reads_something = reads_something or key[-1] != _CODE
    return new if reads_something else set(), differs


def _reads(current: FingerprintedFunction) -> Iterator[tuple[Any, Any, CaptureState, Any]]:
    """Yield the functions that read something, the place, what is there, and what holds that.

    The key of a place is the same whatever is there.
    """
    for probe in current.probes:
        place = probe.binding.place
        for reader in probe.binding.readers:
            if isinstance(reader, types.FunctionType | type):
                key, now = (*place.key, place.steps), current.fingerprint[probe.key]
                if _is_argument(reader, place):
                    key = (*key, _HANDED)
                yield reader, key, now, place.owner
                if callable(probe.value):  # of two of one code each has a closure of its own
                    yield reader, (*key, _ITSELF), _identity_of(probe.value), place.owner
    for each in current.callables:
        if isinstance(each, types.FunctionType) and not is_installed(each):
            yield each, (_CODE,), _identity_of(each.__code__), each


def _identity_of(value: Any) -> CaptureState:
    return CaptureState(ByWeakId(value), None, "", "", "")


def _is_argument(reader: Any, place: CapturedPlace) -> bool:
    """Return whether a function is handed a value as a whole: what hands it on is traced, too."""
    if place.steps or type(reader) is not types.FunctionType or place.owner is reader:
        return False
    code = reader.__code__
    return place.variable not in code.co_freevars and place.variable not in set(names_in(code))


_CODE, _ITSELF, _HANDED = "code", "itself", "handed"


def _is_of_package(value: Any) -> bool:
    return isinstance(value, type) or (
        isinstance(value, types.FunctionType) and is_installed(value)
    )


class _Found(NamedTuple):
    """How what a function found in a place compares to what it found there before."""

    is_other: bool
    is_mixed: bool


def _exchange(
    reader: Any, key: Any, now: CaptureState, owner: Any, *, keeps: bool
) -> _Found | None:
    """Note what a function finds in a place; None if it is new there.

    `keeps` says that JAX keeps its earlier traces: a function around would take up either.
    """
    places = _KNOWN.setdefault(reader, {})
    if len(places) > _MOST_PLACES:
        places.clear()
    before, was_mixed, find = places.get(key, (None, False, None))
    if before is None or (find is not None and find() is not owner):
        places[key] = now, False, _weak(owner)  # the key may have the address of one that is gone
        return None
    is_other = _differ(before, now)
    places[key] = now, keeps and (was_mixed or is_other), find
    return _Found(is_other, was_mixed)


def _weak(value: Any) -> Callable[[], Any] | None:
    try:
        return weakref.ref(value)
    except TypeError:  # a dict of globals
        return None


def _differ(before: CaptureState, now: CaptureState) -> bool:
    key = ("", "", "", 0)
    return bool(changed({key: before}, {key: now}))


_DEEPEST: Final = 20


def innermost(value: Any) -> Any:
    """Return the function whose code runs in the end, when something is called."""
    for _ in range(_DEEPEST):
        inner = _wrapped(value)
        if inner is None:
            break
        value = inner
    if type(value) is types.FunctionType:
        return value
    return in_class(type(value), "__call__")


def _wrapped(value: Any) -> Any:
    kind = type(value)  # an object may say another thing to `isinstance`, or raise
    if issubclass(kind, functools.partial):
        return value.func
    if issubclass(kind, types.MethodType) or is_bound_method(value):
        return value.__func__
    return wrapped_by(value)


def capturing_function(fun: Callable[..., Any], args: Sequence[Any]) -> Callable[..., Any]:
    """Return the function whose captures count; equinox hands it over as an argument."""
    behind = function_behind(fun, args)
    found: Callable[..., Any] = fun if behind is fun else innermost(behind)
    return found


def code_id(fun: Callable[..., Any]) -> int:
    """Return a number that functions of one code share, such as a new closure each call."""
    return id(getattr(innermost(fun), "__code__", fun))
