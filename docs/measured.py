"""Write the tables of docs/explanation/loops.md, and draw its figure, from runs of the examples.

Run `python docs/measured.py` and look at them; a test holds them to what is measured now.
"""

import importlib
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from drawing import LETTER, MARGIN, WIDTH, Figure

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "explanation" / "loops.md"
FIGURE: Final = ROOT / "docs" / "images" / "loops-memory.svg"

_BLOCK: Final = re.compile(r"(?<=<!-- measured: )([\w-]+) -->\n.*?(?=<!-- end -->)", re.DOTALL)

Bytes = Mapping[str, Mapping[int, float]]
"""Memory for each way of keeping and number of steps."""


def filled(text: str, loops: Any, branches: Any) -> str:
    """Return a page with its tables regenerated.

    Args:
        text: The page.
        loops: What `examples/loops.py` reports.
        branches: What `examples/branches.py` reports.
    """
    made: dict[str, Callable[[], Iterable[tuple[str, ...]]]] = {
        "can": lambda: can_rows(loops),
        "costs": lambda: cost_rows(loops),
        "kept": lambda: kept_rows(loops),
        "branches": lambda: branch_rows(branches),
        "batches": lambda: batch_rows(branches),
    }
    return _BLOCK.sub(lambda found: f"{found[1]} -->\n\n{table(made[found[1]]())}\n\n", text)


def table(rows: Iterable[tuple[str, ...]]) -> str:
    """Return rows as Markdown, the first one as the head."""
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows]
    lines.insert(1, f"|{'---|' * (lines[0].count('|') - 1)}")
    return "\n".join(lines)


WHEN: Final = {
    "Python loop": "two or three steps; steps that differ",
    "scan": "the number of steps is known (the usual choice)",
    "fori_loop, bound an int": "the same, with an index and no list of results",
    "fori_loop, bound traced": "the number of steps changes from call to call",
    "while_loop": "the data says when to stop",
}


def can_rows(report: Any) -> Iterable[tuple[str, ...]]:
    """Yield what each loop can do."""
    yield "loop", "take it when", "`jvp`", "`grad`", "stops early"
    for name, row in report.loops.items():
        forward, reverse = ("no" if words else "yes" for words in (row.forward, row.reverse))
        stops = "yes" if row.stops else "an error" if isinstance(row.rounds, str) else "no"
        yield code(name), WHEN[name], forward, reverse, stops


def cost_rows(report: Any) -> Iterable[tuple[str, ...]]:
    """Yield what each loop costs."""
    yield "loop", "body traced", "other number of steps", "program", "memory of the gradient"
    for name, row in report.loops.items():
        yield (
            code(name),
            "once" if row.traced == 1 else "at each step",
            "retrace" if row.again else "same program",
            "grows" if row.growth > 1.2 else "constant size",
            "-" if row.back is None else "grows" if row.back > 0.5 else "constant",
        )


def code(name: str) -> str:
    """Return the name of a function as code, and what follows a comma as it is."""
    function, comma, rest = name.partition(",")
    return name if function.startswith("Python") else f"`{function}`{comma}{rest}"


KEEP: Final = {
    "scan": "there is enough memory",
    "checkpoint, dots_saveable": "products are expensive, and what follows them is cheap",
    "checkpoint": "memory runs out",
    "checkpoint, segments": "it still does",
    "checkpoint, weights in the carry": "never: let the body close over the weights",
}


def kept_rows(report: Any) -> Iterable[tuple[str, ...]]:
    """Yield what is kept of each step for the gradient."""
    yield "body of the scan", "kept of each step", "each step is taken", "when"
    for name in report.backward:
        times = {1: "once", 2: "twice", 3: "three times"}[report.times[name]]
        yield name.replace("scan", "plain"), what_is_kept(report, name), times, KEEP[name]


def what_is_kept(report: Any, name: str) -> str:
    """Describe how much memory each step adds."""
    kept, plain = report.kept(name), report.kept("scan")
    if kept < 0.5:
        sizes = report.backward[name]
        first, second, third = (sizes[steps] for steps in (16, 64, 256))
        assert math.isclose((third - second) / (second - first), 2, rel_tol=0.2)
        return "less and less: in total, the square root of the steps"
    if math.isclose(kept, 1, rel_tol=0.1):
        return "the carry"
    if kept > 2 * plain:
        return "the weights and the carry"
    return "all that the step computed" if kept >= plain else "the carry and the products"


CHOOSE: Final = {
    "Python if": "the condition depends on statics or shapes",
    "cond": "one side is expensive, or must not run",
    "switch": "the same with many sides",
    "where, select": "both sides are cheap and harmless",
    "where, safe inside": "one side has no finite gradient there",
}


def branch_rows(report: Any) -> Iterable[tuple[str, ...]]:
    """Yield what each way of choosing does."""
    yield "way", "sides that run", "under `vmap`", "gradient of a side not taken", "when"
    for name, row in report.branches.items():
        ran = [{0: "an error", 1: "one", 2: "both"}[len(side)] for side in (row.sides, row.mapped)]
        slopes = row.slope, row.mapped_slope
        leaks = "-" if row.refused else "left out" if slopes == (0, 0) else "may give NaN"
        yield code(name), *ran, leaks, CHOOSE[name]


THROUGH: Final = {
    "vmap": "there is enough memory: this is the fastest",
    "lax.map": "there is memory for only one example",
    "lax.map, batch_size=8": "there is memory for eight: choose the size accordingly",
}


def batch_rows(report: Any) -> Iterable[tuple[str, ...]]:
    """Yield how memory grows with a batch."""
    yield "way", "scratch memory", "when"
    for name, (few, many) in report.batches.items():
        grows = many / few > 1.5
        yield f"`{name}`", "grows with the batch" if grows else "constant", THROUGH[name]


# The figure.

TITLE: Final = "Scratch memory of the gradient of a scan"
LEFT, TOP, RIGHT, BOTTOM = 58, 40, 416, 310
ROLE: Final = {
    "scan": "node",
    "checkpoint, dots_saveable": "static",
    "checkpoint": "leaf",
    "checkpoint, segments": "note",
    "checkpoint, weights in the carry": "problem",
}


def describe(sizes: Bytes) -> str:
    """Return the numbers of the figure as text that `read` parses."""
    parts = [
        f"{name}: " + ", ".join(f"{size:.1f} at {steps}" for steps, size in each.items())
        for name, each in sizes.items()
    ]
    return "KiB at a number of steps. " + "; ".join(parts) + "."


def read(svg: str) -> Bytes:
    """Return the numbers that a figure was drawn from."""
    found = re.search(r"<desc>KiB at a number of steps\. (.*)\.</desc>", svg)
    assert found is not None
    pairs = (part.split(": ") for part in found[1].split("; "))
    numbers = re.compile(r"([\d.]+) at (\d+)")
    return {
        name: {int(steps): float(size) for size, steps in numbers.findall(each)}
        for name, each in pairs
    }


def draw(sizes: Bytes) -> str:
    """Return the curves, both axes logarithmic, from KiB."""
    figure = Figure(TITLE, describe(sizes))
    figure.note(MARGIN, 24, "KiB")
    lowest, highest = 4, 2048

    def at(steps: float, size: float) -> tuple[float, float]:
        across = math.log(steps / 16) / math.log(256 / 16)
        up = math.log(size / lowest) / math.log(highest / lowest)
        return LEFT + across * (RIGHT - LEFT), BOTTOM - up * (BOTTOM - TOP)

    size = lowest
    while size <= highest:
        y = at(16, size)[1]
        figure.guide([(LEFT, y), (RIGHT, y)])
        figure.note(LEFT - 8 - LETTER * len(str(size)), y + 4, str(size))
        size *= 4
    for steps in (16, 64, 256):
        x = at(steps, lowest)[0]
        words = f"{steps} steps" if steps == 64 else str(steps)
        figure.note(x - LETTER * len(words) / 2, BOTTOM + 20, words)
    for place, (name, each) in enumerate(sizes.items()):
        points = [at(steps, size) for steps, size in each.items()]
        figure.line(points, ROLE[name])
        y = BOTTOM + 52 + 20 * place
        figure.line([(LEFT, y - 4), (LEFT + 26, y - 4)], ROLE[name])
        figure.text(LEFT + 36, y, name)
    assert WIDTH > RIGHT
    return figure.svg()


def kib(report: Any) -> Bytes:
    """Return the measured memory in KiB."""
    return {
        name: {steps: round(size / 1024, 1) for steps, size in sizes.items()}
        for name, sizes in report.backward.items()
    }


def main() -> None:
    """Run the examples; write the tables and the figure."""
    sys.path.insert(0, str(ROOT / "examples"))
    loops = importlib.import_module("loops").main()
    branches = importlib.import_module("branches").main()
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(filled(text, loops, branches), encoding="utf-8")
    FIGURE.write_text(draw(kib(loops)), encoding="utf-8")


if __name__ == "__main__":
    main()
