"""What leafwise asks of `jax._src`, and of what differs between versions of JAX.

Each function here answers better with JAX's internals than without them. It still answers where
they are not those that were tested: in another version of JAX, or where a name has moved.
"""

import contextlib
import dataclasses
import importlib
import inspect
import operator
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import jax

_KNOWN: Final = (0, 10) <= jax.__version_info__[:2] < (0, 13)


def is_known() -> bool:
    """Return whether JAX's internals are those that were read and tested for this package."""
    return bool(_KNOWN)


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
"""The options of `jax.config` in the key of a trace that have a name in every version."""

UNNAMED_CONFIG: Final = "trace context"
"""The name of all options together where JAX does not give their names."""

Config = tuple[tuple[str, Any], ...]
"""The part of JAX's configuration that is in the key of a trace: names and values."""


def trace_config() -> Config:
    """Return the configuration of this thread that a trace depends on.

    While no value of it is replaced, it is one object: hundreds of calls share it.
    """
    global _latest  # noqa: PLW0603  # replaced, never changed: other threads read it
    context = _trace_context()
    public = [getattr(jax.config, name, None) for name in _PUBLIC_CONFIG]
    values = *public, _concrete_mesh(), *context
    known, config = _latest
    if len(known) != len(values) or not all(map(operator.is_, known, values)):
        named = zip((*_PUBLIC_CONFIG, "mesh"), values, strict=False)
        config = *named, *_named_context(context)
        _latest = values, config
    return config


_latest: tuple[tuple[Any, ...], Config] = (), ()


def _trace_context() -> tuple[Any, ...]:
    """Return the values of the whole trace context; none where it is not known."""
    try:
        if _KNOWN:
            from jax._src import config  # noqa: PLC0415  # after the check of the version

            return tuple(config.trace_context())
    except (ImportError, AttributeError, TypeError):
        pass
    return ()


def _named_context(values: tuple[Any, ...]) -> Config:
    """Return the trace context: with names since JAX 0.12, as one value before."""
    try:
        from jax._src import config  # noqa: PLC0415  # which has the values

        names: Any = getattr(config, "trace_context_names", None)
        if names is not None:
            return tuple(zip(names(), values, strict=True))
    except (ImportError, TypeError, ValueError):
        return ()
    return ((UNNAMED_CONFIG, values),) if values else ()


def _concrete_mesh() -> Any:
    """Return the mesh set by `jax.set_mesh`; None if there is none."""
    mesh: Any = None
    with contextlib.suppress(ImportError, AttributeError, ValueError):
        if _KNOWN:
            from jax._src import mesh as internal  # noqa: PLC0415  # after the check

            mesh = internal.get_concrete_mesh()
        else:  # JAX refuses this inside a trace
            mesh = jax.sharding.get_mesh()
    return None if mesh is None or mesh.empty else mesh


def current_mesh() -> Any:
    """Return the mesh that `jax.set_mesh` has set, inside a trace an abstract one; or None."""
    mesh: Any = jax.sharding.get_abstract_mesh() if is_tracing() else jax.sharding.get_mesh()
    return None if mesh.empty else mesh


def is_tracing() -> bool:
    """Return whether this thread traces a function, as for `jax.jit`."""
    try:
        jax.sharding.get_mesh()
    except ValueError:  # it can be used outside alone
        return True
    return False


StaticOptions: TypeAlias = tuple[tuple[int, ...], tuple[str, ...]]
"""Which arguments are static, by position and by name."""


def dispatch_entries(jitted: Any) -> int:
    """Return how many dispatch entries a jitted function has; -1 if that is unknown."""
    count: Callable[[], int] | None = getattr(jitted, "_cache_size", None)
    return -1 if count is None else count()


def static_options(jitted: Any) -> StaticOptions:
    """Return which arguments of a jitted function are static: by position, and by name.

    Both are empty where that is unknown.
    """
    return static_options_of(getattr(jitted, "_jit_info", None) if _KNOWN else None)


def static_options_of(info: Any) -> StaticOptions:
    """Return which arguments are static, of JAX's record of the options of a jitted function."""
    numbers, names = (getattr(info, each, ()) for each in ("static_argnums", "static_argnames"))
    return tuple(numbers or ()), tuple(names or ())


def traced_functions() -> list[Any] | None:
    """Return the functions of whose calls inside others JAX keeps traces; None if unknown."""
    found: dict[int, Any] = {}
    try:
        for cache in map(_cache, _TRACES) if _KNOWN else ():
            for key in cache.cache_keys():
                fun = key[0]()
                if fun is not None:
                    found[id(fun)] = fun
    except (ImportError, AttributeError, IndexError, TypeError):
        return None
    return list(found.values()) if _KNOWN else None


def forget_traces_of(functions: Iterable[Any]) -> None:
    """Let JAX forget what it keeps of calls of some functions inside others, but no program.

    And all that it keeps of any function under the name of another one that it has made of it.
    Where those caches cannot be reached, all of JAX's caches are cleared.
    """
    try:
        if _KNOWN:
            traces = [_cache(each) for each in _TRACES]
            for fun in functions:
                for cache in traces:
                    cache.evict_weakref(fun)
            for each in _DERIVED:
                _cache(each).cache_clear()
            return
    except (ImportError, AttributeError):
        pass
    clear_caches: Any = jax.clear_caches  # which has no types
    clear_caches()


def _cache(where: tuple[str, str]) -> Any:
    module, name = where
    return getattr(importlib.import_module(f"jax._src.{module}"), name)


_TRACES: Final = (
    ("interpreters.partial_eval", "trace_to_jaxpr"),
    ("pjit", "_infer_params_cached"),
)
_DERIVED: Final = (
    ("ad_checkpoint", "_trace_to_jaxpr"),
    ("lax.control_flow.loops", "_fori_body_fun"),
    ("lax.control_flow.loops", "_fori_scan_body_fun"),
    ("lax.lax", "_trace_composite_to_jaxpr"),
    ("custom_derivatives", "_closure_convert_for_avals"),
    # What `jax.checkpoint` makes of a function and its static arguments; 0.10 makes it each time.
    *([("api_util", "_dyn_args_fun_cached")] if jax.__version_info__ >= (0, 12) else []),
)


def is_committed(lowered: Any) -> bool:
    """Return whether the results of a lowered function are committed to their devices.

    Where JAX's internals are unknown, only results on several devices count as committed.
    """
    committed: Any = None
    if _KNOWN:
        lowering: Any = getattr(lowered, "_lowering", None)
        committed = getattr(lowering, "compile_args", {}).get("committed")
    if committed is not None:
        return bool(committed)
    shardings: list[Any] = jax.tree.leaves(lowered.compile().output_shardings)
    return any(len(sharding.device_set) > 1 for sharding in shardings)


def dropped_fields(cls: Any) -> frozenset[str]:
    """Return the ``drop_fields`` that `jax.tree_util.register_dataclass` was given for a class.

    Where JAX's internals are unknown, as for a class that was not registered so, there are none.
    """
    try:
        known: Any = importlib.import_module("jax._src.tree_util")._registry  # noqa: SLF001
        kept = inspect.getclosurevars(known[cls].to_iter).nonlocals if _KNOWN else {}
        names = {*kept["data_fields"], *kept["meta_fields"]}
    except (ImportError, AttributeError, KeyError, TypeError):
        return frozenset()
    return frozenset(each.name for each in dataclasses.fields(cls) if each.init) - names


def jit_options(jitted: Any) -> dict[str, Any] | str | None:
    """Return the options of a jitted function, to give to another `jax.jit`.

    Returns:
        The name of an option instead if there is one that would not fit a function with one more
        argument; None if the options are unknown.
    """
    info: Any = getattr(jitted, "_jit_info", None) if _KNOWN else None
    if info is None:
        return None
    for name in ("in_shardings", "out_shardings", "in_layouts", "out_layouts"):
        leaves: Any = getattr(info, f"{name}_leaves", ())
        if any(type(leaf).__name__ != "UnspecifiedValue" and leaf is not None for leaf in leaves):
            return name
    for name in ("device", "backend", "compiler_options_kvs"):
        if getattr(info, name, None):
            return name.removesuffix("_kvs")
    names = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames")
    found = {name: tuple(getattr(info, name, ()) or ()) for name in names}
    options: dict[str, Any] = {name: given for name, given in found.items() if given}
    if getattr(info, "keep_unused", False) is True:
        options["keep_unused"] = True
    if getattr(info, "inline", False) is True:
        options["inline"] = True
    return options
