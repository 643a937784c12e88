"""Draw the results: pictures for the documentation, and the tables of its page on speed.

Run `python bench/draw.py` after `nox -s bench -- --save` or `--curves`. Nothing is measured.
"""

import dataclasses
import hashlib
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import curves
import page
from compare import RESULTS
from curves import Curve
from libraries import BASELINE, MANY, OURS
from rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

IMAGES: Final = page.ROOT / "docs" / "images"

_INK: Final = "#808080"
"""Readable on white and on black, as are the colours: a picture does not know its page."""
_COLOURS: Final = {
    OURS: "#e8590c",
    "slots": "#f59f00",
    MANY: "#f59f00",
    BASELINE: "#339af0",
    "flax": "#22b8cf",
    "equinox": "#40a02b",
    "jdc": "#be4bdb",
    "penzai": "#9c7a5b",
    "jarp": "#e64980",
}
_STYLE: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "leafwise",
    "font.family": "sans-serif",
    "font.size": 10,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    **dict.fromkeys(
        (
            *("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor"),
            *("xtick.color", "ytick.color", "grid.color"),
        ),
        _INK,
    ),
}
_LABELS: Final = {BASELINE: "jax register_dataclass", MANY: "leafwise, many_statics=True"}


def draw_cost(rows: Sequence[Row]) -> str:
    """Return the cost table as bars, in multiples of jax's own."""
    chosen = [row for row in rows if row.table == "cost" and row.name in _SHOWN]
    names = [name for name in _COLOURS if any(name in row.figures for row in chosen)]
    names.remove(BASELINE)

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        width = 0.8 / len(names)
        for place, name in enumerate(names):
            heights = [row.relative(name, BASELINE) or 0.0 for row in chosen]
            xs = [x + (place - (len(names) - 1) / 2) * width for x in range(len(chosen))]
            bars = axes.bar(xs, [min(h, _TOP) for h in heights], width * 0.9)
            for bar, height in zip(bars, heights, strict=True):
                bar.set_color(_COLOURS[name])
                if height > _TOP:
                    axes.text(bar.get_x(), _TOP * 1.01, f"{height:.0f}", fontsize=7)
            bars.set_label(name)
        axes.axhline(1.0, color=_COLOURS[BASELINE], linewidth=1.2, label=_LABELS[BASELINE])
        axes.set_xticks(range(len(chosen)), [row.name for row in chosen])
        axes.set_ylabel("time, jax = 1")
        axes.set_ylim(0, _TOP * 1.08)
        axes.legend(ncols=5, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=8)

    return _svg(paint, (9, 4))


_TOP: Final = 3.0
"""Bars end here, with their height above them: equinox constructs twenty times slower."""
_SHOWN: Final = (
    "construct",
    *("flatten, 50", "unflatten, 50", "tree.map, 50", "jit in, 50", "jit in+out, 50"),
)


@dataclasses.dataclass(frozen=True)
class Panel:
    """One curve in a picture.

    Attributes:
        name: Of the curve.
        title: Above it.
        label: Of the horizontal axis.
        each: What the time is divided by the number of, if by anything.
    """

    name: str
    title: str
    label: str
    each: str = ""


def draw_curves(measured: Sequence[Curve], panels: Sequence[Panel]) -> str:
    """Return curves side by side."""
    named = {curve.name: curve for curve in measured}

    def paint(figure: "Figure") -> None:
        axes: Sequence[Axes] = figure.subplots(1, len(panels), squeeze=False)[0]
        for place, panel in zip(axes, panels, strict=True):
            _plot(place, named[panel.name], panel)
        lines, labels = axes[0].get_legend_handles_labels()
        figure.legend(lines, labels, ncols=4, loc="outside upper center", fontsize=9)

    return _svg(paint, (9, 3.6))


def _plot(axes: "Axes", curve: Curve, panel: Panel) -> None:
    from matplotlib.ticker import LogLocator  # noqa: PLC0415  # as below

    for contestant, values in curve.lines.items():
        axes.plot(
            curve.xs,
            [y / x if panel.each else y for x, y in zip(curve.xs, values, strict=True)],
            marker="o",
            markersize=3,
            linewidth=2.2 if contestant == OURS else 1.4,
            color=_COLOURS[contestant],
            label=_LABELS.get(contestant, contestant),
        )
    axes.set(title=panel.title, xlabel=panel.label, xscale="log")
    axes.set_ylabel(f"µs {panel.each or 'a call'}")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    if panel.each:
        axes.set_ylim(bottom=0)
    else:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:,g}")
    axes.minorticks_off()
    axes.grid(alpha=0.3, linewidth=0.5)


def _svg(paint: Callable[["Figure"], None], inches: tuple[float, float]) -> str:
    # Here, so that the tables of the page need no matplotlib.
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    buffer = io.StringIO()
    with rc_context(_STYLE):
        figure = Figure(figsize=inches, layout="constrained")
        paint(figure)
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


GROWTH: Final = {
    "speed-dispatch.svg": [
        Panel("dispatch-values", "dispatch among cached programs", "cached static values"),
        Panel("dispatch-entries", "dispatch, equal but distinct tuple", "entries of the tuple"),
    ],
    "speed-nodes.svg": [
        Panel("flatten-nodes", "flatten", "instances in a list", "an instance"),
        Panel("unflatten-nodes", "unflatten", "instances in a list", "an instance"),
    ],
    "speed-fields.svg": [
        Panel("flatten-fields", "flatten", "dynamic fields of one instance"),
        Panel("unflatten-fields", "unflatten", "dynamic fields of one instance"),
    ],
}
PICTURES: Final = ("speed-cost.svg", *GROWTH)


def draw_growth(folder: Path, images: Path) -> None:
    """Draw the curves that lie in a folder."""
    _, measured = curves.read(folder)
    for name, panels in GROWTH.items():
        _write(images / name, draw_curves(measured, panels), folder / curves.FILE)


def _write(path: Path, svg: str, source: Path) -> None:
    path.write_text(svg.replace("<svg ", f"<!-- {stamp(source)} -->\n<svg ", 1), encoding="utf-8")


def stamp(source: Path) -> str:
    """Return what tells in a picture from which figures it was drawn."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    return f"{source.name} {digest[:16]}"


def main() -> int:
    """Draw everything from the committed results."""
    newest = page.committed()[-1]
    IMAGES.mkdir(exist_ok=True)
    source = RESULTS / f"{newest.setting.minor}.json"
    _write(IMAGES / "speed-cost.svg", draw_cost(newest.rows), source)
    draw_growth(RESULTS, IMAGES)
    page.update()
    return 0


if __name__ == "__main__":
    sys.exit(main())
