"""The words and the sums that all forms of a report share."""

from dataclasses import replace

import pytest
from tests.kit.inside import (
    AuditRecord,
    CapturesRecord,
    StaleCaptureRecord,
    WrongRecord,
    annotation,
    annotations_of,
    clean,
    count,
    covered,
    cut,
    duration,
    findings,
)

from .sample import FIRST, call, event, explained, reason, report, site, usual


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (1e-8, "under 1 us"),
        (0.00085, "850 us"),
        (0.01234, "12.3 ms"),
        (0.9996, "1.00 s"),
        (3.214, "3.21 s"),
        (59.96, "1 min 0 s"),
        (7384, "123 min 4 s"),
    ],
)
def test_durations_have_three_digits(seconds: float, words: str) -> None:
    """A duration is given in the unit that suits it, never as 1000 ms or 60 s."""
    assert duration(seconds) == words


@pytest.mark.parametrize(
    "text", ["\n", "\x00", "\x1b", "\x9b", "\u2028", "\u202e", "\u2066", "\ud800"]
)
def test_what_cannot_be_shown_is_spelled_out(text: str) -> None:
    """Controls, marks that turn the direction, and halves of surrogate pairs are written out."""
    assert clean(f"a{text}b") == f"a{ascii(text)[1:-1]}b"


def test_what_ends_a_part_is_escaped() -> None:
    """Lines, and the marks between properties, do not end what they stand in."""
    assert annotation("error", "100 %\ntwo", "a: b, c", "m.py", 3) == (
        "::error file=m.py,line=3,title=a%3A b%2C c::100 %25%0Atwo"
    )
    assert annotation("notice", "text", "title") == "::notice title=title::text"


def test_each_finding_is_a_warning_at_its_line() -> None:
    """A report has a line for each finding, stale capture and call that the audit found."""
    wrong = WrongRecord("churn.py:7", "step answered for `n=1`", 1)
    stale = StaleCaptureRecord("rate", "f", "", "0.5", "0.25", "churn.py:6")
    captured = [CapturesRecord("f", 0, [], [stale])]
    given = replace(usual(), audit=AuditRecord(3, 0.0, [wrong]), captures=captured)
    assert annotations_of(given).splitlines() == [
        "::warning file=churn.py,line=40,title=train_step retraced 2 times%2C 1.20 s::"
        "state.opt.lr (static): 0.1 -> 0.2%0Afix: make it an array",
        "::warning file=churn.py,line=6,title=an old value was used::"
        "f used rate = 0.5, which was 0.25 by then: pass it as an argument",
        "::warning file=churn.py,line=7,title=another program answered::step answered for `n=1`",
    ]
    assert annotations_of(report()) == ""


def test_long_texts_say_how_long() -> None:
    """What is cut says its length; what fits is whole."""
    assert cut("x" * 10, 10) == "x" * 10
    assert cut("x" * 2000, 3) == "xxx... (2,000 characters)"


def test_counts() -> None:
    """One is singular; thousands have a comma."""
    assert [count(n, "trace") for n in (0, 1, 2000)] == ["0 traces", "1 trace", "2,000 traces"]
    assert count(2, "entry", "entries") == "2 entries"


def test_covered_counts_once() -> None:
    """What overlaps counts once, gaps not at all."""
    assert covered([(0, 2), (1, 3), (1.5, 1.6), (5, 6)]) == 4
    assert covered([]) == 0


def test_a_finding_ends_with_the_next_call() -> None:
    """What follows a trace without an explanation, or a first call, is not a finding's."""
    for why in (None, FIRST):
        (found,) = findings([*call(0, explained(reason())), *call(2, why)])
        assert found.seconds == pytest.approx(0.6)


@pytest.mark.parametrize(
    "changed",
    [
        {"site": site(41)},
        {"explanation": explained(reason("state.step"))},
        {"role": "vmap"},
        {"site": None},
    ],
)
def test_what_differs_is_another_finding(changed: dict[str, object]) -> None:
    """Line, function, role, and the paths and kinds of the reasons distinguish findings."""
    why = explained(reason())
    same = [event(explanation=why), event(start=1, explanation=why)]
    other = [event(explanation=why), event(start=1, **{"explanation": why} | changed)]
    assert (len(findings(same)), len(findings(other))) == (1, 2)
