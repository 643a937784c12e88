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
"""As how many steps one counts that compiles."""


def find(strategy: Any, wanted: Callable[[Any], bool]) -> Any:
    """Return a value that is wanted, as simple as it becomes in some steps.

    A step that compiles counts more: it is the same value where the same is compiled already.
    `LookupError` says that none was found.
    """
    best: list[Any] = []
    steps = _STEPS

    def is_wanted(drawn: _Unprinted) -> bool:
        nonlocal steps
        if steps < 0:
            return False
        with count_events() as counts:
            accepted = wanted(drawn.value)
        if best:
            steps -= _COMPILED if counts.compiles else 1
        if accepted:
            best[:] = [drawn.value]
        return accepted

    try:
        hypothesis.find(_unprinted(strategy), is_wanted, settings=_SETTINGS)
    except hypothesis.errors.FailedHealthCheck:
        raise  # it cannot search here, such as inside another test
    except hypothesis.errors.HypothesisException as error:
        if not best:  # no such value, or no strategy; else it was out of steps
            raise LookupError(str(error)) from error
    return best[0]


class _Unprinted:
    """Holds a value that Hypothesis would print, by whatever its class calls `_repr_pretty_`."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # noqa: FBT001  # as IPython's
        printer.text("...")


@st.composite
def _unprinted(draw: st.DrawFn, strategy: Any) -> Any:
    try:
        return _Unprinted(draw(strategy))
    except ImpossibleError:
        return hypothesis.reject()
