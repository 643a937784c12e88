"""What a trace depends on besides its arguments: JAX's configuration, and a number we add.

JAX caches the trace of a loop body, or of a function called inside another one, as long as that
function lives, and reuses it in any outer trace, even if what the function captures has changed. It
does not if the number differs, which is part of the key of every trace and program.

https://docs.jax.dev/en/latest/_autosummary/jax.make_user_context.html
"""

import contextlib
import itertools
from contextlib import AbstractContextManager
from typing import Any, Final, cast

import jax

from leafwise._jax.compat import ANSWERS, Internal, concrete_mesh, inside
from leafwise._objects.locks import new_lock

_LOCK: Final = new_lock()
_NUMBERS: Final = itertools.count(1)
_number: Any = None
_place: int | None = None
"""The index of the number among the values of the trace context; None if it is not there."""


def install_trace_context() -> None:
    """Add an integer to JAX's trace context, so that changing it invalidates the jit cache."""
    # This changes the keys of everything traced and compiled so far, once per process: each such
    # function is traced and compiled again at its next call.
    global _number, _place  # noqa: PLW0603  # one per process
    with _LOCK:
        if _number is None:
            place = len(_trace_context())
            _number = cast("Any", jax.make_user_context)()  # untyped in JAX 0.12
            _place = place if len(_trace_context()) > place else None


def new_number() -> int:
    return next(_NUMBERS)


def with_number(number: int | None) -> AbstractContextManager[None]:
    """Make traces in a block depend on a number; None restores the state outside all blocks."""
    install_trace_context()
    block: AbstractContextManager[None] = _number(number)
    return block


def traced_afresh() -> AbstractContextManager[None]:
    """Return a block in which no earlier trace is reused, not even those with a number."""
    return with_number(-new_number())


def is_traced_afresh() -> bool:
    return (current_number() or 0) < 0


def current_number() -> int | None:
    return None if _number is None else _number.value


_PUBLIC_CONFIG: Final = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_device",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_threefry_partitionable",
    "jax_disable_jit",
    "jax_debug_key_reuse",
    "jax_explicit_x64_dtypes",
    "jax_softmax_custom_jvp",
    "jax_random_seed_offset",
    "jax_use_shardy_partitioner",
)
"""The options of `jax.config` in a trace's key whose names are the same in all versions."""

UNNAMED_CONFIG: Final = "trace context"
"""The name of all options together where JAX does not name them."""

Config = tuple[tuple[str, Any], ...]
"""The part of JAX's configuration that is in the key of a trace: names and values."""


def trace_config() -> Config:
    """Return the part of this thread's configuration that traces depend on, without the number."""
    global _latest  # noqa: PLW0603  # replaced, never changed: other threads read it
    context, mesh = _without_number(_trace_context()), concrete_mesh()
    public = [getattr(jax.config, name, None) for name in _PUBLIC_CONFIG]
    values = *public, None if mesh is None or mesh.empty else mesh, *context
    known, config = _latest
    # The same object until a value changes, so that hundreds of calls share it.
    if known != values:  # as JAX compares its keys
        named = zip((*_PUBLIC_CONFIG, "mesh"), values, strict=False)
        config = *named, *_named_context(context)
        _latest = values, config
    return config


_latest: tuple[tuple[Any, ...], Config] = (), ()


def _trace_context() -> list[Any]:
    """Return all values of the trace context; empty where JAX does not show it."""
    with contextlib.suppress(AttributeError, TypeError):
        return list(inside("config").trace_context())
    ANSWERS[Internal.CONTEXT] = False
    return []


def _without_number(values: list[Any]) -> list[Any]:
    return values if _place is None else values[:_place] + values[_place + 1 :]


def _named_context(values: list[Any]) -> Config:
    """Return the trace context, by names if JAX has them (since 0.11), or else as one value."""
    with contextlib.suppress(AttributeError, TypeError, ValueError):
        names = _without_number(list(inside("config").trace_context_names()))
        return tuple(zip(names, values, strict=True))
    return ((UNNAMED_CONFIG, tuple(values)),) if values else ()
