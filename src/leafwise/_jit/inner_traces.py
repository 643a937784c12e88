"""The traces that JAX keeps of functions that are called inside another one.

It keeps the trace of a loop's body, or of a function under `jax.jit` or `jax.checkpoint`, as long
as that lives, and any new trace of a function around takes it up. So what these functions captured
when they were last seen is kept here: before a trace, those for which it is not so any more are
forgotten.
"""

import contextlib
import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import jax

from leafwise._captures.fingerprint import CaptureState, FingerprintedFunction, Probe, changed
from leafwise._jax.compat import clear_checkpoint_traces
from leafwise._jit.callee import function_behind
from leafwise._objects.attributes import in_class, is_bound_method, wrapped_by
from leafwise._objects.methods import JittedFunction

_JAX_JIT: Final = jax.jit
"""The one of JAX: `leafwise explain` puts ours in its place."""

_MOST_PLACES: Final = 512
"""A function that has read more places than these, of so many instances, is as if unknown."""

_Places: TypeAlias = dict[Any, CaptureState | None]
"""What a function found in each place when it was traced; None if not always the same."""

_LOCK: Final = threading.Lock()
_KNOWN: Final[weakref.WeakKeyDictionary[Callable[..., Any], _Places]] = weakref.WeakKeyDictionary()


def readers_to_forget(
    taken: FingerprintedFunction, fun: Callable[..., Any]
) -> list[Callable[..., Any]]:
    """Return the functions whose traces may be of other values than those that are there now.

    Args:
        taken: What is there now, before `fun` is traced.
        fun: The function that JAX traces.

    Returns:
        Those that nobody has seen before; all, if one of them found something else. Never `fun`
        itself. From here on they count as traced with what is there now.
    """
    new: dict[int, Callable[..., Any]] = {}
    known: dict[int, Callable[..., Any]] = {}
    differs = False
    with _LOCK:
        for looked in taken.places:
            reader = looked.binding.function
            if not isinstance(reader, types.FunctionType):
                continue
            before, now = _exchange(reader, looked, taken, own=reader is fun)
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
    reader: types.FunctionType, looked: Probe, taken: FingerprintedFunction, *, own: bool
) -> tuple[Any, CaptureState]:
    """Note what a function finds in a place now; return that with what it found before."""
    places = _KNOWN.setdefault(reader, {})
    if len(places) > _MOST_PLACES:
        places.clear()
    place, now = looked.binding.place, taken.fingerprint[looked.key]
    key = (*place.key, place.steps)
    before = places.get(key, _UNSEEN)
    # Its own earlier traces stay: a function around would take up either.
    mixed = own and before is not _UNSEEN and (before is None or _differ(before, now))
    places[key] = None if mixed else now
    return before, now


def _differ(before: CaptureState, now: CaptureState) -> bool:
    key = ("", "", "", 0)
    return bool(changed({key: before}, {key: now}))


def forget(readers: Iterable[Callable[..., Any]], taken: FingerprintedFunction) -> None:
    """Let JAX forget the traces of some functions, and of what was jitted to call them."""
    wanted = set(map(id, readers))
    clear_checkpoint_traces()
    for reader in readers:
        with contextlib.suppress(Exception):  # of a class of its own, without a hash
            jitted: Any = _JAX_JIT(reader)
            jitted.clear_cache()
    for looked in taken.places:
        for value in _parts(looked.value):
            clear: Any = getattr(type(value), "clear_cache", None)
            if clear is None or issubclass(
                type(value), JittedFunction
            ):  # whose programs are retired, too
                continue
            if id(innermost(value)) in wanted:
                with contextlib.suppress(Exception):  # of a class of its own, as above
                    clear(value)


def _parts(value: Any) -> Iterator[Any]:
    """Yield what is wrapped in a value, or lies in a container."""
    if type(value) in (list, tuple, dict):
        yield from value.values() if type(value) is dict else value
    for _ in range(_DEEPEST):
        yield value
        inner = _inside(value)
        if inner is None:
            return
        value = inner


_DEEPEST: Final = 20


def innermost(value: Any) -> Any:
    """Return the function whose code runs in the end, when something is called."""
    for _ in range(_DEEPEST):
        inner = _inside(value)
        if inner is None:
            break
        value = inner
    if type(value) is types.FunctionType:
        return value
    return in_class(type(value), "__call__")


def _inside(value: Any) -> Any:
    kind = type(value)  # an object may say another thing to `isinstance`, or raise
    if issubclass(kind, functools.partial):
        return value.func
    if issubclass(kind, types.MethodType) or is_bound_method(value):
        return value.__func__
    return wrapped_by(value)


def reading(fun: Callable[..., Any], args: Sequence[Any]) -> Callable[..., Any]:
    """Return the function whose captures count; equinox hands it over as an argument."""
    behind = function_behind(fun, args)
    found: Callable[..., Any] = fun if behind is fun else innermost(behind)
    return found


def owner_of(fun: Callable[..., Any]) -> int:
    """Return a number that is the same for a function made anew at each call, of one code."""
    return id(getattr(innermost(fun), "__code__", fun))
