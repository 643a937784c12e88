"""A report on what a process recorded: rows, causes and totals."""

import contextlib
import dataclasses
import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.explained import package, program, recorded
from tests.kit.inside import html_page, short_file

import leafwise as lw

from .conftest import Explained

WIDTH = 91


def test_a_loop_that_only_compiles(explained: Explained) -> None:
    """Masks and fresh bodies outside jit are findings, each with its line and its time."""

    def script() -> None:
        x = jnp.arange(float(WIDTH))
        for n in range(1, 6):
            x[x < n]
            jax.lax.while_loop(lambda c: c < WIDTH, lambda c: c + 1, jnp.int32(0))

    found = {each["reasons"][0]["path"]: each for each in explained(script)["findings"]}
    assert set(found) == {"mask", "cond_fun, body_fun"}
    assert "compiled for 5 sizes, outside `jit`" in found["mask"]["what"]
    again = found["cond_fun, body_fun"]
    assert "4 of them again" in again["what"]
    assert again["reasons"][0]["kind"] == "static"
    assert again["recompiles"] == 4
    places = {each["place"].rpartition(":")[0] for each in found.values()}
    assert all(each.endswith("test_recorded.py") for each in places)
    assert all(each["seconds"] > 0 for each in found.values())


def test_a_function_under_several_transformations(explained: Explained) -> None:
    """Each of them is a program, and the function is defined once."""

    def cost(w: Any, x: Any) -> Any:
        return jnp.sum(w * x) * WIDTH

    def script() -> None:
        w = jnp.ones(WIDTH)
        jax.jit(cost)(w, w)
        jax.jit(jax.vmap(cost))(w, w)
        for n in (0, 1):
            jax.jit(jax.grad(cost, argnums=n))(w, w)
        jax.jit(jax.grad(cost))(w, 1.0)
        for n in (2.0, 3.0):
            jax.jit(functools.partial(cost, n))(w)

    assert explained(script)["findings"] == []


def test_where_a_static_is_made(explained: Explained) -> None:
    """An object, and a function that is jitted, in the frames that led to the call."""

    class Trainer:
        @functools.partial(jax.jit, static_argnums=0)
        def step(self, x: Any) -> Any:
            return x * WIDTH

    loop = jax.jit(lambda body, x: body(x), static_argnums=0)

    def run(trainer: Any, body: Any) -> None:
        trainer.step(1.0)
        loop(body, 1.0)

    def script() -> None:
        for _ in range(3):
            trainer = Trainer()
            body = jax.jit(jnp.sin)
            run(trainer, body)

    line = script.__code__.co_firstlineno + 2
    changes = {each["reasons"][0]["change"] for each in explained(script)["findings"]}
    file = __file__.rpartition("/")[2]
    assert {each.partition(file)[2] for each in changes} == {f":{line}", f":{line + 1}"}


def test_no_addresses(explained: Explained) -> None:
    """No two runs of a script have the same ones."""

    def script() -> None:
        step = jax.jit(lambda x, f: f(x) * WIDTH, static_argnums=1)
        for _ in range(2):
            step(1.0, lambda x: x)
            step(1.0, type("Config", (), {"__call__": lambda _, x: x})())
            jax.lax.scan(lambda c, _: (c + WIDTH, None), 0.0, length=3)

    report = explained(script)
    assert report["findings"]
    assert " at 0x" not in str(report)


def test_a_function_that_captures_another_value_at_each_call(explained: Explained) -> None:
    """Its fix names the value: jitted once, it would go on with the first one."""

    def script() -> None:
        for rate in (0.5, 0.25):
            run(rate, jnp.ones(3) * rate)

    def run(rate: float, x: Any) -> None:
        jax.jit(lambda y, rate=rate: y * x * rate)(1.0)
        jax.jit(jax.grad(lambda y: (y * x).sum()))(1.0)

    changes = [
        each["explanation"]["reasons"][0]["change"]
        for each in explained(script)["events"]
        if "recreated" in each
    ]
    array = "`x`, float32[3] [0.5, 0.5, 0.5] -> float32[3] [0.25, 0.25, 0.25]"
    assert changes == [
        f"a new lambda each call, with a different {array} and `rate`, 0.5 -> 0.25",
        f"a new lambda each call, with a different {array}",
    ]


KERNELS: list[Any] = [lambda x: jnp.exp(-((x[:, None] - x[None]) ** 2)) + jnp.eye(len(x))]


def sizes_below(n: int) -> None:
    jnp.tanh(KERNELS[0](jnp.arange(float(n)))) + 1


def sizes_of_lengths(n: int) -> None:
    jnp.cosh(jnp.asarray(np.ones((n * 7, 2)))) * 2


GROWN = [np.ones(WIDTH, np.float32)]


def sizes_fed_back(n: int) -> None:
    GROWN.append(jnp.concatenate([GROWN[-1], np.ones(n * n, np.float32)]))


def sizes_of_layers(n: int) -> None:
    jnp.sinh(np.ones(n * 7 % 10, np.float32)) * 3
    jnp.cosh(np.ones(WIDTH * 2**n, np.float32)) * 3
    jnp.tanh(np.ones(((5, 28, 28, 91)[n - 1], (28, 28, 91, 91)[n - 1]), np.float32)).sum()
    jnp.sinh(np.ones((WIDTH - 2**n, WIDTH - 2 ** (n + 1)), np.float32)) * 2
    jax.tree.map(lambda x: jnp.sinh(x) - 1, [np.ones(WIDTH + n * m) for m in range(1, 6)])


COUNTED = pytest.mark.skipif(sys.version_info < (3, 12), reason="runs of lines are not counted")


@COUNTED
@pytest.mark.parametrize(
    ("call", "sizes"),
    [(sizes_below, 4), (sizes_of_lengths, 4), (sizes_fed_back, 4), (sizes_of_layers, 0)],
)
def test_a_line_for_many_sizes(explained: Explained, call: Any, sizes: int) -> None:
    """All that a line, and those of the user's that it calls, compile for sizes is one finding.

    Sizes grow in steps, or from the result of the run before; others are of a fixed set.
    """
    report = explained(lambda: [call(n) for n in range(1, 5)])
    eager = [each for each in report["events"] if each["eager"] and each["kind"] == "compile"]
    found = report["findings"]
    assert [f"{len(eager)} programs compiled for 4 sizes, outside `jit`"] * bool(sizes) == [
        each["what"] for each in found
    ]
    for each in found:
        assert (each["reasons"][0]["kind"], len(each["fixes"])) == ("shape", 1)


CHECKED = """
import jax, jax.numpy as jnp, functools
@functools.partial(jax.jit, static_argnames="text")
def branched(x, text):
    return jnp.where(x < 0, jnp.nan, x)
def error_if(x, text):
    return branched(x, text)
"""


@pytest.mark.parametrize(("texts", "number"), [(("No x < 0", "No y < 0"), 0), (("L1", "L2"), 1)])
def test_texts_of_errors(explained: Explained, texts: tuple[str, ...], number: int) -> None:
    """That a package's function is compiled for another sentence is no finding."""
    error_if = package(CHECKED)["error_if"]
    findings = explained(lambda: [error_if(1.0, text=text) for text in texts])["findings"]
    assert len(findings) == number


MODELS = """
import jax, jax.numpy as jnp
class Model:
    def __init__(self):
        self.w = jnp.ones(3)
        self.jitted = jax.jit(self.train_step)
    def train_step(self, w, x):
        return w - 0.1 * jnp.sin(x @ w).mean()
    def fit(self, x):
        self.w = jnp.tanh(self.jitted(self.w, x)) * 2.0
def solve(x, **_):
    return jax.lax.while_loop(lambda c: c < 9, lambda c: c + 1.5, x)
def value(x, **_):
    return float(jax.lax.while_loop(lambda c: c < 9, lambda c: c + 2.5, x))
def changed(model, x):
    model.x = jax.lax.while_loop(lambda c: c < 9, lambda c: c + 4.5, x)
"""


def test_a_package_that_jits_its_own_method(explained: Explained) -> None:
    """It is retraced for another object; what takes values or changes one is not to be jitted."""
    names = package(MODELS)

    def script() -> None:
        for _ in range(3):
            names["Model"]().fit(jnp.ones((WIDTH, 3)))

    retraced, *outside = explained(script)["findings"]
    assert retraced["what"] == "train_step retraced 2 times"
    assert retraced["text"].startswith('names["Model"]().fit(')
    assert [each["change"] for each in retraced["reasons"]] == ["a method of another `Model`"]
    assert [each["fixes"] for each in (retraced, *outside)] == [[]] * (1 + len(outside))


GAMES = """
class Game:
    def step(self, x):
        return self.rule(x)
class Plus(Game):
    def rule(self, x): return x + 7
class Times(Game):
    def rule(self, x): return x * 7
class Square(Game):
    def rule(self, x): return x ** 7
"""


@pytest.mark.parametrize("file", [__file__, "train.ipynb[3]"], ids=["module", "cell"])
@pytest.mark.parametrize(
    ("run", "words"),
    [
        (lambda step, x: jax.jit(step)(x), True),
        (lambda step, x: jax.jit(jax.vmap(step))(x), True),
        (lambda step, x: jax.lax.scan(lambda c, y: (c, step(y)), 0, x[:9]), False),
        (lambda step, x: jax.lax.map(step, x[:9]), False),
    ],
    ids=["jit", "vmap", "scan", "map"],
)
def test_methods_of_several_classes(explained: Explained, file: str, run: Any, words: bool) -> None:
    """A method that classes inherit is no repeat, except of another object of one of them."""
    names: dict[str, Any] = {"__name__": "games"}
    exec(compile(GAMES, file, "exec"), names)  # noqa: S102  # ours
    games = [names[name]() for name in ("Plus", "Times", "Square")]
    again = [names[name]() for name in ("Times", "Plus")]

    def script(games: list[Any]) -> None:
        for n, game in enumerate(games, WIDTH):
            run(game.step, jnp.ones(n))
        jax.jit(jax.vmap(games[0].step, in_axes=1))(jnp.ones((2, 2)))

    report = explained(lambda: script(games))
    assert report["findings"] == []
    why = [each["explanation"] for each in report["events"] if each["explanation"] is not None]
    changes = [reason["change"] for each in why for reason in each["reasons"]]
    classes = ("Times", "Square") if words else ()
    assert changes == [f"a method of another class, {name}" for name in classes]
    found = explained(lambda: script([*games, *again]))["findings"]
    assert "of another object" in str(found) or not words
    assert [each["retraces"] for each in found] == [2]


@pytest.mark.parametrize(("name", "number"), [("solve", 1), ("value", 0), ("changed", 0)])
def test_a_call_that_needs_values(explained: Explained, name: str, number: int) -> None:
    """Neither a float nor a changed object comes out of a trace."""
    call, model = package(MODELS)[name], SimpleNamespace()

    def script() -> None:
        for _ in range(3):
            call(x=1.0, model=model)

    (found,) = explained(script)["findings"]
    assert str(found["fixes"]).count("jax.jit") == number


STEP = "@jax.jit\ndef step(x):\n    return x * 9\nstep(1.5)"


@pytest.mark.parametrize(("again", "number"), [(f"\n{STEP}", 1), (STEP.replace("9", "8"), 0)])
def test_a_cell_that_is_run_again(explained: Explained, again: str, number: int) -> None:
    """It has another number; what it defines is compiled again."""

    def script() -> None:
        names = {"jax": jax}
        for name, cell in (("train.ipynb[3]", STEP), ("train.ipynb[4]", again)):
            exec(compile(cell, name, "exec"), names)  # noqa: S102  # ours

    findings = explained(script)["findings"]
    changes = [each["reasons"][0]["change"] for each in findings]
    assert changes == ["defined again in this cell, with the same code"] * number


def lambdas(n: int) -> None:
    jax.jit(lambda x: x + 1)(jnp.ones(n))


def steps(n: int) -> None:
    @jax.jit
    def step(x: Any, y: Any) -> Any:
        return x * y

    step(jnp.ones(n), jnp.ones(n))


def models(n: int) -> None:
    jax.jit(SimpleNamespace(w=lambda x: x * n).w)(jnp.ones(n))


@pytest.mark.parametrize("call", [lambdas, steps, models])
def test_a_function_that_is_recreated_for_each_size(explained: Explained, call: Any) -> None:
    """From the third time on it is a finding; the sizes are the second reason, and the last fix."""
    report = explained(lambda: [call(n) for n in (WIDTH, WIDTH + 1, WIDTH + 2)])
    (found,) = report["findings"]
    assert (found["retraces"], report["warnings"]) == (2, [])
    kinds = [(reason["kind"], reason["path"]) for reason in found["reasons"]]
    assert [kinds[0][0], kinds[1][1][:1]] == ["function", "x"]
    assert "once" in found["fixes"][0]
    assert explained(lambda: [call(n) for n in (WIDTH, WIDTH + 1)])["findings"] == []


def test_a_lowering_ahead_of_time(explained: Explained) -> None:
    """It repeats nothing, though it is the second of its arguments."""

    def script() -> None:
        placed = jax.jit(lambda placed: placed + WIDTH)
        placed(jax.device_put(np.float32(1.0), jax.devices()[0]))
        placed.lower(np.float32(1.0))

    report = explained(script)
    assert [each["kind"] for each in report["events"] if not each["eager"]].count("lowering") == 2
    assert report["findings"] == []


def ahead_for_numbers(step: Any) -> None:
    """Lower for a strong number, in one of the ways, and call with another."""
    step.lower(jnp.ones(WIDTH), jax.ShapeDtypeStruct((), jnp.float32)).compile()
    step(jnp.ones(WIDTH), 0.1)


def ahead_of_a_mesh(step: Any) -> None:
    step.lower(jnp.ones(WIDTH), 0.1).compile()
    with jax.set_mesh(jax.make_mesh((1,), ("i",))):
        step(jnp.ones(WIDTH), 0.1)


def ahead_for_sizes(step: Any) -> None:
    lowered = [step.lower(jnp.ones(n), 0.1) for n in (1, 2, 3)]
    for each in lowered:
        each.compile()
    for n in (1, 2, 3):
        step(jnp.ones(n), jnp.float32(0.1))


@pytest.mark.parametrize(
    ("script", "path", "number"),
    [
        (ahead_for_numbers, "lr", 1),
        (ahead_of_a_mesh, "config.mesh", 1),
        (ahead_for_sizes, "lr", 3),
        (lambda step: step(jnp.ones(WIDTH), step.lower(jnp.ones(2), 1).as_text() and 1.0), "", 0),
    ],
)
def test_after_a_compile_ahead(explained: Explained, script: Any, path: str, number: int) -> None:
    """What was compiled ahead is an earlier call; what was only lowered is none."""
    step = jax.jit(lambda x, lr: x - lr * jnp.sin(x))
    findings = explained(lambda: script(step))["findings"]
    assert [each["retraces"] or each["recompiles"] for each in findings] == [number][:number]
    assert [each["reasons"][0]["path"] for each in findings] == [path][:number]


def work(x: Any) -> Any:
    return x * WIDTH + jnp.tanh(x)


jitted_work = jax.jit(work)


def clear_in_a_loop() -> None:
    for _ in range(3):
        for n in (2, 3):
            jitted_work(jnp.ones(n))
        jax.clear_caches()


def test_caches_that_leafwise_clears(explained: Explained) -> None:
    """No line of the user is said to clear them."""

    def script() -> None:
        rates = np.ones(2)
        ours, other = lw.jit(lambda x: x * rates, on_stale="retrace"), jax.jit(lambda x: x + rates)
        for value in (1.0, 2.0, 3.0):
            rates.fill(value)
            _ = ours(jnp.ones(2)), other(jnp.ones(2))

    findings = explained(script)["findings"]
    assert "float64[2] [1.0, 1.0] -> float64[2] [2.0, 2.0]" in str(findings)
    assert "clear_caches" not in str(findings)


def jit_is_off() -> None:
    jax.config.update("jax_disable_jit", True)
    for n in range(2, 5):
        work(jnp.ones(WIDTH) ** n)
    jax.config.update("jax_disable_jit", False)


def jit_is_off_in_a_block() -> None:
    for n in range(5, 9):
        with jax.disable_jit():
            work(jnp.ones(WIDTH) ** n)


@pytest.mark.parametrize(
    ("script", "text", "change"),
    [
        (clear_in_a_loop, "jax.clear_caches()", "clears the compiled programs"),
        pytest.param(jit_is_off, "work(", "jit is off (`jax_disable_jit`)", marks=COUNTED),
        pytest.param(
            jit_is_off_in_a_block, "work(", "jit is off (`jax_disable_jit`)", marks=COUNTED
        ),
    ],
)
def test_where_jit_cannot_help(explained: Explained, script: Any, text: str, change: str) -> None:
    """Where a line clears the caches, or jit is off, that is the finding, and `jit` no fix."""
    found = [each for each in explained(script)["findings"] if each["reasons"][0]["path"] != "x"]
    (finding,) = found
    assert finding["text"].startswith(text)
    assert change in finding["reasons"][0]["change"]
    assert "jax.jit" not in str(finding["fixes"])


def test_a_first_call_after_inner_traces(explained: Explained) -> None:
    """What was traced inside another function only is called for the first time, at any shape."""

    def solve(x: Any) -> Any:
        return x * WIDTH

    inner = jnp.ones(WIDTH), jnp.ones(WIDTH + 1), jnp.ones(WIDTH + 2)

    def script() -> None:
        solver = jax.jit(solve)
        jax.jit(lambda x: solver(x))(inner[0])
        solver(inner[1])
        solver(inner[2])

    report = explained(script)
    (found,) = report["findings"]
    assert (found["retraces"], found["reasons"][0]["path"]) == (1, "x")
    first, second = [
        each["explanation"]
        for each in report["events"]
        if each["name"] == "solve" and each["explanation"]
    ][-2:]
    assert first["nearest"] is None
    assert [each["before"] for each in second["reasons"]] == [f"({WIDTH + 1},)"]


def test_a_line_of_the_user_that_calls_a_package(explained: Explained) -> None:
    """The line is the user's, who can change that one; the package's is named beside it."""
    source = "import jax\ndef solve(n):\n    return jax.jit(lambda x: x * n)(1.0)"
    solver = package(source)

    def script() -> None:
        for n in range(3):
            solver["solve"](n)
        jax.jit(lambda x: x + WIDTH)(1.0)

    report = explained(script)
    (found,) = report["findings"]
    assert re.fullmatch(r".*test_recorded\.py:\d+", found["place"])
    assert found["text"] == 'solver["solve"](n)'
    assert found["via"] == ["solver.py:3"]
    assert found["what"] == "<lambda> retraced 2 times"
    (reason,) = found["reasons"]
    assert reason["change"] == "`solve` of solver defines and jits it in each call"
    own = [each for each in report["events"] if "via" not in each]
    assert own


def test_a_fix_speaks_of_the_users_line(explained: Explained) -> None:
    """Of a package's function: by the name that the user's line has there, or not at all."""
    source = (
        "import equinox as eqx\nimport itertools\nimport jax\n"
        "inner = eqx.filter_jit(lambda a, x: a * x)\n"
        "other = jax.jit(lambda x, n: x * n, static_argnums=1)\ncount = itertools.count()\n"
        "def scaled(rate, x):\n    return inner(rate, x)\n"
        "def counted(x):\n    return other(x, next(count))\n"
    )
    solver = package(source)

    def script() -> None:
        x = jnp.ones(WIDTH)
        for speed in (0.5, 0.25):
            solver["scaled"](speed, x)
        for _ in range(2):
            solver["counted"](x)

    found = {each["text"]: each for each in explained(script)["findings"]}
    named, silent = found['solver["scaled"](speed, x)'], found['solver["counted"](x)']
    assert named["fixes"] == ["`jnp.asarray(speed)`: a Python number is static there"]
    assert silent["fixes"] == []
    assert silent["reasons"][0]["change"] == "0 -> 1"


@pytest.mark.parametrize("is_shown", [True, False])
def test_code_for_a_dtype(explained: Explained, *, is_shown: bool) -> None:
    """An int of 25 bits is no float32: that it is cut to an int later would hide the difference."""
    step = jax.jit((lambda x: jnp.float32(x) * 2) if is_shown else (lambda x: x.astype(int) % 10))

    def script() -> None:
        step(jnp.arange(16_777_216, 16_777_219))
        step(jnp.ones(3))

    (fix,) = explained(script)["findings"][0]["fixes"]
    assert ("`x.astype(jnp.float32)`" in fix) is is_shown


THROUGH = """
import equinox as eqx, jax, jax.numpy as jnp
class Term(eqx.Module):
    func: object
inner = eqx.filter_jit(lambda term, x: term.func(x))
def solve(term, x): return inner(term, x)
def fit(x, size):
    step = jax.jit(lambda data: data.sum())
    for i in range(0, len(x), size): step(x[i : i + size])
"""


def test_what_a_user_can_do_through_a_package(explained: Explained) -> None:
    """The user's own lambda and the size of the user's batches have fixes, which help."""
    pytest.importorskip("equinox")
    names, x = package(THROUGH), jnp.ones(WIDTH)

    def solve(omega: float) -> Any:
        return names["solve"](names["Term"](lambda x: jnp.cos(omega * x)), x)

    def script() -> None:
        for omega in (1.0, 2.0, 3.0):
            solve(omega)
        names["fit"](np.ones((80, WIDTH), np.float32), 32)

    lambdas, batches = sorted(explained(script)["findings"], key=lambda found: found["place"])
    assert lambdas["fixes"] == [
        "put it and this call into a function of `omega`, and `jax.jit` that once, if it has no "
        "side effects"
    ]
    assert batches["fixes"] == ["pad to one size if the call takes a mask, or drop the rest"]

    def fixed() -> None:
        jitted = jax.jit(solve)
        for omega in (1.0, 2.0, 3.0):
            jitted(omega)
        names["fit"](np.ones((64, WIDTH), np.float32), 32)

    assert explained(fixed)["findings"] == []


class Drive:
    """It compares by identity."""

    def __init__(self, omega: float) -> None:
        self.omega = omega

    def __call__(self, x: Any) -> Any:
        return self.signal(x)

    def signal(self, x: Any) -> Any:
        return jnp.cos(self.omega * x)


def driven(omega: float, x: Any) -> Any:
    return jnp.cos(omega * x)


@pytest.mark.parametrize(
    "make",
    [Drive, lambda w: Drive(w).signal, lambda w: functools.partial(driven, w)],
    ids=["object", "method", "partial"],
)
def test_an_object_of_a_package(make: Callable[[float], Any], explained: Explained) -> None:
    """What differs in an object, a method or a partial is to be the jitted function's argument."""
    pytest.importorskip("equinox")
    names, x = package(THROUGH), jnp.ones(WIDTH)

    def script() -> None:
        for omega in (1.0, 2.0, 3.0):
            names["solve"](names["Term"](make(omega)), x)

    (fix,) = explained(script)["findings"][0]["fixes"]
    assert re.match(r"put it and this call into a function of `(self\.)?omega`, and `jax.jit`", fix)


def test_a_function_that_a_package_makes(explained: Explained) -> None:
    """It is named where the user jits it, and nobody is told to define it elsewhere."""
    source = "def make(n):\n    return lambda x: x * n\n"
    solver = package(source)

    def script() -> None:
        for n in range(3):
            jax.jit(solver["make"](n))(1.0)

    (found,) = explained(script)["findings"]
    assert found["reasons"][0]["change"].startswith("a new lambda each call, with a different `n`")
    assert found["fixes"] == []


def test_a_method_under_a_decorator(explained: Explained) -> None:
    """An object is placed where the user wrote `__call__`, not in the decorator."""

    class Model:
        @jax.named_scope("model")
        def __call__(self, x: Any) -> Any:
            return x * WIDTH

    report = explained(lambda: jax.jit(Model())(1.0))
    (row,) = (each for each in report["functions"] if not each["eager"])
    assert row["file"] == __file__


@dataclasses.dataclass(frozen=True)
class Settings:
    """A dataclass, whose methods are generated."""

    rate: float = 0.5
    names: list[str] = dataclasses.field(default_factory=list[str])


SCALE = 2.0


MAPPED = """
import functools, jax, jax.numpy as jnp
def make(n):
    @functools.partial(jax.pmap, OPTIONS)
    def train(w, x): return w - x * n
    return train
one, other = make(2), make(3)
v = w = jnp.ones((4, WIDTH))
for n in range(4):
    v = other(v, x=jnp.ones((4, WIDTH)))
    w = one(w, x=jnp.ones((4, WIDTH)))
"""


@pytest.mark.parametrize(
    ("options", "is_shown"),
    [
        ("axis_name='i'", True),
        ("axis_name='i', in_axes=(0,)", False),
        ("axis_name='i', devices=jax.devices()[:4]", False),
    ],
)
def test_under_pmap(reported: Any, tmp_path: Path, options: str, is_shown: bool) -> None:
    """What is sharded as the map returns it is compiled for again, of each of two functions."""
    code = MAPPED.replace("WIDTH", str(WIDTH)).replace("OPTIONS", options)
    report = reported(program(tmp_path, code)[1])
    assert [each.what for each in report.findings] == ["train retraced once, under `pmap`"] * 2
    for finding in report.findings:
        assert finding.reasons()[0][0].path == "w"
        (fix,) = map(str, finding.fixes())
        variable = finding.text.partition(" ")[0]
        code = f"`{variable} = jax.pmap(lambda x: x, axis_name='i')({variable})`"
        later = "move it to its later sharding: `jax.device_put`"
        assert fix == f"before the first call, {code if is_shown else later}"
    assert [(row.name, row.traces) for row in report.functions if not row.eager] == [("train", 4)]


SHARDED = """
import functools, jax, jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec as P
mesh = Mesh(jax.devices()[:4], ("i",))
def make(n):
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    def f(x):
        for i in range(3):
            x = jnp.sin(x) * (i + n)
        return x
    return f
f, g = JIT(make(1.0)), JIT(make(2.0))
x = jnp.ones(WIDTH)
for k in range(3):
    z = g(x)
    y = f(x)
"""


def test_shard_map_outside_jit(reported: Any, tmp_path: Path) -> None:
    """One finding for each call, not for the lines of the function; `jax.jit` removes it."""
    code = SHARDED.replace("WIDTH", str(4 * WIDTH))
    report = reported(program(tmp_path, code.replace("JIT", ""))[1])
    found = {each.text: each for each in report.findings}
    assert set(found) == {"z = g(x)", "y = f(x)"}
    for each in found.values():
        ((reason, _),) = each.reasons()
        assert str(reason).startswith("f (function): under `jax.shard_map` outside `jit`, each")
        assert len(each.programs) >= 2 * 6
        assert "jax.jit" in str(each.fixes())
    assert reported(program(tmp_path, code.replace("JIT", "jax.jit"))[1]).findings == []


FITTED = """
import jax, jax.numpy as jnp
class Model:
    def fit(self, w, data, size):
        def loss(w, batch): return ((batch @ w) ** 2).mean()
        grad = jax.jit(jax.value_and_grad(loss))
        for i in range(jnp.divmod(len(data), size)[0]): w = w - grad(w, data[i * size:][:size])[1]
        return w
def layers(x):
    for n in range(3): x = jax.jit(lambda x: x * 57.5)(x)
    return x
def minimize(f, x): return jax.jit(jax.grad(f))(x)
"""


def test_what_a_package_jits_in_each_call(explained: Explained) -> None:
    """It is counted, and a repeat of a later call: in a loop, and from three lines."""
    names, data = package(FITTED), jnp.ones((8, WIDTH))
    w, model = jnp.ones(WIDTH), names["Model"]()

    def script() -> None:
        for _ in range(4):
            model.fit(w, data, 4)
        model.fit(w, data, 4)
        model.fit(w, jnp.ones((8, WIDTH)), 2)
        if sys.version_info >= (3, 12):  # else each counts as one of another call
            names["layers"](w)
        for _ in range(2):
            names["minimize"](lambda x: x.sum(), w)

    report = explained(script)
    own = [each for each in report["findings"] if not each["outside"]]
    whats = ["loss retraced 3 times", "loss retraced once", "<lambda> retraced once"]
    assert sorted(each["what"] for each in own) == sorted(whats)
    changes = {each["reasons"][0]["change"] for each in own}
    assert changes == {
        "`fit` of solver defines and jits it in each call",
        "jitted in solver, under a new transformation in each call",
    }
    assert not any("jax.jit" in str(each["fixes"]) for each in own if each["functions"] == ["loss"])
    (row,) = (each for each in report["functions"] if each["name"] == "loss")
    assert (row["traces"], row["compiles"]) == (6, 6)


def test_the_names_of_flax_variables(explained: Explained) -> None:
    """They are those of the module, also of one that two others share, in each argument."""
    nnx: Any = pytest.importorskip("flax.nnx")

    class Model(nnx.Module):  # type: ignore[misc]
        def __init__(self, n: int, child: Any = None) -> None:
            self.w1, self.b1 = nnx.Param(jnp.ones(3)), nnx.Param(jnp.ones(3))
            self.layers = nnx.List([] if child is None else [child, child])
            self.w2 = nnx.Param(jnp.ones(n))

    step = nnx.jit(lambda a, b: a.w1[...] + b.b1[...])
    few, many, more = Model(WIDTH), Model(WIDTH + 1), Model(WIDTH + 1)
    calls = [(Model(3, few), few), (Model(3, many), many), (Model(3, many), more)]
    changed = explained(lambda: [step(*models) for models in calls])["findings"]
    paths = {reason["path"] for each in changed for reason in each["reasons"]}
    assert {"a.layers[0].w2", "b"} <= paths
    assert not any("states" in path for path in paths)


def test_a_failed_trace(explained: Explained) -> None:
    """It is no repeat, nor what later calls are compared with; its seconds count."""
    step = jax.jit(lambda w, x: w @ x)

    def script() -> None:
        w = jnp.ones((WIDTH, WIDTH))
        step(w, jnp.ones(WIDTH))
        try:
            step(w, jnp.ones(WIDTH + 1))
        except TypeError:  # in it, a call is no failure
            step(w, jnp.ones((WIDTH, WIDTH + 1)))

    report = explained(script)
    (found,) = report["findings"]
    assert found["retraces"] == 1
    assert f"({WIDTH},) -> ({WIDTH}, {WIDTH + 1})" in str(found["reasons"])
    (row,) = (each for each in report["functions"] if not each["eager"])
    assert (row["traces"], row["compiles"]) == (3, 2)


STALE = """
import jax, jax.numpy as jnp
lr, table = 0.1, jnp.ones((600, 600))
@jax.jit
def step(x): return x * lr * table[0, 0]
for _ in range(3):
    step(1.0)
    lr = lr / 2
"""


def test_captures_are_listed(reported: Any, tmp_path: Path) -> None:
    """What functions capture, and each stale call, is in the report and on its page."""
    report = reported(program(tmp_path, STALE)[1], captures=True)
    (captured,) = (row for row in report.captures if row.function == "step")
    assert captured.nbytes == 600 * 600 * 4
    assert {"lr", "table"} <= {row.name for row in captured.captures}
    stale = [(row.name, row.before, row.after) for row in captured.stale]
    assert stale == [("lr", "0.1", "0.05"), ("lr", "0.1", "0.025")]
    page = re.sub("<[^>]+>", "", html_page(report))
    assert "step captures" in page
    assert "1.37 MiB of captured arrays" in page
    assert "step used lr = 0.1, which was 0.05" in page


def test_two_recorders_see_stale_captures(tmp_path: Path) -> None:
    """`leafwise explain --captures`, and a magic in its notebook, each report a stale call."""
    code = "import jax\nrate = 1\n@jax.jit\ndef step(x): return x * rate\nstep(1.0)"
    programs = [program(tmp_path, code) for _ in range(2)]
    names = [vars(sys.modules[Path(file).stem]) for file, _ in programs]
    inner: list[dict[str, Any]] = []

    def script() -> None:
        for each, (_, run) in zip(names, programs, strict=True):
            run()
            each["rate"] = 2
        inner.extend(recorded(lambda: [each["step"](1.0) for each in names[::-1]], captures=True))

    parts = inner, recorded(script, captures=True)
    lines = [[each["stale"]["line"] for each in part if "stale" in each] for part in parts]
    assert lines == [[f"{file}:4" for file, _ in programs[::-1]]] * 2


def test_captures_are_of_the_users_code(explained: Explained) -> None:
    """What generated methods and packages read has no row."""
    chex: Any = pytest.importorskip("chex")
    optax: Any = pytest.importorskip("optax")

    @chex.dataclass
    class State:
        x: Any
        steps: int = 0

    def step(x: Any) -> Any:
        state = State(x=x * SCALE * Settings().rate)
        return optax.tree.scale(2.0, state)

    def script() -> None:
        jax.jit(step)(1.0)

    report = explained(script, captures=True)
    (found,) = (each for each in report["captures"] if each["function"] == "step")
    names = {each["name"] for each in found["captures"]}
    assert {"SCALE", "Settings", "State"} <= names
    assert not [name for name in names if "dataclass" in name or name in ("cls", "steps", "names")]
    assert not [each for each in found["captures"] if "__qualname__" in each["name"]]
    assert "site-packages" not in str(found)
    assert "<string>" not in str(found)


def of_a_function(step: Any, one: Any, other: Any) -> None:
    def warm_up() -> None:
        step(one)
        step(other)

    with contextlib.nullcontext():  # a warm-up, leafwise: expected
        warm_up()


def of_a_loop(step: Any, *every: Any) -> None:
    for size in every:  # leafwise: expected
        if size is not None:
            step(size)


def of_a_call(step: Any, one: Any, other: Any) -> None:
    step(one)
    step(
        other,
    )  # leafwise: expected


def of_nothing(step: Any, one: Any, other: Any) -> None:
    """Neither text, nor a line of its own, nor another loop, nor another word marks a call."""
    for _ in ():  # leafwise: expected
        step(one)
    step(one)  # leafwise: unexpected
    # not here, leafwise: expected
    jax.block_until_ready((step(other), "# leafwise: expected"))


@pytest.mark.parametrize(
    ("script", "line"), [(of_a_function, 5), (of_a_loop, 1), (of_a_call, 4), (of_nothing, 0)]
)
def test_a_line_that_is_marked(explained: Explained, script: Any, line: int) -> None:
    """A repeat is expected if its call, a statement around it or one of a caller is marked."""
    step = jax.jit(lambda x: x * 3)
    report = explained(lambda: script(step, np.ones(2), np.ones(3)))
    if not line:
        assert "expected" not in report
        assert len(report["findings"]) == 1
        return
    assert report["findings"] == []
    record, first = report["expected"], script.__code__.co_firstlineno
    assert (record["repeats"], record["lines"]) == (1, [f"{short_file(__file__)}:{first + line}"])


def test_what_differs_in_two_is_named(explained: Explained) -> None:
    """All of it, by the names of optax, whether it is captured or held by an object."""
    optax: Any = pytest.importorskip("optax")

    class Agent:
        def __init__(self, rate: float) -> None:
            self.opt = optax.adam(rate, b1=rate)

        @functools.partial(jax.jit, static_argnums=0)
        def held(self, w: Any) -> Any:
            return self.opt.update(w, self.opt.init(w))[0]

    def script() -> None:
        for rate in (0.1, 0.2, 0.3):
            agent = Agent(rate)
            agent.held(jnp.ones(3))
            opt = agent.opt

            @jax.jit
            def captured(w: Any, opt: Any = opt) -> Any:
                return opt.update(w, opt.init(w))[0]

            captured(jnp.ones(3))

    fixes = {each["functions"][0]: each["fixes"][0] for each in explained(script)["findings"]}
    for name, holder in (("held", "self.opt.update"), ("captured", "opt.update")):
        assert f"pass `b1` of `{holder}` and `step_size` of `{holder}` as" in fixes[name]
