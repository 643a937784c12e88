"""Draw the figures of docs/explanation/ from what JAX does now.

Run `python docs/figures.py` and look at them; a test holds them to the current output.
"""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from drawing import LETTER, LINE, MARGIN, WIDTH, Figure, Span

import leafwise as lw

IMAGES = Path(__file__).parent / "images"
INNER = WIDTH - 2 * MARGIN


# What is dynamic, static, captured.


@lw.pytree
class Fit:
    """Weights, and a static power."""

    w: jax.Array
    power: int = lw.static_field(default=3)


rate = 0.5
scale = jnp.array([1.0, 0.5, 0.25])


@jax.jit
def step(fit, x):  # noqa: ANN001, ANN201  # as one writes it
    return fit.w - rate * scale * x**fit.power


CODE = """\
rate = 0.5
scale = jnp.array([1.0, 0.5, 0.25])

@jax.jit
def step(fit, x):
    return fit.w - rate * scale * x**fit.power
"""
KINDS = {"fit.w": "leaf", "x": "leaf", "fit.power": "static", "rate": "problem", "scale": "problem"}
"""The names in the code, and their colours: dynamic, static, captured."""


def draw_captured() -> str:
    """Return where three kinds of values go: arguments, the key, the program."""
    x = jnp.ones(3)
    jaxpr = str(step.trace(Fit(x), x).jaxpr)
    figure = Figure(
        "Dynamic, static, captured",
        "A function reads fit.w and x, which are dynamic, fit.power, which is static, and rate and "
        "scale, which it captures. Dynamic values give shape and dtype to the key and are "
        "arguments of the program; the static value is in the key; the captured ones are "
        "baked into the jaxpr, rate as a literal and scale as a constant.",
    )
    assert inspect.getsource(step).splitlines()[-1] in CODE
    y = MARGIN + 14.0
    y = figure.lines(MARGIN + 10, y, [list(coloured(line)) for line in CODE.splitlines()])
    figure.box(MARGIN, 6, INNER, y - 20)
    top = y - 14
    columns = (
        ("leaf", "dynamic", "fit.w, x"),
        ("static", "static", "fit.power"),
        ("problem", "captured", "rate, scale"),
    )
    width = (INNER - 2 * 20) / 3
    lefts = [MARGIN + place * (width + 20) for place in range(3)]
    kinds = top + 26
    for left, (role, kind, names) in zip(lefts, columns, strict=True):
        figure.arrow([(left + width / 2, top), (left + width / 2, kinds)])
        figure.box(left, kinds, width, 50, role)
        figure.text(left + 10, kinds + 20, [(f"{role} strong", kind)])
        figure.text(left + 10, kinds + 40, [(role, names)])
    key = kinds + 50 + 46
    for left, words in zip(lefts[:2], ("shape, dtype", "value, type"), strict=True):
        figure.arrow([(left + 16, kinds + 50), (left + 16, key)])
        figure.note(left + 26, kinds + 50 + 26, words)
    for row, words in enumerate(("the value,", "read once,", "at the", "trace")):
        figure.note(lefts[2] + 26, kinds + 76 + 18 * row, words)
    across = lefts[2] - 20 - MARGIN + 10
    figure.box(MARGIN, key, across, 50)
    figure.text(MARGIN + 10, key + 20, [("strong", "key")])
    leaves = ", ".join(re.findall(r"\w+:(\w+\[\d*\])", jaxpr.partition(";")[2].partition(".")[0]))
    figure.text(MARGIN + 10, key + 40, [("static", "Fit(power=3)"), ("leaf", f"  {leaves}")])
    program = key + 50 + 36
    figure.arrow([(MARGIN + 16, key + 50), (MARGIN + 16, program)])
    figure.note(MARGIN + 26, key + 72, "selects")
    figure.arrow([(lefts[2] + 16, kinds + 50), (lefts[2] + 16, program)])
    lines = [list(tokens(line, jaxpr)) for line in jaxpr.splitlines()]
    figure.text(MARGIN + 10, program + 20, [("strong", "program")])
    end = figure.lines(MARGIN + 10, program + 42, lines)
    figure.box(MARGIN, program, INNER, end - program - 8)
    return figure.svg()


def coloured(line: str) -> Iterator[Span]:
    """Split a line of code at the names of the values."""
    names = "|".join(map(re.escape, sorted(KINDS, key=len, reverse=True)))
    for part in re.split(rf"(?<![\w.])({names})(?![\w.])", line):
        yield ("" if line.startswith("def") else KINDS.get(part, "")), part


def tokens(line: str, jaxpr: str) -> Iterator[Span]:
    """Split a line of a jaxpr at its constants, arguments, literals, and the static power."""
    head = re.match(r"\{ lambda (.*?); (.*?)\. let", jaxpr)
    assert head is not None, jaxpr
    constants, arguments = (re.findall(r"(\w+):", each) for each in head.groups())
    for part in re.split(r"(y=\d|\b[a-z]\b|\d[\d.]*(?=:))", line):
        if part in constants or re.fullmatch(r"\d[\d.]*", part):
            yield "problem", part
        elif part in arguments:
            yield "leaf", part
        else:
            yield ("static" if part.startswith("y=") else ""), part


# How a key is made.


@lw.pytree
class Params:
    """An array, a Python number and a static."""

    w: jax.Array
    lr: float
    depth: int = lw.static_field(default=2)


def draw_key() -> str:
    """Return which parts of a call are in which key."""
    call = lw.signature(Params(jnp.ones(3), 0.1), jnp.ones(3))
    leaves = dict(zip(("params.w", "params.lr", "x"), call.leaf_records, strict=True))
    ((_, depth),) = call.statics.items()
    (kind,) = call.classes.values()
    options = [f"{name} = {value}" for name, value in call.config if name == "jax_enable_x64"]
    figure = Figure(
        "How the key is made",
        "In the call step(Params(w, lr=0.1, depth=2), x), the function, the tree with its static "
        "value, the shape, dtype and weak type of each leaf and the configuration select the "
        "jaxpr; the placement of the leaves selects the program; what kind of object each leaf is "
        "selects the dispatch entry. The values of the leaves and what the function closes over "
        "are not in any key.",
    )
    figure.text(MARGIN, 24, [("strong", "step(Params(w, lr=0.1, depth=2), x)")])
    traced = [
        ("", "step", "the function"),
        ("node", f"{kind.__name__}(w, lr), *", "the tree"),
        ("static", f"params.depth = {depth}", "statics"),
        *(("leaf", f"{path}: {aval(leaf)}", "leaves") for path, leaf in leaves.items()),
        ("", f"{options[0]}, ...", "JAX's options"),
    ]
    y = block(figure, 40, traced, "selects the jaxpr, or else: a retrace")
    lies = [("leaf", f"{path}: {place(leaf)}", "") for path, leaf in leaves.items()]
    y = block(figure, y, lies, "selects the program, or else: a recompile")
    are = [("leaf", f"{path}: {leaf.kind}", "") for path, leaf in leaves.items()]
    y = block(figure, y, are, "selects the dispatch entry")
    y += 20
    figure.text(MARGIN, y + 10, [("strong", "not in any key")])
    for role, names, words in (
        ("leaf", "w, 0.1, x", "the values of the leaves"),
        ("problem", "what step closes over", "read only while tracing"),
    ):
        y += LINE
        figure.text(MARGIN + 10, y + 12, [(role, names)])
        figure.note(MARGIN + 10 + 24 * LETTER, y + 12, words)
    return figure.svg()


def block(figure: Figure, y: float, rows: list[tuple[str, str, str]], selects: str) -> float:
    """Draw a part of the key and what it selects; return where the next part begins."""
    figure.box(MARGIN, y, INNER, LINE * len(rows) + 12)
    shown = ""
    for place, (role, words, kind) in enumerate(rows):
        base = y + 20 + LINE * place
        figure.text(MARGIN + 10, base, [(role, words)])
        if kind != shown:
            figure.note(WIDTH - MARGIN - 10 - 15 * LETTER, base, kind)
        shown = kind
    y += LINE * len(rows) + 12
    figure.arrow([(MARGIN + 30, y), (MARGIN + 30, y + 34)])
    figure.note(MARGIN + 44, y + 22, selects)
    return y + 34


def aval(leaf: Any) -> str:
    """Return shape and dtype of a leaf."""
    return f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]{', weak' if leaf.weak_type else ''}"


def place(leaf: Any) -> str:
    """Return the placement of a leaf."""
    if leaf.sharding is None:
        return "not on a device"
    return "committed" if leaf.committed else "not committed"


# Why the second call compiled.


@dataclasses.dataclass(frozen=True)
class Question:
    """A question, an earlier argument and a later one, and what JAX does with the later one."""

    words: str
    earlier: Any
    later: Any
    shown: str
    outcome: str


ONES = jnp.ones(3)
QUESTIONS = (
    Question("the same tree?", (ONES, ONES), [ONES, ONES], "(x, y) -> [x, y]", "retrace"),
    Question("the same statics?", Fit(ONES), Fit(ONES, 2), "power 3 -> 2", "retrace"),
    Question("the same shapes and dtypes?", ONES, jnp.ones(4), "(3,) -> (4,)", "retrace"),
    Question("the same weak types?", 0.1, np.float32(0.1), "0.1 -> np.float32(0.1)", "retrace"),
    Question(
        "all committed, or none?",
        ONES,
        jax.device_put(ONES, jax.devices()[0]),
        "x -> device_put(x, cpu)",
        "recompile",
    ),
    Question("JAX arrays, or NumPy's?", ONES, np.ones(3, "f4"), "jnp -> np", "dispatch"),
    Question("only other values?", ONES, jnp.zeros(3), "1.0 -> 0.0", "reuse"),
)
DONE = {
    "retrace": "trace and compile",
    "recompile": "lower and compile",
    "dispatch": "one slower call",
    "reuse": "nothing: fast",
}


def what_jax_does(question: Question) -> str:
    """Make both calls; return the outcome of the second one by JAX's own count."""
    function = jax.jit(lambda tree: jax.tree.leaves(tree))  # noqa: PLW0108  # a new one, with no programs
    function(question.earlier)
    entries = function._cache_size()  # noqa: SLF001  # JAX has no public name for it
    with lw.watch(eager=False) as log:
        function(question.later)
    if log.traces:
        return "retrace"
    if log.compiles:
        return "recompile"
    return "dispatch" if function._cache_size() > entries else "reuse"  # noqa: SLF001


def draw_second_call() -> str:
    """Return the questions that lead to what the second call does."""
    figure = Figure(
        "Why the second call compiled",
        "Questions from the top; the first no decides what JAX does. "
        + " ".join(f"{each.words} No: {each.outcome}." for each in QUESTIONS[:-1])
        + " Otherwise only values differ, and nothing is repeated.",
    )
    y, right = 6.0, 284
    for place, question in enumerate(QUESTIONS):
        outcome = what_jax_does(question)
        assert outcome == question.outcome, question
        last = place == len(QUESTIONS) - 1
        figure.box(MARGIN, y, right - MARGIN - 42, 50)
        figure.text(MARGIN + 8, y + 20, question.words, until=right - 42)
        figure.note(MARGIN + 8, y + 40, question.shown, until=right - 42)
        role = {"retrace": "problem", "recompile": "problem", "reuse": "leaf"}.get(outcome, "node")
        figure.arrow([(right - 42, y + 25), (right - 4, y + 25)])
        figure.note(right - 40, y + 19, "yes" if last else "no")
        figure.text(right + 4, y + 20, [(f"{role} strong", outcome)])
        figure.note(right + 4, y + 40, DONE[outcome])
        if not last:
            figure.arrow([(MARGIN + 30, y + 50), (MARGIN + 30, y + 74)])
            figure.note(MARGIN + 40, y + 67, "yes")
        y += 74
    assert the_old_answer() == [1.0, 1.0]
    figure.note(MARGIN, y - 2, "A captured value changed? Still a reuse:")
    figure.text(MARGIN + 41 * LETTER, y - 2, [("problem strong", "stale")])
    return figure.svg()


def the_old_answer() -> list[float]:
    """Return two answers, between which a captured number changed from 1 to 2."""
    captured = [1.0]

    @jax.jit
    def function() -> Any:
        return jnp.asarray(captured[0])

    first = float(function())
    captured[0] = 2.0
    return [first, float(function())]


FIGURES = {
    "captured.svg": draw_captured,
    "key.svg": draw_key,
    "second-call.svg": draw_second_call,
}


def main() -> None:
    """Write every figure."""
    for name, draw in FIGURES.items():
        (IMAGES / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
