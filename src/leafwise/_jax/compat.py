"""What leafwise asks of `jax._src`, and of what differs between versions of JAX.

Each function here answers better with JAX's internals than without them. It still answers where
they are not those that were tested: in another version of JAX, or where a name has moved.
"""

import contextlib
import dataclasses
import importlib
import inspect
from typing import Any, Final, TypeAlias

import jax

_KNOWN: Final = (0, 10) <= jax.__version_info__[:2] < (0, 13)


def is_known() -> bool:
    """Return whether JAX's internals are those that were read and tested for this package."""
    return bool(_KNOWN)


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
    count: Any = getattr(jitted, "_cache_size", None)
    return -1 if count is None else count()


def static_options(jitted: Any) -> StaticOptions:
    """Return which arguments of a jitted function are static: by position, and by name."""
    return static_options_of(getattr(jitted, "_jit_info", None) if _KNOWN else None)


def static_options_of(info: Any) -> StaticOptions:
    """Return which arguments are static, of JAX's record of the options of a jitted function."""
    numbers, names = (getattr(info, each, ()) for each in ("static_argnums", "static_argnames"))
    return tuple(numbers or ()), tuple(names or ())


def is_committed(lowered: Any) -> bool:
    """Return whether the results of a lowered function are committed to their devices."""
    committed: Any = None
    if _KNOWN:
        lowering: Any = getattr(lowered, "_lowering", None)
        committed = getattr(lowering, "compile_args", {}).get("committed")
    if committed is not None:
        return bool(committed)
    shardings: list[Any] = jax.tree.leaves(lowered.compile().output_shardings)
    return any(len(sharding.device_set) > 1 for sharding in shardings)


def dropped_fields(cls: Any) -> frozenset[str]:
    """Return the ``drop_fields`` that `jax.tree_util.register_dataclass` was given for a class."""
    try:
        known: Any = importlib.import_module("jax._src.tree_util")._registry  # noqa: SLF001
        kept = inspect.getclosurevars(known[cls].to_iter).nonlocals if _KNOWN else {}
        names = {*kept["data_fields"], *kept["meta_fields"]}
    except (ImportError, AttributeError, KeyError, TypeError):
        return frozenset()
    return frozenset(each.name for each in dataclasses.fields(cls) if each.init) - names


def forget_exported_class(cls: type, name: str) -> None:
    """Free the name by which `jax.export` knows a class; without private JAX it keeps it."""
    with contextlib.suppress(ImportError, AttributeError, KeyError):
        exported: Any = importlib.import_module("jax._src.export._export") if _KNOWN else None
        del exported.deserialization_registry[name]
        del exported.serialization_registry[cls]
