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

from leafwise._captures.fingerprint import CaptureState, FingerprintedFunction, Probe, changed
from leafwise._jax.compat import clear_checkpoint_traces
from leafwise._jit.callee import function_behind
from leafwise._objects.attributes import in_class, is_bound_method, wrapped_by
from leafwise._objects.locks import new_lock
from leafwise._objects.methods import JittedFunction

_JAX_JIT: Final = jax.jit
"""JAX's own: `leafwise explain` replaces `jax.jit` with ours."""

_MOST_PLACES: Final = 512
"""A function that has read more places than these, of so many instances, counts as new."""

_Places: TypeAlias = dict[Any, CaptureState | None]
"""What a function found in each place when it was traced; None if not always the same."""

_LOCK: Final = new_lock()
_KNOWN: Final[weakref.WeakKeyDictionary[Callable[..., Any], _Places]] = weakref.WeakKeyDictionary()


def readers_to_forget(
    current: FingerprintedFunction, fun: Callable[..., Any]
) -> list[Callable[..., Any]]:
    """Return the functions whose traces may be of other values than the current ones.

    Args:
        current: The captures before `fun` is traced.
        fun: The function that JAX traces.

    Returns:
        Those that are new; all, if one of them finds other values than before. Never `fun`
        itself. From here on they count as traced with the current values.
    """
    new: dict[int, Callable[..., Any]] = {}
    known: dict[int, Callable[..., Any]] = {}
    differs = False
    with _LOCK:
        for probe in current.probes:
            reader = probe.binding.function
            if not isinstance(reader, types.FunctionType):
                continue
            before, now = _exchange(reader, probe, current, own=reader is fun)
            if reader is fun:
                continue
            known[id(reader)] = reader
            if before is _UNSEEN:
                new[id(reader)] = reader
            elif before is None or _differ(before, now):
                differs = True
    return list((known if differs else new).values())


_UNSEEN: Final[Any] = object()


def _exchange(
    reader: types.FunctionType, probe: Probe, current: FingerprintedFunction, *, own: bool
) -> tuple[Any, CaptureState]:
    """Replace what a function found in a place; return what it found before, and finds now."""
    places = _KNOWN.setdefault(reader, {})
    if len(places) > _MOST_PLACES:
        places.clear()
    place, now = probe.binding.place, current.fingerprint[probe.key]
    key = (*place.key, place.steps)
    before = places.get(key, _UNSEEN)
    # Its own earlier traces stay: a function around would take up either.
    mixed = own and before is not _UNSEEN and (before is None or _differ(before, now))
    places[key] = None if mixed else now
    return before, now


def _differ(before: CaptureState, now: CaptureState) -> bool:
    key = ("", "", "", 0)
    return bool(changed({key: before}, {key: now}))


def forget_traces(readers: Iterable[Callable[..., Any]], current: FingerprintedFunction) -> None:
    """Let JAX forget the traces of some functions, and of what was jitted to call them."""
    wanted = set(map(id, readers))
    clear_checkpoint_traces()
    for reader in readers:
        with contextlib.suppress(Exception):  # an object without a hash
            jitted: Any = _JAX_JIT(reader)
            jitted.clear_cache()
    for probe in current.probes:
        for value in _callables_in(probe.value):
            clear: Any = getattr(type(value), "clear_cache", None)
            # Of a function under `lw.jit` the guard retires the programs.
            if clear is None or issubclass(type(value), JittedFunction):
                continue
            if id(innermost(value)) in wanted:
                with contextlib.suppress(Exception):  # a `clear_cache` of the user's own
                    clear(value)


def _callables_in(value: Any) -> Iterator[Any]:
    """Yield what is wrapped in a value, or lies in a container."""
    if type(value) in (list, tuple, dict):
        yield from value.values() if type(value) is dict else value
    for _ in range(_DEEPEST):
        yield value
        inner = _wrapped(value)
        if inner is None:
            return
        value = inner


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
