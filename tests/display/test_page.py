"""The page: well formed, nothing from outside, nothing of a user's text taken for HTML."""

import html
from html.parser import HTMLParser
from typing import Any

import pytest

import leafwise._display.page as page_module
from leafwise._display.page import explanation, page
from leafwise._display.shape import Report
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

VOID = {"meta", "br", "img", "link", "hr", "input"}
APART = {"p", "div", "td", "th", "tr", "dt", "dd", "pre", "text", "title"}
REPORTS = {
    "empty": report(),
    "usual": usual(),
    "hostile": hostile(),
    "crowded": crowded(),
    "no functions": report([event()], []),
    "no events": report([], [function()]),
    "no time": report([event(seconds=0.0)], seconds=0.0),
}


class Reader(HTMLParser):
    """Reads a page: tags in balance, attributes, and the text of each element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], "left open"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag in APART:
            self.text.append(" ")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)

    def values(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]


@pytest.fixture(params=REPORTS.values(), ids=REPORTS)
def any_report(request: Any) -> Report:
    return request.param


def said(text: str) -> str:
    """Return all that a page says, without the tags."""
    return " ".join("".join(Reader(text).text).split())


@pytest.mark.slow
def test_tags_are_in_balance(any_report: Report) -> None:
    """Every element of the page is closed, in the right order, and it can be encoded."""
    text = page(any_report)
    assert Reader(text).tags.count("main") == 1
    assert text.encode().decode() == text


@pytest.mark.slow
def test_nothing_comes_from_outside(any_report: Report) -> None:
    """The page loads nothing: no script, no address."""
    read = Reader(page(any_report))
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(read.tags)
    assert not [name for _, name, _ in read.attributes if name.startswith("on") or name == "src"]
    assert not read.values("href")
    style = page(any_report).partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style


def test_texts_are_shown_as_they_are() -> None:
    """A hostile text appears in the page as text, with what cannot be shown spelled out."""
    text = said(page(hostile()))
    for bad in filter(None, HOSTILE):
        assert " ".join(clean(bad).split()) in text
    assert "<script" not in page(hostile())
    assert "two\\nlines\\tand\\x1b[31mcolour\\x00" in text


def test_totals() -> None:
    """The headline has the seconds lost in all and to repeats, and the counts."""
    text = said(page(usual()))
    assert "tracing, lowering and compiling in all, 18% of the time 1.80 s" in text
    assert "could be saved: 2 retraces and recompiles 1.20 s" in text
    assert "function jitted 1" in text
    assert "traces 3" in text
    assert "lowerings 4" in text


def test_nested_traces_count_once() -> None:
    """The trace of a function inside another's is not counted a second time."""
    nested = report([event(start=1, seconds=2), event(start=2, seconds=0.5, name="inner")])
    assert "20% of the time 2.00 s" in said(page(nested))


def test_repeats_of_a_line_are_one_entry() -> None:
    """Calls of one line with the same reasons are one entry: how often, how long, what changed."""
    text = said(page(usual()))
    assert "churn.py:40 retrace of train_step, 2 times, 1.20 s, in main" in text
    assert "state = train_step(state, batch) path kind" in text
    assert "state.opt.lr static 0.1 → 0.2 0.2 → 0.3 Make it an array." in text
    assert "First calls, not listed: 1." in text


def test_path_is_first_and_monospace() -> None:
    """A reason's row begins with its path, as code."""
    row = '<tr><th scope="row" class="path"><code>state.opt.lr</code></th>'
    assert row in page(usual())


def test_code_between_backticks_is_code() -> None:
    """What a fix has between backticks is shown as code, and its backticks are not."""
    why = explained(reason(fix="pass `jnp.float32(1 < 2)` and `x`"))
    for text in (explanation(why), page(report([event(explanation=why)]))):
        assert "pass <code>jnp.float32(1 &lt; 2)</code> and <code>x</code>" in text


def test_costliest_repeat_is_first() -> None:
    """The entries come in the order of the time they took."""
    slow = event(start=5, seconds=3.0, name="slow", explanation=explained(reason()))
    fast = event(start=1, seconds=0.1, name="fast", explanation=explained(reason()))
    text = said(page(report([fast, slow])))
    assert text.index("retrace of slow") < text.index("retrace of fast")


@pytest.mark.slow
def test_crowd_is_cut_and_said_so() -> None:
    """Of thousands of events a bounded number is shown, and all numbers add up."""
    text = page(crowded())
    assert len(text) < 4_000_000
    words = said(text)
    assert words.count("and 20 more reasons") == text.count("<details") == 100
    assert "and 2,400 more lines with 2,400 calls" in words


def test_functions_are_cut_and_said_so() -> None:
    """Of many functions those that lost most are shown, and a sentence counts the rest."""
    many = [function(f"f{n}") for n in range(page_module.MOST_FUNCTIONS + 3)]
    text = said(page(report([], many)))
    assert "f199 " in text
    assert "f200 " not in text
    assert "and 3 more functions, with 6.75 s in all" in text


def test_function_row() -> None:
    """A function's row has name, place, counts and seconds; one of JAX itself has no place."""
    eager = function("eager operations", eager=True, file="", cache_hits=7)
    text = said(page(report([], [function(), eager])))
    assert "train_step churn.py:12 3 4 4 0 250 ms 500 ms 1.50 s 2.25 s" in text
    assert "eager operations 3 4 4 7 250 ms" in text


def test_nothing_jitted() -> None:
    """A program that jits nothing gets one sentence, and no empty tables."""
    text = page(report())
    assert "Nothing was jitted." in said(text)
    assert "<table" not in text
    assert "<svg" not in text


def test_timeline_is_left_to_perfetto() -> None:
    """The page says which option writes a timeline."""
    assert "leafwise explain --perfetto FILE" in said(page(usual()))


def test_nothing_repeated() -> None:
    """A program without retraces is told so."""
    assert "Nothing was retraced or recompiled." in said(page(report(call(0, FIRST))))


@pytest.mark.parametrize("ended", ["ValueError: boom", "interrupted"])
def test_exit_is_shown(ended: str) -> None:
    """How the program ended is shown if it failed, and only then."""
    assert f"The program ended: {ended}" in said(page(report(ended=ended)))
    assert "The program ended" not in said(page(report()))


def test_warnings_keep_their_lines() -> None:
    """A warning stands in the page with its own line breaks."""
    assert "<pre>first\n  second &lt;b&gt;</pre>" in page(report(warnings=["first\n  second <b>"]))


def test_line_not_known() -> None:
    """A retrace without a line in the program is listed all the same."""
    lost = event(site=None, explanation=explained(reason()))
    assert "line not known retrace of train_step" in said(page(report([lost])))


def test_unsound_is_marked() -> None:
    """A static that JAX takes for equal, though it differs, is marked in its row."""
    why = explained(reason(), unsound=(reason("state.act"),))
    assert "state.act static unsound 0.1" in said(page(report([event(explanation=why)])))
    assert "unsound" not in said(page(usual()))


def test_repeat_without_reasons() -> None:
    """A retrace that the arguments do not explain says so."""
    given = report([event(explanation=explained(outcome="unknown"))])
    assert "No reason was found in the arguments." in said(page(given))


def test_explanation_is_a_fragment() -> None:
    """An explanation alone is a table without page, style element or script."""
    text = explanation(explained(reason(), unsound=(reason("state.act"),)))
    assert not {"html", "style", "script", "body"} & set(Reader(text).tags)
    assert said(text).startswith("retrace: traced, lowered and compiled again; shared, but unsound")
    assert "state.opt.lr" in text
    assert "state.act" in text
    assert "Make it an array." in text


def test_explanation_of_a_first_call() -> None:
    """A first call has no table."""
    assert said(explanation(FIRST)) == "first call: traced, lowered and compiled"


@pytest.mark.parametrize("bad", HOSTILE)
def test_explanation_is_escaped(bad: str) -> None:
    """Nothing in an explanation is taken for HTML."""
    worst = reason(bad, kind=bad, before=bad, after=bad, fix=bad)
    text = explanation(explained(worst, outcome=bad))
    assert set(Reader(text).tags) <= {*APART, "b", "table", "thead", "tbody", "code", "i"}
    assert html.escape(clean(bad)) in text


def test_explanation_is_cut_and_said_so() -> None:
    """Of thousands of reasons some are shown, and a sentence counts the rest."""
    text = explanation(explained(*(reason(fix=f"{n}") for n in range(3000))))
    assert text.count("state.opt.lr") == page_module.MOST_REASONS
    assert "and 2,980 more reasons" in text


def test_long_texts_are_cut_and_said_so() -> None:
    """A very long value is cut, with how long it is."""
    text = explanation(explained(reason(before="x" * 100_000)))
    assert len(text) < 5000
    assert "x... (100,000 characters)" in text


def test_values_are_cut_and_said_so() -> None:
    """Of many values of one path the first are shown, and a line counts the rest."""
    why = [explained(reason(before=str(n), after=str(n + 1))) for n in range(7)]
    made = report([event(start=n, explanation=each) for n, each in enumerate(why)])
    assert "0 → 1 1 → 2 and 5 more changes Make it" in said(page(made))
