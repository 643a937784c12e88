"""Attributes of a class that code reads of an instance: of an argument, an item, what it makes."""

import functools
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import leafwise as lw

pytestmark = pytest.mark.hazard

ONES = jnp.ones(2)
jit: Any = lw.jit  # so that lambdas need no types


class Plain:
    rate = 1.0
    unread = 1.0


class Annotated:
    rate: float = 1.0
    unread: float = 1.0


class Below(Plain):
    def __call__(self, x: Any) -> Any:
        return x * super().rate


class Kinds:
    rate: Any = {"a": 1.0, "b": 1.0}  # noqa: RUF012  # what a user writes
    unread = 1.0


@lw.pytree
class Params:
    w: Any
    unread: float = 1.0  # the default of a field
    rate: ClassVar[float] = 1.0


@lw.pytree(slots=True)
class Slots:
    w: Any
    rate: ClassVar[float] = 1.0
    unread: ClassVar[float] = 1.0


class Module(eqx.Module):
    w: Any
    unread: float = 1.0
    rate: ClassVar[float] = 1.0


def direct(it: Any, x: Any) -> Any:
    return x * it.rate


def of_items(its: Any, x: Any) -> Any:
    for it in its:
        x = x * it.rate
    return x


WAYS: dict[str, tuple[type, Callable[[Any, Any], Any], Any]] = {
    "direct": (Params, direct, Params(1.0)),
    "slots": (Slots, direct, Slots(1.0)),
    "equinox": (Module, direct, Module(1.0)),
    "scan": (Params, lambda it, x: jax.lax.map(lambda y: y * it.rate, x), Params(1.0)),
}
CAPTURED: dict[str, tuple[type, Callable[[Any, Any], Any], Any]] = {
    **WAYS,
    "items of a plain class": (Plain, of_items, [Plain()]),
    "annotated": (Annotated, of_items, (Annotated(),)),
    "made": (Annotated, lambda cls, x: cls["a"]().rate * x, {"a": Annotated}),
    "returned": (Plain, lambda make, x: make().rate * x, Plain),
    "key": (Kinds, lambda its, x: x * its[0].rate["a"], [Kinds()]),
}
if sys.version_info >= (3, 12):  # Before, no instruction of its own names what super reads.
    CAPTURED["super"] = (Plain, lambda it, x: it(x), Below())


def check(
    cls: Any, call: Callable[[Any], Any], changed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict, fresh = call("raise"), call("retrace")
    assert [strict(), fresh()] == [1.0, 1.0]
    monkeypatch.setattr(cls, "unread", 3.0)
    assert strict() == 1.0
    monkeypatch.setattr(cls, "rate", changed)
    with pytest.raises(lw.errors.StaleCaptureError, match=r"rate(\['a'\])?`"):
        strict()
    assert [fresh(), fresh()] == [2.0, 2.0]


@pytest.mark.parametrize("way", WAYS)
def test_of_an_argument(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed attribute of the class of what an argument leads to is seen."""
    cls, function, it = WAYS[way]

    def call(stale: str) -> Callable[[], float]:
        jitted = jit(lambda it, x: function(it, x), stale=stale)
        return lambda: float(jitted(it, ONES)[0])

    check(cls, call, 2.0, monkeypatch)


@pytest.mark.parametrize("way", CAPTURED)
def test_of_a_capture(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed attribute of the class of what a capture leads to is seen."""
    cls, function, it = CAPTURED[way]

    def call(stale: str) -> Callable[[], float]:
        return functools.partial(
            lambda jitted: float(jitted(ONES)[0]), jit(lambda x: function(it, x), stale=stale)
        )

    check(cls, call, {"a": 2.0, "b": 5.0} if cls is Kinds else 2.0, monkeypatch)


def test_a_part_that_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a container on the class, the item counts that the code names."""
    strict = jit(lambda x: x * [Kinds()][0].rate["a"], stale="raise")
    strict(ONES)
    monkeypatch.setattr(Kinds, "unread", 7.0)
    assert strict(ONES)[0] == 1.0
