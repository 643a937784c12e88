"""A report in the Chrome trace event format, which https://ui.perfetto.dev shows as a timeline."""

import dataclasses
from typing import Any, Final

from leafwise._display.shape import EventRecord, ExplanationRecord, ReasonRecord, Report
from leafwise._display.words import cut, described, outcome_of, place

_PROCESS: Final = 1
_LONGEST: Final = 400
_MOST_REASONS: Final = 20


@dataclasses.dataclass(slots=True)
class _Slice:
    """An event in whole nanoseconds, which is what Perfetto counts in."""

    start: int
    end: int
    event: EventRecord


def trace_events(report: Report) -> dict[str, Any]:
    """Return a report in the Chrome trace event format.

    Each thread is a track, each trace, lowering and compilation a slice; where JAX did
    something again, an instant event says so. Slices that overlap are cut until one is inside
    the other, or they are apart; ``args.seconds`` has the uncut time.

    Args:
        report: The report.

    Returns:
        A JSON object, for a file that ui.perfetto.dev opens.

    Examples:
        >>> Path("trace.json").write_text(json.dumps(trace_events(report)))  # doctest: +SKIP
    """
    threads: dict[str, int] = {}
    tracks: dict[int, list[EventRecord]] = {}
    for event in report["events"]:
        tid = threads.setdefault(event["thread"], len(threads) + 1)
        tracks.setdefault(tid, []).append(event)
    entries = [_metadata_entry("process_name", 0, {"name": cut(report["program"], _LONGEST)})]
    for thread, tid in threads.items():
        entries.append(_metadata_entry("thread_name", tid, {"name": cut(thread, _LONGEST)}))
        entries.append(_metadata_entry("thread_sort_index", tid, {"sort_index": tid}))
    for tid, events in tracks.items():
        for piece in _nested(events):
            entries.append(_slice_entry(piece, tid))
            why = piece.event["explanation"]
            if why is not None and why["nearest"] is not None:
                entries.append(_repeat_entry(piece, tid))
    other = {key: cut(report[key], _LONGEST) for key in ("leafwise", "jax", "python", "ended")}
    return {"traceEvents": entries, "displayTimeUnit": "ms", "otherData": other}


def _nested(events: list[EventRecord]) -> list[_Slice]:
    """Return slices of which any two are one inside the other, or apart: Perfetto wants that.

    JAX measures each event by itself, so that a trace may end a moment after the start of the
    lowering that follows it. Of two that overlap, the one that loses less is cut.
    """
    slices: list[_Slice] = []
    for event in events:
        start = round(event["start"] * 1e9)
        slices.append(_Slice(start, start + max(0, round(event["seconds"] * 1e9)), event))
    slices.sort(key=lambda piece: (piece.start, -piece.end))
    around: list[_Slice] = []
    for piece in slices:
        while around and piece.end > around[-1].end:
            outer = around[-1]
            if piece.start < outer.end and piece.end - outer.end < outer.end - piece.start:
                piece.end = outer.end
            else:
                outer.end = min(outer.end, piece.start)
                around.pop()
        around.append(piece)
    return slices


def _metadata_entry(name: str, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": _PROCESS, "tid": tid, "args": args}


def _slice_entry(piece: _Slice, tid: int) -> dict[str, Any]:
    event = piece.event
    args: dict[str, Any] = {"kind": event["kind"], "seconds": event["seconds"]}
    if event["site"] is not None:
        args["site"] = place(event["site"])
        args["in"] = cut(event["site"]["function"], _LONGEST)
        args["text"] = cut(event["site"]["text"], _LONGEST)
    if event["explanation"] is not None:
        args |= _explanation_args(event["explanation"])
    return {
        "ph": "X",
        "name": f"{event['kind']} {cut(event['name'], _LONGEST)}",
        "cat": "eager" if event["eager"] else event["kind"],
        "ts": piece.start / 1000,
        "dur": (piece.end - piece.start) / 1000,
        "pid": _PROCESS,
        "tid": tid,
        "args": args,
    }


def _repeat_entry(piece: _Slice, tid: int) -> dict[str, Any]:
    why = piece.event["explanation"]
    args = _explanation_args(why, 1) if why is not None else {}
    return {
        "ph": "i",
        "s": "t",
        "name": f"{args.get('outcome', 'again')} of {cut(piece.event['name'], _LONGEST)}",
        "cat": "repeat",
        "ts": piece.start / 1000,
        "pid": _PROCESS,
        "tid": tid,
        "args": args,
    }


def _explanation_args(explanation: ExplanationRecord, most: int = _MOST_REASONS) -> dict[str, Any]:
    """Return outcome, reasons and fix as texts, each fix once."""
    args: dict[str, Any] = {"outcome": cut(outcome_of(explanation), 80)}
    reasons, unsound = explanation["reasons"], explanation["unsound"]
    shown = reasons[:most], unsound[:most]
    for key, some in zip(("reasons", "unsound"), shown, strict=True):
        if some:
            args[key] = [_format_reason(reason) for reason in some]
    fixes = (reason["fix"] for some in shown for reason in some)
    if texts := list(dict.fromkeys(cut(each, _LONGEST) for each in fixes if each)):
        args["fix"] = texts
    left_out = len(reasons) + len(unsound) - sum(map(len, shown))
    if left_out:
        args["reasons left out"] = left_out
    return args


def _format_reason(reason: ReasonRecord) -> str:
    texts = (cut(reason[name], _LONGEST) for name in ("path", "kind", "change"))
    return described(*texts)
