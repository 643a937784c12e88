"""`instances` and `arrays`: which values come of which annotation, shape and dtype."""

import abc
import collections
import dataclasses
import enum
import functools
import sys
import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import (
    Annotated,
    Any,
    AnyStr,
    Generic,
    Literal,
    NamedTuple,
    NotRequired,
    Optional,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
)

import annotated_types
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from tests.objects.samples import Color

import leafwise as lw
from leafwise.testing.strategies import arrays, instances

from .seeking import assert_reaches, drawn, minimal


class Point(NamedTuple):
    x: int
    y: float = 0.5


class Record(TypedDict):
    x: int
    note: NotRequired[str]


@lw.pytree
class Inner:
    w: jax.Array
    n: lw.Static[int] = 2


T = TypeVar("T")
S = TypeVar("S")


@dataclasses.dataclass
class Box(Generic[T]):
    it: T
    more: list[T]


@dataclasses.dataclass
class Pair(Box[S], Generic[S, T]):
    other: T


@dataclasses.dataclass
class Ints(Box[int]): ...


class Expr(abc.ABC):
    @abc.abstractmethod
    def value(self) -> int: ...


@dataclasses.dataclass
class Sum(Expr):
    left: Expr
    right: Expr

    def value(self) -> int:
        return self.left.value() + self.right.value()


@dataclasses.dataclass
class Number(Expr):
    number: int

    def value(self) -> int:
        return self.number


class Handmade:
    def __init__(self, w: jax.Array, size: "int" = 3) -> None:
        self.w = w
        self.size = size


class Activation(Protocol):
    def __call__(self, x: Any) -> Any: ...


def of(annotation: Any) -> Any:
    """Return a strategy for values of an annotation, as a field of a class has them."""
    cls: Any = dataclasses.make_dataclass(
        "Asked", [("it", annotation)], namespace={"__module__": __name__}
    )
    cls.__module__ = __name__
    return instances(cls).map(lambda made: made.it)


def is_type(kind: Any) -> Callable[[Any], bool]:
    return lambda value: type(value) is kind


def is_array(*dtypes: str, ndim: int | None = None) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, jax.Array)
        and (not dtypes or str(value.dtype) in dtypes)
        and ndim in (None, value.ndim)
    )


def equals(*wanted: Any) -> list[Callable[[Any], bool]]:
    return [lambda value, each=each: type(value) is type(each) and value == each for each in wanted]


def first(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: len(value) > 0 and all(map(test, value))


CASES: dict[Any, tuple[Callable[[Any], bool], list[Callable[[Any], bool]]]] = {
    int: (is_type(int), [lambda v: v < 0, lambda v: v > 5]),
    float: (is_type(float), [lambda v: v < 0, lambda v: v > 1]),
    str: (is_type(str), [lambda v: len(v) > 1]),
    jax.Array: (is_array(), [is_array("float32", ndim=n) for n in range(4)] + [is_array("int32")]),
    np.ndarray: (is_type(np.ndarray), [lambda v: v.ndim == 2]),
    np.typing.NDArray[np.int16]: (lambda v: v.dtype == np.int16, [lambda v: v.ndim == 2]),
    np.ndarray[tuple[int, int], np.dtype[np.floating]]: (lambda v: v.ndim == 2, []),
    jax.typing.ArrayLike: (
        lambda v: isinstance(v, jax.Array | float),
        [is_array(), is_type(float)],
    ),
    np.float32: (is_type(np.float32), [lambda v: v > 0]),
    np.floating: (lambda v: isinstance(v, np.floating), []),
    Optional[jax.Array]: (lambda v: v is None or is_array()(v), [is_type(type(None)), is_array()]),  # noqa: UP045
    int | str | None: (lambda v: isinstance(v, int | str | None), [is_type(int), is_type(str)]),
    Literal["a", 1]: (lambda v: v in ("a", 1), equals("a", 1)),
    Color: (is_type(Color), equals(*Color)),
    tuple[int, str]: (lambda v: [type(i) for i in v] == [int, str], []),
    tuple[int, ...]: (is_type(tuple), [lambda v: v == (), lambda v: len(v) == 3]),
    list[float]: (is_type(list), [lambda v: v == [], first(is_type(float))]),
    dict[str, int]: (is_type(dict), [lambda v: v == {}, lambda v: len(v) == 2]),
    frozenset[int]: (is_type(frozenset), [lambda v: len(v) == 2]),
    Sequence[int]: (is_type(tuple), [first(is_type(int))]),
    Mapping[str, jax.Array]: (is_type(dict), [lambda v: any(map(is_array(), v.values()))]),
    collections.defaultdict[str, int]: (is_type(collections.defaultdict), []),
    collections.ChainMap[str, jax.Array]: (
        is_type(collections.ChainMap),
        [lambda v: any(map(is_array(), v.values()))],
    ),
    Point: (is_type(Point), [lambda v: v.y == 0.5, lambda v: v.y != 0.5]),
    Record: (lambda v: "x" in v, [lambda v: "note" in v, lambda v: "note" not in v]),
    Inner: (is_type(Inner), [lambda v: v.n == 2, lambda v: v.n == 1, lambda v: v.w.ndim == 2]),
    Box[int]: (lambda v: type(v.it) is int, [lambda v: first(is_type(int))(v.more)]),
    Pair[int, str]: (lambda v: type(v.it) is int and type(v.other) is str, []),
    Ints: (lambda v: type(v.it) is int, [lambda v: first(is_type(int))(v.more)]),
    T: (lambda _: True, [is_type(int), is_array()]),
    AnyStr: (lambda v: isinstance(v, str | bytes), [is_type(str), is_type(bytes)]),
    Annotated[int, st.integers(70, 72)]: (lambda v: 70 <= v <= 72, equals(70, 71, 72)),
    "list[Color]": (is_type(list), [first(is_type(Color))]),
    "Inner | None": (lambda v: v is None or type(v) is Inner, [is_type(Inner)]),
    Callable: (callable, []),
    Callable[[int], int]: (lambda v: v(jnp.ones(2)).shape == (2,), []),
    Callable[[], float]: (lambda v: type(v()) is float, []),
    Callable[[str, int], int]: (lambda v: v("a", 2) == 2, []),
    Activation: (lambda v: v(jnp.ones(2)).shape == (2,), []),
    functools.partial: (is_type(functools.partial), []),
    np.dtype: (lambda v: isinstance(v, np.dtype), [lambda v: v == np.int32]),
    jax.typing.DTypeLike: (lambda v: jnp.zeros((), v) == 0, []),
    type[Expr]: (lambda v: issubclass(v, Expr), equals(Sum, Number)),
    Expr: (is_type(Number), []),
    Handmade: (is_type(Handmade), [lambda v: v.size == 3, lambda v: v.size != 3]),
    jax.sharding.Mesh: (lambda v: isinstance(v, jax.sharding.Mesh), []),
    jax.sharding.Sharding: (lambda v: isinstance(v, jax.sharding.Sharding), []),
    jax.Device: (lambda v: isinstance(v, jax.Device), []),
    jax.ShapeDtypeStruct: (is_type(jax.ShapeDtypeStruct), [lambda v: v.shape == (2,)]),
    jax.tree_util.PyTreeDef: (lambda v: isinstance(v, jax.tree_util.PyTreeDef), []),
    Hashable: (is_type(str), []),
    Any: (lambda _: True, [is_type(int), is_type(float), is_array("float32")]),
    lw.StaticArray: (is_type(lw.StaticArray), [lambda v: v.ndim == 2]),
    lw.FrozenMapping[str, int]: (is_type(lw.FrozenMapping), [lambda v: len(v) == 2]),
}


@pytest.mark.parametrize("annotation", CASES, ids=str)
def test_values(annotation: Any) -> None:
    """Every value is of the annotated type, and every kind of value that it has is met."""
    always, sometimes = CASES[annotation]
    strategy = of(annotation)
    assert all(map(always, drawn(strategy, 15)))
    if sometimes:
        assert_reaches(strategy, *sometimes, count=100)


SIMPLEST: dict[Any, Any] = {
    bool: False,
    int: 0,
    str: "a",
    int | None: None,
    Literal["x", "y"]: "x",
    Color: Color.RED,
    tuple[int, bool]: (0, False),
    list[int]: [],
    dict[str, int]: {},
    Point: Point(0, 0.5),
    Record: {"x": 0},
    Box[int]: Box(0, []),
    Expr: Number(0),
}


@pytest.mark.parametrize("annotation", SIMPLEST, ids=str)
def test_simplest(annotation: Any) -> None:
    """What a counterexample shrinks to is the simplest value: zeros, empty, None, defaults."""
    assert minimal(of(annotation)) == SIMPLEST[annotation]


def test_shrinks_inside() -> None:
    """Only what matters stays: one item, of the smallest value that is wanted."""
    assert minimal(of(list[int]), lambda v: any(i > 20 for i in v)) == [21]
    found = minimal(of(Inner), lambda v: v.n >= 4)
    assert (found.n, found.w.shape, float(found.w)) == (4, (), 0.0)


@dataclasses.dataclass
class Node:
    value: int
    next: Optional["Node"]
    children: list["Node"]
    own: "Self | None" = None


def depth_of(node: Any) -> int:
    inner = [node.next, node.own, *node.children]
    return 1 + max((depth_of(each) for each in inner if each is not None), default=0)


@pytest.mark.slow
def test_recursion() -> None:
    """A class that holds its own kind is drawn to some depth, and shrinks to none."""
    strategy = instances(Node)
    assert_reaches(
        strategy,
        lambda node: node.next is not None,
        lambda node: len(node.children) > 1,
        lambda node: node.own is not None,
        lambda node: depth_of(node) == 3,
    )
    assert max(map(depth_of, drawn(strategy, 50))) == 3
    assert minimal(strategy) == Node(0, None, [])


def test_subclasses_of_an_abstract_class() -> None:
    """Asked for itself, it is any of them; in a field, the one that needs the fewest arguments."""
    assert_reaches(instances(Expr), is_type(Sum), is_type(Number))
    assert all(type(made.left) is Number for made in drawn(instances(Sum), 10))


class Hooked(Generic[T]):
    """Passes itself and its value to a hook, each time that an array is made of it."""

    asked = 0

    def __init__(self, value: T, hook: "Callable[[Hooked[T], T], T]") -> None:
        self.value = value
        self.hook = hook

    def __jax_array__(self) -> Any:
        Hooked.asked += 1
        return jnp.asarray(self.hook(self, self.value))


def test_hooks_do_not_call_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drawn hook returns the argument of the type that it is to return, and converts none."""
    monkeypatch.setattr(Hooked, "asked", 0)
    values = drawn(instances(Hooked[int]), 20)
    for value in values:
        assert jnp.asarray(value) == value.value
    assert Hooked.asked == len(values)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of Python 3.12")
def test_new_syntax() -> None:
    """Type statements and type parameters are read, with their arguments."""
    names: dict[str, Any] = {"__name__": __name__, "dataclasses": dataclasses}
    exec(  # noqa: S102  # a syntax error before 3.12
        "type Size = int | None\n"
        "type Twice[A] = tuple[A, A]\n"
        "@dataclasses.dataclass\n"
        "class New[A, B: str]:\n"
        "    a: A\n"
        "    b: B\n",
        names,
    )
    assert_reaches(of(names["Size"]), is_type(int), is_type(type(None)))
    assert all(list(map(type, v)) == [str, str] for v in drawn(of(names["Twice"][str])))
    made = drawn(instances(names["New"][Color, str]))
    assert all(type(each.a) is Color and type(each.b) is str for each in made)
    assert all(type(each.b) is str for each in drawn(instances(names["New"])))


def test_limits() -> None:
    """What `annotated_types` says is kept: of numbers, which stay small, and of lists of ours."""
    values = drawn(of(Annotated[int, annotated_types.Gt(3), annotated_types.Lt(9)]))
    assert set(values) <= set(range(4, 9))
    assert len(set(values)) > 2
    assert all(0 < value <= 100 for value in drawn(of(Annotated[int, annotated_types.Gt(0)]), 20))
    for value in drawn(of(Annotated[list[jax.Array], annotated_types.Len(1, 2)]), 20):
        assert len(value) in (1, 2)
        assert all(map(is_array("float32", "int32", "bool"), value))


class Wrapped(Generic[T]):
    def __init__(self, it: T) -> None:
        self.it = it


st.register_type_strategy(
    Wrapped, lambda kind: st.builds(Wrapped, st.from_type(typing.get_args(kind)[0]))
)


def test_a_registered_strategy_of_a_generic_class() -> None:
    """It is given our values for the parts that Hypothesis does not know."""
    assert_reaches(of(Wrapped[jax.Array]), lambda v: is_array("float32", ndim=2)(v.it), count=60)
    assert all(type(v.it.w.ndim) is int for v in drawn(of(Wrapped[Inner]), 5))
    assert all(type(v.it) is int for each in drawn(of(list[Wrapped[int]]), 5) for v in each)


TreeInUnion = typing.Union[float, list["TreeInUnion"], dict[str, "TreeInUnion"]]  # noqa: UP007
TreeInList = list["TreeInList"]
TreeWithoutEnd = tuple["TreeWithoutEnd", int]
Nothing: Any = enum.Enum("Nothing", [])


@pytest.mark.parametrize("annotation", [TreeInUnion, TreeInList], ids=["union", "list"])
def test_aliases_that_contain_themselves(annotation: Any) -> None:
    """They are drawn to a small depth."""
    assert_reaches(of(annotation), lambda value: value == [], lambda value: value == [[]])


@pytest.mark.parametrize(
    ("annotation", "why"),
    [(TreeWithoutEnd, ".* without end"), (Nothing, "no values are known for")],
    ids=["without end", "no members"],
)
def test_annotations_without_values(annotation: Any, why: str) -> None:
    """That there is no value is said of the field, and a union does without it."""
    with pytest.raises(lw.errors.CannotBuildError, match=rf"Asked\.it: {why}"):
        drawn(of(annotation))
    assert all(type(value) is int for value in drawn(of(annotation | int), 5))


def test_the_usual_array() -> None:
    """Nothing said, most are float32 of up to three axes, others are met, and all are finite."""
    values = drawn(arrays(), 150)
    assert all(isinstance(value, jax.Array) and np.isfinite(value).all() for value in values)
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
