"""Other leaves: each differs from a leaf in one way only.

`jax.device_put` makes arrays of them, since `jnp` compiles a program for each shape.
"""

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from leafwise.testing._format import is_key


def is_numeric(leaf: Any) -> bool:
    """Return whether a leaf holds numbers, truth values or random keys, and JAX takes it."""
    if isinstance(leaf, bool | int | float | complex):
        return not isinstance(leaf, int) or _fits(leaf)
    if not isinstance(leaf, jax.Array | np.ndarray | np.generic):
        return False
    return is_key(leaf) or leaf.dtype == bool or jnp.issubdtype(leaf.dtype, np.number)


def _fits(number: int) -> bool:
    try:
        jax.typeof(number)
    except OverflowError:
        return False
    return True


def same_leaf(one: Any, other: Any) -> bool:
    """Return whether two leaves have one dtype and shape and the same elements, NaN included."""
    if one is other:
        return True
    if not (hasattr(one, "dtype") and hasattr(other, "dtype")):
        return type(one) is type(other) and seems_equal(one, other)
    if one.dtype != other.dtype or np.shape(one) != np.shape(other):
        return False
    if is_key(one):
        one, other = jax.random.key_data(one), jax.random.key_data(other)
    try:
        one, other = (leaf[...] if is_ref(leaf) else leaf for leaf in (one, other))
    except jax.errors.JaxRuntimeError:  # JAX cannot read one that was pickled
        return True
    mine, its = np.asarray(one), np.asarray(other)
    return mine.tobytes() == its.tobytes() if mine.dtype != object else seems_equal(mine, its)


def is_ref(leaf: Any) -> bool:
    """Return whether a leaf is a `jax.Ref`, whose elements can change."""
    return isinstance(leaf, getattr(jax, "Ref", ()))


def seems_equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal, NaN included, as far as that can be known."""
    try:
        return bool(np.all((one == other) | ((one != one) & (other != other))))  # noqa: PLR0124  # NaN
    except Exception:  # noqa: BLE001  # the user's own code
        return True


def struct_of(leaf: Any, *batch: int) -> Any:
    """Return a struct like a leaf, or like a batch of such leaves."""
    make: Any = jax.ShapeDtypeStruct
    aval: Any = jax.typeof(leaf if is_numeric(leaf) else jnp.zeros(2))
    return make((*batch, *aval.shape), aval.dtype)


def other_value(leaf: Any) -> Any:
    """Return a leaf with other elements: 1 for zeros, 0 for all else; None if it has none."""
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
    """Return an array of another shape."""
    shape = jax.typeof(leaf).shape
    if not shape:
        longer = 2
    elif getattr(leaf, "committed", False):
        longer = 2 * shape[0] or 1  # it may be split among devices, and must still be
    else:
        longer = shape[0] + 1
    shape = (longer, *shape[1:])
    if is_key(leaf):
        data = jax.random.key_data(leaf)
        keys = jnp.zeros((*shape, *data.shape[leaf.ndim :]), data.dtype)
        return _placed_like(leaf, jax.random.wrap_key_data(keys, impl=jax.random.key_impl(leaf)))
    aval = jax.typeof(leaf)
    return _ones(leaf, shape, aval.dtype, aval.weak_type)


def other_dtype(leaf: Any) -> Any:
    """Return an array of another dtype, and as weak; None for random keys."""
    if is_key(leaf):
        return None
    aval = jax.typeof(leaf)
    if aval.weak_type:
        dtype = jax.typeof(1 if aval.dtype.kind == "f" else 1.0).dtype
    else:
        dtype = np.dtype("int16" if aval.dtype != "int16" else "float16")
    return _ones(leaf, aval.shape, dtype, aval.weak_type)


def other_weak_type(leaf: Any) -> Any:
    """Return an array that promotes in the other way; None if there is none of this dtype."""
    aval = jax.typeof(leaf)
    if is_key(leaf) or not is_default_dtype(aval.dtype):
        return None
    return _ones(leaf, aval.shape, aval.dtype, not aval.weak_type)


def other_kind(leaf: Any) -> Any:
    """Return the same elements and aval elsewhere: in NumPy, JAX or Python; None if not there."""
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
    """Return an array where a leaf is; a `weak` one promotes like a Python scalar."""
    if weak:
        return _placed_like(leaf, jnp.broadcast_to(jax.device_put(_ONES[dtype.kind]), shape))
    return _placed_like(leaf, jax.device_put(np.ones(shape, dtype)))


def is_default_dtype(dtype: Any) -> bool:
    """Return whether Python's numbers of a kind have this dtype."""
    one = _ONES.get(dtype.kind)
    return one is not None and jax.typeof(one).dtype == dtype


def _placed_like(leaf: Any, changed: Any) -> Any:
    """Return an array where the leaf is: JAX compiles again for one committed elsewhere."""
    return jax.device_put(changed, leaf.sharding) if getattr(leaf, "committed", False) else changed
