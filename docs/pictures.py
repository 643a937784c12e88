"""Draw the pictures of README.md and docs/ from what the code does now.

Run `python docs/pictures.py` and look at them; a test holds them to the current output.
"""

import io
from pathlib import Path

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.terminal_theme import TerminalTheme

import leafwise as lw
from leafwise.check.observe import check_class
from leafwise.check.report import print_reports
from leafwise.check.targets import Target

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


def draw_check() -> str:
    """Return the output of `leafwise check` on `Params` as SVG."""
    # A console of its own says it is a terminal, whatever standard output is.
    console = Console(
        record=True, file=io.StringIO(), width=98, force_terminal=True, color_system="truecolor"
    )
    report = check_class(Target(Params, "model.py:Params"))
    print_reports([report], console)
    svg = console.export_svg(title="leafwise check model.py", theme=THEME, unique_id="check")
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


PICTURES = {"check.svg": draw_check}


def main() -> None:
    """Write every picture."""
    IMAGES.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (IMAGES / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
