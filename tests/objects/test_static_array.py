"""`lw.StaticArray`: an array that can be a static value."""

import copy
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.statics.judge import P

import leafwise as lw

NAN = float("nan")
OTHER_NAN = np.frombuffer(np.uint64(0x7FF8000000000001).tobytes(), np.float64)

OTHER: dict[str, tuple[Any, Any]] = {
    "content": ([1, 2], [1, 3]),
    "dtype": (np.zeros(2, np.int32), np.zeros(2, np.float32)),
    "shape": (np.zeros(2), np.zeros((1, 2))),
    "zero signs": ([0.0], [-0.0]),
    "nan bits": (np.array([NAN]), OTHER_NAN),
    "byte order": (np.ones(1, ">i4"), np.ones(1, "<i4")),
    "field names": (np.zeros(1, [("a", "f4")]), np.zeros(1, [("b", "f4")])),
}


@pytest.mark.parametrize("name", OTHER)
def test_other(name: str) -> None:
    """Another dtype, shape or byte: different in `==` and in the treedef."""
    one, two = map(lw.StaticArray, OTHER[name])
    assert (one == two) is False
    assert (one != two) is True
    assert jax.tree.structure(P(1.0, one)) != jax.tree.structure(P(1.0, two))


def test_equal() -> None:
    """Of one dtype, shape and bytes, whatever the order in memory: equal, with one hash."""
    array = np.arange(6.0).reshape(2, 3)
    one, two = map(lw.StaticArray, (array, np.asfortranarray(array)))
    assert (one == two) is True
    assert hash(one) == hash(two)
    assert jax.tree.structure(P(1.0, one)) == jax.tree.structure(P(1.0, two))


def test_is_a_read_only_copy() -> None:
    """Neither the original nor anything handed out can change the content."""
    source = np.arange(3)
    table = lw.StaticArray(source)
    source[0] = 9
    assert table.tolist() == [0, 1, 2]
    for view in (np.asarray(table), table[:], table.T, np.asarray(table).view(np.uint8)):
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 5
        with pytest.raises(ValueError, match="WRITEABLE"):
            view.flags.writeable = True
    assert np.array(table).flags.writeable
    for name in ("shape", "dtype", "_array", "_hash", "new"):
        with pytest.raises(AttributeError):
            setattr(table, name, 1)
    with pytest.raises((TypeError, ValueError)):
        table[0] = 1  # type: ignore[index]
    assert table.tolist() == [0, 1, 2]


NUMPY: dict[str, Any] = {
    "add": lambda a: a + 1,
    "matmul": lambda a: a @ np.arange(3),
    "stack": lambda a: np.stack([a, a]),
    "index": lambda a: np.arange(9)[a],
    "add.at": lambda a: np.add.at(np.zeros(3), a, 1),
}


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_accepts_it(name: str) -> None:
    """Where numpy takes an array it takes a `StaticArray`, with the same result."""
    value = np.array([2, 0, 1])
    got, wanted = NUMPY[name](lw.StaticArray(value)), NUMPY[name](value)
    np.testing.assert_array_equal(got, wanted)
    assert type(got) is type(wanted)


JAX: dict[str, Any] = {
    "add": lambda x, a: x + a,
    "radd": lambda x, a: a + x,
    "matmul": lambda x, a: x @ a,
    "asarray": lambda x, a: jnp.asarray(a) + x,
}


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("name", JAX)
def test_works_with_jax_arrays(name: str, traced: bool) -> None:
    """Operators with jax arrays and tracers work from both sides, and are the array's."""
    x, value = jnp.arange(3.0), np.array([2, 0, 1])
    table = lw.StaticArray(value)
    run = jax.jit(lambda x: JAX[name](x, table)) if traced else lambda x: JAX[name](x, table)
    got = run(x)
    assert isinstance(got, jax.Array)
    np.testing.assert_array_equal(got, JAX[name](x, value))


def test_tracers_are_refused() -> None:
    """A traced value has no content to keep."""
    with pytest.raises(lw.errors.StaticFieldError, match="traced"):
        jax.jit(lambda v: lw.StaticArray(v))(1.0)


@pytest.mark.parametrize("value", [[object()], [None], np.array([1, "a"], object), [[1], [2, 3]]])
def test_objects_are_refused(value: Any) -> None:
    """What has no bytes is refused: arrays of objects, ragged lists."""
    with pytest.raises((TypeError, ValueError)):
        lw.StaticArray(value)


def test_repr() -> None:
    """Few values are shown, as code; many are a summary with a digest, so that tables differ."""
    few = lw.StaticArray([1, 2])
    assert repr(few) == "StaticArray([1, 2], dtype='int64')"
    assert eval(repr(few), {"StaticArray": lw.StaticArray}) == few  # noqa: S307
    many = repr(lw.StaticArray(np.arange(100)))
    assert re.search(r"hash=[0-9a-f]{8}\)$", many)
    assert many != repr(lw.StaticArray(np.arange(1, 101)))
    assert "(100,)" in many or "[100]" in many


def test_subclass_of_leaf_nothing() -> None:
    """It is itself no pytree: as a dynamic value it is one leaf, as numpy arrays are."""
    table = lw.StaticArray([1])
    assert jax.tree.leaves({"k": table}) == [table]
    assert copy.deepcopy(table) is table


def test_in_place_operators_do_not_change_it() -> None:
    """`+=` and `out=` either make another array or refuse; the content stays."""
    first = table = lw.StaticArray([1, 2])
    try:
        table += 1
    except (TypeError, ValueError):
        pass
    else:
        assert np.asarray(table).tolist() == [2, 3]
    with pytest.raises((TypeError, ValueError)):
        np.add([1, 2], 1, out=first)
    assert first.tolist() == [1, 2]


def test_results_are_plain_arrays() -> None:
    """Only a `StaticArray` that was made as one claims to be static."""
    table = lw.StaticArray([2, 0, 1])
    for made in (table.copy(), table[:], table.astype(float), np.ravel(table), table + 0):
        assert type(made) is np.ndarray


def test_a_traced_index_reads_it() -> None:
    """As of an array of JAX: NumPy cannot."""
    table = lw.StaticArray([2, 0, 1])
    assert jax.jit(lambda n: table[n])(1) == 0
