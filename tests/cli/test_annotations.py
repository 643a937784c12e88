"""Values come from annotations: which ones, for which annotation."""

import dataclasses
import enum
import fractions
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, NewType, Optional, TypedDict, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw

from .asked import kinds, report_of, with_field


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Level(enum.IntEnum):
    LOW = 0
    HIGH = 1


class Mode(enum.StrEnum):
    FAST = "fast"
    SLOW = "slow"


class Bits(enum.Flag):
    A = 1
    B = 2


@dataclasses.dataclass(frozen=True)
class Config:
    depth: int
    name: str = "x"


class Sizes(NamedTuple):
    rows: int
    name: str


class Record(TypedDict):
    weight: jax.Array


@lw.pytree
class Inner:
    weight: jax.Array
    depth: lw.Static[int] = 2


class Base: ...


class Derived(Base): ...


UserId = NewType("UserId", int)
T = TypeVar("T")


def _label(value: Any) -> str | None:
    """Return the name of a test: sets would be in another order in each process."""
    return None if isinstance(value, set) else str(value)


NUMERIC = {"value", "shape", "dtype", "weak type"}


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (bool, NUMERIC - {"weak type"}),
        (int, NUMERIC),
        (complex, NUMERIC),
        (np.float32, NUMERIC),
        (jax.Array, NUMERIC),
        (np.ndarray, NUMERIC),
        (jax.typing.ArrayLike | None, NUMERIC | {"structure"}),
        (Optional[jax.Array], NUMERIC | {"structure"}),  # noqa: UP045  # the old spelling
        (tuple[jax.Array, int], NUMERIC),
        (Mapping[str, jax.Array] | None, NUMERIC | {"structure"}),
        (dict[str, list[tuple[jax.Array, int]]], NUMERIC),
        (list, NUMERIC),
        (Record, NUMERIC),
        (Any, NUMERIC),
        (T, NUMERIC),
        (UserId, NUMERIC),
        (Annotated[jax.Array, "a remark"], NUMERIC),
        (Final[int], NUMERIC),
        ("list['Inner']", NUMERIC),
    ],
    ids=_label,
)
def test_dynamic(annotation: Any, expected: set[str]) -> None:
    """A dynamic field's first number changes in each way there is, as promised."""
    report = with_field(annotation, __name__)
    assert report.passed, report
    rows = kinds(report)
    assert set(rows) == expected
    for kind, row in rows.items():
        assert (row.predicted, row.traces) == (("reuse", 0) if kind == "value" else ("retrace", 1))
        assert not row.static


VALUE_ONLY = {"value"}
BOTH = {"value", "type"}


@pytest.mark.parametrize(
    ("annotation", "change", "expected"),
    [
        (bool, "False -> True", BOTH),
        (int, "1 -> 0", BOTH),
        (float, "0.0 -> 1.0", BOTH),
        (complex, "0j -> 1j", VALUE_ONLY),
        (str, "'a' -> 'b'", BOTH),
        (bytes, None, VALUE_ONLY),
        (Color, "Color.RED -> Color.GREEN", VALUE_ONLY),
        (Level, "Level.LOW -> Level.HIGH", BOTH),
        (Mode, "Mode.FAST -> Mode.SLOW", BOTH),
        (Bits, "Bits.A -> Bits.B", VALUE_ONLY),
        (Literal["relu", "gelu"], "'relu' -> 'gelu'", BOTH),
        (int | str | None, None, VALUE_ONLY),
        (tuple[int, ...], "() -> (0,)", BOTH),
        (tuple[int, str], "(1, 'a') -> (0, 'a')", BOTH),
        (frozenset[int], "frozenset({}) -> frozenset({0})", VALUE_ONLY),
        (Sequence[int], "() -> (0,)", BOTH),
        (lw.FrozenMapping[str, int], "{} -> {'a': 0}", VALUE_ONLY),
        (lw.StaticArray, None, VALUE_ONLY),
        (np.dtype, "dtype('float32') -> dtype('int32')", VALUE_ONLY),
        (Config, "Config(depth=0, name='x') -> Config(depth=0, name='a')", VALUE_ONLY),
        (Sizes, None, VALUE_ONLY),
        (type[Base], f"{__name__}.Base -> {__name__}.Derived", VALUE_ONLY),
        (range, "range(0, 0) -> range(0, 1)", VALUE_ONLY),
        (fractions.Fraction, "Fraction(0, 1) -> Fraction(1, 1)", VALUE_ONLY),
        (Any, "0 -> 1", BOTH),
        (Hashable, None, VALUE_ONLY),
        ("Color", "Color.RED -> Color.GREEN", VALUE_ONLY),
    ],
    ids=_label,
)
def test_static(annotation: Any, change: str | None, expected: set[str]) -> None:
    """A static field gets another value, and an equal one of another type; both retrace."""
    static = f"lw.Static[{annotation}]" if isinstance(annotation, str) else lw.Static[annotation]
    report = with_field(static, __name__)
    assert report.passed, report
    rows = kinds(report)
    assert "value" in rows
    assert set(rows) <= expected | {"type"}
    assert set(rows) >= expected
    if change is not None:
        assert rows["value"].change == change
    for row in rows.values():
        assert (row.predicted, row.traces, row.compiles) == ("retrace", 1, 1)
        assert row.static


@pytest.mark.parametrize(
    ("annotation", "stored", "change"),
    [
        (list[int], "()", "() -> (0,)"),
        (tuple[list[int], ...], "()", "() -> ((),)"),
        (dict[str, list[int]], "FrozenMapping({})", "{} -> {'a': ()}"),
        (Mapping[str, int], "FrozenMapping({})", "{} -> {'a': 0}"),
        (set[int], "frozenset()", "frozenset({}) -> frozenset({0})"),
        (np.ndarray, "f32[3](numpy)", None),
        (jax.Array, "f32[3](numpy)", None),
        (list, "()", "() -> (0,)"),
        (dict, "FrozenMapping({})", "{} -> {'a': 0}"),
        (set, "frozenset()", "frozenset({}) -> frozenset({0})"),
    ],
    ids=_label,
)
def test_frozen(annotation: Any, stored: str, change: str | None) -> None:
    """With ``freeze=True`` containers and arrays are drawn, and stored frozen."""
    report = with_field(annotation, __name__, lw.static_field(freeze=True))
    assert report.passed, report
    assert report.instance == f"Asked(it={stored})"
    row = kinds(report)["value"]
    assert row.verdict == "ok"
    assert change in (None, row.change)


@pytest.mark.parametrize(
    "annotation", [Callable, Callable[[int], int], Callable[..., Any]], ids=str
)
def test_functions(annotation: Any) -> None:
    """Functions have names, which the row shows."""
    report = with_field(lw.Static[annotation], __name__)
    assert report.passed, report
    before, _, after = kinds(report)["value"].change.partition(" -> ")
    assert before != after
    assert "lambda" not in before + after


@pytest.mark.parametrize("like", [jax.typing.DTypeLike, np.typing.DTypeLike], ids=["jax", "numpy"])
def test_dtype_like(like: Any) -> None:
    """What may be a dtype is drawn as something that numpy takes for one."""
    report = with_field(like, __name__, lw.static_field(converter=np.dtype))
    assert report.passed, report
    assert "dtype(" in kinds(report)["value"].change


@pytest.mark.parametrize(
    ("annotation", "word"),
    [
        (Literal["only"], "no other value"),
        (type(None), "no other value"),
        (tuple[()], "no other value"),
    ],
    ids=_label,
)
def test_only_one_value(annotation: Any, word: str) -> None:
    """Where there is one value only, the row is skipped, and says why."""
    row = kinds(with_field(lw.Static[annotation], __name__))["value"]
    assert (row.verdict, row.traces) == ("skipped", 0)
    assert word in row.change


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters came with 3.12")
def test_type_parameters() -> None:
    """The type variables of a generic class are found in annotations that are texts."""
    source = """
from __future__ import annotations
import leafwise as lw
@lw.pytree
class Box[T, N: (int, float)]:
    it: list[T]
    n: N
@lw.pytree
class Made[T]:
    it: object
    n: object
    def __init__[N](self, it: T, n: list[N]) -> None:
        self.it, self.n = it, n
"""
    names: dict[str, Any] = {"__name__": __name__}
    exec(source, names)  # noqa: S102  # a syntax error before 3.12
    for cls in (names["Box"], names["Made"]):
        report = report_of(cls)
        assert report.passed, report
        assert {row.field for row in report.rows} == {"it", "n"}


def test_keys() -> None:
    """A random key gets another key and another shape; it has no other dtype."""
    default = lw.field(default_factory=lambda: jax.random.key(0))
    report = with_field(jax.Array, __name__, default)
    assert report.passed, report
    assert set(kinds(report)) == {"value", "shape"}
    several = lw.field(default_factory=lambda: jax.random.split(jax.random.key(0)))
    assert "shape" in kinds(with_field(jax.Array, __name__, several))


@pytest.mark.parametrize(
    "dtype",
    ["bfloat16", "float16", "int4", "int8", "int16", "uint8", "uint32", "bool", "complex64"],
)
@pytest.mark.parametrize("module", [np, jnp], ids=["numpy", "jax"])
def test_dtypes(dtype: str, module: Any) -> None:
    """An array of any dtype that JAX has can be changed."""
    report = with_field(
        Any, __name__, lw.field(default_factory=lambda: module.ones(3, jnp.dtype(dtype)))
    )
    assert report.passed, report
    rows = kinds(report)
    assert {"value", "shape", "dtype"} <= set(rows)
    assert dtype in rows["value"].change


@pytest.mark.parametrize(
    ("dims", "text"),
    [("", "f32[]"), ("batch 4", "f32[3,4]"), ("n n", "f32[3,3]"), ("...", "f32[]")],
)
def test_jaxtyping(dims: str, text: str) -> None:
    """Where a field is drawn alone, the axes that have a name are of one length."""
    jaxtyping = pytest.importorskip("jaxtyping")
    report = with_field(jaxtyping.Float[jax.Array, dims], __name__)
    assert report.passed, report
    assert report.instance == f"Asked(it={text})"


def test_default_of_a_field_that_says_nothing() -> None:
    """Where the annotation says nothing, other values are like the default."""
    for default, change in (
        ("relu", "'relu' -> ''"),
        (2.5, "2.5 -> 0.0"),
        (Color.RED, "Color.RED -> Color.GREEN"),
    ):
        report = with_field(Any, __name__, lw.static_field(default=default))
        assert kinds(report)["value"].change == change


@pytest.mark.parametrize("made", [(), frozenset(), 3, "a", Color.RED], ids=repr)
def test_default_factory_of_a_field_that_says_nothing(made: Any) -> None:
    """The same, where the default comes from a factory."""
    report = with_field(Any, __name__, lw.static_field(default_factory=lambda: made))
    assert report.passed, report
    assert "factory" not in kinds(report)["value"].change


def test_names_for_type_checkers_only() -> None:
    """An annotation that cannot be evaluated is said to be so; nothing is made up."""
    for annotation in ("Missing", "lw.Static['Missing']", "Missing | None", "list[Missing]"):
        report = with_field(annotation, __name__)
        assert not report.passed
        assert "Asked.it" in report.error
        assert "fix:" in report.error


def test_recursive_class() -> None:
    """A class that holds its own kind is built as small as it can be."""
    report = report_of(Node)
    assert report.passed, report
    assert ("next", "structure") in {(row.field, row.kind) for row in report.rows}


@lw.pytree
class Node:
    weight: jax.Array
    next: "Node | None" = None
