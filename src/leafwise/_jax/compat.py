"""What leafwise needs of JAX that has no public name, or a different one in each version.

`Internal` lists what is read from `jax._src`. Versions do not decide whether it can be read: on
first use, a probe checks this where a wrong result could look right; elsewhere the name only has to
exist. What cannot be read is left out, or replaced by a public name.
"""

import contextlib
import dataclasses
import importlib
import inspect
import threading
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, TypeAlias

import jax

from leafwise._jax.events import ignore_events, is_tracing

_REASONS: Final = "reasons"


class Internal(Enum):
    """Something without a public name: what JAX shows by it, and where, below ``jax._src``."""

    # The last item is what reports leave out where JAX does not show it, if anything.
    CALLS = "the arguments of its calls", "pjit.cache_miss pjit.jit_trace pjit.jit_lower", _REASONS
    ROLES = "the transformations of its calls", "pjit._pjit_batcher pjit._pjit_linearize", _REASONS
    RESULTS = "the results of its traces", "pjit._trace_for_jit", _REASONS
    NESTING = "traces inside other traces", "interpreters.partial_eval.trace_to_jaxpr", _REASONS
    PROGRAMS = "what it lowers", "interpreters.pxla.lower_sharding_computation", _REASONS
    CONTEXT = "all that a trace depends on", "config.trace_context", "reasons without a public name"
    COMPILES = "programs before their compile", "compiler.compile_or_get_cached", "their operations"
    LOCATIONS = "the lines of operations", "", ""
    EXCHANGES = "the trees of a loop", "lax.control_flow.loops._check_carry_type", "exchanges"
    REUSED = "traces that it reuses in others", "core.trace_ctx", ""
    NAMES = "the names of what a trace depends on", "config.trace_context_names", ""
    MESH = "the mesh around a trace", "mesh.get_concrete_mesh", ""
    KEYS = "the keys of its cache on disk", "compiler._get_cache_key", ""
    LOWERED = "what `lower` returns", "stages.Lowered._lowering", ""
    OPTIONS = "the options of a jitted function", "pjit.PjitInfo", ""
    TRACEBACKS = "its frames in tracebacks", "traceback_util config.traceback_filtering", ""
    REFUSALS = "the trees that derivatives compare", "custom_derivatives._flatten_bwd api._jvp", ""
    PROCESSES = "its client of other processes", "distributed.global_state", ""
    OFF = "that jit is off", "config.disable_jit dispatch.apply_primitive", ""
    DROPPED = "the dropped fields of dataclasses", "tree_util._registry", ""
    EXPORTED = "the classes that it exports", "export._export.deserialization_registry", ""

    def is_known(self, probe: "Callable[[], Mapping[Internal, bool]]") -> bool:
        """Return whether it can be read; the first call finds out with a probe."""
        if self not in ANSWERS:
            # This thread may be inside a trace, where JAX reports less.
            thread = threading.Thread(target=_ask, args=(probe,), name="leafwise asks JAX")
            try:
                thread.start()
                thread.join()
            except RuntimeError:  # Python 3.12 starts none in `atexit` functions
                with getattr(inside("core"), "eval_context", contextlib.nullcontext)():
                    _ask(probe)
            ANSWERS.setdefault(self, False)
        return ANSWERS[self]


JIT: Final[Any] = jax.jit
"""JAX's own `jax.jit`, which `leafwise explain` may replace with ours."""

ANSWERS: Final[dict[Internal, bool]] = {}
"""Whether each item that was checked so far can be read."""


def left_out() -> dict[str, str]:
    """Return what JAX was found not to show so far, and what reports leave out because of it."""
    missing = [row.value for row, answer in ANSWERS.items() if not answer]
    return {shown: lost for shown, _, lost in missing if lost}


def shows_no_reasons() -> bool:
    """Return whether something that all reasons need was found missing so far."""
    return _REASONS in left_out().values()


def inside(name: str) -> Any:
    """Return a module below ``jax._src``, or None if it does not exist."""
    try:
        return importlib.import_module(f"jax._src.{name}")
    except ImportError:
        return None


def _ask(probe: Callable[[], Mapping[Internal, bool]]) -> None:
    """Record what a probe returns, with JAX configured to trace, and to log nothing of it."""
    namespace: Any = jax
    raises = contextlib.suppress(Exception)  # of another JAX: the answers stay unknown
    with raises, ignore_events(), contextlib.ExitStack() as blocks:
        for option in ("disable_jit", "no_tracing", "log_compiles", "explain_cache_misses"):
            blocks.enter_context(getattr(namespace, option)(False))  # noqa: FBT003  # as in JAX
        ANSWERS.update(probe())


def current_mesh() -> Any:
    """Return the mesh set by `jax.set_mesh` (an abstract one inside a trace), or None."""
    mesh: Any = jax.sharding.get_abstract_mesh() if is_tracing() else concrete_mesh()
    return None if mesh is None or mesh.empty else mesh


def concrete_mesh() -> Any:
    """Return the mesh set by `jax.set_mesh`; None inside a trace where JAX does not show it."""
    with contextlib.suppress(AttributeError):
        return inside("mesh").get_concrete_mesh()
    with contextlib.suppress(AttributeError, ValueError):  # it raises inside a trace
        return jax.sharding.get_mesh()
    return None


def varying_axes(value: Any) -> tuple[str, ...]:
    """Return the axes of the `jax.shard_map` around a trace along which a type or tracer varies."""
    kind: Any = jax.typeof(value) if isinstance(value, jax.Array) else value
    axes: Any = getattr(kind, "vma", None)  # before JAX 0.10
    if axes is None:
        axes = getattr(getattr(kind, "manual_axis_type", None), "varying", ())
    return tuple(sorted(axes))


def vary(array: Any, axes: tuple[str, ...]) -> Any:
    """Return an array that JAX treats as varying along more axes."""
    namespace: Any = jax.lax
    if hasattr(namespace, "pcast"):
        return namespace.pcast(array, axes, to="varying")
    return namespace.pvary(array, axes)


StaticOptions: TypeAlias = tuple[tuple[int, ...], tuple[str, ...]]
"""Which arguments are static, by position and by name."""


def dispatch_entries(jitted: Any) -> int:
    """Return how many dispatch entries a jitted function has; -1 if unknown."""
    count: Any = getattr(jitted, "_cache_size", None)
    return -1 if count is None else count()


def static_options(jitted: Any) -> StaticOptions | None:
    """Return which arguments of a jitted function are static; None if JAX does not show it."""
    info: Any = getattr(jitted, "_jit_info", None)
    is_known = hasattr(info, "static_argnums") and hasattr(info, "static_argnames")
    return static_options_of(info) if is_known else None


def donated_by(function: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the arguments that a jitted function donates; none where JAX does not show it."""
    info: Any = getattr(getattr(function, "_leafwise_jax", function), "_jit_info", None)
    return getattr(info, "donate_argnums", ()), getattr(info, "donate_argnames", ())


def static_options_of(info: Any) -> StaticOptions:
    """Return which arguments are static, from JAX's record of a jitted function's options."""
    numbers, names = (getattr(info, each, ()) for each in ("static_argnums", "static_argnames"))
    return tuple(numbers or ()), tuple(names or ())


def is_committed(lowered: Any) -> bool:
    """Return whether the results of a lowered function are committed to their devices."""
    lowering: Any = getattr(lowered, "_lowering", None)
    committed = getattr(lowering, "compile_args", {}).get("committed")
    if committed is not None:
        return bool(committed)
    # Where JAX does not show it, results on several devices count as committed.
    shardings: list[Any] = jax.tree.leaves(lowered.compile().output_shardings)
    return any(len(sharding.device_set) > 1 for sharding in shardings)


def flattener_of(cls: Any) -> Any:
    """Return the function that flattens a class, or what calls it."""
    registered = getattr(inside("tree_util"), "_registry", {}).get(cls)
    return getattr(cls, "tree_flatten", getattr(registered, "to_iter", None))


def dropped_fields(cls: Any) -> frozenset[str]:
    """Return the ``drop_fields`` passed to `jax.tree_util.register_dataclass` for a class."""
    try:
        kept = inspect.getclosurevars(inside("tree_util")._registry[cls].to_iter).nonlocals  # noqa: SLF001
        names = {*kept["data_fields"], *kept["meta_fields"]}
    except (AttributeError, KeyError, TypeError):
        return frozenset()
    return frozenset(field.name for field in dataclasses.fields(cls) if field.init) - names


def forget_exported_class(cls: type) -> None:
    """Free the name of a class in `jax.export`, where JAX's internals allow it."""
    with contextlib.suppress(AttributeError, KeyError):
        exported = inside("export._export")
        name, _ = exported.serialization_registry.pop(cls)
        del exported.deserialization_registry[name]
