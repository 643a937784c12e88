"""Variants of leaves that differ from a leaf in one property only.

They are made by `jax.device_put`, since `jnp` compiles a program for each shape.
"""

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._objects.interrupts import or_default
from leafwise._objects.parts import data_of, is_key


def is_numeric(leaf: Any) -> bool:
    """Return whether JAX accepts a leaf as numbers, booleans or random keys."""
    if isinstance(leaf, bool | int | float | complex):
        # JAX has no type for a huge integer.
        return not isinstance(leaf, int) or or_default(None)(jax.typeof)(leaf) is not None
    if not isinstance(leaf, jax.Array | np.ndarray | np.generic):
        return False
    return is_key(leaf) or leaf.dtype == bool or jnp.issubdtype(leaf.dtype, np.number)


def same_leaf(one: Any, other: Any) -> bool:
    """Return whether two leaves have the same dtype, shape and elements; NaN equals NaN."""
    if one is other:
        return True
    if not (hasattr(one, "dtype") and hasattr(other, "dtype")):
        return type(one) is type(other) and seems_equal(one, other)
    if one.dtype != other.dtype or np.shape(one) != np.shape(other):
        return False
    try:
        one, other = (leaf[...] if is_ref(leaf) else leaf for leaf in (one, other))
    except jax.errors.JaxRuntimeError:  # an unpickled array may be unreadable
        return True
    data, others = data_of(one), data_of(other)
    return seems_equal(data, others) if data.dtype == object else data.tobytes() == others.tobytes()


def is_ref(leaf: Any) -> bool:
    """Return whether a leaf is a `jax.Ref`, whose elements can change."""
    return isinstance(leaf, getattr(jax, "Ref", ()))


@or_default(default=True)  # a user's `==`
def seems_equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal, as far as can be known; NaN equals NaN."""
    return bool(np.all((one == other) | ((one != one) & (other != other))))  # noqa: PLR0124  # NaN


def struct_of(leaf: Any, *batch: int) -> Any:
    """Return a `ShapeDtypeStruct` for a leaf, or for a batch of such leaves."""
    make: Any = jax.ShapeDtypeStruct
    aval: Any = jax.typeof(leaf if is_numeric(leaf) else jnp.zeros(2))
    return make((*batch, *aval.shape), aval.dtype)


def other_value(leaf: Any) -> Any:
    """Return a leaf with other elements: 1 for zeros, 0 otherwise; None if it is empty."""
    if is_key(leaf):
        data = jax.random.key_data(leaf) ^ 1
        changed = jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
        return _placed_like(leaf, changed) if leaf.size else None
    for kind in (bool, int, float, complex):
        if isinstance(leaf, kind) and not isinstance(leaf, np.generic):
            return kind(not leaf)
    if not np.size(leaf):
        return None
    is_zero = np.asarray(leaf) == 0
    if isinstance(leaf, jax.Array) and leaf.weak_type:
        kind = type(_ONES[leaf.dtype.kind])
        if leaf.ndim == 0 and (made := jax.device_put(kind(is_zero))).dtype == leaf.dtype:
            return _placed_like(leaf, made)
        return _placed_like(leaf, jnp.where(is_zero, kind(1), kind(0)))
    one = np.ones((), leaf.dtype)
    elements = np.where(is_zero, one, np.zeros_like(one))
    if isinstance(leaf, jax.Array):
        return _placed_like(leaf, jax.device_put(elements))
    return elements[()] if isinstance(leaf, np.generic) else elements


def other_shape(leaf: Any) -> Any:
    aval = jax.typeof(leaf)
    first = aval.shape[0] + 1 if aval.shape else 2
    if aval.shape and getattr(leaf, "committed", False):
        first = 2 * aval.shape[0] or 1  # a sharded axis must remain divisible
    shape = (first, *aval.shape[1:])
    if is_key(leaf):
        data = jax.random.key_data(leaf)
        keys = jnp.zeros((*shape, *data.shape[leaf.ndim :]), data.dtype)
        return _placed_like(leaf, jax.random.wrap_key_data(keys, impl=jax.random.key_impl(leaf)))
    return _ones(leaf, shape, aval.dtype, aval.weak_type)


def other_dtype(leaf: Any) -> Any:
    """Return an array of another dtype and the same weak type; None for random keys."""
    if is_key(leaf):
        return None
    aval = jax.typeof(leaf)
    if aval.weak_type:
        dtype = jax.typeof(1 if aval.dtype.kind == "f" else 1.0).dtype
    else:
        dtype = np.dtype("int16" if aval.dtype != "int16" else "float16")
    return _ones(leaf, aval.shape, dtype, aval.weak_type)


def other_weak_type(leaf: Any) -> Any:
    """Return an array with the opposite weak type; None if its dtype does not allow it."""
    aval = jax.typeof(leaf)
    if is_key(leaf) or not is_default_dtype(aval.dtype):
        return None
    return _ones(leaf, aval.shape, aval.dtype, not aval.weak_type)


def other_kind(leaf: Any) -> Any:
    """Return the leaf as a NumPy or JAX array or Python scalar with the same aval, or None."""
    if is_key(leaf) or getattr(leaf, "committed", False):
        return None
    if isinstance(leaf, jax.Array):
        if not leaf.weak_type:
            return np.asarray(leaf)
        return leaf.item() if leaf.ndim == 0 and leaf.dtype.kind in _ONES else None
    with np.errstate(over="ignore"):
        made = jnp.asarray(leaf)
    return made if jax.typeof(made) == jax.typeof(leaf) else None


_ONES: Final[dict[str, Any]] = {"f": 1.0, "i": 1, "c": 1 + 0j}


def _ones(leaf: Any, shape: tuple[int, ...], dtype: Any, weak: bool) -> Any:  # noqa: FBT001
    if weak:
        return _placed_like(leaf, jnp.broadcast_to(jax.device_put(_ONES[dtype.kind]), shape))
    return _placed_like(leaf, jax.device_put(np.ones(shape, dtype)))


def is_default_dtype(dtype: Any) -> bool:
    one = _ONES.get(dtype.kind)
    return one is not None and jax.typeof(one).dtype == dtype


def _placed_like(leaf: Any, changed: Any) -> Any:
    """Return an array placed like a leaf, since JAX recompiles for another committed device."""
    return jax.device_put(changed, leaf.sharding) if getattr(leaf, "committed", False) else changed
