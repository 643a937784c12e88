"""The timeline of a report, as SVG that takes the width of the page.

Across, everything is in percent, so that text keeps its size at any width; down, in pixels.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Final

from leafwise._display.html import safe
from leafwise._display.shape import EventRecord, Report
from leafwise._display.words import clean, count, cut, duration, is_repeat, place, sentence

MOST_LANES: Final = 30
MOST_BARS: Final = 2000
LEAST_BARS: Final = 20

# From the top of a lane down: its label, the marks, and a row for each kind of bar, so that
# a bar widened to be seen never covers one of another kind.
_LABEL, _MARK, _BAR, _GAP, _MARGIN = 15, 9, 7, 2, 9
_LANE: Final = _LABEL + _MARK + 3 * (_BAR + _GAP) + _MARGIN
_AXIS: Final = 20
_ROWS: Final = {"trace": 0, "lowering": 1, "compile": 2, "cache hit": 2}
_CLASSES: Final = {"trace": "trace", "lowering": "lowering", "compile": "compile"}
_LEGEND: Final = (
    ("trace", "trace"),
    ("lowering", "lowering"),
    ("compile", "compile"),
    ("cache", "found in the cache on disk"),
)
_LEFT, _WIDE = 0.6, 98.8
_LONGEST_LABEL: Final = 40
_EAGER: Final = "eager operations"


@dataclasses.dataclass(slots=True)
class _Lane:
    thread: str
    label: str
    eager: bool
    events: list[EventRecord] = dataclasses.field(default_factory=list["EventRecord"])
    seconds: float = 0.0


def timeline(report: Report, anchors: Mapping[int, str]) -> str:
    """Return legend, drawing, and a sentence for what is left out.

    Args:
        report: The report.
        anchors: By the `id` of an event, the id of the element of the page that explains it.
    """
    lanes = _lanes(report)
    threads = list(dict.fromkeys(event["thread"] for event in report["events"]))
    shown = sorted(lanes[:MOST_LANES], key=lambda lane: threads.index(lane.thread))
    kept = _most_telling(shown)
    span = max([report["seconds"], *(event["start"] + event["seconds"] for event in kept.values())])
    scale = span if span > 0 else 1.0
    height = _AXIS + len(shown) * _LANE
    parts = [
        _legend(report),
        f'<svg class="timeline" width="100%" height="{height}" role="group" '
        f'aria-label="Timeline of {count(len(kept), "event")}">',
        _axis(scale, height),
    ]
    linked: set[str] = set()
    for number, lane in enumerate(shown):
        top = _AXIS + number * _LANE
        label = safe(_shorten(clean(lane.label)))
        parts.append(f'<g class="lane"><text x="0" y="{top + 11}">{label}</text>')
        drawn = [event for event in lane.events if id(event) in kept]
        parts += [_bar(event, top, scale) for event in drawn]
        for event in drawn:
            if is_repeat(event):
                parts.append(_mark(event, top, scale, anchors.get(id(event)), linked))
        parts.append("</g>")
    parts.append("</svg>")
    parts += _left_out(lanes, len(kept))
    return "\n".join(parts)


def _lanes(report: Report) -> list[_Lane]:
    """Return a lane for each function on each thread, those with most seconds first."""
    threads = {event["thread"] for event in report["events"]}
    eager = next((each["name"] for each in report["functions"] if each["eager"]), _EAGER)
    lanes: dict[tuple[str, str, bool], _Lane] = {}
    for event in report["events"]:
        thread, is_eager = event["thread"], event["eager"]
        name = eager if is_eager else event["name"]
        key = thread, name, is_eager
        if key not in lanes:
            label = f"{thread}: {name}" if len(threads) > 1 else name
            lanes[key] = _Lane(thread, label, is_eager)
        lanes[key].events.append(event)
        lanes[key].seconds += event["seconds"]
    # Eager operations last: they are the background.
    return sorted(lanes.values(), key=lambda lane: (lane.eager, -lane.seconds))


def _shorten(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 3]}..."


def _most_telling(lanes: list[_Lane]) -> dict[int, EventRecord]:
    """Return the events to draw: of each lane a few, then repeats, then what took longest."""
    ranked: list[tuple[bool, bool, float, EventRecord]] = []
    for lane in lanes:
        best = sorted(lane.events, key=lambda event: (not is_repeat(event), -event["seconds"]))
        ranked += [
            (place >= LEAST_BARS, not is_repeat(event), -event["seconds"], event)
            for place, event in enumerate(best)
        ]
    ranked.sort(key=lambda entry: entry[:3])
    return {id(event): event for *_, event in ranked[:MOST_BARS]}


def _axis(span: float, height: int) -> str:
    step = _step(span / 5)
    unit, size = ("s", 1.0) if step >= 0.1 else ("ms", 1e-3) if step >= 1e-4 else ("us", 1e-6)  # noqa: PLR2004
    digits = max(0, -math.floor(math.log10(step / size) + 1e-9))
    lines: list[str] = []
    for number in range(math.floor(span / step + 1e-9) + 1):
        x = _across(number * step, span)
        anchor = "start" if number == 0 else "end" if x > 92 else "middle"  # noqa: PLR2004
        label = f"{number * step / size:,.{digits}f} {unit}" if number else "0"
        lines.append(
            f'<line class="tick" x1="{x:.3f}%" x2="{x:.3f}%" y1="{_AXIS - 4}" y2="{height}"/>'
            f'<text x="{x:.3f}%" y="11" text-anchor="{anchor}">{label}</text>'
        )
    return "\n".join(lines)


def _step(least: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(times * power for times in (1, 2, 5, 10) if times * power >= least * (1 - 1e-9))


def _across(seconds: float, span: float) -> float:
    return _LEFT + _WIDE * min(1.0, max(0.0, seconds / span))


def _bar(event: EventRecord, top: int, span: float) -> str:
    x = _across(event["start"], span)
    width = max(0.0, _across(event["start"] + event["seconds"], span) - x)
    y = top + _LABEL + _MARK + _ROWS[event["kind"]] * (_BAR + _GAP)
    kind = _CLASSES.get(event["kind"], "cache")
    return (
        f'<rect class="{kind}" x="{x:.3f}%" y="{y}" width="{max(width, 0.001):.3f}%" '
        f'height="{_BAR}"><title>{_tooltip(event)}</title></rect>'
    )


def _mark(event: EventRecord, top: int, span: float, anchor: str | None, linked: set[str]) -> str:
    x = _across(event["start"], span)
    dot = (
        f'<circle class="again" cx="{x:.3f}%" cy="{top + _LABEL + 4}" r="4">'
        f"<title>{_tooltip(event)}</title></circle>"
    )
    if anchor is None:
        return dot
    # One stop of the tab key for each explanation, not for each of its calls.
    skip = ' tabindex="-1"' if anchor in linked else ""
    linked.add(anchor)
    label = safe(f"{event['name']}, why again, at {duration(event['start'])}", 120)
    return f'<a href="#{anchor}" aria-label="{label}"{skip}>{dot}</a>'


def _tooltip(event: EventRecord) -> str:
    lines = [
        f"{cut(event['name'], 80)}: {event['kind']}, {duration(event['seconds'])} "
        f"at {duration(event['start'])}"
    ]
    if event["site"] is not None:
        lines.append(f"{place(event['site'])}  {cut(event['site']['text'].strip(), 100)}")
    explanation = event["explanation"]
    if explanation is not None:
        lines.append(sentence(explanation))
        every = explanation["reasons"] + explanation["unsound"]
        for reason in every[:1]:
            values = f"{cut(reason['before'], 60)} -> {cut(reason['after'], 60)}"
            lines.append(f"{cut(reason['path'], 100)}: {cut(reason['kind'], 40)}: {values}")
        if len(every) > 1:
            lines.append(f"and {count(len(every) - 1, 'more reason')}")
    return "\n".join(safe(line) for line in lines)


def _legend(report: Report) -> str:
    kinds = {_CLASSES.get(event["kind"], "cache") for event in report["events"]}
    items = [
        f'<li><svg aria-hidden="true" viewBox="0 0 12 12"><rect class="{kind}" x="1" y="1" '
        f'width="10" height="10"/></svg>{words}</li>'
        for kind, words in _LEGEND
        if kind in kinds
    ]
    if any(is_repeat(event) for event in report["events"]):
        items.append(
            '<li><svg aria-hidden="true" viewBox="0 0 12 12"><circle class="again" cx="6" cy="6" '
            'r="5"/></svg>retrace or recompilation: select it for the reason</li>'
        )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _left_out(lanes: list[_Lane], drawn: int) -> list[str]:
    hidden = lanes[MOST_LANES:]
    sentences: list[str] = []
    if hidden:
        events = sum(len(lane.events) for lane in hidden)
        sentences.append(
            f"{count(len(hidden), 'more lane')} with {count(events, 'event')} not drawn: "
            f"those are drawn where most time was lost, {MOST_LANES} at most."
        )
    among = sum(len(lane.events) for lane in lanes[:MOST_LANES])
    if among > drawn:
        sentences.append(
            f"{count(among - drawn, 'event')} not drawn: {MOST_BARS:,} at most are, "
            f"{LEAST_BARS} of each lane and the other retraces and recompilations first, "
            "then those that took longest."
        )
    return [f'<p class="left-out">{sentence}</p>' for sentence in sentences]
