"""The table and the picture of docs/explanation/speed.md, made from the committed results.

Run `python bench/page.py` after `nox -s bench -- --save`. Nothing is measured.
"""

import hashlib
import io
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import compare
import report
import steps
from libraries import BASELINE, OURS
from report import Report
from rows import Row, best_peer

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "explanation" / "speed.md"
IMAGE: Final = ROOT / "docs" / "images" / "speed-steps.svg"

_BLOCK: Final = re.compile(r"(?<=<!-- bench -->\n).*?(?=<!-- end -->)", re.DOTALL)

REASONS: Final = {
    steps.ADAM: "unflatten is generated, and calls no `__init__`",
    steps.RL: "the same, in two calls",
    steps.ODE: "the same",
    "construct": "statics that were seen last are recognised by identity",
    "flatten, 50": "one Python call for each instance; JAX reads its own classes in C++",
    "unflatten, 50": "a new instance gets its `__dict__` at once",
    "tree.map, 50": "flatten and unflatten",
    "jit in, 50": "flatten alone",
    "jit in+out, 50": "flatten and unflatten",
    "dispatch, 600 cached static values": "JAX searches the programs of one structure one by one",
    "dispatch, an equal but distinct tuple of 10,000": "equal statics are one object",
    "construct, three statics never seen": "they are read all the way down, once for each value",
    "call under lw.jit, an instance": "a call is passed on to what `jax.jit` made",
    "call under lw.jit, 3 captures": "they are compared before each call",
    "call under lw.jit, an optimizer of optax captured": "the same",
    "call under lw.jit, an MLP of equinox captured": "the same, each field of each layer",
    f"{steps.ADAM}, under lw.jit": "the same, in a whole step",
}
"""The rows that the page shows, and what each comes from."""


def committed() -> list[Report]:
    """Return the committed results, the newest Python last."""
    paths = sorted(compare.RESULTS.glob("3.*.json"), key=lambda path: int(path.stem[2:]))
    return [Report.from_json(json.loads(path.read_text(encoding="utf-8"))) for path in paths]


def filled(text: str, newest: Report) -> str:
    """Return a page with its table recreated."""
    return _BLOCK.sub(lambda _: f"\n{table(newest.rows)}\n\n", text)


def table(rows: Sequence[Row]) -> str:
    """Return what the page shows of the rows."""
    named = {row.name: row for row in rows}
    head = ["", "the best other", OURS, "ratio", "why"]
    shown = report.markdown([head, *(_line(named[name], why) for name, why in REASONS.items())])
    return shown.replace(" ---: |\n", " --- |\n", 1)  # words stand on the left


def _line(row: Row, why: str) -> list[str]:
    against = best_peer(row.figures) or BASELINE
    other = f"{report.amount(row.figures[against], row.unit)} ({against})"
    ratio = row.ours / row.figures[against]
    return [row.name, other, report.amount(row.ours, row.unit), report.times(ratio), why]


_INK: Final = "#808080"
"""Readable on white and on black, as are the colours: a picture does not know its page."""
_COLOURS: Final = {
    OURS: "#e8590c",
    "jarp": "#e64980",
    BASELINE: "#339af0",
    "flax": "#9c7a5b",
    "equinox": "#40a02b",
    "jdc": "#be4bdb",
    "dict": "#868e96",
}
_STYLE: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "leafwise",
    "font.family": "sans-serif",
    "font.size": 11,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK
    ),
}


def drawn(rows: Sequence[Row]) -> str:
    """Return whole steps as bars, in multiples of jax's own classes."""
    # Here, so that the table needs no matplotlib.
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    named = {row.name: row for row in rows}
    chosen = [named[name] for name in steps.STEPS]
    names = [name for name in _COLOURS if name in chosen[0].figures]
    buffer = io.StringIO()
    with rc_context(_STYLE):
        figure = Figure(figsize=(9, 3.8), layout="constrained")
        axes = figure.subplots()
        width = 0.8 / len(names)
        for place, name in enumerate(names):
            heights = [row.figures[name] / row.figures[BASELINE] for row in chosen]
            xs = [x + (place - (len(names) - 1) / 2) * width for x in range(len(chosen))]
            axes.bar(xs, heights, width * 0.9, color=_COLOURS[name], label=name)
        axes.axhline(1.0, color=_COLOURS[BASELINE], linewidth=1, zorder=0)  # behind the bars
        axes.set_xticks(range(len(chosen)), [row.name for row in chosen])
        axes.set_ylabel(f"time, {BASELINE} = 1")
        axes.legend(ncols=len(names), loc="lower center", bbox_to_anchor=(0.5, 1.0))
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def stamp(newest: Report) -> str:
    """Return what shows in a picture from which figures it was drawn."""
    source = compare.RESULTS / f"{newest.setting.minor}.json"
    return f"{source.name} {hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"


def main() -> int:
    """Write the table, the picture, and all figures as Markdown."""
    reports = committed()
    newest = reports[-1]
    for each in reports:
        path = compare.RESULTS / f"{each.setting.minor}.md"
        path.write_text(report.as_markdown(each), encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), newest), encoding="utf-8")
    svg = drawn(newest.rows).replace("<svg ", f"<!-- {stamp(newest)} -->\n<svg ", 1)
    IMAGE.write_text(svg, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
