from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import pytest


@pytest.fixture(scope="module")
def result(load_example: Callable[[str], ModuleType]) -> Any:
    """Return the report."""
    return load_example("shapes").main()


def test_two_traces_for_8_8_3_8(result: Any) -> None:
    """Shapes 8, 8, 3, 8 trace twice: at the first 8 and at the 3."""
    first = result.calls[:4]
    assert [call.size for call in first] == [8, 8, 3, 8]
    assert [call.traced for call in first] == [True, False, True, False]


def test_each_call_used_the_jaxpr_of_its_shape(result: Any) -> None:
    """JAX hands out one saved jaxpr for every 8 and another for the 3."""
    assert [call.program for call in result.calls] == ["#1", "#1", "#2", "#1", "#3"]
    assert "f32[8]" in result.jaxprs["#1"]
    assert "f32[3]" in result.jaxprs["#2"]


def test_answers_are_those_of_the_branch(result: Any) -> None:
    """The mean of 1 to 8, the sum of 1 to 3, and the sum of 1 to 8 once the static says so."""
    assert [call.answer for call in result.calls] == [4.5, 4.5, 6.0, 4.5, 36.0]


def test_branch_runs_at_trace_time_only(result: Any) -> None:
    """Five calls ran the Python branch three times, and the cache holds three programs."""
    assert result.branches == ["mean of 8", "sum of 3", "sum of 8"]
    assert (result.traces, result.compiles, result.entries) == (3, 3, 3)


def test_jaxprs_differ_by_the_branch(result: Any) -> None:
    """Only the mean divides: each jaxpr holds what the branch chose, and no branch."""
    assert [" div " in text for text in result.jaxprs.values()] == [True, False, False]
    assert all(" cond" not in text for text in result.jaxprs.values())


def test_saved_jaxpr_is_that_of_a_fresh_trace(load_example: Callable[[str], ModuleType]) -> None:
    """What the report prints is what `jax.make_jaxpr` gives."""
    shapes = load_example("shapes")
    report = shapes.main()
    x = jax.numpy.arange(1.0, 9.0)
    assert str(jax.make_jaxpr(shapes.pooled.__wrapped__)(shapes.Pool(), x)) == report.jaxprs["#1"]
