"""The table of what `leafwise explain` accounts for adds up."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

Load = Callable[[str], ModuleType]


def _event(start: float, seconds: float, thread: str = "MainThread") -> dict[str, Any]:
    return {"process": "", "thread": thread, "start": start, "seconds": seconds}


def test_nested_events_count_once(load: Load) -> None:
    """A trace in a trace adds nothing, in whatever order they are; another thread's does."""
    events = [_event(3, 1), _event(0, 2), _event(0.5, 1), _event(1, 2), _event(0, 4, "other")]
    assert load("coverage").busy(events) == pytest.approx(8)


def test_only_judged_findings_are_accounted_for(load: Load) -> None:
    """What was not judged accounts for nothing, nor does a place without a cause."""
    coverage = load("coverage")
    batch = {"path": "tokens", "kind": "shape", "change": "(4,) -> (3,)"}
    finding = {
        "place": "a/flax_gemma.py:68",
        "what": "sample retraced",
        "seconds": 2.0,
        "fixes": [],
    }
    again = [finding | {"reasons": [reason]} for reason in (batch, batch | {"kind": "dtype"})]
    seconds = {"trace": 1.0, "lower": 0.5, "compile": 1.5}
    first = finding | {"seconds": seconds, "kind": "line", "place": "flax_gemma.py:1"}
    recorded = {"findings": again, "first": [first], "events": [_event(0, 10)]}
    spent = coverage.shares("flax_gemma", recorded)
    assert spent == {coverage.TRUE: 2.0, coverage.OPEN: 5.0, "none": 3.0}
    assert coverage.columns(spent)[:2] == ["10.0", "20%"]


def test_verdicts_are_of_programs(load: Load) -> None:
    """Each program has its verdicts, if only none, and there are none of others."""
    coverage = load("coverage")
    assert coverage.VERDICTS.keys() == coverage.PROGRAMS.keys()
