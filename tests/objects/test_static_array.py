"""`lw.StaticArray`: an array that can be a static value."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw


@lw.pytree
class P:
    x: Any
    a: lw.Static[Any]


NAN = float("nan")
OTHER_NAN = np.frombuffer(np.uint64(0x7FF8000000000001).tobytes(), np.float64)

SAME: dict[str, tuple[Any, Any]] = {
    "list": ([1, 2], np.array([1, 2])),
    "scalar": (1.5, np.float64(1.5)),
    "jax": (jnp.ones(2), np.ones(2, np.float32)),
    "bfloat16": (jnp.ones(2, jnp.bfloat16), jnp.ones(2, jnp.bfloat16)),
    "nan": (np.array([NAN]), np.array([NAN])),
    "memory order": (np.ones((2, 3)), np.asfortranarray(np.ones((2, 3)))),
    "stride": (np.arange(6)[::2], np.array([0, 2, 4])),
    "empty": (np.zeros((0, 3)), np.zeros((0, 3))),
    "text": (np.array(["a"]), np.array(["a"])),
    "structured": (np.zeros(2, [("a", "f4")]), np.zeros(2, [("a", "f4")])),
    "itself": (lw.StaticArray([1]), [1]),
}
OTHER: dict[str, tuple[Any, Any]] = {
    "content": ([1, 2], [1, 3]),
    "dtype": (np.zeros(2, np.int32), np.zeros(2, np.float32)),
    "width": (np.zeros(2, np.float32), np.zeros(1, np.float64)),
    "shape": (np.zeros(2), np.zeros((1, 2))),
    "empty shape": (np.zeros((0, 3)), np.zeros((3, 0))),
    "zero signs": ([0.0], [-0.0]),
    "nan bits": (np.array([NAN]), OTHER_NAN),
    "byte order": (np.ones(1, ">i4"), np.ones(1, "<i4")),
    "bool": (np.array([True]), np.array([1], np.int8)),
    "field names": (np.zeros(1, [("a", "f4")]), np.zeros(1, [("b", "f4")])),
}


@pytest.mark.parametrize("name", SAME)
def test_same(name: str) -> None:
    """Equal dtype, shape and bytes: equal, same hash, same treedef."""
    one, two = map(lw.StaticArray, SAME[name])
    assert (one == two) is True
    assert (one != two) is False
    assert hash(one) == hash(two)
    assert jax.tree.structure(P(1.0, one)) == jax.tree.structure(P(1.0, two))


@pytest.mark.parametrize("name", OTHER)
def test_other(name: str) -> None:
    """Another dtype, shape or byte: different in `==` and in the treedef."""
    one, two = map(lw.StaticArray, OTHER[name])
    assert (one == two) is False
    assert (one != two) is True
    assert jax.tree.structure(P(1.0, one)) != jax.tree.structure(P(1.0, two))


def test_equality_with_anything_else() -> None:
    """`==` and `!=` with anything but such an array give one bool."""
    for other in (1, None, "a", [1, 2], (1, 2), object()):
        assert (lw.StaticArray([1, 2]) == other) is False
        assert (lw.StaticArray([1, 2]) != other) is True


def test_inequality_with_an_array_does_not_raise() -> None:
    """`!=` with an array is the contrary of `==`, element by element or as one bool."""
    for other in (np.array([1, 3]), jnp.array([1, 3])):
        equal = np.asarray(lw.StaticArray([1, 2]) == other)
        unequal = np.asarray(lw.StaticArray([1, 2]) != other)
        assert (equal == ~unequal).all()


def test_hash_is_computed_once() -> None:
    """The hash is stored: asking for it reads no bytes."""
    big = lw.StaticArray(np.zeros(1_000_000))
    assert hash(big) == hash(big)
    import timeit

    assert timeit.timeit(lambda: hash(big), number=100) < 0.05


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
        with pytest.raises(AttributeError):
            delattr(table, name)
    with pytest.raises((TypeError, ValueError)):
        table[0] = 1  # type: ignore[index]
    assert table.tolist() == [0, 1, 2]


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


def test_attributes() -> None:
    """Shape, dtype, ndim, size, nbytes, length and iteration are the array's."""
    table = lw.StaticArray(np.arange(6, dtype=np.int16).reshape(2, 3))
    assert (table.shape, table.dtype, table.ndim) == ((2, 3), np.int16, 2)
    assert (table.size, table.nbytes, len(table)) == (6, 12, 2)
    assert [row.tolist() for row in table] == [[0, 1, 2], [3, 4, 5]]
    assert table.T.shape == (3, 2)
    assert table[1, 2] == 5
    scalar = lw.StaticArray(2)
    assert (float(scalar), int(scalar), bool(scalar)) == (2.0, 2, True)
    assert list(range(5))[scalar] == 2  # type: ignore[index]
    with pytest.raises(TypeError):
        len(scalar)


NUMPY: dict[str, Any] = {
    "add": lambda a: a + 1,
    "radd": lambda a: 1 + a,
    "array add": lambda a: np.arange(3) + a,
    "matmul": lambda a: a @ np.arange(3),
    "rmatmul": lambda a: np.arange(3) @ a,
    "neg": lambda a: -a,
    "less": lambda a: a < 2,
    "sum": np.sum,
    "mean": np.mean,
    "reduce": np.add.reduce,
    "stack": lambda a: np.stack([a, a]),
    "concatenate": lambda a: np.concatenate([a, np.arange(2)]),
    "index": lambda a: np.arange(9)[a],
    "where": lambda a: np.where(a, a, 0),
    "einsum": lambda a: np.einsum("i,i", a, a),
    "asarray": lambda a: np.asarray(a, np.float32),
    "sort": np.sort,
    "isin": lambda a: np.isin(1, a),
    "array_equal": lambda a: np.array_equal(a, [2, 0, 1]),
    "take": lambda a: np.take(np.arange(9), a),
    "assign": lambda a: np.zeros(3).__setitem__(slice(None), a),
    "scalar": lambda a: np.float32(2) * a,
    "add.at": lambda a: np.add.at(np.zeros(3), a, 1),
    "power": lambda a: a**2,
    "divmod": lambda a: divmod(a, 2),
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
    "rsub": lambda x, a: a - x,
    "matmul": lambda x, a: x @ a,
    "rmatmul": lambda x, a: a @ x,
    "less": lambda x, a: a < x,
    "numpy function": lambda x, a: np.multiply(a, 1) + x,
    "converted": lambda x, a: x[np.asarray(a)],
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


def test_annotated_as_a_static_array() -> None:
    """`Static[StaticArray]`, which the messages recommend, is a right declaration."""

    @lw.pytree
    class Q:
        a: lw.Static[lw.StaticArray]
        b: lw.StaticArray | None = lw.static_field(default=None)

    assert Q(lw.StaticArray([1])).a == lw.StaticArray([1])


def test_as_a_static_field_in_jit() -> None:
    """Traced code uses the table; equal tables share a program, others do not."""
    traces: list[Any] = []
    run = jax.jit(lambda p: traces.append(p.a.tolist()) or (p.x * p.a).sum())
    assert run(P(2.0, lw.StaticArray([1.0, 2.0]))) == 6.0
    assert run(P(3.0, lw.StaticArray([1.0, 2.0]))) == 9.0
    assert run(P(2.0, lw.StaticArray([1.0, 3.0]))) == 8.0
    assert traces == [[1.0, 2.0], [1.0, 3.0]]


@pytest.mark.parametrize("deep", [False, True])
def test_tracers_are_refused(deep: bool) -> None:
    """A traced value has no content to keep."""
    with pytest.raises(lw.errors.TracerInStaticError, match="traced"):
        jax.jit(lambda v: lw.StaticArray([v, 1] if deep else v))(1.0)


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
    assert len(many) < 80
    assert many != repr(lw.StaticArray(np.arange(1, 101)))
    assert "(100,)" in many or "[100]" in many


def test_subclass_of_leaf_nothing() -> None:
    """It is itself no pytree: as a dynamic value it is one leaf, as numpy arrays are."""
    table = lw.StaticArray([1])
    assert jax.tree.leaves({"k": table}) == [table]
    assert copy.deepcopy(table) is table


PLAIN: dict[str, Any] = {
    "slice": lambda a: a[1:],
    "copy": lambda a: a.copy(),
    "astype": lambda a: a.astype(float),
    "empty_like": np.empty_like,
    "ravel": np.ravel,
    "arithmetic": lambda a: a + 0,
    "method": lambda a: a.cumsum(),
    "reduce": lambda a: a.sum(keepdims=True),
    "comparison": lambda a: a > 0,
}


@pytest.mark.parametrize("name", PLAIN)
def test_results_are_plain_arrays(name: str) -> None:
    """Only a `StaticArray` that was made as one claims to be static."""
    made = PLAIN[name](lw.StaticArray([2, 0, 1]))
    assert type(made) is np.ndarray


IN_PLACE: dict[str, Any] = {
    "sort": lambda a: a.sort(),
    "fill": lambda a: a.fill(0),
    "put": lambda a: a.put(0, 9),
    "resize": lambda a: a.resize(4, refcheck=False),
    "setflags": lambda a: a.setflags(write=True),
    "itemset": lambda a: a.flat.__setitem__(0, 9),
    "shape": lambda a: setattr(a, "shape", (3, 1)),
    "dtype": lambda a: setattr(a, "dtype", np.uint64),
    "strides": lambda a: setattr(a, "strides", (0,)),
    "byteswap": lambda a: a.byteswap(inplace=True),
    "partition": lambda a: a.partition(1),
    "np.copyto": lambda a: np.copyto(a, 0),
    "np.put": lambda a: np.put(a, 0, 9),
    "np.random": lambda a: np.random.default_rng(0).shuffle(a),
    "view": lambda a: a.view(np.ndarray).__setitem__(0, 9),
    "memoryview": lambda a: memoryview(a).__setitem__(0, 9),
    "T": lambda a: a.T.__setitem__(0, 9),
    "reshape": lambda a: a.reshape(3, 1).__setitem__(0, 9),
    "base": lambda a: np.asarray(a).base.__setitem__(0, 9),
    "setstate": lambda a: a.__setstate__(np.zeros(3, np.int64).__reduce__()[2]),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_no_method_changes_it(name: str) -> None:
    """Every way of numpy to write in place is refused; content, shape and hash stay."""
    table = lw.StaticArray(np.array([2, 0, 1]))
    before = hash(table)
    with pytest.raises((AttributeError, TypeError, ValueError)):
        IN_PLACE[name](table)
    assert np.asarray(table).tolist() == [2, 0, 1]
    assert (table.shape, table.dtype) == ((3,), np.int64)
    assert hash(table) == before == hash(lw.StaticArray(np.array([2, 0, 1])))


JAX_FUNCTIONS: dict[str, Any] = {
    "sum": jnp.sum,
    "take": lambda a: jnp.take(jnp.arange(3.0), a),
    "index": lambda a: jnp.arange(3.0)[a],
    "at": lambda a: jnp.zeros(3).at[a].set(jnp.arange(3.0)),
    "concatenate": lambda a: jnp.concatenate([a, a]),
    "vmap": jax.vmap(lambda v: v * 2),
    "scan": lambda a: jax.lax.scan(lambda c, v: (c + v, v), 0, a)[1],
    "jit argument": jax.jit(lambda v: v * 2),
    "device_put": jax.device_put,
    "traced index": lambda a: jax.jit(lambda n: a[n])(1),
}


@pytest.mark.parametrize("name", JAX_FUNCTIONS)
def test_jax_functions_take_it(name: str) -> None:
    """Jax and jax.numpy functions treat it as the array that it is."""
    value = np.array([2, 0, 1])
    wanted = JAX_FUNCTIONS[name](jnp.asarray(value))
    np.testing.assert_array_equal(JAX_FUNCTIONS[name](lw.StaticArray(value)), wanted)


@pytest.mark.parametrize(
    "forge",
    [
        lambda a: np.array(a, subok=True),
        np.ndarray.copy,
        lambda a: np.ndarray.__new__(lw.StaticArray, (2,), int),
        lambda a: np.zeros(2).view(lw.StaticArray),
    ],
    ids=["subok", "ndarray.copy", "ndarray.__new__", "view"],
)
def test_writeable_look_alikes_are_no_static_values(forge: Any) -> None:
    """An array of this class that can be written to is refused, as any array is."""
    with pytest.raises(lw.errors.ArrayInStaticError):
        P(1.0, forge(lw.StaticArray([1, 2])))
    frozen = lw.freeze(forge(lw.StaticArray([1, 2])))
    assert P(1.0, frozen).a is frozen
