"""Draw the pictures of README.md and docs/ from what the code does now.

Run `python docs/pictures.py` and look at them; a test holds them to the current output.
"""

import dataclasses
import functools
import io
from pathlib import Path

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.terminal_theme import TerminalTheme

import leafwise as lw
from leafwise.cli.report import print_run
from leafwise.cli.run import CheckOptions, CheckRun, check_class
from leafwise.cli.targets import CheckTarget

IMAGES = Path(__file__).parent / "images"
THEME = TerminalTheme(
    (250, 250, 250),
    (36, 41, 47),
    [
        *((36, 41, 47), (207, 34, 46), (17, 99, 41), (77, 45, 0)),
        *((9, 105, 218), (130, 80, 223), (27, 124, 131), (110, 119, 129)),
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


def draw_check() -> str:
    """Return the output of `leafwise check --fields` on `Params` as SVG."""
    report = check_class(CheckTarget(Params, "model.py:Params"), CheckOptions(laws=()))
    console = _console()
    print_run(CheckRun((report,), 1), console, verbose=True)
    return _svg(console, "check", "leafwise check --fields model.py")


def draw_check_warning() -> str:
    """Return the output of `leafwise check` on both classes as SVG."""
    both = (CheckTarget(Params, "model.py:Params"), CheckTarget(Plain, "model.py:Plain"))
    options = CheckOptions(examples=2)  # enough for a picture
    run = CheckRun(tuple(check_class(each, options) for each in both), 2)
    console = _console()
    print_run(run, console, verbose=False)
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
    """Return what `leafwise.show` makes of a model, as SVG."""
    table = jnp.zeros((1000, 64))
    layers = [
        Dense(jnp.zeros((64, 256)), jnp.zeros(256)),
        Dense(jnp.zeros((256, 64)), jnp.zeros(64), act="tanh"),
    ]
    console = _console()
    console.print(lw.show(Model(table, layers, table)))
    return _svg(console, "show", "rich.print(lw.show(model))")


def _console() -> Console:
    # A console of its own says it is a terminal, whatever standard output is.
    return Console(
        record=True, file=io.StringIO(), width=98, force_terminal=True, color_system="truecolor"
    )


def _svg(console: Console, name: str, title: str) -> str:
    svg = console.export_svg(title=title, theme=THEME, unique_id=name)
    return _without_fonts(svg)


def _without_fonts(svg: str) -> str:
    """Take the font downloads out of rich's SVG: the viewer uses its own."""
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
    "show.svg": draw_show,
}


def main() -> None:
    """Write every picture."""
    IMAGES.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (IMAGES / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
