"""Strategies for arrays."""

import typing
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from leafwise.check.place import Place

_DIMENSION: Final = 3
"""The length of an axis that the annotation does not give."""


def arrays(shape: tuple[int, ...] = (_DIMENSION,), dtype: Any = "float32") -> Any:
    """Return a strategy for numpy arrays, each of one number.

    Hypothesis would spend most of its time on making many elements simple, one by one.
    """
    return st.integers(0, 2).map(lambda number: np.full(shape, number, jnp.dtype(dtype)))


def array_values(kind: Any, _where: Place) -> Any:
    """Return a strategy for arrays where nothing is said of shape and dtype."""
    made = arrays()
    return made if (typing.get_origin(kind) or kind) is np.ndarray else made.map(jax.numpy.asarray)


def jaxtyped_values(kind: Any, _where: Place) -> Any:
    """Read ``Float[Array, "batch 3"]``: numbers are lengths, names one length."""
    shape = tuple(
        int(word) if word.isdigit() else _DIMENSION
        for word in str(getattr(kind, "dim_str", "")).split()
        if not word.startswith(("*", "..."))
    )
    dtypes = getattr(kind, "dtypes", None)
    names: list[str] = list(dtypes) if isinstance(dtypes, list | tuple) else []
    dtype = "float32" if not names or "float32" in names else str(names[0])
    if "int32" in names and "float32" not in names:
        dtype = "int32"
    if "prng_key" in names and len(names) == 1:
        return st.integers(0, 9).map(jax.random.key)
    made = arrays(shape, dtype)
    wants_numpy = getattr(kind, "array_type", None) is np.ndarray
    return made if wants_numpy else made.map(jax.numpy.asarray)
