"""The law of `freeze`: the result is a valid static of equal content; `StaticArray` is an array."""

import collections
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import leafwise as lw

from .zoo import Params, Point

ARRAYS = hnp.arrays(
    st.one_of(
        hnp.boolean_dtypes(),
        hnp.integer_dtypes(endianness="?"),
        hnp.floating_dtypes(sizes=(16, 32, 64), endianness="?"),
        hnp.complex_number_dtypes(sizes=(64, 128)),
        hnp.datetime64_dtypes(),
        hnp.unicode_string_dtypes(min_len=1, max_len=3),
    ),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
NUMERIC = hnp.arrays(
    st.sampled_from([np.dtype("f4"), np.dtype("i4"), np.dtype("bool")]),
    hnp.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=3),
    elements={"allow_nan": False, "allow_infinity": False, "min_value": 0, "max_value": 100},
)
KEYS = st.one_of(st.text(max_size=3), st.integers(), st.tuples(st.integers()))
MUTABLE = st.recursive(
    st.one_of(
        st.integers(),
        st.floats(),
        st.text(max_size=3),
        st.binary(max_size=3).map(bytearray),
        NUMERIC,
        NUMERIC.map(jnp.asarray),
        st.sets(st.integers(), max_size=3),
    ),
    lambda parts: st.one_of(
        st.lists(parts, max_size=3),
        st.lists(parts, max_size=3).map(tuple),
        st.builds(Point, parts, parts),
        st.dictionaries(KEYS, parts, max_size=3),
        st.dictionaries(KEYS, parts, max_size=3).map(collections.OrderedDict),
    ),
    max_leaves=8,
)


def equal_content(frozen: Any, value: Any) -> bool:
    """Return whether a frozen value holds what the mutable one does."""
    if isinstance(value, np.ndarray | jax.Array):
        wanted = np.asarray(value)
        got = np.asarray(frozen)
        return (
            type(frozen) is lw.StaticArray
            and (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
            and got.tobytes() == wanted.tobytes()
        )
    if isinstance(value, dict):
        return type(frozen) is lw.FrozenMapping and (
            list(frozen) == list(value)
            and all(equal_content(frozen[key], value[key]) for key in value)
        )
    if isinstance(value, list | tuple):
        kind = tuple if isinstance(value, list) else type(value)
        return (
            type(frozen) is kind
            and len(frozen) == len(value)
            and all(map(equal_content, frozen, value))
        )
    if isinstance(value, set):
        return type(frozen) is frozenset and frozen == value
    if isinstance(value, bytearray):
        return type(frozen) is bytes and frozen == value
    return frozen is value


@given(MUTABLE)
def test_frozen_values_are_valid_statics_of_equal_content(value: Any) -> None:
    """Whatever lists, dicts, sets and arrays hold, its frozen form is a key."""
    frozen = lw.freeze(value)
    assert equal_content(frozen, value)
    first, second = Params(1.0, frozen), Params(1.0, lw.freeze(value))
    assert jax.tree.structure(first) == jax.tree.structure(second)
    hash(frozen)


@given(ARRAYS, ARRAYS)
def test_static_arrays_are_equal_by_dtype_shape_and_bytes(a: Any, b: Any) -> None:
    """``==`` is one bool, says whether dtype, shape and bytes agree, and hash agrees with it."""
    left, right, again = lw.StaticArray(a), lw.StaticArray(b), lw.StaticArray(a.copy(order="F"))
    expected = (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    assert (left == right) is expected
    assert (left != right) is (not expected)
    assert left == again
    assert hash(left) == hash(again)
    assert (
        jax.tree.structure(Params(1.0, left)) == jax.tree.structure(Params(1.0, right))
    ) is expected
    assert np.asarray(left).tobytes() == a.tobytes()
    assert (left.dtype, left.shape, left.ndim, left.size) == (a.dtype, a.shape, a.ndim, a.size)
