"""`lw.jit` does what `jax.jit` does: the same results, errors and counts, side by side."""

import dataclasses
from typing import Any

import jax
import pytest
from tests.kit.inside import Counts, count_events

import leafwise as lw

from . import (  # noqa: F401  # they add what is run
    scenarios_of_functions,
    scenarios_of_options,
    scenarios_of_transforms,
)
from .scenarios import SCENARIOS, Jit, Scenario

pytestmark = pytest.mark.oracle


def outcome(run: Scenario, jit: Jit) -> tuple[Any, Counts]:
    """Run it; return its result, or its error, and what JAX did."""
    with count_events() as counts:
        try:
            result = run(jit)
        except (TypeError, ValueError, RuntimeError) as error:
            result = type(error), _text(error)
    return result, counts


def _text(error: Exception) -> str:
    """Return what an error says, without addresses; before 0.9 `jax.jit` had to have a function."""
    text = str(error).split(" at 0x")[0]
    return text.replace("from 0 to 1 positional arguments but", "1 positional argument but")


@pytest.mark.parametrize("run", SCENARIOS, ids=lambda run: run.__name__)
def test_side_by_side(run: Scenario) -> None:
    """Results, errors, traces, lowerings and compiles are those of `jax.jit`.

    A function that is called inside another one and alone is traced for each.
    """
    lw.jit(abs)  # the first of a process changes JAX's keys, once
    outcome(run, jax.jit)  # so that what is run eagerly is compiled
    result, counts = outcome(run, jax.jit)
    more = run.__name__ in ("nested", "control_flow")
    assert outcome(run, lw.jit) == (
        result,
        dataclasses.replace(counts, traces=counts.traces + more),
    )
