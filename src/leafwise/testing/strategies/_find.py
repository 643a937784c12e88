"""Searching for a value outside a test."""

from collections.abc import Callable
from typing import Any, Final

import hypothesis
import hypothesis.errors
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

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


def find(strategy: Any, wanted: Callable[[Any], bool], tries: int | None = None) -> Any:
    """Return the simplest value of a strategy that is wanted, always the same one.

    `LookupError` says that none was found in so many tries.
    """
    settings = _SETTINGS if tries is None else hypothesis.settings(_SETTINGS, max_examples=tries)
    try:
        drawn = hypothesis.find(
            _unprinted(strategy), lambda each: wanted(each.value), settings=settings
        )
    except hypothesis.errors.FailedHealthCheck:
        raise  # it cannot search here, such as inside another test
    except hypothesis.errors.HypothesisException as error:  # no such value, or no strategy
        raise LookupError(str(error)) from error
    return drawn.value


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
