"""Searching strategies, always in the same way."""

from collections.abc import Callable
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, settings

_HOW = settings(
    database=None,
    derandomize=True,
    deadline=None,
    max_examples=500,
    suppress_health_check=list(HealthCheck),
)


def minimal(strategy: Any, wanted: Callable[[Any], bool] = lambda _: True) -> Any:
    """Return the simplest value that is wanted; fail if there is none."""
    return hypothesis.find(strategy, wanted, settings=_HOW)


def drawn(strategy: Any, count: int = 60) -> list[Any]:
    """Return values as a test would get them."""
    found: list[Any] = []

    @settings(_HOW, max_examples=count, phases=[Phase.generate])
    @hypothesis.given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found


def assert_reaches(strategy: Any, *wanted: Callable[[Any], bool], count: int = 150) -> None:
    """Fail unless each is true of some value."""
    values = drawn(strategy, count)
    missing = [number for number, test in enumerate(wanted) if not any(map(test, values))]
    assert not missing, f"never met: {missing}, among {values[:20]}"
