"""`arrays`, and keys: what is drawn and what it shrinks to."""

import collections
import enum
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from leafwise.testing.strategies import arrays

from .seeking import drawn, minimal
from .test_annotations import of


def test_the_usual_array() -> None:
    """Nothing said, most are float32 of up to three axes, and others are met."""
    values = drawn(arrays(), 150)
    assert all(isinstance(value, jax.Array) for value in values)
    kinds = [str(value.dtype) for value in values]
    assert kinds.count("float32") > len(kinds) / 2
    assert set(kinds) == {"float32", "int32", "bool"}
    assert {value.ndim for value in values} == {0, 1, 2, 3}
    assert max(max(value.shape, default=0) for value in values) == 3


@pytest.mark.slow
def test_the_simplest_array() -> None:
    """Arrays shrink to zeros of no axes, and to few elements that differ."""
    simplest = minimal(arrays())
    assert (simplest.shape, simplest.dtype, float(simplest)) == ((), jnp.float32, 0.0)
    assert minimal(arrays((2, 3))).tolist() == [[0] * 3] * 2
    two = minimal(arrays((3,), "int32"), lambda a: len(set(a.tolist())) > 1)
    assert set(map(abs, two.tolist())) == {0, 1}


def test_shapes() -> None:
    """A shape is a tuple, a length, or a strategy for either; a dtype may be drawn, too."""
    assert {value.shape for value in drawn(arrays((2, 0)))} == {(2, 0)}
    assert {value.shape for value in drawn(arrays(4))} == {(4,)}
    assert {value.shape for value in drawn(arrays(()))} == {()}
    assert {value.shape for value in drawn(arrays(st.integers(1, 2)))} == {(1,), (2,)}
    pairs = st.tuples(st.just(2), st.integers(0, 1))
    assert {value.shape for value in drawn(arrays(pairs))} == {(2, 0), (2, 1)}
    values = drawn(arrays((), st.sampled_from(["int8", jnp.bfloat16])))
    assert {str(value.dtype) for value in values} == {"int8", "bfloat16"}


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int4", "uint32", "bfloat16", "float8_e4m3fn", "complex64", np.dtype("int16")],
    ids=str,
)
@pytest.mark.parametrize("numpy", [False, True])
def test_dtypes(dtype: Any, numpy: bool) -> None:
    """Every dtype of JAX's is drawn, on either side, with more than one value."""
    values = drawn(arrays((2,), dtype, numpy=numpy), 20)
    assert {value.dtype for value in values} == {jnp.dtype(dtype)}
    assert {isinstance(value, np.ndarray) for value in values} == {numpy}
    assert len({str(value.tolist()) for value in values}) > 1


def test_random_keys() -> None:
    """The dtype of keys gives arrays of different keys."""
    values = drawn(arrays((3,), jax.random.key(0).dtype))
    for keys in values:
        assert jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
        assert keys.shape == (3,)
        assert len({str(row) for row in jax.random.key_data(keys).tolist()}) == 3


def test_elements() -> None:
    """Elements are those of the strategy that was given."""
    values = drawn(arrays((5,), "int32", st.sampled_from([7, 9])))
    assert {each for value in values for each in value.tolist()} == {7, 9}
    for value in drawn(arrays((1000, 1000)), 20):  # a big array is cheap: it has one number
        assert value.min() == value.max()


def test_elements_are_finite() -> None:
    """NaN and infinities come from a strategy for elements alone."""
    assert all(np.isfinite(value).all() for value in drawn(arrays(), 150))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"shape": (-1,)}, "shape=...) takes a tuple"),
        ({"dtype": "no such"}, "no such"),
        ({"elements": 3}, "st.just"),
    ],
    ids=str,
)
def test_wrong_arguments(arguments: dict[str, Any], words: str) -> None:
    """What cannot be meant is refused at once."""
    with pytest.raises(TypeError) as raised:
        arrays(**arguments)
    assert words in str(raised.value)


class Unordered(enum.Enum):
    """Its members cannot be sorted."""

    A = 1
    B = "b"


K = TypeVar("K", bound=Hashable)


class Keyed(NamedTuple, Generic[K]):
    inner: Mapping[K, float]


def keys_of(value: Any) -> list[list[Any]]:
    """Return the keys of each mapping in a value."""
    if isinstance(value, Mapping):
        return [list(value), *(keys for each in value.values() for keys in keys_of(each))]
    is_several = isinstance(value, list | tuple)
    return [keys for each in value for keys in keys_of(each)] if is_several else []


@pytest.mark.parametrize(
    "annotation",
    [
        dict[Any, float],
        collections.defaultdict[object, float],
        Keyed,
        Sequence[tuple[Mapping[Any, float], ...]],
    ],
    ids=str,
)
def test_keys_that_may_be_anything(annotation: Any) -> None:
    """They are strings."""
    values = drawn(of(annotation))
    found = [keys for value in values for keys in keys_of(value)]
    assert {type(key) for keys in found for key in keys} == {str}
    assert any(len(keys) == 2 for keys in found)
    jax.tree.leaves(values)


@pytest.mark.parametrize(
    "annotation",
    [
        dict[Unordered, float],
        dict[int | str, float],
        list[dict[Unordered | str, dict[complex, float]]],
    ],
    ids=str,
)
def test_keys_that_cannot_be_sorted(annotation: Any) -> None:
    """JAX flattens each dict that is drawn, and not only empty ones."""
    values = drawn(of(annotation))
    assert any(map(jax.tree.leaves, values))
