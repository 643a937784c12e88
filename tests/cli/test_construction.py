"""Classes of every make are built, and their changes judged fairly."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw

from .asked import changes, report_of, verdicts


@lw.pytree
class WithInitVar:
    n: lw.Static[int]
    scale: dataclasses.InitVar[int]
    other: dataclasses.InitVar[float] = 2.0

    def __post_init__(self, scale: int, other: float) -> None:
        assert type(scale) is int
        assert other == 2.0


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


@lw.pytree
class OwnInitOtherNames:
    area: lw.Static[int]
    x: jax.Array

    def __init__(self, width: int, height: int) -> None:
        self.area = width * height
        self.x = jnp.ones(3)


@lw.pytree
class Converted:
    dtype: Any = lw.static_field(converter=np.dtype, default="float32")
    shape: tuple[int, ...] = lw.static_field(converter=tuple, default=(1,))
    size: int = lw.static_field(converter=int, default=2)
    x: jax.Array = lw.field(converter=jnp.asarray, default=1.0)


@lw.pytree
class Picky:
    n: int = lw.static_field(check=lambda value: value > 2)
    m: int = lw.static_field(check=lambda value: value % 10 == 3)


@lw.pytree
class Unforgiving:
    n: lw.Static[int]
    m: lw.Static[int]

    def __post_init__(self) -> None:
        if self.n <= self.m:
            raise ValueError("n must be more than m")


@pytest.mark.slow
@pytest.mark.parametrize(
    "cls",
    [
        WithInitVar,
        OwnInit,
        OwnInitOtherTypes,
        OwnInitOtherNames,
        Converted,
        Picky,
        Unforgiving,
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
    assert changes(report)["twice", "value"] == "not a parameter of the constructor"
    assert {kind: seen["zeros", kind] for kind in ("value", "shape", "dtype")} == {
        "value": "ok",
        "shape": "ok",
        "dtype": "ok",
    }


@pytest.mark.parametrize(
    "array",
    [
        lambda: jax.device_put(jnp.ones(3), jax.devices()[0]),
        lambda: jnp.ones(3),
    ],
    ids=["committed", "free"],
)
def test_arrays_on_a_device(array: Callable[[], jax.Array]) -> None:
    """An array that was put on a device stays there when it is changed."""

    @lw.pytree
    class Placed:
        x: jax.Array = lw.field(default_factory=array)

    report = report_of(Placed)
    assert report.passed, report
