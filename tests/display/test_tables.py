"""A report on a terminal, in a pipe and as a page; and the words and sums in all of them."""

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
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
    html_page,
    print_report,
    tables,
)

from .sample import FIRST, HOSTILE, call, event, explained, function, reason, report, site, usual


def printed(given: Any, width: int = 80, *, terminal: bool = False) -> str:
    file = io.StringIO()
    console = Console(
        file=file, width=width, force_terminal=terminal, color_system=None, legacy_windows=False
    )
    print_report(given, console)
    return file.getvalue()


def test_the_report() -> None:
    """The findings come first, then the functions, and one line at the end says what they cost."""
    assert [line.rstrip() for line in printed(usual()).splitlines()] == [
        "churn.py:40  state = train_step(state, batch)",
        "  train_step retraced 2 times, 1.20 s",
        "  state.opt.lr (static): 0.1 -> 0.2, and 1 more",
        "  fix: make it an array",
        "",
        "function    where        traces  compiles    time",
        "train_step  churn.py:12       3         4  2.25 s",
        "",
        "1 finding: 1.20 s of 10.0 s went into repeats",
    ]


def test_a_line_of_a_package_is_in_brackets() -> None:
    """The place is the user's own line; the package's stands behind it."""
    given = report(call(1.0, explained(reason()), via="jax_md/energy.py:171"))
    first = printed(given).splitlines()[0]
    assert first == "churn.py:40 [jax_md/energy.py:171]  state = train_step(state, batch)"


def test_small_repeats_are_counted() -> None:
    """They have no block, and no line says that nothing was compiled again."""
    small = event(start=5.0, seconds=5e-4, explanation=explained(reason()))
    text = printed(report([*call(0.0, FIRST), small]))
    assert text.startswith("1 small repeat, 500 us\n")
    assert text.splitlines()[-1].startswith("no findings: ")


def test_without_findings() -> None:
    """The last line says that nothing was compiled again, if that is so."""
    assert printed(report(call(0.5, FIRST))).splitlines()[-1] == (
        "nothing was compiled again: JAX took 600 ms of 10.0 s"
    )
    twice = [*call(0.5, FIRST), *call(1.5, explained(outcome="unknown", nearest=None))]
    last = printed(report(twice)).splitlines()[-1]
    assert last == "no findings. JAX took 1.20 s of 10.0 s: 1.20 s in first compiles"
    assert len(last) <= 80


def test_nothing_compiled() -> None:
    """A program for which JAX compiled nothing gets one sentence."""
    assert printed(report()) == "JAX compiled nothing.\n"


def test_lines_fit() -> None:
    """In a pipe and on a terminal no line is wider than it; what is folded keeps its indent."""
    given = report([event(explanation=explained(reason(fix="word " * 40)))])
    for terminal in (False, True):
        lines = printed(given, 60, terminal=terminal).splitlines()
        assert max(map(len, lines)) <= 60
        folded = [line for line in lines if line.strip().startswith("word word")]
        assert folded
        assert all(line.startswith("  word") for line in folded)


def test_what_was_compiled_once_each() -> None:
    """The lines outside jit that took longest have a row each, with programs and seconds."""
    events = [
        event("compile", float(n), 0.5 - n / 10, name="add", eager=True, site=site(n))
        for n in range(5)
    ]
    text = printed(report(events))
    assert "compiled once each, outside `jit`\n  churn.py:0  1 program, 500 ms\n" in text
    assert text.count("1 program") == 3


def test_processes_are_named_where_they_differ() -> None:
    """What happens in some of several processes names these; what happens in all does not."""
    calls = [call(float(n), explained(reason()), process=f"rank {n}") for n in (0, 1)]
    both = report([each for several in calls for each in several])
    assert "rank" not in printed(both)
    first = [*calls[0], *call(2.0, FIRST, process="rank 1")]
    assert "train_step retraced once, 600 ms, in rank 0\n" in printed(report(first))


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize("bad", HOSTILE)
def test_markup_is_text(bad: str, width: int) -> None:
    """What looks like markup, an emoji code or a control sequence is printed as text."""
    worst = reason("x", before=bad, after=bad, fix=bad)
    events = [event(name=bad, explanation=explained(worst))]
    given = report(events, [function(bad, file=bad)], ended=bad or "x")
    words = " ".join(printed(given, width).split())
    value = " ".join(clean(bad).split())
    assert " ".join(f"x (static): {value} -> {value}".split()) in words
    assert f"the program ended: {value or 'x'}" in words
    assert "\x1b" not in words


def test_the_page() -> None:
    """The page has what is printed, and loads nothing from elsewhere."""
    page = html_page(usual())
    text = re.sub(r"<[^>]+>", "", page)
    assert "train_step retraced 2 times, 1.20 s" in text
    assert "went into repeats" in text
    assert not re.search(r"<(script|link|img|iframe)|src=|url\(", page)


def test_exit_and_warnings_are_last() -> None:
    """Last come how the program ended, if badly, the warnings, and what went into repeats."""
    warning = "traced [b]often[/b]\n  use arrays"
    given = replace(usual(), ended="interrupted", warnings=[warning])
    assert printed(given).splitlines()[-4:] == [
        "the program ended: interrupted",
        "warning: traced [b]often[/b]",
        "    use arrays",
        printed(usual()).splitlines()[-1],
    ]
    assert "the program ended" not in printed(usual())


def test_a_crowd_is_cut_and_said_so() -> None:
    """Of many findings some are shown, and lines count the rest of everything."""
    why = explained(*(reason(f"x{n}", fix=f"Fix {n}.") for n in range(40)))
    given = [event(start=n, name=f"f{n}", site=site(n + 1), explanation=why) for n in range(60)]
    text = printed(report(given))
    assert "and 50 more functions, " in text
    assert text.count("  and 37 more reasons\n") == tables.MOST_FINDINGS
    assert "40 more findings" in text


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
