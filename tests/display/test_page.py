"""The page: well formed, nothing from outside, nothing of a user's text taken for HTML."""

import html
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

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


def drawing(text: str) -> ElementTree.Element:
    """Parse the timeline of a page as XML."""
    (found,) = re.findall(r'<svg class="timeline".*?\n</svg>', text, re.DOTALL)
    return ElementTree.fromstring(found)  # noqa: S314  # our own page


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
    """The page loads nothing: no script, no address but places of its own that are there."""
    read = Reader(page(any_report))
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(read.tags)
    assert not [name for _, name, _ in read.attributes if name.startswith("on") or name == "src"]
    assert {value[:1] for value in read.values("href")} <= {"#"}
    assert {value[1:] for value in read.values("href")} <= set(read.values("id"))
    style = page(any_report).partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style


@pytest.mark.slow
def test_ids_are_unique(any_report: Report) -> None:
    """No two elements have the same id, so that a link leads to one."""
    ids = Reader(page(any_report)).values("id")
    assert len(ids) == len(set(ids))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["usual", "hostile", "crowded", "no functions", "no time"])
def test_timeline_is_xml(name: str) -> None:
    """The timeline is well-formed XML, and no bar of it has a negative width or leaves it."""
    svg = drawing(page(REPORTS[name]))
    bars = list(svg.iter("rect"))
    assert bars
    for bar in bars:
        start, width = (float(bar.attrib[key].removesuffix("%")) for key in ("x", "width"))
        assert width > 0
        assert 0 <= start <= start + width <= 100
        assert float(bar.attrib["y"]) + 7 <= float(svg.attrib["height"])


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
    assert "tracing, lowering and compiling, 18% of the time 1.80 s" in text
    assert "of it for 2 retraces and recompilations 1.20 s" in text
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


def test_costliest_repeat_is_first() -> None:
    """The entries come in the order of the time they took."""
    slow = event(start=5, seconds=3.0, name="slow", explanation=explained(reason()))
    fast = event(start=1, seconds=0.1, name="fast", explanation=explained(reason()))
    text = said(page(report([fast, slow])))
    assert text.index("retrace of slow") < text.index("retrace of fast")


def test_marks_lead_to_reasons() -> None:
    """Each retrace has a mark that links to its entry; the tab key stops once at each entry."""
    links = list(drawing(page(usual())).iter("a"))
    assert [link.attrib["href"] for link in links] == ["#why-1", "#why-1"]
    assert [link.attrib.get("tabindex") for link in links] == [None, "-1"]
    assert all(link.attrib["aria-label"] for link in links)


def test_bars_are_of_their_kind() -> None:
    """Each event is a bar of its kind, with name, time, line and reason as its tooltip."""
    svg = drawing(page(usual()))
    kinds = [bar.attrib["class"] for bar in svg.iter("rect")]
    assert kinds == ["trace", "lowering", "compile"] * 3
    (title, *_) = [title.text or "" for title in svg.iter("title") if "0.1 -" in (title.text or "")]
    assert title.splitlines() == [
        "train_step: trace, 100 ms at 2.00 s",
        "churn.py:40  state = train_step(state, batch)",
        "traced, lowered and compiled again",
        "state.opt.lr: static: 0.1 -> 0.2",
    ]


def test_bars_stand_at_their_time() -> None:
    """The axis is linear: a bar at half of the time is at half of the width."""
    svg = drawing(page(report([event(start=0), event(start=5), event(start=9, seconds=1)])))
    first, half, last = (float(bar.attrib["x"].removesuffix("%")) for bar in svg.iter("rect"))
    assert half - first == pytest.approx((last - first) * 5 / 9, abs=0.01)


@pytest.mark.parametrize(
    ("seconds", "ticks"),
    [
        (10.0, ["0", "2 s", "4 s", "6 s", "8 s", "10 s"]),
        (0.9, ["0", "0.2 s", "0.4 s", "0.6 s", "0.8 s"]),
        (0.012, ["0", "5 ms", "10 ms"]),
        (4000.0, ["0", "1,000 s", "2,000 s", "3,000 s", "4,000 s"]),
    ],
)
def test_ticks_are_round(seconds: float, ticks: list[str]) -> None:
    """The ticks of the axis are at round numbers, few enough for a narrow page."""
    svg = drawing(page(report([event(seconds=seconds / 2)], seconds=seconds)))
    assert [text.text for text in svg.findall("text")] == ticks


def lanes(given: Report) -> list[str | None]:
    groups = drawing(page(given)).findall("g[@class='lane']")
    return [text.text for group in groups for text in group.findall("text")]


def test_eager_operations_are_one_lane() -> None:
    """Operations of JAX itself share the last lane."""
    eager = [event("compile", n, 0.9, name=f"op{n}", eager=True) for n in range(3)]
    given = report([*eager, event()], [function("eager operations", eager=True), function()])
    assert lanes(given) == ["train_step", "eager operations"]


def test_threads_have_lanes_of_their_own() -> None:
    """With several threads a lane is a function on a thread, and the threads stay together."""
    events = [event(start=n, thread=f"T{n % 2}", name="ab"[n // 2]) for n in range(4)]
    assert lanes(report(events)) == ["T0: a", "T0: b", "T1: a", "T1: b"]


def test_long_labels_are_cut() -> None:
    """The label of a lane is short enough for a narrow page, whatever the name."""
    (label,) = lanes(report([event(name="\x00" * 500)]))
    assert label is not None
    assert len(label) <= 40


@pytest.mark.slow
def test_crowd_is_cut_and_said_so() -> None:
    """Of thousands of events a bounded number is shown, and all numbers add up."""
    text = page(crowded())
    assert len(text) < 4_000_000
    words = said(text)
    bars = len(list(drawing(text).iter("rect")))
    assert bars == 2000
    hidden = re.search(r"30 more lanes with ([\d,]+) events not drawn", words)
    among = re.search(r"([\d,]+) events not drawn: 2,000 at most", words)
    assert hidden is not None
    assert among is not None
    left = sum(int(found[1].replace(",", "")) for found in (hidden, among))
    assert left + bars == 5000
    assert words.count("and 20 more reasons") == text.count("<details") == 100
    assert "and 2,400 more lines with 2,400 calls" in words


@pytest.mark.slow
def test_every_lane_of_a_crowd_has_bars() -> None:
    """A lane is never drawn empty, however many events others have."""
    for lane in drawing(page(crowded())).findall("g[@class='lane']"):
        assert lane.find(".//rect") is not None


def test_functions_are_cut_and_said_so() -> None:
    """Of many functions those that lost most are shown, and a sentence counts the rest."""
    many = [function(f"f{n}") for n in range(page_module.MOST_FUNCTIONS + 3)]
    text = said(page(report([], many)))
    assert "f199 " in text
    assert "f200 " not in text
    assert "and 3 more functions, with 6.75 s in all" in text


def test_function_row() -> None:
    """A function's row has name, place, counts and seconds; one of JAX itself has no place."""
    eager = function("eager operations", eager=True, cache_hits=7)
    text = said(page(report([], [function(), eager])))
    assert "train_step churn.py:12 3 4 4 0 250 ms 500 ms 1.50 s 2.25 s" in text
    assert "eager operations 3 4 4 7 250 ms" in text


def test_nothing_jitted() -> None:
    """A program that jits nothing gets one sentence, and no empty tables."""
    text = page(report())
    assert "Nothing was jitted." in said(text)
    assert "<table" not in text
    assert "<svg" not in text


def test_nothing_repeated() -> None:
    """A program without retraces is told so."""
    assert "Nothing was retraced or recompiled." in said(page(report(call(0, FIRST))))


@pytest.mark.parametrize("ended", ["ValueError: boom", "interrupted"])
def test_exit_is_shown(ended: str) -> None:
    """How the program ended is shown if it failed, and only then."""
    assert f"The program ended: {ended}" in said(page(report(exit=ended)))
    assert "The program ended" not in said(page(report(exit="0")))


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
    assert said(explanation(FIRST)) == "retrace: the first call: traced, lowered and compiled"


@pytest.mark.parametrize("bad", HOSTILE)
def test_explanation_is_escaped(bad: str) -> None:
    """Nothing in an explanation is taken for HTML."""
    worst = reason(bad, kind=bad, before=bad, after=bad, fix=bad)
    text = explanation(explained(worst, outcome=bad))
    assert set(Reader(text).tags) <= {*APART, "b", "table", "thead", "tbody", "code", "i"}
    assert html.escape(clean(bad)) in text


def test_explanation_is_cut_and_said_so() -> None:
    """Of thousands of reasons some are shown, and a sentence counts the rest."""
    text = explanation(explained(*[reason()] * 3000))
    assert text.count("state.opt.lr") == page_module.MOST_REASONS
    assert "and 2,980 more reasons" in text


def test_long_texts_are_cut_and_said_so() -> None:
    """A very long value is cut, with how long it is."""
    text = explanation(explained(reason(before="x" * 100_000)))
    assert len(text) < 5000
    assert "x... (100,000 characters)" in text


def test_repeats_are_drawn_first() -> None:
    """Where not all bars are drawn, those of retraces are, however short."""
    why = explained(reason())
    long = [event("compile", n / 100, 0.009) for n in range(2100)]
    made = report([*long, *(event(start=n, seconds=1e-4, explanation=why) for n in range(30))])
    svg = drawing(page(made))
    assert len(list(svg.iter("circle"))) == 30
    assert len(list(svg.iter("rect"))) == 2000


def test_values_are_cut_and_said_so() -> None:
    """Of many values of one path the first are shown, and a line counts the rest."""
    why = [explained(reason(before=str(n), after=str(n + 1))) for n in range(7)]
    made = report([event(start=n, explanation=each) for n, each in enumerate(why)])
    assert "0 → 1 1 → 2 and 5 more changes Make it" in said(page(made))
