"""Values come from annotations, classes of every make are built, and changes judged fairly."""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, Literal, Optional

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.testing.strategies import test_instances

import leafwise as lw
from leafwise._trees.roles import field_names_of
from leafwise.errors import LawViolation
from leafwise.testing import check_pytree

from .asked import kinds, report_of, verdicts, with_field


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


@lw.pytree
class OwnInit:
    n: lw.Static[int]
    x: jax.Array

    def __init__(self, n: int, /, x: float = 2.0, *rest: int, **more: int) -> None:
        self.n = n
        self.x = jnp.full(3, x + len(rest) + len(more))


@lw.pytree
class OwnInitOtherTypes:
    size: lw.Static[int]
    text: lw.Static[int]

    def __init__(self, size: Literal["small", "big"], text: str) -> None:
        self.size = {"small": 1, "big": 2}[size]
        self.text = len(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "cls",
    [
        OwnInit,
        OwnInitOtherTypes,
        test_instances.Derived,
        test_instances.Converted,
        test_instances.Picky,
        test_instances.Unforgiving,
    ],
)
def test_built(cls: type) -> None:
    """Whatever its constructor takes, the class is built and its changes are as promised."""
    report = report_of(cls)
    assert report.passed, report
    fields = [field.name for field in dataclasses.fields(cls)]
    assert list(dict.fromkeys(row.field for row in report.rows)) == fields, "in field order"


def test_fields_that_no_parameter_sets() -> None:
    """They are not forgotten: a static one is skipped aloud, a dynamic one changed in place."""

    @lw.pytree
    class Derived:
        n: lw.Static[int] = 2
        twice: int = lw.static_field(init=False)
        zeros: jax.Array = lw.field(init=False)

        def __post_init__(self) -> None:
            self.twice = self.n * 2
            self.zeros = jnp.zeros(self.n)

    report = report_of(Derived)
    assert report.passed, report
    seen = verdicts(report)
    assert seen["twice", "value"] == "skipped"
    assert {kind: seen["zeros", kind] for kind in ("value", "shape", "dtype")} == {
        "value": "ok",
        "shape": "ok",
        "dtype": "ok",
    }


def test_an_array_on_a_device() -> None:
    """An array that was put on a device stays there when it is changed."""

    @lw.pytree
    class Placed:
        x: jax.Array = lw.field(
            default_factory=lambda: jax.device_put(jnp.ones(3), jax.devices()[0])
        )

    report = report_of(Placed)
    assert report.passed, report


class Either:
    """Its defaults do not fit together; numbers of Python are static, as with distrax."""

    def __init__(
        self, logits: jax.Array | None = None, probs: jax.Array | None = None, size: int = 3
    ) -> None:
        if (logits is None) == (probs is None):
            raise ValueError("one of both")
        self.logits, self.probs, self.size = logits, probs, size

    def tree_flatten(self) -> Any:
        leaves, structure = jax.tree.flatten(vars(self))
        switch = tuple(type(leaf) not in (int, float) for leaf in leaves)
        pairs = list(zip(leaves, switch, strict=True))
        children = [leaf if is_data else None for leaf, is_data in pairs]
        return children, (tuple(None if is_data else leaf for leaf, is_data in pairs), structure)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Any:
        made = object.__new__(cls)
        both = zip(children, aux[0], strict=True)
        leaves = [child if static is None else static for child, static in both]
        vars(made).update(jax.tree.unflatten(aux[1], leaves))
        return made


jax.tree_util.register_pytree_node_class(Either)


@pytest.mark.slow
def test_defaults_that_do_not_fit_together() -> None:
    """Then others are given; what is static by its value is changed as a static."""
    report = report_of(Either)
    assert report.passed, report
    given = next(row.field for row in report.rows if row.kind == "shape")
    assert given in ("logits", "probs")
    for field, is_static in ((given, False), ("size", True)):
        row = kinds(report, field)["value"]
        assert (row.static, row.verdict) == (is_static, "ok")
    assert field_names_of(Either(probs=jax.numpy.ones(3))).static == ("size",)
