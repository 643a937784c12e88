"""Findings on first compiles: what is one, what it says, and what is said of the cache on disk."""

import io
import json
from typing import Any

import pytest
from rich.console import Console
from tests.kit.inside import (
    EventRecord,
    FirstCompile,
    Fix,
    Origin,
    annotations_of,
    cache_off_lines,
    first_findings,
    first_seconds,
    from_json,
    print_report,
    to_json,
)

from .sample import FIRST, event, explained, reason, report, site

SCAN = Fix("use scan")
LOOP = Origin("loop", site(9, "for x in xs:"), share=0.9, runs=48, fix=SCAN)


def program(
    *origins: Origin, seconds: float = 22.0, total: int = 5532, **more: Any
) -> list[EventRecord]:
    """Return the events of a program that was compiled in so many seconds."""
    end = {"first": FirstCompile(total, list(origins)), "unfinished": more.pop("unfinished", False)}
    start, why = more.pop("start", 0.0), more.pop("explanation", FIRST)
    return [
        event("trace", start, 0.25, explanation=why, **more),
        event("lowering", start + 0.25, 0.25, **more),
        event("compile", start + 0.5, seconds - 0.5, **end, **more),
    ]


def headlines(events: list[EventRecord]) -> list[str]:
    return [finding.headline for finding in first_findings(events)]


def test_a_loop() -> None:
    """The line is that of the loop; what is said are the seconds, the share and the runs."""
    (finding,) = first_findings(program(LOOP))
    assert finding.site == LOOP.site
    assert finding.fixes() == [SCAN]
    assert finding.headline == (
        "the first compile of train_step took 22.0 s: 90% of its 5,532 operations are from this "
        "loop, which ran 48 times in one trace"
    )
    record = finding.as_dict()
    assert record["seconds"] == {"trace": 0.25, "lower": 0.25, "compile": 21.5}
    assert (record["operations"], record["share"], record["runs"]) == (5532, 0.9, 48)
    assert (record["functions"], record["unfinished"]) == (["train_step"], False)
    assert json.loads(json.dumps(record)) == record


def test_programs_of_one_cause_are_one_finding() -> None:
    """Two functions with the same loop are one; another loop, and another kind, are others."""
    other = Origin("loop", site(30), share=0.9, runs=9, fix=SCAN)
    held = Origin("constants", site(9), nbytes=31 << 20, is_folded=True, fix=Fix("pass it"))
    events = [
        *program(LOOP),
        *program(LOOP, name="grad_step", start=30.0),
        *program(other, name="other", start=60.0, seconds=3.0),
        *program(held, name="table", start=70.0, seconds=5.0),
    ]
    both, table, last = headlines(events)
    assert both.startswith(
        "the first compiles of train_step, grad_step took 44.0 s: 90% of the 5,532"
    )
    took = "the first compile of table took 5.00 s"
    assert table == f"{took}: it holds 31 MiB of constants, which XLA folds"
    assert last.startswith("the first compile of other took 3.00 s")


@pytest.mark.parametrize(
    ("origins", "seconds", "number"),
    [
        ((LOOP,), 1.5, 1),
        ((LOOP,), 0.99, 0),
        ((Origin("line", site(), share=0.5),), 4.9, 0),
        ((Origin("line", site(), share=0.5), Origin("line", site(50), share=0.2)), 5.1, 1),
        ((Origin("tree.map", site(), share=0.8, runs=300),), 4.9, 0),
        ((Origin("tree.map", site(), share=0.8, runs=300),), 5.1, 1),
    ],
    ids=["a loop", "a quick one", "lines", "long lines", "no fix", "no fix, and long"],
)
def test_from_how_many_seconds_on(origins: Any, seconds: float, number: int) -> None:
    """From a second on where something is to be done; from five where nothing is."""
    assert len(first_findings(program(*origins, seconds=seconds))) == number


def test_lines_are_one_finding() -> None:
    """Where no rule holds the lines with most operations are said together."""
    lines = [Origin("line", site(number), share=share) for number, share in ((4, 0.5), (7, 0.25))]
    (text,) = headlines(program(*lines))
    assert not first_findings(program(*lines))[0].has_cause
    assert text.endswith("of its 5,532 operations, 50% from churn.py:4, 25% from churn.py:7")


def test_functions_of_a_package() -> None:
    """They stand in place of their line, which is said if there are several."""
    found = Origin("line", site(4), path="simulate > contact", share=0.8, runs=30)
    once = Origin("line", site(4), path="solve", share=0.1, runs=1)
    (text,) = headlines(program(found, once))
    shares = "80% from `simulate > contact` (30 times), 10% from `solve`"
    assert text.endswith(f"of its 5,532 operations, {shares}")
    (text,) = headlines(program(found, Origin("line", site(5), share=0.1)))
    assert text.endswith("(30 times) at churn.py:4, 10% from churn.py:5")


def test_constants_without_folding() -> None:
    """Their size is said, without a time: that of the compile is that of the loop or the lines."""
    held = Origin("constants", site(9), nbytes=31 << 20, fix=Fix("pass it"))
    line = Origin("line", site(4), share=0.5)
    loop, table = headlines(program(LOOP, held))
    assert loop.startswith("the first compile of train_step took 22.0 s: 90% of its 5,532")
    assert table == "train_step holds 31 MiB of constants"
    assert headlines(program(held, line, line))[1].endswith(
        "50% from churn.py:4, 50% from churn.py:4"
    )


def test_a_repeat_is_no_first_compile() -> None:
    """What is explained as a repeat is not said again, nor a function that is made again."""
    again = program(LOOP, start=30.0, explanation=explained(reason()))
    recreated = program(LOOP, start=60.0, recreated="new")
    assert len(first_findings([*program(LOOP), *again, *recreated])[0].programs) == 1
    assert first_seconds([*program(LOOP), *again]) == 22.0


@pytest.mark.parametrize(
    ("seconds", "text"), [(20.9, "XLA had not finished train_step after 20.9 s: "), (0.0, "")]
)
def test_a_compile_that_did_not_end(seconds: float, text: str) -> None:
    """It is said at any length; where it is not known when the process ended, without seconds."""
    events = program(LOOP, unfinished=True)
    events[-1].seconds = seconds
    (finding,) = first_findings(events if seconds else events[-1:])
    assert finding.headline.startswith(text or "XLA had not finished train_step: ")
    assert finding.as_dict()["unfinished"]


def start_up(number: int, each: float, fix: Fix | None = SCAN, run: int = 0) -> list[EventRecord]:
    """Return programs that one run of a line compiled outside jitted functions."""
    facts: dict[str, Any] = {"eager": True, "run": run, "explanation": FIRST, "seconds": each}
    events = [event("compile", n * each, name=f"op{n}", **facts) for n in range(number)]
    events[-1].fix = fix
    return events


@pytest.mark.parametrize(
    ("events", "number"),
    [
        (start_up(55, 0.06), 1),
        (start_up(9, 0.07), 0),
        (start_up(55, 0.01), 0),
        (start_up(55, 0.2), 0),
        (start_up(55, 0.06, None), 0),
        ([*start_up(9, 0.06), *start_up(9, 0.06, run=1)], 0),
    ],
    ids=["many", "few", "quick", "large", "no fix", "in two runs"],
)
def test_programs_outside_jit(events: list[EventRecord], number: int) -> None:
    """Ten small ones of one run of a line, of a second in all, may as well be one."""
    found = headlines(events)
    assert len(found) == number
    assert found in ([], ["55 programs compiled once each outside `jit`, 3.30 s"])


def test_it_is_printed_behind_the_findings() -> None:
    """At most five are shown, and annotated for GitHub; the JSON has all, and is read back."""
    events = [
        one
        for n in range(7)
        for one in program(
            Origin("loop", site(n + 1), "pkg/net.py:3", 0.9, 9, fix=SCAN),
            name=f"f{n}",
            start=30.0 * n,
        )
    ]
    of_script = report(events, first=first_findings(events), seconds=300.0)
    stream = io.StringIO()
    print_report(of_script, Console(file=stream, width=200))
    text = stream.getvalue()
    assert text.count("the first compile of") == 5
    assert "churn.py:1 [pkg/net.py:3]  state = train_step(state, batch)\n  the first" in text
    assert (
        "nothing was compiled again. JAX took 2 min 34 s of 5 min 0 s: 2 min 34 s in first" in text
    )
    assert "\nexplained above: 1 min 50 s (71%) of JAX's 2 min 34 s" in text  # of five
    assert annotations_of(of_script).count("::warning file=churn.py,line=") == 5
    assert len(to_json(of_script)["first"]) == 7
    assert [from_json(EventRecord, to_json(one)) for one in events] == events


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "with JAX_COMPILATION_CACHE_DIR the next run reads from disk what took XLA 21.0 s"),
        ({"miss": "not found"}, ""),
        ({"unfinished": True}, ""),
        ({"kind": "cache hit"}, ""),
    ],
    ids=["off", "a miss", "not done", "a hit"],
)
def test_the_cache_on_disk(facts: dict[str, Any], words: str) -> None:
    """It is said where it is off and would save two seconds and a tenth of the run."""
    events = [event(**{"kind": "compile", "seconds": 21.0, **facts})]
    assert list(cache_off_lines(report(events, seconds=60.0))) == [words] * bool(words)
    assert not list(cache_off_lines(report(events, seconds=600.0)))


def test_the_cache_on_disk_for_small_programs() -> None:
    """What compiles in less than a second is written if a variable says so; a trial is told."""
    of_script = report(start_up(55, 0.06), seconds=10.0, second_run=4.0)
    (line,) = cache_off_lines(of_script)
    assert "JAX_COMPILATION_CACHE_DIR and JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 " in line
    assert line.endswith("tried: 10.0 s -> 4.00 s")
