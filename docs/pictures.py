"""Draw the pictures of README.md and docs/ from what the code does now.

Run `nox -s pictures` and look at them; a test holds them to the current output. Times are those of
a run that is kept next to the pictures: `nox -s pictures -- --record` makes one, of a commit and on
a machine that does nothing else.
"""

import contextlib
import dataclasses
import difflib
import functools
import io
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.terminal_theme import TerminalTheme

import leafwise as lw
from leafwise._display import tables
from leafwise._findings.findings import findings, functions_of
from leafwise._findings.first_compiles import first_findings
from leafwise._findings.json import from_json, to_json
from leafwise._findings.records import EventRecord
from leafwise._findings.report import Report
from leafwise.cli import explain_script
from leafwise.cli.check_classes import CheckOptions, check_class
from leafwise.cli.check_report import CheckPrinter
from leafwise.cli.check_result import CheckRun
from leafwise.cli.check_targets import CheckTarget

IMAGES = Path(__file__).parent / "images"
LIGHT = TerminalTheme(
    (250, 250, 250),
    (36, 41, 47),
    [
        *((36, 41, 47), (207, 34, 46), (17, 99, 41), (77, 45, 0)),
        *((9, 105, 218), (130, 80, 223), (27, 124, 131), (110, 119, 129)),
    ],
)
DARK = TerminalTheme(
    (22, 27, 34),
    (230, 237, 243),
    [
        *((230, 237, 243), (255, 123, 114), (63, 185, 80), (210, 153, 34)),
        *((88, 166, 255), (188, 140, 255), (57, 197, 207), (139, 148, 158)),
    ],
)


@lw.pytree
class Params:
    """The class of the README."""

    w: jax.Array = lw.field(default_factory=lambda: jnp.ones(3))
    lr: float = 0.1
    depth: int = lw.static_field(default=2)
    act: lw.Static[str] = "relu"


@functools.partial(jax.tree_util.register_dataclass, data_fields=["w"], meta_fields=["depth"])
@dataclasses.dataclass
class Plain:
    """A class without leafwise."""

    w: jax.Array = dataclasses.field(default_factory=lambda: jnp.ones(3))
    depth: int = 2


def _print_run(run: CheckRun, console: Console, *, verbose: bool = False) -> None:
    printer = CheckPrinter(console, verbose=verbose)
    printer.start([result.name for result in run.classes])
    for result in run.classes:
        printer.add(result)
    printer.finish(run)


def draw_check() -> str:
    """Return the output of `leafwise check --fields` on `Params` as SVG."""
    result = check_class(CheckTarget(Params, "model.py:Params"), CheckOptions(laws=()))
    console = _console()
    _print_run(CheckRun((result,)), console, verbose=True)
    return _svg(console, "check", "leafwise check --fields model.py")


def draw_check_warning() -> str:
    """Return the output of `leafwise check` on both classes as SVG."""
    both = (CheckTarget(Params, "model.py:Params"), CheckTarget(Plain, "model.py:Plain"))
    options = CheckOptions(examples=2)  # enough for a picture
    run = CheckRun(tuple(check_class(each, options) for each in both))
    console = _console(width=106)  # of its longest line
    _print_run(run, console)
    return _svg(console, "check-warning", "leafwise check model.py")


@lw.pytree
class Dense:
    """A layer."""

    w: jax.Array
    b: jax.Array
    act: lw.Static[str] = "relu"


@lw.pytree
class Model:
    """Two layers between a table and the same table."""

    table: jax.Array
    layers: list[Dense]
    readout: jax.Array
    dropout: float = 0.1
    heads: int = lw.static_field(default=4)


def draw_show() -> str:
    """Return the output of `leafwise.show` for a model, as SVG."""
    table = jnp.zeros((1000, 64))
    layers = [
        Dense(jnp.zeros((64, 256)), jnp.zeros(256)),
        Dense(jnp.zeros((256, 64)), jnp.zeros(64), act="tanh"),
    ]
    console = _console(width=64)
    console.print(lw.show(Model(table, layers, table)))
    return _svg(console, "show", "rich.print(lw.show(model))")


TRAIN = """\
import functools

import jax
import jax.numpy as jnp
import numpy as np


def mlp(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return x


def mse(weights, x):
    return jnp.mean((mlp(weights, x) - 1) ** 2)


@functools.partial(jax.jit, static_argnames="loss")
def step(w, x, loss):
    return jax.tree.map(lambda w, g: w - 0.1 * g, w, jax.grad(loss)(w, x))


@jax.jit
def score(w, x, n):  # rows after the first n are not counted
    error = jnp.abs(mlp(w, x) - 1).mean(axis=1)
    return error.sum(where=jnp.arange(len(x)) < n) / n


w = [np.eye(32, dtype="float32")] * 4
data = np.random.default_rng(0).random((160, 32), "float32")
for n in range(16, 160, 16):
    for _ in range(3):
        w = step(w, data, loss=lambda w, x: mse(w, x))
    error = score(w, data[:n], n)
"""
FIXED = TRAIN.replace("loss=lambda w, x: mse(w, x)", "loss=mse").replace("data[:n]", "data")
SCRIPTS = {"before": TRAIN, "after": FIXED}
RUNS = IMAGES / "explain.json"
"""The runs of both scripts that the picture shows, and when, where and of what they were made."""


def draw_explain() -> str:
    """Return the report on a script, its fix, and the report on the fixed script, as SVG."""
    return _svg(print_explained(*recorded()), "explain", "leafwise explain train.py")


def print_explained(before: Report, after: Report) -> Console:
    """Return a console with the report on a script, its fix, and the report on the fixed script."""
    console = _console(width=64)  # so that a phone shows it in letters of ten pixels
    tables.print_report(before, console)
    console.print("\n[dim]$[/] git diff")
    for line in difflib.ndiff(TRAIN.splitlines(), FIXED.splitlines()):
        if line[0] in "+-":
            console.print(line, style="green" if line[0] == "+" else "red", highlight=False)
    console.print("\n[dim]$[/] leafwise explain train.py")
    tables.print_report(after, console)
    return console


def explained(code: str) -> Report:
    """Run a script, and return the report on it."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("train.py").write_text(code, encoding="utf-8")
        script = explain_script.Script("train.py", (), is_module=False)
        report, _ = explain_script.run(script, {"captures": False, "audit": False})
    return report


def record() -> None:
    """Run both scripts, and keep what was measured.

    Raises:
        SystemExit: If what was kept would not give the reports as they were printed.
    """
    commit = ["git", "rev-parse", "--short=12", "HEAD"]
    reports = {name: explained(code) for name, code in SCRIPTS.items()}
    runs = {
        "date": datetime.now(tz=UTC).date().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "python": reports["before"].python,
        "jax": reports["before"].jax,
        "commit": subprocess.check_output(commit, text=True).strip(),  # noqa: S603  # git
    } | {
        name: {"seconds": report.seconds, "events": to_json(report.events)}
        for name, report in reports.items()
    }
    RUNS.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    pairs = print_explained(*reports.values()), print_explained(*recorded())
    printed, drawn = (console.export_text() for console in pairs)
    if printed != drawn:
        raise SystemExit(f"the record gives another report:\n{printed}\n{drawn}")


def recorded() -> list[Report]:
    """Return the reports of the recorded runs."""
    runs = json.loads(RUNS.read_text(encoding="utf-8"))
    return [_report(runs, name) for name in SCRIPTS]


def _report(runs: dict[str, Any], name: str) -> Report:
    """Return the report of one of the recorded runs."""
    events = from_json(list[EventRecord], runs[name]["events"])
    return Report(
        version=1,
        leafwise=lw.__version__,
        jax=runs["jax"],
        python=runs["python"],
        program="train.py",
        seconds=runs[name]["seconds"],
        exit=0,
        ended="",
        functions=functions_of(events),
        events=events,
        warnings=[],
        findings=findings(events),
        first=first_findings(events),
    )


def _console(width: int = 98) -> Console:
    # A console of its own says it is a terminal, whatever standard output is.
    return Console(
        record=True, file=io.StringIO(), width=width, force_terminal=True, color_system="truecolor"
    )


def _svg(console: Console, name: str, title: str) -> str:
    light, dark = (
        _without_fonts(console.export_svg(title=title, theme=theme, unique_id=name, clear=False))
        for theme in (LIGHT, DARK)
    )
    rules = re.findall(rf"^ *(\.{name}-r\d+ {{.*}})$", dark, re.MULTILINE)
    rules += [
        f".{name}-title {{ fill: {DARK.foreground_color.hex} }}",
        f'rect[fill="{LIGHT.background_color.hex}"] {{ fill: {DARK.background_color.hex} }}',
    ]
    block = "\n".join(["@media (prefers-color-scheme: dark) {", *rules, "}"])
    light = light.replace("</style>", f"{block}\n    </style>", 1)
    # It would cut the last line through its descenders.
    return light.replace(f' clip-path="url(#{name}-clip-terminal)"', "")


def _without_fonts(svg: str) -> str:
    """Remove the font downloads from rich's SVG: the viewer uses its own fonts."""
    kept: list[str] = []
    inside = False
    for line in svg.splitlines():
        inside = inside or "@font-face" in line
        if not inside:
            kept.append(line.rstrip())
        elif line.strip() == "}":
            inside = False
    return "\n".join(kept).replace("Fira Code, monospace", "ui-monospace, monospace") + "\n"


PICTURES = {
    "check.svg": draw_check,
    "check-warning.svg": draw_check_warning,
    "explain.svg": draw_explain,
    "show.svg": draw_show,
}


def main() -> None:
    """Write every picture."""
    if "--record" in sys.argv:
        record()
    IMAGES.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (IMAGES / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
