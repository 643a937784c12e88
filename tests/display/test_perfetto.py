"""The trace for Perfetto: its structure, and slices that it can nest."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leafwise._display.perfetto import trace_events
from leafwise._display.shape import EventRecord

from .sample import FIRST, call, crowded, event, explained, hostile, reason, report, site, usual


def slices(entries: list[dict[str, Any]]) -> dict[int, list[tuple[int, int]]]:
    """Return start and end of the slices of each thread, in nanoseconds."""
    found: dict[int, list[tuple[int, int]]] = {}
    for entry in entries:
        if entry["ph"] == "X":
            start = round(entry["ts"] * 1000)
            found.setdefault(entry["tid"], []).append((start, start + round(entry["dur"] * 1000)))
    return found


def overlapping(events: list[EventRecord]) -> list[Any]:
    """Return the pairs of slices on one thread of which neither holds the other."""
    return [
        (a, b)
        for track in slices(trace_events(report(events))["traceEvents"]).values()
        for a, b in itertools.combinations(sorted(track, key=lambda each: (each[0], -each[1])), 2)
        if a[0] < b[0] < a[1] < b[1]
    ]


@pytest.mark.parametrize(
    "made", [report(), usual(), hostile(), crowded()], ids=["empty", "usual", "hostile", "crowded"]
)
def test_structure(made: Any) -> None:
    """Each entry has what its phase asks for, as numbers, and JSON gives it back."""
    trace = trace_events(made)
    assert json.loads(json.dumps(trace, allow_nan=False)) == trace
    # What is no UTF-8, Perfetto cannot read.
    json.dumps(trace, ensure_ascii=False).encode()
    assert trace["displayTimeUnit"] == "ms"
    for entry in trace["traceEvents"]:
        assert entry["pid"] == 1
        assert type(entry["tid"]) is int
        assert type(entry["args"]) is dict
        assert type(entry["name"]) is str
        if entry["ph"] != "M":
            assert type(entry["ts"]) is float
        if entry["ph"] == "X":
            assert type(entry["dur"]) is float
            assert entry["dur"] >= 0
    assert {entry["ph"] for entry in trace["traceEvents"]} <= {"M", "X", "i"}
    assert sum(entry["ph"] == "X" for entry in trace["traceEvents"]) == len(made["events"])


def test_times_are_microseconds() -> None:
    """A slice begins and lasts as its event did."""
    entries = trace_events(report([event(start=0.5, seconds=0.012)]))["traceEvents"]
    (found,) = [entry for entry in entries if entry["ph"] == "X"]
    assert (found["ts"], found["dur"]) == (500_000, 12_000)
    assert found["name"] == "trace train_step"
    assert found["args"]["seconds"] == 0.012


def test_threads_are_tracks() -> None:
    """Each thread has one number, with its name, and the process has the program's."""
    events = [event(start=n, thread=f"worker-{n % 3}") for n in range(6)]
    entries = trace_events(report(events))["traceEvents"]
    names = {
        entry["tid"]: entry["args"]["name"] for entry in entries if entry["name"] == "thread_name"
    }
    assert names == {1: "worker-0", 2: "worker-1", 3: "worker-2"}
    tids = [entry["tid"] for entry in entries if entry["ph"] == "X"]
    assert sorted(tids) == [1, 1, 2, 2, 3, 3]
    (process,) = [entry for entry in entries if entry["name"] == "process_name"]
    assert process["args"] == {"name": "examples/churn.py --fast"}


def test_slices_say_why() -> None:
    """The slice of a retrace has the line, the reasons and each fix once."""
    why = explained(reason(), reason("batch.x", kind="shape"), unsound=(reason("state.act"),))
    entries = trace_events(report(call(1, why)))["traceEvents"]
    args = next(entry["args"] for entry in entries if entry["ph"] == "X")
    assert args == {
        "kind": "trace",
        "seconds": 0.1,
        "site": "churn.py:40",
        "in": "main",
        "text": "state = train_step(state, batch)",
        "outcome": "retrace",
        "reasons": ["state.opt.lr (static): 0.1 -> 0.2", "batch.x: shape 0.1 -> 0.2"],
        "unsound": ["state.act (static): 0.1 -> 0.2"],
        "fix": ["make it an array"],
    }


def test_repeats_have_marks() -> None:
    """A retrace has an instant event at its start; a first call has none."""
    made = report([*call(0.5, FIRST), *call(2, explained(reason()))])
    entries = trace_events(made)["traceEvents"]
    (mark,) = [entry for entry in entries if entry["ph"] == "i"]
    assert (mark["name"], mark["ts"], mark["s"]) == ("retrace of train_step", 2e6, "t")
    first = next(entry for entry in entries if entry["ph"] == "X")
    assert first["args"]["outcome"] == "first call"


def test_eager_operations_are_a_category() -> None:
    """Slices of JAX's own operations can be told from those of the program."""
    entries = trace_events(report([event(eager=True), event("compile", 1)]))["traceEvents"]
    assert [entry["cat"] for entry in entries if entry["ph"] == "X"] == ["eager", "compile"]


def test_reasons_are_cut_and_said_so() -> None:
    """Of thousands of reasons some are kept, with the number of the rest."""
    why = explained(*[reason("x" * 5000)] * 3000)
    entries = trace_events(report([event(explanation=why)]))["traceEvents"]
    args = next(entry["args"] for entry in entries if entry["ph"] == "X")
    assert len(args["reasons"]) + args["reasons left out"] == 3000
    assert 1 < len(args["reasons"]) < 100
    assert args["reasons"][0].startswith("xxx")
    assert "xxx... (5,000 characters) (static): 0.1 -> 0.2" in args["reasons"][0]
    assert len(json.dumps(entries)) < 20_000


def test_line_not_known() -> None:
    """An event without a line has no site."""
    entries = trace_events(report([event(site=None)]))["traceEvents"]
    assert not any("site" in entry["args"] for entry in entries)
    assert any(
        "site" in e["args"] for e in trace_events(report([event(site=site())]))["traceEvents"]
    )


def test_trace_that_ends_late_loses_its_end() -> None:
    """A lowering that starts a moment before its trace ends keeps its length."""
    events = [event(start=0, seconds=1.001), event("lowering", 1.0, 5.0)]
    (track,) = slices(trace_events(report(events))["traceEvents"]).values()
    assert track == [(0, 1_000_000_000), (1_000_000_000, 6_000_000_000)]


def test_inner_trace_that_ends_late_loses_its_end() -> None:
    """A trace inside another one that ends a moment after it stays inside."""
    events = [event(start=0, seconds=1.0), event(start=0.2, seconds=0.801)]
    (track,) = slices(trace_events(report(events))["traceEvents"]).values()
    assert track == [(0, 1_000_000_000), (200_000_000, 1_000_000_000)]


times = st.integers(0, 40).map(lambda n: n / 8)


@given(st.lists(st.builds(lambda start, seconds: event("trace", start, seconds), times, times)))
def test_slices_nest(events: list[EventRecord]) -> None:
    """Two slices of one thread are one inside the other or apart, whatever was measured."""
    assert overlapping(events) == []


@given(st.lists(st.tuples(times, times), max_size=6))
def test_slices_that_nest_are_not_touched(pairs: list[tuple[float, float]]) -> None:
    """What nests already is given as it was measured."""
    # Each one inside the one before.
    events, start, end = [], 0.0, 1000.0
    for before, after in pairs:
        start, end = start + before, end - after
        events.append(event("trace", start, end - start))
    found = slices(trace_events(report(events))["traceEvents"])
    wanted = [(round(e["start"] * 1e9), round((e["start"] + e["seconds"]) * 1e9)) for e in events]
    assert found.get(1, []) == wanted


def test_inner_trace_may_come_first() -> None:
    """Events that begin together are nested by their length, in whatever order they come."""
    events = [event(name="inner", seconds=1.0), event(seconds=2.0)]
    (track,) = slices(trace_events(report(events))["traceEvents"]).values()
    assert sorted(track) == [(0, 1_000_000_000), (0, 2_000_000_000)]
