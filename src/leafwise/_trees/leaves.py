"""The facts that JAX uses about one argument leaf: its abstract value and its sharding."""

from enum import StrEnum
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import core

from leafwise._objects.classes import is_a, module_of
from leafwise._objects.interrupts import or_default
from leafwise._objects.text import got, shorten
from leafwise._trees.equality import same_entry


class LeafKind(StrEnum):
    """The kinds of argument leaves that JAX's dispatch distinguishes."""

    JAX_ARRAY = "jax array"
    """A `jax.Array`."""
    NUMPY_ARRAY = "numpy array"
    """A `numpy.ndarray`."""
    NUMPY_SCALAR = "numpy scalar"
    """A `numpy.generic`: ``np.float32(1)``."""
    PYTHON_SCALAR = "Python scalar"
    """A bool, int, float or complex number."""
    PRNG_KEY = "PRNG key"
    """A typed key, as `jax.random.key` returns it."""
    SHAPE_DTYPE_STRUCT = "ShapeDtypeStruct"
    """A shape and a dtype, which `lower` and `eval_shape` take."""
    TRACER = "tracer"
    """A traced value: the call is made while another function is traced."""
    REF = "ref"
    """A mutable array."""
    OTHER = "other"
    """A value that JAX sometimes accepts and sometimes rejects: a masked array."""
    STATIC = "static"
    """A leaf that `equinox.filter_jit` keeps out of the trace."""
    INVALID = "invalid"
    """A value that JAX rejects as an argument."""


class Leaf(NamedTuple):
    """One leaf of a call's arguments, without its data.

    Attributes:
        kind: The kind of the leaf.
        aval: The abstract value that JAX traces with, as `jax.typeof` returns it; None for
            a leaf that is static or invalid.
        sharding: The sharding of a JAX array; None for data that is not on a device.
        committed: Whether the array is committed to its devices.
        value: The value of a static leaf; the error text of an invalid one.
        stored: Its dtype regardless of JAX's configuration, or its Python type.
    """

    kind: LeafKind
    aval: Any
    stored: Any = None
    sharding: Any = None
    committed: bool = False
    value: Any = None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape, or None without one."""
        return getattr(self.aval, "shape", None)

    @property
    def dtype(self) -> Any:
        """The dtype under the configuration of the call, or None without one."""
        return getattr(self.aval, "dtype", None)

    @property
    def weak_type(self) -> bool:
        """Whether its dtype yields to others in promotion, as a Python scalar's does."""
        return bool(getattr(self.aval, "weak_type", False))

    @property
    def facts(self) -> tuple[Any, ...]:
        """The facts about it that do not depend on JAX's configuration."""
        return self.kind, self.shape, self.stored, self.weak_type, self.sharding, self.committed

    def __str__(self) -> str:
        """Return ``float32[3] (jax array)``, with a weak type and commitment if it has them."""
        if self.aval is None or self.kind is LeafKind.INVALID:
            return f"{shorten(self.value)} ({self.kind})"
        words = [str(self.kind)]
        words += ["weakly typed"] if self.weak_type else []
        words += [f"committed to {format_sharding(self.sharding)}"] if self.committed else []
        return f"{self.aval.str_short()} ({', '.join(words)})"

    @property
    def lowered_sharding(self) -> Any:
        """The sharding that JAX lowers with, or None where JAX may choose."""
        return self.sharding if self.committed else None


class LeafRecorder:
    """Makes a `Leaf` for each leaf of one call; leaves that are alike share one."""

    def __init__(self, *, filtered: bool = False, abstract: bool = False) -> None:
        self._filtered = filtered
        self._abstract = abstract
        self._known: dict[Any, Leaf] = {}

    def __call__(self, value: Any) -> Leaf:
        key: Any = None
        kind: type = type(value)
        if self._filtered or self._abstract:
            return self._record(value)
        if kind in _ARRAYS and not value.is_deleted():
            key = value.aval, value.sharding, value.committed
        elif kind is float or kind is bool or (kind is int and _SMALL <= value < -_SMALL):
            key = kind
        elif kind is np.ndarray:
            key = value.shape, value.dtype
        if key is None:
            return self._record(value)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._record(value)
        return found

    def _record(self, value: Any) -> Leaf:
        kind = _KINDS.get(type(value)) or _kind_of(value)
        array_types: Any = (jax.Array, np.ndarray, np.generic)  # Any: do not narrow `value`
        if self._filtered and not isinstance(value, array_types):
            return Leaf(LeafKind.STATIC, None, type(value), value=value)
        try:
            aval = jax.typeof(value)
            if self._abstract and kind is LeafKind.SHAPE_DTYPE_STRUCT:
                sharding = value.sharding  # as if an array were committed to it
                return Leaf(LeafKind.JAX_ARRAY, aval, value.dtype, sharding, sharding is not None)
            if kind in _ON_DEVICE:
                if value.is_deleted() and not self._abstract:
                    deleted = "an array that was deleted or donated"
                    return Leaf(LeafKind.INVALID, aval, value=deleted)
                return Leaf(kind, aval, value.dtype, value.sharding, value.committed)
        except Exception as error:  # noqa: BLE001  # whatever the type's own handler raises
            refusal = f"{got(value)}, which JAX refuses: {shorten(str(error), 120)}"
            return _sometimes_taken(value) or Leaf(LeafKind.INVALID, None, value=refusal)
        return Leaf(kind, aval, getattr(value, "dtype", type(value)))


def weakly_typed(array: Any) -> jax.Array:
    """Return a copy of an array with a weak type, like that of an array from a Python number."""
    number: Any = np.zeros((), array.dtype).item()
    weak = jnp.asarray(0) != 0 if number is False else jnp.asarray(number)
    # `at[].set` keeps the weak type of the array it writes to; `astype` cannot produce one.
    return jnp.broadcast_to(weak, array.shape).at[...].set(array)


def format_sharding(sharding: Any) -> str:
    """Return a short text for a sharding: the device, or the partition and the mesh."""
    devices = sorted(str(device) for device in sharding.device_set)
    spec = getattr(sharding, "spec", None)
    if spec is None:
        return devices[0] if len(devices) == 1 else shorten(sharding)
    sizes = ", ".join(f"{name}: {size}" for name, size in sharding.mesh.shape.items())
    return f"{spec} on a mesh ({sizes})"


def device_order(sharding: Any) -> tuple[Any, ...]:
    """Return the devices of a sharding in order, which must be the same throughout a call."""
    mesh = getattr(sharding, "mesh", None)
    if mesh is not None:
        return tuple(mesh.devices.flat)
    return tuple(sorted(sharding.device_set, key=lambda device: device.id))


def same_program(one: Leaf, other: Leaf) -> bool:
    """Return whether two leaves at the same place of a tree share a program."""
    if one.kind is LeafKind.STATIC or other.kind is LeafKind.STATIC:
        return one.kind is other.kind and same_entry(one.value, other.value) is True
    if not _REFUSED.isdisjoint((one.kind, other.kind)):
        return one == other
    return one.aval == other.aval and same_lowering(one, other)


def same_lowering(one: Leaf, other: Leaf) -> bool:
    """Return whether JAX lowers and compiles the same for both leaves."""
    mine, its = one.lowered_sharding, other.lowered_sharding
    if mine is None or its is None:
        return mine is its
    if mine == its or one.shape != other.shape:
        return True
    return bool(mine.is_equivalent_to(its, len(one.shape or ())))


def same_dispatch(one: Leaf, other: Leaf) -> bool:
    """Return whether two leaves that share a program also share a dispatch cache entry."""
    if one.kind is LeafKind.STATIC:
        return True
    if (one.kind in _ON_DEVICE) != (other.kind in _ON_DEVICE):
        return False
    if one.kind in _ON_DEVICE:
        return one.committed == other.committed and bool(one.sharding == other.sharding)
    # Dispatch treats a Python bool as weakly typed, although its abstract value is not.
    python = LeafKind.PYTHON_SCALAR
    return (one.kind is python) == (other.kind is python)


_SMALL: Final = -(2**31)
"""An integer beyond this needs 64 bits, so JAX may reject it."""

_ON_DEVICE: Final = frozenset({LeafKind.JAX_ARRAY, LeafKind.PRNG_KEY})

_ARRAYS: Final[set[type]] = set()
"""The types of JAX arrays met so far; in practice only one."""

_KINDS: Final[dict[type, LeafKind]] = {
    **dict.fromkeys((bool, int, float, complex), LeafKind.PYTHON_SCALAR),
    np.ndarray: LeafKind.NUMPY_ARRAY,
}
LEAF_TYPES: Final = _KINDS.keys()
"""Types that are known not to be pytree nodes; more are added as they are met."""


def _kind_of(value: Any) -> LeafKind:
    kind: type = type(value)
    found = next((name for base, name in _BASES if is_a(value, base)), LeafKind.OTHER)
    if found is LeafKind.JAX_ARRAY and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        found = LeafKind.PRNG_KEY
    if module_of(kind).partition(".")[0] in _KEPT_ALIVE:
        _KINDS[kind] = found
        if found is LeafKind.JAX_ARRAY and hasattr(value, "aval"):
            _ARRAYS.add(kind)
    return found


_BASES: Final[tuple[tuple[Any, LeafKind], ...]] = (
    (core.Tracer, LeafKind.TRACER),
    (getattr(jax, "Ref", type(None)), LeafKind.REF),
    (jax.Array, LeafKind.JAX_ARRAY),
    (np.generic, LeafKind.NUMPY_SCALAR),
    (np.ndarray, LeafKind.NUMPY_ARRAY),
    ((bool, int, float, complex), LeafKind.PYTHON_SCALAR),
    (jax.ShapeDtypeStruct, LeafKind.SHAPE_DTYPE_STRUCT),
)
_KEPT_ALIVE: Final = frozenset({"jax", "jaxlib", "numpy", "ml_dtypes"})
"""Modules whose types live as long as the process, so a table may keep them."""

_REFUSED: Final = frozenset({LeafKind.INVALID, LeafKind.SHAPE_DTYPE_STRUCT})


@or_default(None)  # JAX does not have the dtype
def _sometimes_taken(value: Any) -> Leaf | None:
    """Return the `Leaf` of an array subclass, masked say, that JAX accepts after a plain array."""
    if not is_a(value, np.ndarray):
        return None
    plain = np.asarray(value).view(np.ndarray)
    aval = jax.typeof(plain.astype(plain.dtype.newbyteorder("=")))
    return Leaf(LeafKind.OTHER, aval, value.dtype)
