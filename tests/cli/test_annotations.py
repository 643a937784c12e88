"""Values come from annotations: which ones, for which annotation."""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, Literal, Optional

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw
from leafwise.errors import LawViolation
from leafwise.testing import check_pytree

from .asked import kinds, report_of, with_field


class Color(enum.Enum):
    RED = 1
    GREEN = 2


@dataclasses.dataclass(frozen=True)
class Config:
    depth: int
    name: str = "x"


def _label(value: Any) -> str | None:
    """Return the name of a test: sets would be in another order in each process."""
    return None if isinstance(value, set) else str(value)


NUMERIC = {"value", "shape", "dtype", "weak type"}


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (bool, NUMERIC - {"weak type"}),
        (int, NUMERIC),
        (Optional[jax.Array], NUMERIC | {"structure"}),  # noqa: UP045  # the old spelling
        (Mapping[str, jax.Array] | None, NUMERIC | {"structure"}),
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
        (int, "1 -> 0", BOTH),
        (str, "'a' -> 'b'", BOTH),
        (Color, "Color.RED -> Color.GREEN", VALUE_ONLY),
        (Literal["relu", "gelu"], "'relu' -> 'gelu'", BOTH),
        (tuple[int, ...], "() -> (0,)", BOTH),
        (Config, "Config(depth=0, name='x') -> Config(depth=0, name='a')", VALUE_ONLY),
    ],
    ids=_label,
)
def test_static(annotation: Any, change: str, expected: set[str]) -> None:
    """A static field gets another value, and an equal one of another type; both retrace."""
    report = with_field(lw.Static[annotation], __name__)
    assert report.passed, report
    rows = kinds(report)
    assert set(rows) <= expected | {"type"}
    assert set(rows) >= expected
    assert rows["value"].change == change
    for row in rows.values():
        assert (row.predicted, row.traces, row.compiles) == ("retrace", 1, 1)
        assert row.static


def test_only_one_value() -> None:
    """Where there is one value only, the row is skipped, and says why."""
    row = kinds(with_field(lw.Static[Literal["only"]], __name__))["value"]
    assert (row.verdict, row.traces) == ("skipped", 0)
    assert "no other value" in row.change


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


def declared(cls: Any) -> Any:
    return jax.tree_util.register_dataclass(dataclasses.dataclass(cls))


@declared
class Static:
    w: jax.Array
    size: dataclasses.field(metadata={"static": True})  # type: ignore[valid-type]  # noqa: F821, RUF100


@declared
class Text:
    size: "dataclasses.field(default=3)"  # type: ignore[valid-type]


@pytest.mark.parametrize("cls", [Static, Text])
def test_a_field_as_an_annotation(cls: type) -> None:
    """It is named as what it is; the field is dynamic, and changed as one."""
    with pytest.raises(LawViolation) as caught:
        check_pytree(cls, laws=["no-hidden-state"])
    assert caught.value.path == f"{cls.__name__}.size"
    sentence = "`dataclasses.Field`: `:` was written for `=`, so that the field is dynamic"
    assert sentence in str(caught.value)
    report = report_of(cls)
    assert not report.error
    assert kinds(report, "size")["value"].change
    assert not any(row.static for row in report.rows)
