"""One leaf of a loop's carry, made another dtype, weak type and placement without a loss."""

from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from leafwise._objects.text import describe_array, shorten
from leafwise._statics.findings import is_tracer


def loss_of(path: str, leaf: Any, dtype: Any) -> str | None:
    """Return a message if a leaf's value would not be the same in another dtype."""
    aval: Any = jax.typeof(leaf)
    old = aval.dtype
    if old == dtype or always_exact(old, dtype):
        return None
    readable = not is_tracer(leaf) and getattr(leaf, "is_fully_addressable", True)
    why = "its value is not known here"
    if readable:
        first = _first_lost(np.asarray(jnp.asarray(leaf)), dtype)
        if first is None:
            return None
        why = f"{first[0]} would become {first[1]}"
    name = np.dtype(dtype).name
    cure = f"x.astype('{name}')" if hasattr(leaf, "astype") else f"jnp.{name}({shorten(leaf, 40)})"
    return (
        f"{path}: the step makes {name} of {describe_array(aval)}, and {why}\n"
        f"  fix: convert it yourself, `{cure}`, if that is what you want; or return {old.name} "
        f"from the step"
    )


_IINFO: Final[Any] = jnp.iinfo
_FINFO: Final[Any] = jnp.finfo


def always_exact(old: Any, new: Any) -> bool:
    """Return whether the one dtype has all values of the other."""
    if old == np.bool_:
        return True
    if jnp.issubdtype(old, jnp.integer):
        mine = _IINFO(old)
        if jnp.issubdtype(new, jnp.integer):
            its = _IINFO(new)
            return bool(its.min <= mine.min and mine.max <= its.max)
        if jnp.issubdtype(new, jnp.inexact):
            widest = max(abs(int(mine.min)), int(mine.max))
            return bool(widest <= min(2 ** (_FINFO(new).nmant + 1), _FINFO(new).max))
        return False
    if not (jnp.issubdtype(old, jnp.inexact) and jnp.issubdtype(new, jnp.inexact)):
        return False
    if jnp.issubdtype(old, jnp.complexfloating) and not jnp.issubdtype(new, jnp.complexfloating):
        return False
    mine, its = _FINFO(old), _FINFO(new)
    return bool(mine.nmant <= its.nmant and mine.maxexp <= its.maxexp and its.minexp <= mine.minexp)


def _first_lost(array: Any, dtype: Any) -> tuple[str, str] | None:
    """Return the first element that is another number in another dtype, and that number."""
    with np.errstate(all="ignore"):
        new = np.asarray(_cast(jnp.asarray(array), dtype))
    mine, its = _numbers(array), _numbers(new)
    same = (mine == its) | ((mine != mine) & (its != its))  # noqa: PLR0124  # NaN
    lost = np.flatnonzero(~np.asarray(same, bool))
    if not len(lost):
        return None
    return shorten(array.flat[lost[0]].item(), 40), shorten(new.flat[lost[0]].item(), 40)


def _numbers(array: Any) -> Any:
    """Return an array in which numbers of all dtypes compare exactly."""
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        return array.astype(np.complex128)
    if jnp.issubdtype(array.dtype, jnp.integer) and array.dtype.itemsize > _EXACT_IN_FLOAT64:
        return array.astype(object)
    return array.astype(np.float64)


_EXACT_IN_FLOAT64: Final = 4
"""Integers of so many bytes are exact there."""


def converted(leaf: Any, dtype: Any, sharding: Any, *, weak: bool) -> Any:
    """Return a leaf as a JAX array of a dtype and a weak type, placed where that is said."""
    aval = jax.typeof(leaf)
    array = leaf if isinstance(leaf, jax.Array) else jnp.array(leaf)  # NumPy's own may change
    if array.dtype != dtype or bool(getattr(aval, "weak_type", False)) != weak:
        array = weakened(_cast(array, dtype)) if weak else jnp.asarray(_cast(array, dtype), dtype)
    if sharding is not None and not is_tracer(array):
        committed = array.committed and array.sharding == sharding
        array = array if committed else jax.device_put(array, sharding)
    return array


def _cast(array: jax.Array, dtype: Any) -> jax.Array:
    """Return an array in another dtype; of a complex one that becomes real, without a warning."""
    drops = jnp.iscomplexobj(array) and not jnp.issubdtype(dtype, jnp.complexfloating)
    return (array.real if drops else array).astype(dtype)


def weakened(array: jax.Array) -> jax.Array:
    """Return a weakly typed array of the same elements."""
    number: Any = jnp.zeros((), array.dtype).item()
    base = jnp.broadcast_to(jnp.asarray(number), array.shape)
    return base.at[...].set(array)
