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
"""How many values are drawn until one is wanted, and how many more to make it simpler."""
_COMPILED: Final = 20
"""As how many values one counts that compiles."""


class EnoughError(BaseException):
    """Ends a search; Hypothesis lets it through."""


def find(strategy: Any, wanted: Callable[[Any], bool], tries: int = _STEPS) -> Any:
    """Return a value that is wanted, as simple as it becomes in some steps; else `LookupError`."""
    best: list[Any] = []
    left = tries

    @st.composite
    def is_wanted(draw: st.DrawFn) -> bool:  # not the value: Hypothesis prints what it finds
        nonlocal left
        if left < 0:
            raise EnoughError
        left -= 1
        with count_events() as counts:
            try:
                value = draw(strategy)
            except ImpossibleError:
                return hypothesis.reject()
            accepted = wanted(value)
        if accepted:
            left = left if best else _STEPS
            best[:] = [value]
        left -= _COMPILED * bool(counts.compiles)
        return accepted

    try:
        hypothesis.find(is_wanted(), bool, settings=_SETTINGS)
    except hypothesis.errors.FailedHealthCheck:
        raise  # it cannot search here, such as inside another test
    except (EnoughError, hypothesis.errors.HypothesisException) as error:
        if not best:  # no such value, or no strategy; else it was out of steps
            raise LookupError(str(error)) from error
    return best[0]
