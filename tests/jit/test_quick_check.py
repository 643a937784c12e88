"""The check before each call passes on what it is given, whichever way that is given."""

from typing import Any, NamedTuple

import jax
import pytest

import leafwise as lw
from leafwise._captures.places import CapturedPlace


class Rates(NamedTuple):
    """Read by the functions below."""

    first: float
    second: float


class Halved(Rates):
    """A named tuple that answers for one of its fields itself."""

    @property
    def first(self) -> float:  # type: ignore[override]
        return HALF["of"]


HALF = {"of": 0.25}
rates: Any = Rates(0.5, 2.0)


def summed(x: Any, y: Any = 10.0, *more: Any, scale: Any = 1.0, **others: Any) -> Any:
    return rates.first * (x + y + sum(more)) * scale + sum(others.values())


WAYS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1.0,), {}),
    ((1.0, 2.0), {}),
    ((1.0, 2.0, 3.0), {}),
    ((1.0, *range(12)), {}),
    ((1.0,), {"y": 2.0}),
    ((), {"x": 1.0, "scale": 3.0}),
    ((1.0, 2.0), {"scale": 3.0, "other": 4.0}),
    ((1.0, 2.0, 3.0), {"arg_0": 4.0, "args": 1.0, "kwargs": 2.0, "not_given": 3.0}),
]


@pytest.mark.slow  # eight programs, twice
def test_any_way_to_call_after_any_other() -> None:
    """A call finds its arguments, whichever way the call was made that the check is made for."""
    its = jax.jit(summed)
    for first, named_first in WAYS:
        mine = lw.jit(summed)
        mine(*first, **named_first)
        for args, named in WAYS:
            assert mine(*args, **named) == its(*args, **named)


def two(x: Any, y: Any) -> Any:
    return rates.second * (x + y)


@pytest.mark.parametrize("given", [(), (1.0,), (1.0, 2.0, 3.0), (1.0, 2.0, {"z": 1.0})])
def test_wrong_arguments_are_refused_by_jax(given: tuple[Any, ...]) -> None:
    """The error is JAX's own, also once there is a check."""
    *args, named = given if given and isinstance(given[-1], dict) else (*given, {})
    mine, its = lw.jit(two), jax.jit(two)
    mine(1.0, 2.0)
    with pytest.raises(TypeError) as expected:
        its(*args, **named)
    with pytest.raises(TypeError) as found:
        mine(*args, **named)
    assert str(found.value) == str(expected.value)


def test_a_field_of_a_named_tuple_is_read_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """No code of the user's runs in that; a property in its place is followed instead."""
    read: list[Any] = []
    original = CapturedPlace.read
    counting = lambda place: (read.append(place), original(place))[1]  # noqa: E731
    monkeypatch.setattr(CapturedPlace, "read", counting)
    step = lw.jit(lambda x: x * rates.second)
    step(1.0)
    read.clear()
    step(2.0)
    assert not read
    monkeypatch.setitem(globals(), "rates", Halved(1.0, 2.0))
    halved = lw.jit(lambda x: x * rates.first, stale="raise")
    assert halved(1.0) == 0.25
    monkeypatch.setitem(HALF, "of", 0.125)
    with pytest.raises(lw.errors.StaleCaptureError, match="HALF"):
        halved(1.0)
