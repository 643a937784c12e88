"""The traces that JAX keeps of functions that are called inside another one.

It keeps the trace of a loop's body, or of a function under `jax.jit` or `jax.checkpoint`, as long
as that lives, and any new trace of a function around takes it up. So what these functions captured
when they were last fingerprinted is kept here: before a trace, the traces of those whose captures
have changed are forgotten.
"""

import contextlib
import functools
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import jax

from leafwise._captures.fingerprint import CaptureState, FingerprintedFunction, changed
from leafwise._captures.fingerprinter import ByWeakId
from leafwise._captures.places import CapturedPlace
from leafwise._captures.waiting_methods import names_in
from leafwise._jax.compat import clear_derived_traces
from leafwise._jit.callee import function_behind
from leafwise._objects.attributes import (
    in_class,
    is_bound_method,
    is_installed,
    is_object,
    is_tree,
    wrapped_by,
)
from leafwise._objects.locks import new_lock
from leafwise._objects.methods import JittedFunction

_JAX_JIT: Final = jax.jit
"""JAX's own: `leafwise explain` replaces `jax.jit` with ours."""

_MOST_PLACES: Final = 512
"""A function that has read more places than these, of so many instances, counts as new."""

_Places: TypeAlias = dict[Any, tuple[CaptureState | None, Callable[[], Any] | None]]
"""What a function found in each place when it was traced; None if not always the same."""

_LOCK: Final = new_lock()
_KNOWN: Final[weakref.WeakKeyDictionary[Callable[..., Any], _Places]] = weakref.WeakKeyDictionary()


def readers_to_forget(
    current: FingerprintedFunction, fun: Callable[..., Any], *, traced: bool
) -> list[Callable[..., Any]]:
    """Return the functions whose traces may be of other values than the current ones.

    Args:
        current: The captures before `fun` is traced.
        fun: The function that JAX traces.
        traced: Whether JAX has kept earlier traces of it.

    Returns:
        Those that are new, if one of them reads something: others may call it. Everything
        callable that `fun` leads to, if one of the functions finds other values than before, or
        has other code. Never `fun` itself. From here on they count as traced with the current
        values.
    """
    new: dict[int, Callable[..., Any]] = {}
    reads_something = differs = False
    with _LOCK:
        for reader, key, now, owner, is_handed_on in _reads(current):
            before = _exchange(reader, key, now, owner, own=traced and reader is fun)
            if before is not _UNSEEN:
                # What `fun` itself reads goes into its new trace; but an object it may have handed
                # to a helper, as a static argument, which reads it unseen.
                counts = reader is not fun or is_handed_on
                differs = differs or (counts and (before is None or _differ(before, now)))
            elif reader is fun:
                continue
            elif key[-1] not in (_ITSELF, _HANDED):
                new[id(reader)] = reader
                reads_something = reads_something or key[-1] != _CODE
    if not differs:
        return list(new.values()) if reads_something else []
    return [each for each in current.callables if each is not fun and not _is_of_package(each)]


def _reads(current: FingerprintedFunction) -> Iterator[tuple[Any, Any, CaptureState, Any, bool]]:
    """Yield the functions that read something, the place, what is there, and what holds that.

    And whether it may be handed to a helper as a static argument. The key of a place is the same
    whatever is there.
    """
    for probe in current.probes:
        place = probe.binding.place
        for reader in probe.binding.readers:
            if isinstance(reader, types.FunctionType | type):
                key, now = (*place.key, place.steps), current.fingerprint[probe.key]
                is_argument = _is_argument(reader, place)
                if is_argument:
                    key = (*key, _HANDED)
                is_handed_on = not is_argument and _holds_object(probe.value)
                yield reader, key, now, place.owner, is_handed_on
                if callable(probe.value):  # of two of one code each has a closure of its own
                    itself = _identity_of(probe.value)
                    yield reader, (*key, _ITSELF), itself, place.owner, False
    for each in current.callables:
        if isinstance(each, types.FunctionType) and not is_installed(each):
            yield each, (_CODE,), _identity_of(each.__code__), each, False


def _holds_object(value: Any, depth: int = 3) -> bool:
    """Return whether a value is or contains an object that a static argument may be."""
    if type(value) in (list, tuple, dict) and depth:
        items: Iterable[Any] = value.values() if type(value) is dict else value
        return any(_holds_object(item, depth - 1) for item in items)
    return is_object(value) and not is_tree(value)


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


_UNSEEN: Final[Any] = object()


def _exchange(reader: Any, key: Any, now: CaptureState, owner: Any, *, own: bool) -> Any:
    """Replace what a function found in a place; return what it found before."""
    places = _KNOWN.setdefault(reader, {})
    if len(places) > _MOST_PLACES:
        places.clear()
    before, find = places.get(key, (_UNSEEN, None))
    if find is not None and find() is not owner:  # the key has the address of one that is gone
        before = _UNSEEN
    # Its own earlier traces stay: a function around would take up either.
    mixed = own and before is not _UNSEEN and (before is None or _differ(before, now))
    places[key] = None if mixed else now, _weak(owner)
    return before


def _weak(value: Any) -> Callable[[], Any] | None:
    try:
        return weakref.ref(value)
    except TypeError:  # a dict of globals
        return None


def _differ(before: CaptureState, now: CaptureState) -> bool:
    key = ("", "", "", 0)
    return bool(changed({key: before}, {key: now}))


def forget_traces(readers: Iterable[Callable[..., Any]], current: FingerprintedFunction) -> None:
    """Let JAX forget the traces of some functions, and of all that is there to call them."""
    chosen = {id(each): each for each in readers}
    clear_derived_traces()
    around = [each for each in current.callables if id(innermost(each)) in chosen]
    for value in {**chosen, **{id(each): each for each in around}}.values():
        with contextlib.suppress(Exception):  # an object without a hash
            jitted: Any = _JAX_JIT(value)
            jitted.clear_cache()
        clear: Any = getattr(type(value), "clear_cache", None)
        # Of a function under `lw.jit` the guard retires the programs.
        if clear is not None and not issubclass(type(value), JittedFunction):
            with contextlib.suppress(Exception):  # a `clear_cache` of the user's own
                clear(value)


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
