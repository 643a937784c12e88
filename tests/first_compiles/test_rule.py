"""Which loop a program is from, how often that ran, and what to do: forty programs."""

import inspect
import re
import tempfile
import types
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.first_compiles import programs
from tests.first_compiles.programs import ROLLED, UNROLLED
from tests.kit.inside import Act, Site

import leafwise as lw
from leafwise._jax.compat import ANSWERS, Internal
from leafwise._jax.operations import Frame, Operations, Statement
from leafwise._objects.source.loops import loops_around
from leafwise._programs.first_compile import describe_operations, first_compile

pytestmark = pytest.mark.usefixtures("lines")

FIXES = {
    "scan": "`jax.lax.scan` (or",
    "map": "`jax.vmap` (or",
    "layers": "`jax.lax.scan` over the layers",
    "unlike": "shapes differ between runs",
    "unroll": "leave out `unroll=`",
    "flax": "`flax.linen.scan`",
    "none": "",
}


def describe(function: Any, args: tuple[Any, ...]) -> Any:
    """Return what JAX makes of a function, called here."""
    frame: Any = inspect.currentframe()
    site = Site(__file__, frame.f_lineno + 1, "")
    return first_compile(jax.jit(function).lower(*args), site)


def origins_of(function: Any, args: tuple[Any, ...]) -> Any:
    """Return what the program of a function is from."""
    return describe(function, args).origins


MARKED = {
    number: (int(mark[1]), mark[2])
    for number, line in enumerate(inspect.getsource(programs).splitlines(), 1)
    if (mark := re.search(r"# runs (\d+): (\w+)$", line))
}
"""The lines of loops: how often they run, and which fix there is."""


@pytest.mark.parametrize("name", UNROLLED)
def test_the_loop(name: str) -> None:
    """The line is that of the loop, the runs are exact, and the fix is the one that holds."""
    (origin,) = origins_of(*UNROLLED[name])
    assert origin.site.file == programs.__file__
    runs, fix = MARKED[origin.site.line]
    assert origin.runs == runs
    assert 0.5 <= origin.share <= 1
    assert str(origin.fix).startswith(FIXES[fix])
    assert bool(origin.fix) == bool(FIXES[fix])
    assert (origin.fix.act is Act.ROLL) == (origin.kind == "unroll")


@pytest.mark.nightly
def test_every_marked_line_was_found() -> None:
    """No line that is marked is the loop of no program."""
    assert {origins_of(*program)[0].site.line for program in UNROLLED.values()} == set(MARKED)


@pytest.mark.parametrize("name", ROLLED)
def test_no_loop(name: str) -> None:
    """The program has no loop to name; the lines with most operations are those of the file."""
    origins = origins_of(*ROLLED[name])
    assert {origin.kind for origin in origins} <= {"copies" if name == "many_places" else "line"}
    assert not any(origin.fix for origin in origins)
    assert sum(origin.share for origin in origins) <= 1


def test_the_share() -> None:
    """It is that of JAX's operations in the loop, with those of loops inside it."""

    def solve(x: Any) -> Any:
        for _ in range(9):
            x = jnp.sin(x)
            for _ in range(2):
                x = jnp.cos(jnp.exp(x))
        return jnp.tanh(jnp.abs(-jnp.sin(jnp.cos(x))))

    (origin,) = origins_of(solve, (1.0,))
    assert origin.site.line == solve.__code__.co_firstlineno + 1
    assert (origin.runs, origin.share) == (9, 45 / 52)  # with a function and its return


TABLE = np.cos(np.arange(1 << 18, dtype=np.float32)).reshape(512, 512)
OTHER = TABLE + 1


def deep(x: Any, n: int = 9) -> Any:
    return deep(jnp.tanh(x @ x), n - 1) if n else x


@pytest.mark.parametrize(
    ("function", "is_folded"),
    [
        (lambda v: deep(v) @ (TABLE @ v), False),
        (lambda v: OTHER @ (TABLE * v), False),
        (lambda v: TABLE.reshape(-1, 1)[:, None] * deep(v)[0], False),
        (lambda v: jnp.broadcast_to(TABLE, (3, 512, 512)) * deep(v), False),
        (lambda v: jnp.where(v > 0, TABLE, OTHER), False),
        (lambda v: jnp.sin(TABLE) @ deep(v), True),
        (lambda v: deep(v) @ jnp.dot(OTHER, TABLE), True),
        (lambda v: jnp.cumsum(TABLE, axis=0) * v, True),
        (lambda v: jax.jit(lambda v: v * jnp.exp(OTHER))(v), True),
    ],
    ids=["product", "two", "reshaped", "broadcast", "where", "sine", "both", "inner", "jitted"],
)
def test_constants(function: Any, is_folded: bool) -> None:
    """XLA folds where an operation has constants alone as operands; else lines come first."""
    origins = {origin.kind: origin for origin in origins_of(function, (TABLE,))}
    assert origins["constants"].is_folded == is_folded
    assert origins["constants"].nbytes >= 1 << 20
    assert list(origins) == (["constants"] if is_folded else ["line", "constants"])


def test_constants_and_lines() -> None:
    """Lines are said next to what XLA folds if they have many operations."""
    for depth, kinds in ((300, {"constants", "line"}), (30, {"constants"})):
        origins = origins_of(lambda v, n=depth: deep(v, n) @ jnp.sin(TABLE), (TABLE,))
        assert {origin.kind for origin in origins} == kinds


def test_constants_and_a_loop() -> None:
    """Both are said, the loop first if XLA folds nothing."""

    def solve(v: Any) -> Any:
        for _ in range(9):
            v = jnp.tanh(v @ TABLE)
        return v

    assert [origin.kind for origin in origins_of(solve, (TABLE,))] == ["loop", "constants"]


PACKAGE = """\
import jax, jax.numpy as jnp
COUNTS = {{}}
def called(name):
    COUNTS[name] = COUNTS.get(name, 0) + 1
def contact(x):
    called("contact")
    for i in range(3):
        x = jnp.tanh(x) * jnp.sin(x + i) + jnp.exp(x)
    return jnp.cos(x) * jnp.sinh(x) - x
def friction(x):
    called("friction")
    return x - jnp.sin(jnp.tanh(x)) * jnp.expm1(x)
def step(x):
    called("step")
    for _ in range({0}):
        x = contact(x)
    x = contact({1}(x)) - friction(x)
    return x
def simulate(x):
    for _ in range({2}):
        x = step(x)
    return jnp.sin(x) + jnp.cos(x)
jitted = jax.jit(simulate)
"""


def drawn_package(folder: Path, name: str, *numbers: Any) -> Any:
    """Return a package of functions that call each other as often as the numbers say."""
    file = folder / "site-packages" / f"{name}.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(PACKAGE.format(*numbers), encoding="utf-8")
    module: Any = types.ModuleType(name)
    exec(compile(file.read_text(), str(file), "exec"), vars(module))  # noqa: S102  # our own
    return module


WRAPS = [lambda f: f, lambda f: jax.grad(lambda x: f(x).sum())]


@pytest.mark.parametrize("wrap", WRAPS, ids=["forward", "gradient"])
@pytest.mark.parametrize("numbers", [(2, "", 3), (1, "friction", 4)], ids=["calls", "others"])
def test_functions_of_a_package(numbers: Any, wrap: Any, tmp_path: Path) -> None:
    """They are named below the line of the user, if there is one, with the number of calls."""
    one, other = (drawn_package(tmp_path, name, *numbers) for name in ("one", "other"))
    for module in (other, one):
        own = wrap(lambda x, module=module: module.simulate(x))  # the line of the user
        for function in (own, wrap(module.simulate)):
            module.COUNTS.clear()
            origins = origins_of(function, (jnp.ones(3),))
            assert {origin.kind for origin in origins} == {"line"}
            assert origins[0].path == "simulate > contact"
            assert 0.5 < origins[0].share < 1
            for origin in origins:
                assert origin.runs == module.COUNTS[origin.path.rpartition(" > ")[2]]


@pytest.mark.nightly
@given(st.integers(0, 3), st.sampled_from(["", "friction"]), st.integers(1, 4))
def test_functions_of_drawn_packages(inner: int, name: str, outer: int) -> None:
    """Shares and numbers of calls are those that plain JAX and Python count."""
    with tempfile.TemporaryDirectory() as folder:
        module = drawn_package(Path(folder), "drawn", inner, name, outer)
        first: Any = describe(module.simulate, (jnp.ones(3),))
        counts = dict(module.COUNTS)
        for origin in first.origins:
            function = origin.path.rpartition(" > ")[2]
            if function in counts:
                assert origin.runs == counts[function]
                # JAX shares the constants of several calls, of which `contact` has three.
                alone = describe(getattr(module, function), (jnp.ones(3),)).total - 2
                assert origin.share * first.total == pytest.approx(alone * origin.runs, rel=0.15)


def test_loops_around_each_other(tmp_path: Path) -> None:
    """Loops of functions that call each other have an end."""
    file = tmp_path / "loops.py"
    file.write_text("for i in x:\n    f(g(1))\nfor j in x:\n    f(2)\n", encoding="utf-8")
    frames = tuple(Frame(str(file), *at) for at in ((2, 6), (4, 4), (2, 4)))
    counts = {Statement(frames, "sin stablehlo.sine"): 16}
    (origin,) = describe_operations(Operations(counts, counts, {})).origins
    assert (origin.site.line, origin.runs) == (1, 16)


@pytest.mark.parametrize(
    "around",
    [
        "if True:\n    def solve(x):\n        {}",
        'def solve(x):\n        """\nclass of ODEs\n"""\n        {}',
    ],
    ids=["in-if", "text-at-the-margin"],
)
def test_where_a_function_is_in_a_file(around: str, tmp_path: Path) -> None:
    """What stands at the margin around a function or in it does not hide its loops."""
    file = tmp_path / "solve.py"
    file.write_text(around.format("for i in x: f(x)"), encoding="utf-8")
    line = around.count("\n") + 1
    (loop,) = loops_around(str(file), line, len("        for i in x: "), calls=False)
    assert (loop.line, loop.kind) == (line, "for")


def test_a_function_of_lw_jit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trace says what XLA got of it, statics and keywords as they were; no event is seen."""

    @lw.jit
    def solve(x: Any, steps: lw.Static[int], *, rate: float = 0.1) -> Any:
        for _ in range(steps):
            x = x + rate * jnp.sin(x)
        return x

    solve(jnp.ones(3), 20)
    solve(jnp.ones(3), 30, rate=1.0)
    with lw.watch() as log:
        firsts = [trace.first_compile() for trace in solve.traces]
    assert not log.events
    assert [first.origins[0].runs for first in firsts if first is not None] == [20, 30]
    assert "which ran 20 times in one trace\n  fix: `jax.lax.scan`" in str(firsts[0])
    jax.vmap(solve, (0, None))(jnp.ones((2, 3)), 9)
    assert solve.traces[-1].first_compile() is None
    earlier = solve.traces[:2]
    solve.clear_cache()
    for number, program in ((1, earlier[1]), (2, earlier[0]), (2, earlier[1])):
        assert str(program.first_compile()) == str(firsts[earlier.index(program)])
        assert len(solve.traces) == number  # JAX had dropped the trace
    monkeypatch.setitem(ANSWERS, Internal.LOCATIONS, False)
    assert solve.traces[0].first_compile() is None
