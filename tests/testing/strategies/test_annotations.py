"""`instances`: which values come of which annotation."""

import abc
import collections
import dataclasses
import datetime
import enum
import functools
import numbers
import pathlib
import sys
import types
import typing
from collections.abc import (
    Callable,
    Hashable,
    Iterable,
    Mapping,
    MutableMapping,
    Reversible,
    Sequence,
)
from collections.abc import Set as AbstractSet
from typing import (
    Annotated,
    Any,
    AnyStr,
    Final,
    Generic,
    Literal,
    NamedTuple,
    NewType,
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

import leafwise as lw
from leafwise.testing.strategies import instances

from .seeking import assert_reaches, drawn, minimal


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Mode(enum.StrEnum):
    FAST = "fast"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


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
Bound = TypeVar("Bound", bound=str)
UserId = NewType("UserId", int)


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
    bool: (is_type(bool), equals(True, False)),
    int: (is_type(int), [lambda v: v < 0, lambda v: v > 5]),
    float: (is_type(float), [lambda v: v < 0, lambda v: v > 1]),
    complex: (is_type(complex), [lambda v: v.imag != 0]),
    str: (is_type(str), [lambda v: len(v) > 1]),
    bytes: (is_type(bytes), [lambda v: len(v) > 1]),
    None: (lambda v: v is None, []),
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
    np.number: (lambda v: isinstance(v, np.number), []),
    np.bool_: (is_type(np.bool_), []),
    Optional[jax.Array]: (lambda v: v is None or is_array()(v), [is_type(type(None)), is_array()]),  # noqa: UP045
    int | str | None: (lambda v: isinstance(v, int | str | None), [is_type(int), is_type(str)]),
    Literal["a", 1]: (lambda v: v in ("a", 1), equals("a", 1)),
    Color: (is_type(Color), equals(*Color)),
    Mode: (is_type(Mode), equals(*Mode)),
    tuple[int, str]: (lambda v: [type(i) for i in v] == [int, str], []),
    tuple[int, ...]: (is_type(tuple), [lambda v: v == (), lambda v: len(v) == 3]),
    tuple[()]: (lambda v: v == (), []),
    list[float]: (is_type(list), [lambda v: v == [], first(is_type(float))]),
    dict[str, int]: (is_type(dict), [lambda v: v == {}, lambda v: len(v) == 2]),
    set[int]: (is_type(set), [lambda v: len(v) == 2]),
    frozenset[int]: (is_type(frozenset), [lambda v: len(v) == 2]),
    AbstractSet[int]: (is_type(frozenset), []),
    Sequence[int]: (is_type(tuple), [first(is_type(int))]),
    Iterable[int]: (is_type(tuple), [first(is_type(int))]),
    Mapping[str, jax.Array]: (is_type(dict), [lambda v: any(map(is_array(), v.values()))]),
    MutableMapping[str, int]: (is_type(dict), []),
    collections.OrderedDict[str, int]: (is_type(collections.OrderedDict), []),
    collections.defaultdict[str, int]: (is_type(collections.defaultdict), []),
    collections.deque[int]: (is_type(collections.deque), [first(is_type(int))]),
    collections.ChainMap: (is_type(collections.ChainMap), [lambda v: len(v) == 2]),
    collections.ChainMap[str, jax.Array]: (
        is_type(collections.ChainMap),
        [lambda v: any(map(is_array(), v.values()))],
    ),
    collections.UserDict: (is_type(collections.UserDict), [lambda v: len(v) == 2]),
    types.MappingProxyType[str, int]: (
        is_type(types.MappingProxyType),
        [lambda v: any(map(is_type(int), v.values()))],
    ),
    Reversible[int]: (is_type(tuple), [first(is_type(int))]),
    numbers.Real: (lambda v: abs(v) <= 10, [lambda v: v < 0]),
    Access: (is_type(Access), equals(Access.READ, Access.READ | Access.WRITE)),
    Point: (is_type(Point), [lambda v: v.y == 0.5, lambda v: v.y != 0.5]),
    Record: (lambda v: "x" in v, [lambda v: "note" in v, lambda v: "note" not in v]),
    Inner: (is_type(Inner), [lambda v: v.n == 2, lambda v: v.n == 1, lambda v: v.w.ndim == 2]),
    list[Inner]: (is_type(list), [first(is_type(Inner))]),
    Box[int]: (lambda v: type(v.it) is int, [lambda v: first(is_type(int))(v.more)]),
    Box[list[Inner]]: (lambda v: type(v.it) is list, [lambda v: first(is_type(Inner))(v.it)]),
    Pair[int, str]: (lambda v: type(v.it) is int and type(v.other) is str, []),
    Ints: (lambda v: type(v.it) is int, [lambda v: first(is_type(int))(v.more)]),
    T: (lambda _: True, [is_type(int), is_array()]),
    Bound: (is_type(str), []),
    AnyStr: (lambda v: isinstance(v, str | bytes), [is_type(str), is_type(bytes)]),
    UserId: (is_type(int), []),
    Annotated[int, "a remark"]: (is_type(int), []),
    Annotated[int, st.integers(70, 72)]: (lambda v: 70 <= v <= 72, equals(70, 71, 72)),
    Final[int]: (is_type(int), []),
    "list[Color]": (is_type(list), [first(is_type(Color))]),
    "Inner | None": (lambda v: v is None or type(v) is Inner, [is_type(Inner)]),
    Callable: (callable, []),
    Callable[[int], int]: (lambda v: v(jnp.ones(2)).shape == (2,), []),
    Callable[[], float]: (lambda v: type(v()) is float, []),
    Callable[[int, int], int]: (lambda v: v(1, 2) in (1, 2), []),
    Callable[[str, int], int]: (lambda v: v("a", 2) == 2, []),
    Callable[[int, str], int]: (lambda v: v(1, "b") == 1, []),
    Callable[[int, int, int], int]: (lambda v: v(1, 2, 3) in (1, 3), []),
    Activation: (lambda v: v(jnp.ones(2)).shape == (2,), []),
    functools.partial: (is_type(functools.partial), []),
    np.dtype: (lambda v: isinstance(v, np.dtype), [lambda v: v == np.int32]),
    np.dtype[np.int8]: (lambda v: v == np.int8, []),
    jax.typing.DTypeLike: (lambda v: jnp.zeros((), v) == 0, []),
    type: (lambda v: isinstance(v, type), []),
    type[Expr]: (lambda v: issubclass(v, Expr), equals(Sum, Number)),
    Expr: (is_type(Number), []),
    Handmade: (is_type(Handmade), [lambda v: v.size == 3, lambda v: v.size != 3]),
    jax.sharding.PartitionSpec: (lambda v: isinstance(v, jax.sharding.PartitionSpec), []),
    jax.sharding.Mesh: (lambda v: isinstance(v, jax.sharding.Mesh), []),
    jax.sharding.Sharding: (lambda v: isinstance(v, jax.sharding.Sharding), []),
    jax.Device: (lambda v: isinstance(v, jax.Device), []),
    jax.ShapeDtypeStruct: (is_type(jax.ShapeDtypeStruct), [lambda v: v.shape == (2,)]),
    jax.tree_util.PyTreeDef: (lambda v: isinstance(v, jax.tree_util.PyTreeDef), []),
    jax.lax.Precision: (is_type(jax.lax.Precision), []),
    pathlib.Path: (lambda v: isinstance(v, pathlib.Path), []),
    range: (is_type(range), [lambda v: len(v) > 1]),
    slice: (is_type(slice), [lambda v: v.stop is not None]),
    datetime.timedelta: (is_type(datetime.timedelta), []),
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
    float: 0.0,
    str: "a",
    bytes: b"",
    Optional[int]: None,  # noqa: UP045
    int | None: None,
    Literal["x", "y"]: "x",
    Color: Color.RED,
    tuple[int, bool]: (0, False),
    tuple[int, ...]: (),
    list[int]: [],
    dict[str, int]: {},
    Point: Point(0, 0.5),
    Record: {"x": 0},
    Box[int]: Box(0, []),
    Expr: Number(0),
    Ints: Ints(0, []),
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


def test_functions_are_named() -> None:
    """Two draws of a function give the same objects: nothing retraces for nothing."""
    values = drawn(of(Callable[[int], int]), 50)
    assert len({id(value) for value in values}) <= 3
    assert not any("lambda" in repr(value) for value in values)


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
def test_alias_that_cannot_be_evaluated() -> None:
    """A type statement that names what is missing is refused with the field's name."""
    names: dict[str, Any] = {"__name__": __name__}
    exec("type Late = int | Missing", names)  # noqa: S102  # a syntax error before 3.12
    with pytest.raises(lw.errors.CannotBuildError, match="cannot be resolved at run time"):
        drawn(of(names["Late"]))


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
    """What `annotated_types` says of a number is kept."""
    values = drawn(of(Annotated[int, annotated_types.Gt(3), annotated_types.Lt(9)]))
    assert set(values) <= set(range(4, 9))
    assert len(set(values)) > 2


def test_limits_of_sizes() -> None:
    """Numbers stay small within their limits, and the items of limited lists are ours."""
    assert all(0 < value <= 100 for value in drawn(of(Annotated[int, annotated_types.Gt(0)]), 20))
    assert all(value > 1000 for value in drawn(of(Annotated[int, annotated_types.Gt(1000)]), 20))
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


def test_an_enum_without_members() -> None:
    """It has no values, which is said of the field."""
    nothing: Any = enum.Enum("nothing", [])
    with pytest.raises(lw.errors.CannotBuildError, match=r"Asked\.it: no values are known for"):
        drawn(of(nothing))
    assert all(type(value) is int for value in drawn(of(nothing | int), 5))


def is_of_jax(value: Any) -> bool:
    return all(isinstance(leaf, int | float | jax.Array) for leaf in jax.tree.leaves(value))


@pytest.mark.parametrize(
    ("annotation", "is_right"),
    [
        (Mapping[str, float], is_of_jax),  # a ChainMap is a leaf
        (Callable[[int], int], lambda value: "lambda" not in repr(value)),
        (range, lambda value: len(value) < 100),
        (float, lambda value: abs(value) < 1e6),
    ],
    ids=["Mapping", "Callable", "range", "float"],
)
def test_where_those_of_hypothesis_will_not_do(
    annotation: Any, is_right: Callable[[Any], bool]
) -> None:
    """Each of these would be left to Hypothesis, if it drew what a pytree can hold."""
    assert all(map(is_right, drawn(of(annotation), 60)))
    assert not all(map(is_right, drawn(st.from_type(annotation), 60)))


TreeInUnion = typing.Union[float, list["TreeInUnion"], dict[str, "TreeInUnion"]]  # noqa: UP007
TreeInList = list["TreeInList"]
TreeWithoutEnd = tuple["TreeWithoutEnd", int]


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (TreeInUnion, [0.0, [], {}]),
        (TreeInList, [[]]),
        (typing.Union[float, list["Elsewhere"]], [0.0]),  # type: ignore[name-defined]  # noqa: F821, UP007
    ],
    ids=["in a union", "in a list", "of another module"],
)
def test_aliases_that_contain_themselves(annotation: Any, expected: list[Any]) -> None:
    """They are drawn without what would be inside themselves."""
    assert_reaches(of(annotation), *[lambda value, each=each: value == each for each in expected])
    assert max(len(jax.tree.leaves(value)) for value in drawn(of(annotation))) < 2


def test_an_alias_without_an_end() -> None:
    """It has no value, which is said."""
    with pytest.raises(lw.errors.CannotBuildError, match=r"Asked\.it: .* without end"):
        drawn(of(TreeWithoutEnd))
