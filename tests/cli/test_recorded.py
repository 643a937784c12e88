"""A report on what a process recorded: rows, causes and totals."""

import dataclasses
import functools
import re
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.inside import cache_lines

from .conftest import Explained

WIDTH = 91


def package(source: str) -> dict[str, Any]:
    """Return the names of a module of a package."""
    names: dict[str, Any] = {"__name__": "solver"}
    exec(compile(source, "/env/site-packages/solver.py", "exec"), names)  # noqa: S102  # ours
    return names


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


def test_a_function_that_is_jitted_at_each_call(explained: Explained) -> None:
    """It is a finding and no warning."""

    def script() -> None:
        for _ in range(3):

            def step(x: Any) -> Any:
                return x + WIDTH

            jax.jit(step)(1.0)

    report = explained(script)
    (found,) = report["findings"]
    assert (found["what"], found["retraces"]) == ("step retraced 2 times", 2)
    assert found["reasons"][0]["kind"] == "function"
    assert not report["warnings"]
    (row,) = (each for each in report["functions"] if not each["eager"])
    assert (row["name"], row["compiles"]) == ("step", 3)


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


def test_a_gradient_that_is_jitted_at_each_call(explained: Explained) -> None:
    """What is made again is the jitted function, and not the one that is differentiated."""

    def cost(w: Any) -> Any:
        return jnp.sum(w * w) * WIDTH

    def script() -> None:
        w = jnp.ones(WIDTH)
        for _ in range(4):
            w = jax.jit(jax.grad(cost))(w)

    (found,) = explained(script)["findings"]
    assert (found["what"], found["fixes"]) == ("cost retraced 3 times", ["make it once"])
    assert found["reasons"][0]["change"] == "`jax.jit(...)` is made again each time"


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
        f"a new lambda each call, with another {array} and `rate`, 0.5 -> 0.25",
        f"a new lambda each call, with another {array}",
    ]


def test_a_lowering_ahead_of_time(explained: Explained) -> None:
    """It repeats nothing, though it is the second of its arguments."""

    def script() -> None:
        placed = jax.jit(lambda placed: placed + WIDTH)
        placed(jax.device_put(np.float32(1.0), jax.devices()[0]))
        placed.lower(np.float32(1.0))

    report = explained(script)
    assert [each["kind"] for each in report["events"] if not each["eager"]].count("lowering") == 2
    assert report["findings"] == []


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
    assert found["outside"], "the package makes the function, and the user calls the package"
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


def test_a_function_that_a_package_makes(explained: Explained) -> None:
    """It is named where the user jits it, and nobody is told to define it elsewhere."""
    source = "def make(n):\n    return lambda x: x * n\n"
    solver = package(source)

    def script() -> None:
        for n in range(3):
            jax.jit(solver["make"](n))(1.0)

    (found,) = explained(script)["findings"]
    assert found["reasons"][0]["change"].startswith("a new lambda each call, with another `n`")
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

    report = explained(script, checks_captures=True)
    (found,) = (each for each in report["captures"] if each["function"] == "step")
    names = {each["name"] for each in found["captures"]}
    assert {"SCALE", "Settings", "State"} <= names
    assert not [name for name in names if "dataclass" in name or name in ("cls", "steps", "names")]
    assert not [each for each in found["captures"] if "__qualname__" in each["name"]]
    assert "site-packages" not in str(found)
    assert "<string>" not in str(found)


def test_misses_of_the_persistent_cache() -> None:
    """Misses of one reason are one line, which names the functions; the longest come first."""
    rows = (("init", 0.1, "written now"), ("step", 2.0, "too quick"), ("init", 0.1, "written now"))
    rows = (*rows, ("hit", 1.0, ""))
    events = [SimpleNamespace(name=name, seconds=spent, miss=miss) for name, spent, miss in rows]
    report: Any = SimpleNamespace(events=events)
    assert cache_lines(report) == [
        "cache miss of step: too quick",
        "2 cache misses of init: written now",
    ]


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
