"""Values come from annotations: which ones, for which annotation."""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, Literal, NewType, Optional, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw

from .asked import kinds, with_field


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Mode(enum.StrEnum):
    FAST = "fast"
    SLOW = "slow"


@dataclasses.dataclass(frozen=True)
class Config:
    depth: int
    name: str = "x"


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
        (jax.typing.ArrayLike | None, NUMERIC | {"structure"}),
        (Optional[jax.Array], NUMERIC | {"structure"}),  # noqa: UP045  # the old spelling
        (Mapping[str, jax.Array] | None, NUMERIC | {"structure"}),
        (Any, NUMERIC),
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
        (str, "'a' -> 'b'", BOTH),
        (Color, "Color.RED -> Color.GREEN", VALUE_ONLY),
        (Mode, "Mode.FAST -> Mode.SLOW", BOTH),
        (Literal["relu", "gelu"], "'relu' -> 'gelu'", BOTH),
        (tuple[int, ...], "() -> (0,)", BOTH),
        (frozenset[int], "frozenset({}) -> frozenset({0})", VALUE_ONLY),
        (lw.FrozenMapping[str, int], "{} -> {'a': 0}", VALUE_ONLY),
        (lw.StaticArray, None, VALUE_ONLY),
        (Config, "Config(depth=0, name='x') -> Config(depth=0, name='a')", VALUE_ONLY),
        (type[Base], f"{__name__}.Base -> {__name__}.Derived", VALUE_ONLY),
        (Any, "0 -> 1", BOTH),
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
    ("annotation", "word"),
    [
        (Literal["only"], "no other value"),
    ],
    ids=_label,
)
def test_only_one_value(annotation: Any, word: str) -> None:
    """Where there is one value only, the row is skipped, and says why."""
    row = kinds(with_field(lw.Static[annotation], __name__))["value"]
    assert (row.verdict, row.traces) == ("skipped", 0)
    assert word in row.change


def test_keys() -> None:
    """A random key gets another key and another shape; it has no other dtype."""
    default = lw.field(default_factory=lambda: jax.random.key(0))
    report = with_field(jax.Array, __name__, default)
    assert report.passed, report
    assert set(kinds(report)) == {"value", "shape"}
    several = lw.field(default_factory=lambda: jax.random.split(jax.random.key(0)))
    assert "shape" in kinds(with_field(jax.Array, __name__, several))


@pytest.mark.parametrize("dtype", ["bfloat16", "int4", "uint32", "bool"])
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
