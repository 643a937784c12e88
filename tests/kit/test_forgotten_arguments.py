"""Statics whose ``==`` forgets an argument of their constructor."""

import functools
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import attrs
import jax
import pytest
from hypothesis import settings

import leafwise as lw
from leafwise.errors import LawViolation
from leafwise.testing import Law, check_pytree

T = TypeVar("T")

FEW = settings(max_examples=10, derandomize=True, deadline=None)


class Spec:
    """A static that is compared by a part of what its constructor takes."""

    def __init__(self, a: int, b: int) -> None:
        self.a = a
        self.b = b

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and self.a == other.a

    def __hash__(self) -> int:
        return 1


class Renamed:
    """A static that stores an argument that it forgets under another name, inside a tuple."""

    def __init__(self, width: int, heads: int = 1) -> None:
        self.size = width
        self._split = ("heads", heads)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Renamed) and self.size == other.size

    def __hash__(self) -> int:
        return hash(self.size)


class Whole(Spec):
    """A static that compares all that it holds."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Whole) and (self.a, self.b) == (other.a, other.b)

    __hash__ = Spec.__hash__


class Rate:
    """A static that compares all that it holds, though 0.0 equals -0.0."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rate) and self.rate == other.rate

    def __hash__(self) -> int:
        return hash(self.rate)


class Cached:
    """A static with a cache, whose size is told to the cache alone, and a number of its own."""

    _numbers: Iterator[int] = itertools.count()

    def __init__(self, power: int, cache_size: int = 8) -> None:
        self.power = power
        self._number = next(self._numbers)
        self._raised: Callable[[int], int] = functools.lru_cache(cache_size)(power.__pow__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cached) and self.power == other.power

    def __hash__(self) -> int:
        return hash(self.power)


@attrs.define(unsafe_hash=True)
class Named:
    """A static whose name is declared as not compared."""

    width: int
    name: str = attrs.field(default="", eq=False)


@lw.pytree
class Layer(Generic[T]):
    x: jax.Array
    spec: T = lw.static_field()


def check(kind: Any) -> None:
    check_pytree(Layer[kind], laws=Law.STATIC_VALUES, settings=FEW)


def test_an_argument_that_eq_forgets_breaks_the_law() -> None:
    """The field, the argument, both values and where to compare it are named."""
    with pytest.raises(LawViolation) as caught:
        check(Spec)
    assert caught.value.path == "Layer.spec"
    message = str(caught.value)
    assert re.search(r"Spec\(a=(\d), b=(\d)\) == Spec\(a=\1, b=(?!\2)\d\)", message)
    assert "fix: compare `b` in `Spec.__eq__`, or make Spec a frozen dataclass" in message


def test_an_argument_may_be_stored_under_another_name() -> None:
    """What counts is the trace of an argument, and it may have a default."""
    with pytest.raises(LawViolation, match=r"compare `heads` in `Renamed.__eq__`"):
        check(Renamed)


@pytest.mark.parametrize("kind", [Whole, Rate, Cached, Named])
def test_what_compares_all_that_it_holds_keeps_the_law(kind: Any) -> None:
    """No trace, an equal float, and what is declared as not compared are no faults."""
    check(kind)
