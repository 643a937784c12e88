"""The output on a terminal and in a pipe."""

import io
import re
from typing import Any

import pytest
from rich.console import Console

import leafwise._display.tables as tables_module
from leafwise._display.tables import explanation, print_report
from leafwise._display.words import clean

from .sample import (
    FIRST,
    HOSTILE,
    call,
    crowded,
    event,
    explained,
    function,
    hostile,
    reason,
    report,
    usual,
)

PATH = "state.model.layers[12].attention.query_projection.kernel.initializer.distribution"


def printed(given: Any, width: int = 80, *, terminal: bool = False) -> str:
    file = io.StringIO()
    console = Console(
        file=file, width=width, force_terminal=terminal, color_system=None, legacy_windows=False
    )
    print_report(given, console)
    return file.getvalue()


def shown(why: Any, width: int = 100) -> str:
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(explanation(why))
    return file.getvalue()


def test_functions_are_a_table() -> None:
    """Where it fits, the functions are a table: name, place, counts, seconds."""
    lines = printed(usual()).splitlines()
    row = next(line for line in lines if line.startswith("train_step"))
    assert row.split() == ["train_step", "churn.py:12", "3", "4", "4", "2.25", "s"]
    heading = next(line for line in lines if line.startswith("function"))
    assert heading.split() == ["function", "where", "traces", "lowerings", "compiles", "time"]


@pytest.mark.parametrize("terminal", [False, True])
def test_table_that_does_not_fit_becomes_lines(terminal: bool) -> None:
    """Where the table does not fit, no number is lost or folded."""
    text = printed(usual(), 40, terminal=terminal)
    assert "train_step  churn.py:12\n" in text
    words = " ".join(text.split())
    assert "3 traces, 4 lowerings, 4 compilations, 2.25 s" in words


def test_summary_is_first() -> None:
    """The first line says what ran and what could be saved, the second what JAX did in all."""
    first, second, *_, last = printed(usual()).splitlines()
    saved = (
        "1.20 s of 10.0 s could be saved: 2 retraces and recompiles; "
        "top causes: churn.py:40 another value of state.opt.lr, 2 retraces, 1.20 s"
    )
    assert first == f"examples/churn.py --fast: {saved}"
    assert last == saved
    assert second == (
        "JAX worked 1.80 s in all: 1 function, 3 traces, 4 lowerings, 4 compilations, 1 first call"
    )


def test_repeats_are_under_their_line() -> None:
    """A repeat is the calling line, what happened, and a line for each reason, path first."""
    lines = printed(usual()).splitlines()
    at = lines.index("churn.py:40  state = train_step(state, batch)")
    assert lines[at + 1 : at + 3] == [
        "  retrace of train_step, 2 times, 1.20 s",
        "  state.opt.lr: static: 0.1 -> 0.2, and 1 more change. Make it an array.",
    ]


def test_first_calls_are_only_counted() -> None:
    """First calls are a number, not a list."""
    text = printed(report(call(0.5, FIRST)))
    assert "--fast: nothing was retraced or recompiled\n" in text
    assert ", 1 first call\n" in text
    assert "churn.py:40" not in text


def test_piped_lines_are_whole() -> None:
    """Where the output is no terminal, a long reason is one line."""
    given = report([event(explanation=explained(reason(PATH, fix="word " * 40)))])
    for width in (80, 40):
        (line,) = [
            line for line in printed(given, width).splitlines() if line.startswith(f"  {PATH}")
        ]
        assert line.startswith(f"  {PATH}: static: 0.1 -> 0.2. word")
        assert line.count("word") == 40


def test_terminal_lines_fit() -> None:
    """On a terminal no line is wider than it, and what is folded keeps its indent."""
    given = report([event(explanation=explained(reason(fix="word " * 40)))])
    for width in (80, 40):
        lines = printed(given, width, terminal=True).splitlines()
        assert max(map(len, lines)) <= width
        folded = [line for line in lines if line.strip().startswith("word word")]
        assert folded
        assert all(line.startswith("  word") for line in folded)


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize("bad", HOSTILE)
def test_markup_is_text(bad: str, width: int) -> None:
    """What looks like markup, an emoji code or a control sequence is printed as text."""
    worst = reason(bad, kind=bad, before=bad, after=bad, fix=bad)
    made = report([event(name=bad, explanation=explained(worst, outcome=bad))], ended=bad or "x")
    text = printed(made | {"functions": [function(bad, file=bad)]}, width)
    value = clean(bad)
    assert f"  {value}: {value}: {value} -> {value}" in text
    assert f"{value} of {value}, " in text
    assert f"the program ended: {value or 'x'}\n" in text
    assert "\x1b" not in text


def test_hostile_report_prints() -> None:
    """No text of a report breaks the output, at any width, and it can be encoded."""
    for width in (40, 80, 200):
        for terminal in (False, True):
            assert printed(hostile(), width, terminal=terminal).encode()


def test_nothing_jitted() -> None:
    """A program that jits nothing gets one sentence."""
    assert printed(report()) == "Nothing was jitted.\n"


def test_exit_and_warnings_are_last() -> None:
    """Last come how the program ended, if badly, the warnings, and what could be saved."""
    given = usual() | {"ended": "interrupted", "warnings": ["traced [b]often[/b]\n  use arrays"]}
    assert printed(given).splitlines()[-4:] == [
        "the program ended: interrupted",
        "warning: traced [b]often[/b]",
        "    use arrays",
        printed(usual()).splitlines()[-1],
    ]
    assert "the program ended" not in printed(usual())


@pytest.mark.slow
def test_crowd_is_cut_and_said_so() -> None:
    """Of thousands of repeats some are shown, and lines count the rest of everything."""
    text = printed(crowded())
    assert "and 30 more functions, 1 min 8 s\n" in text
    assert text.count("  and 28 more reasons\n") == tables_module.MOST_REPEATS
    assert "not shown: 2,470 more retraces and recompiles\n" in text
    assert len(text.splitlines()) < 600


def test_unsound_is_marked() -> None:
    """A static that JAX takes for equal, though it differs, is marked."""
    why = explained(unsound=(reason("state.act"),))
    assert "  state.act: static (unsound): 0.1 -> 0.2" in printed(report([event(explanation=why)]))


def test_repeat_without_reasons() -> None:
    """A retrace that the arguments do not explain says so."""
    given = report([event(site=None, explanation=explained(outcome="unknown"))])
    assert "line not known" in printed(given)
    assert "  no reason was found in the arguments\n" in printed(given)


def test_cache_hits_are_counted() -> None:
    """Compilations that the cache on disk saved stand in the first line, if there are any."""
    assert ", 7 cache hits, " in printed(report([], [function(cache_hits=7)]))
    assert "cache hit" not in printed(usual())


def test_explanation_is_a_table() -> None:
    """An explanation is a table under what JAX does, markup and all."""
    lines = shown(
        explained(reason("[b]x"), reason("z"), unsound=(reason("y", kind="[i]"),))
    ).splitlines()
    assert lines[0].rstrip() == ("retrace: traced, lowered and compiled again; shared, but unsound")
    cells = [re.split(r" {2,}", line.rstrip()) for line in lines[1:]]
    assert cells == [
        ["path", "kind", "before -> after", "what to do"],
        ["[b]x, z", "static", "0.1 -> 0.2", "Make it an array."],
        ["y", "[i] (unsound)", "0.1 -> 0.2", "Make it an array."],
    ]


def test_explanation_of_a_first_call() -> None:
    """A first call has no rows, only the sentence."""
    assert shown(FIRST).strip() == "first call: traced, lowered and compiled"


def test_explanation_is_cut_and_said_so() -> None:
    """Of thousands of reasons some are shown, and a line counts the rest."""
    text = shown(explained(*(reason(fix=f"{n}") for n in range(3000))))
    assert text.count("state.opt.lr") == tables_module.MOST_REASONS
    assert "and 2,988 more reasons" in text
