"""No class is blamed for a value that we drew: what JAX refuses, and what cannot be constructed."""

import collections
import dataclasses
import types
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple, Union

import jax
import pytest

import leafwise as lw
from leafwise.testing import Law
from leafwise.testing._laws.run import find
from leafwise.testing.strategies import instances

from .asked import laws_of, report_of

ArrayTree = Union[jax.Array, Iterable["ArrayTree"], Mapping[Any, "ArrayTree"]]  # noqa: UP007


class Refusing:
    def __init__(self, size: int = 0) -> None:
        raise TypeError(f"No constructor defined! {size}")


class NeverNew:
    def __new__(cls) -> Any:
        raise NotImplementedError


class State(NamedTuple):
    position: ArrayTree
    weights: Mapping[Hashable, Any] = {}


@lw.pytree
class Defaults:
    w: jax.Array
    refusing: lw.Static[Refusing] = None  # type: ignore[assignment]  # as foreign code has it
    never: lw.Static[NeverNew | None] = None
    several: lw.Static[tuple[Refusing, ...]] = ()
    frame: lw.Static[types.FrameType] = lw.static_field(default=None)
    made: lw.Static[dict[str, Refusing]] = lw.static_field(default_factory=lw.FrozenMapping)
    unsaid: lw.Static[object] = lw.static_field(default=None)


@dataclasses.dataclass
class Registered:
    w: jax.Array
    anything: Any
    thing: object
    refusing: Refusing = dataclasses.field(default_factory=lambda: None)  # type: ignore[arg-type,return-value]


jax.tree_util.register_dataclass(Registered, ["w"], ["anything", "thing", "refusing"])


@pytest.mark.parametrize("cls", [State, Defaults, Registered])
def test_laws_of_correct_classes(cls: type) -> None:
    """Keys that can be sorted, aliases that end, defaults where nothing can be constructed."""
    report = laws_of(cls, Law.ROUND_TRIP, Law.STATIC_VALUES, examples=10)
    assert not report.error
    assert [str(each.verdict) for each in report.laws] == ["ok", "ok"], report.laws
    assert not any(each.message for each in report.laws)  # on instances that were drawn


def test_fields_whose_types_cannot_be_constructed() -> None:
    """They keep their defaults, and are no reason not to check the others."""
    report = report_of(Defaults)
    assert report.passed
    by_field = collections.Counter(row.field for row in report.tried)
    assert by_field["w"] == 4
    assert by_field["unsaid"] == 1
    assert {row.field for row in report.rows} - set(by_field) == {
        "refusing",
        "never",
        "frame",
        "made",
    }


def test_a_default_factory_that_raises() -> None:
    """The class is not checked, and its error is shown; what is given for it is drawn."""
    cls = dataclasses.make_dataclass(
        "Made", [("it", Refusing, dataclasses.field(default_factory=Refusing))]
    )
    jax.tree_util.register_dataclass(cls, [], ["it"])
    assert "No constructor defined!" in report_of(cls).error
    made = dataclasses.make_dataclass(
        "Given",
        [("w", float), ("it", int, dataclasses.field(default_factory=Refusing))],  # type: ignore[arg-type]
    )
    assert type(find(instances(made), lambda _: True).it) is int
