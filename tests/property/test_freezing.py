"""The law of `freeze`: the result is a valid static of equal content; `StaticArray` is an array."""

import collections
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import leafwise as lw

from .oracle import same
from .zoo import Params, Point, build, recipes

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


@given(MUTABLE)
def test_freezing_twice_is_freezing_once(value: Any) -> None:
    """A frozen value comes back as itself."""
    frozen = lw.freeze(value)
    assert lw.freeze(frozen) is frozen


@given(recipes)
def test_statics_are_frozen_already(recipe: Any) -> None:
    """Nothing that is a valid static is changed by `freeze`."""
    value = build(recipe)
    assert same(lw.freeze(value), value)


@given(MUTABLE)
def test_a_frozen_field_takes_them(value: Any) -> None:
    """``static_field(freeze=True)`` does at construction what `freeze` does by hand."""

    @lw.pytree
    class Frozen:
        s: Any = lw.static_field(freeze=True)

    instance = Frozen(value)
    assert equal_content(instance.s, value)
    assert jax.tree.structure(instance) == jax.tree.structure(Frozen(value))


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


@given(ARRAYS)
def test_a_static_array_cannot_change(value: Any) -> None:
    """Neither through its source, nor through what numpy hands out, nor through views."""
    source = value.copy()
    array = lw.StaticArray(source)
    before, hashed = np.asarray(array).tobytes(), hash(array)
    if source.size and source.dtype.kind in "iufc":
        source[...] = 7
    for view in (np.asarray(array), array[...], array.T):
        if isinstance(view, np.ndarray) and view.base is not None:
            assert not view.flags.writeable
            with pytest.raises(ValueError, match="WRITEABLE"):
                view.flags.writeable = True
    with pytest.raises(AttributeError):
        array.shape = (1,)  # type: ignore[misc]
    assert (np.asarray(array).tobytes(), hash(array)) == (before, hashed)


UNARY: dict[str, Callable[[Any], Any]] = {
    "np.sum": np.sum,
    "np.sort": np.sort,
    "np.cumsum": np.cumsum,
    "np.concatenate": lambda a: np.concatenate([a, a]),
    "np.stack": lambda a: np.stack([a, a]),
    "np.where": lambda a: np.where(a > 1, a, 0),
    "np.reshape": lambda a: np.reshape(a, -1),
    "np.transpose": np.transpose,
    "np.einsum": lambda a: np.einsum("...i,...i", a, a),
    "np.add.reduce": np.add.reduce,
    "np.sqrt": lambda a: np.sqrt(a, dtype=np.float64),
    "np.array": lambda a: np.array(a, dtype=np.float64),
    "np.isin": lambda a: np.isin(a, [1]),
    "jnp.asarray": jnp.asarray,
    "jnp.array": jnp.array,
    "jnp.stack": lambda a: jnp.stack([a, a]),
    "jnp.concatenate": lambda a: jnp.concatenate([a, a]),
    "jnp+": lambda a: jnp.ones(()) + a,
    "+jnp": lambda a: a + jnp.ones(()),
    "jnp>": lambda a: jnp.ones(()) > a,
    ">jnp": lambda a: a > jnp.ones(()),
    "jnp@": lambda a: jnp.ones((2, len(a))) @ a,
    "@jnp": lambda a: a @ jnp.ones((np.shape(a)[-1], 2)),
    "index": operator.itemgetter(0),
    "slice": operator.itemgetter(slice(None, 1)),
    "iterate": list,
    "len": len,
    "neg+": lambda a: -(a + 1),
    "divmod": lambda a: divmod(a + 1, 2),
    "pow": lambda a: 2 ** (a * 1.0),
    "matmul": lambda a: np.swapaxes(a, 0, -1) @ a,
    "compare": lambda a: (a < 1, a >= np.ones(())),
    "inplace-target": lambda a: np.zeros(a.shape) + a,
}
JNP: dict[str, Callable[[Any], Any]] = {
    "sin": jnp.sin,
    "sum": jnp.sum,
    "where": lambda a: jnp.where(a > 1, a, 0),
    "take": lambda a: jnp.take(a, 0),
    "maximum": lambda a: jnp.maximum(a, 1),
    "dot": lambda a: jnp.dot(a.T, a),
    "lax": lambda a: jax.lax.neg(a + 0),
    "jit": jax.jit(lambda a: a + 1),
    "vmap": jax.vmap(lambda a: a + 1),
    "at": lambda a: jnp.zeros(a.shape).at[...].set(a),
    "device_put": jax.device_put,
}


def leaves_agree(got: Any, wanted: Any) -> None:
    got_leaves, wanted_leaves = jax.tree.leaves(got), jax.tree.leaves(wanted)
    assert len(got_leaves) == len(wanted_leaves)
    for one, other in zip(got_leaves, wanted_leaves, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
        assert np.asarray(one).dtype == np.asarray(other).dtype


@pytest.mark.parametrize("name", UNARY)
@given(value=NUMERIC.filter(lambda a: a.dtype != bool))
def test_a_static_array_acts_like_its_array(name: str, value: Any) -> None:
    """Functions and operators answer as for the array it holds."""
    leaves_agree(UNARY[name](lw.StaticArray(value)), UNARY[name](value))


@pytest.mark.parametrize("name", JNP)
def test_a_static_array_in_jax_numpy(name: str) -> None:
    """Every jax function takes it as it takes the array."""
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    leaves_agree(JNP[name](lw.StaticArray(value)), JNP[name](value))


@given(value=NUMERIC)
def test_equality_with_other_things_is_one_bool(value: Any) -> None:
    """``==`` and ``!=`` never answer with an array, on whichever side it stands."""
    array = lw.StaticArray(value)
    for other in (value, value.tolist(), None, 1, "text"):
        assert (array == other) is False
        assert (array != other) is True
