"""Findings on first compiles: what is one, what it says, and what is said of the cache on disk."""

import dataclasses
import io
import json
from typing import Any

import pytest
from rich.console import Console
from tests.kit.inside import (
    CallsRecord,
    EventRecord,
    FirstCompile,
    Fix,
    LevelRecord,
    Origin,
    SiteRecord,
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
    ("origins", "seconds", "total", "number"),
    [
        ((LOOP,), 1.5, 99, 1),
        ((LOOP,), 0.99, 0.99, 0),
        ((Origin("line", site(), share=0.5),), 4.9, 50, 0),
        ((Origin("line", site(), share=0.5),), 4.9, 48, 1),
        ((Origin("line", site(), share=0.5),), 0.99, 0.99, 0),
        ((Origin("line", site(), share=0.5), Origin("line", site(50), share=0.2)), 5.1, 99, 1),
        ((Origin("tree.map", site(), share=0.8, runs=300),), 4.9, 50, 0),
        ((Origin("tree.map", site(), share=0.8, runs=300),), 5.1, 99, 1),
    ],
    ids=["loop", "quick", "lines", "a tenth", "quick lines", "long lines", "no fix", "long"],
)
def test_from_how_many_seconds_on(origins: Any, seconds: float, total: float, number: int) -> None:
    """From a second on where something is to be done; else from five, or a tenth of all."""
    rest = event("compile", 100.0, total - seconds, name="others")
    assert len(first_findings([*program(*origins, seconds=seconds), rest])) == number


def test_lines_are_one_finding() -> None:
    """Where no rule holds the lines with most operations are said together."""
    lines = [Origin("line", site(number), share=share) for number, share in ((4, 0.5), (7, 0.25))]
    (text,) = headlines(program(*lines))
    assert not first_findings(program(*lines))[0].has_cause
    assert text.endswith("of its 5,532 operations, 50% from churn.py:4, 25% from churn.py:7")


@pytest.mark.parametrize("is_folded", [False, True])
def test_the_cost_of_constants(is_folded: bool) -> None:
    """What they cost is known only if XLA folds them."""
    (finding,) = first_findings(
        program(Origin("constants", site(), nbytes=31 << 20, is_folded=is_folded, fix=Fix("pass")))
    )
    assert finding.has_cause is is_folded


def test_functions_of_a_package() -> None:
    """They stand in place of their line, which is said if there are several."""
    found = Origin("line", site(4), path="simulate > contact", share=0.8, runs=30)
    once = Origin("line", site(4), path="solve", share=0.1, runs=1)
    (text,) = headlines(program(found, once))
    shares = "80% from `simulate > contact` (30 times), 10% from `solve`"
    assert text.endswith(f"of its 5,532 operations, {shares}")
    for origin, is_cause in ((found, True), (once, False)):
        (finding,) = first_findings(program(origin))
        assert finding.has_cause is is_cause
    assert not first_findings(program(found, name="contact"))[0].has_cause
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


def level(line: int, function: str, start: int = 0, **more: Any) -> LevelRecord:
    return LevelRecord(SiteRecord("churn.py", line, function, f"line {line}"), start=start, **more)


LEAVES = SiteRecord("churn.py", 14, "convert", "for leaf in leaves:")
ABOVE = level(90, "<module>"), level(15, "convert", loop=LEAVES)


def start_up(number: int, each: float, heavy: int = 0, *above: LevelRecord) -> list[EventRecord]:
    """Return programs outside `jit` in calls of `quantize`; the first ones are heavy."""
    events: list[EventRecord] = []
    for n in range(number):
        seconds, facts = each * (5 if n < heavy else 1), {"heavy": n < heavy}
        start = events[-1].interval[1] if events else 0.0
        levels = [*(above or ABOVE), level(5 + n % 2, "quantize", n // 2)]
        more: Any = {"name": f"op{n}", "eager": True, "maker": "normal" * (n < heavy)} | facts
        events += [event("compile", start, seconds, explanation=FIRST, levels=levels, **more)]
    return events


def calls(number: int, maker: str = "normal", *below: LevelRecord) -> CallsRecord:
    return CallsRecord(maker, [*ABOVE, *below], number)


IF = "if it has no side effects, needs no values, and may round differently"
LOOP_FIX = (
    f"put this loop into a function of its arrays and `jax.jit` that, {IF}: 3.30 s to about 1.4 s"
)
INNER_FIX = f"`jax.jit` `quantize`, {IF}: about half"
LATER = "; to jit all of it, return the values that are read here, and read them later"
CACHE = "JAX's cache on disk takes the next run to about a fifth"
SHARED = "300 calls of `normal` share 30 programs, which one `jit` would compile for each; "


@pytest.mark.parametrize(
    ("events", "of_calls", "fixes"),
    [
        (start_up(55, 0.06), [], [LOOP_FIX]),
        (start_up(5, 0.66), [], [f"leave it: {CACHE}"]),
        (start_up(55, 0.01), [], []),
        (start_up(55, 0.06, 30), [calls(300)], [f"leave it: {SHARED}{CACHE}"]),
        (
            start_up(55, 0.06, 30),
            [calls(30)],
            [LOOP_FIX.replace("3.30 s to about 1.4", "10.5 s to about 4.3")],
        ),
        (start_up(55, 0.06, 30), [], [CACHE]),
        (
            start_up(55, 0.06, 1),
            [],
            [LOOP_FIX.replace("3.30 s to about 1.4", "3.54 s to about 1.5")],
        ),
        (start_up(55, 0.06), [calls(9, "")], [INNER_FIX + LATER]),
        (start_up(55, 0.06), [calls(9, "", level(6, "quantize"))], [CACHE]),
        (start_up(55, 0.06, 0, ABOVE[0], level(15, "main", reads=True)), [], [INNER_FIX]),
    ],
    ids=[
        "light",
        "large",
        "short",
        "shared",
        "not shared",
        "unknown",
        "unknown, a small part",
        "read",
        "read inside",
        "sets",
    ],
)
def test_a_pass_outside_jit(
    events: list[EventRecord], of_calls: list[CallsRecord], fixes: list[str]
) -> None:
    """One `jit` is for programs that are light, or called once each, and for no values."""
    assert [list(map(str, one.fixes())) for one in first_findings(events, of_calls)] == (
        [fixes] if fixes else []
    )
    # Records of another process, and of the same lines in another order, change nothing.
    others = [dataclasses.replace(one, process="rank 1") for one in events]
    for every in (events[::-1] + others, others + events):
        found = first_findings(every, of_calls)
        assert [list(map(str, one.fixes())) for one in found] == ([fixes] * 2 if fixes else [])
        assert {one.headline for one in found} <= {
            f"{len(events)} programs compiled once each outside `jit`, {spent}"
            for spent in ("3.30 s", "3.54 s", "10.5 s")
        }


@pytest.mark.parametrize(
    ("runs", "fix"),
    [
        ({"churn.py:5": 499, "churn.py:6": 499}, INNER_FIX),
        ({"churn.py:5": 499, "churn.py:6": 499, "churn.py:convert": 24}, LOOP_FIX),
        ({"churn.py:5": 27, "churn.py:6": 27}, LOOP_FIX),
    ],
    ids=["few shapes", "many passes", "many shapes"],
)
def test_calls_for_each_shape(runs: dict[str, int], fix: str) -> None:
    """One `jit` would trace each call: where few of them compile, it is for the function."""
    events = start_up(55, 0.06)
    for number, one in enumerate(events):
        one.site, one.run = one.levels[-1].site, number // 2
    (finding,) = first_findings(events, [], runs)
    assert list(map(str, finding.fixes())) == [fix]


def test_a_program_beside_those_of_the_function() -> None:
    """What the loop compiles itself, before the function, hides no function."""
    events = start_up(55, 0.06)
    events[0].levels = [*ABOVE]
    (finding,) = first_findings(events, [calls(9, "")])
    assert list(map(str, finding.fixes())) == [INNER_FIX + LATER]


def test_two_passes() -> None:
    """The rest of a function is a pass of its own; CPU seconds count, where they are known."""
    above = [level(90, "<module>"), level(20, "convert")]
    events = start_up(55, 0.09) + start_up(20, 0.06, 0, *above)
    findings = first_findings(events)
    assert [len(finding.programs) for finding in findings] == [55, 20]
    built = dataclasses.replace(above[1], builder="equinox")
    for one in events:
        one.levels = [above[0], built] if one.levels[1] == above[1] else one.levels
        one.cpu = 0.001 if one.levels[1] != built else 0.06
    (finding,) = first_findings(events)
    assert str(finding.fixes()[0]).startswith(
        "put this line into a function of its arrays and `eqx.filter_jit`"
    )


def test_what_jax_read_from_its_cache_on_disk() -> None:
    """Programs that were not compiled are no start-up; of few ones no `jit` is said."""
    events = start_up(55, 0.06)
    read = [dataclasses.replace(one, kind="cache hit") for one in events]
    assert first_findings(events)
    assert not first_findings(read)
    # The trace of the first one loads parts of JAX.
    load = event("trace", -2.0, 1.5, name="op0", eager=True, explanation=FIRST)
    fixes = [str(first_findings([load, *start_up(n, 0.02)])[0].fixes()[0]) for n in (7, 8)]
    assert fixes[0] == f"leave it: {CACHE}"
    assert fixes[1].startswith("put this loop into a function of its arrays and `jax.jit` that")


def test_a_start_up_beside_a_step() -> None:
    """A function that also calls what is jitted is no pass: each of its lines is."""
    lines = [
        event(
            *("compile", at, 1.5 / 20),
            name=f"op{at}",
            explanation=FIRST,
            eager=True,
            heavy=False,
            levels=[level(90, "<module>"), level(15 + at % 2, "main")],
        )
        for at in range(40)
    ]
    step = event("compile", 90.0, levels=[level(90, "<module>"), level(18, "main")])
    places = [finding.site and finding.site.line for finding in first_findings([*lines, step])]
    assert places == [15, 16]
    (finding,) = first_findings(lines)
    assert str(finding.fixes()[0]).startswith(
        "put what `main` computes into a function of its arrays and `jax.jit` that"
    )
    for one in lines:  # as before Python 3.12
        one.levels = [dataclasses.replace(each, start=None) for each in one.levels]
    assert not first_findings(lines)


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
