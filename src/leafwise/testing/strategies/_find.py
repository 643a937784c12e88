"""Searching for a value outside a test."""

from collections.abc import Callable
from typing import Any, Final

import hypothesis
import hypothesis.errors
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from leafwise._jax.events import count_events
from leafwise.testing.strategies._arrays import ImpossibleError

_SETTINGS: Final = hypothesis.settings(
    database=None,
    derandomize=True,
    deadline=None,
    max_examples=200,
    # Not `explain`, which draws many more values, each of which may compile.
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=[
        HealthCheck.filter_too_much,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
_STEPS: Final = 400
"""How often a found value is simplified."""
_COMPILED: Final = 20
"""As how many steps one counts that compiles: the same value is compiled already."""


def find(strategy: Any, wanted: Callable[[Any], bool]) -> Any:
    """Return a value that is wanted, as simple as it becomes in some steps; else `LookupError`."""
    best: list[Any] = []
    steps = _STEPS

    def is_wanted(drawn: Callable[[], Any]) -> bool:
        nonlocal steps
        if steps < 0:
            return False
        with count_events() as counts:
            accepted = wanted(drawn())
        if best:
            steps -= _COMPILED if counts.compiles else 1
        if accepted:
            best[:] = [drawn()]
        return accepted

    try:
        hypothesis.find(_unprinted(strategy), is_wanted, settings=_SETTINGS)
    except hypothesis.errors.FailedHealthCheck:
        raise  # it cannot search here, such as inside another test
    except hypothesis.errors.HypothesisException as error:
        if not best:  # no such value, or no strategy; else it was out of steps
            raise LookupError(str(error)) from error
    return best[0]


@st.composite
def _unprinted(draw: st.DrawFn, strategy: Any) -> Callable[[], Any]:
    """Draw a value inside a function: Hypothesis prints what it finds, and its class may raise."""
    try:
        value = draw(strategy)
    except ImpossibleError:
        return hypothesis.reject()
    return lambda: value
