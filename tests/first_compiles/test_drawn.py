"""Drawn programs: place, share and runs are those that JAX's own equations have, line by line."""

import dataclasses
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from tests.kit.inside import Site

from leafwise._compare.first_compile import first_compile

pytestmark = pytest.mark.usefixtures("lines")

FUNCTIONS = ("sin", "cos", "tanh", "exp", "negative", "abs")


@dataclasses.dataclass
class Loop:
    """A loop that was drawn: its line, its runs in one trace, and the lines below it."""

    line: int
    runs: int
    first: int
    last: int = 0


class Drawn:
    """The text of a program, one operation a line, and its loops."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311
        self.lines = ["import jax.numpy as jnp", "def program(x):"]
        self.loops: list[Loop] = []
        for _ in range(self.random.randint(1, 3)):
            self.add_block(1, 1)
        self.lines.append("    return x")

    def add(self, indent: int, text: str) -> int:
        self.lines.append("    " * indent + text)
        return len(self.lines)

    def add_block(self, indent: int, runs: int) -> None:
        """Add some statements, or a loop that has others inside."""
        if indent > 3 or self.random.random() < 0.4:
            for _ in range(self.random.randint(1, 3)):
                self.add(indent, f"x = jnp.{self.random.choice(FUNCTIONS)}(x)")
            return
        factor = self.random.choice((2, 3, 8, 9, 13) if runs < 10 else (2, 3))
        name = f"i{indent}"
        if self.random.random() < 0.3:
            self.add(indent, f"{name} = 0")
            line = self.add(indent, f"while {name} < {factor}:")
            self.add(indent + 1, f"{name} += 1")
        else:
            line = self.add(indent, f"for {name} in range({factor}):")
        loop = Loop(line, runs * factor, line + 1)
        self.loops.append(loop)
        for _ in range(self.random.randint(1, 2)):
            self.add_block(indent + 1, loop.runs)
        loop.last = len(self.lines)

    def expected(self, counts: Counter[int]) -> list[Loop]:
        """Return the loops that may be named, by the equations of each line."""
        total = sum(counts.values())
        named = [
            (loop.runs // self.runs_around(loop), loop)
            for loop in self.loops
            if self.own(loop) and 2 * self.inside(loop, counts) >= total
        ]
        most = max((factor for factor, _ in named), default=0)
        return [loop for factor, loop in named if factor == most >= 8]

    def inside(self, loop: Loop, counts: Counter[int]) -> int:
        return sum(counts[line] for line in range(loop.first, loop.last + 1))

    def own(self, loop: Loop) -> list[int]:
        """Return the lines of operations that are in no other loop inside it."""
        inner = [one for one in self.loops if loop.first <= one.line <= loop.last]
        lines = range(loop.first, loop.last + 1)
        return [
            line
            for line in lines
            if "jnp" in self.lines[line - 1]
            and not any(one.first <= line <= one.last for one in inner)
        ]

    def runs_around(self, loop: Loop) -> int:
        """Return the runs of the next loop around one that has operations of its own."""
        around = [one for one in self.loops if one.first <= loop.line <= one.last]
        return next((one.runs for one in reversed(around) if self.own(one)), 1)


def equations(function: Any, x: Any) -> Counter[int]:
    """Return how many equations of JAX each line has."""

    def lines(jaxpr: Any) -> Iterator[int]:
        for equation in jaxpr.eqns:
            frames = equation.source_info.traceback.frames
            yield next(frame.line_num for frame in frames if frame.file_name == file)

    file = function.__code__.co_filename
    return Counter(lines(jax.make_jaxpr(function)(x).jaxpr))


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.nightly] * (seed >= 6)) for seed in range(200)]
)
def test_drawn_program(seed: int, tmp_path: Path) -> None:
    """The loop that is named is one that may be, with the runs and the equations it has."""
    drawn, file = Drawn(seed), tmp_path / f"drawn{seed}.py"
    file.write_text("\n".join(drawn.lines), encoding="utf-8")
    namespace: dict[str, Any] = {}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), namespace)  # noqa: S102
    function = namespace["program"]
    counts = equations(function, jnp.ones(3))
    loops = {loop.line for loop in drawn.expected(counts)}
    for transformed in (function, jax.grad(lambda x: function(x).sum())):
        first = first_compile(jax.jit(transformed).lower(jnp.ones(3)), Site(__file__, 0, ""))
        assert first is not None
        named = [origin for origin in first.origins if origin.kind == "loop"]
        assert bool(named) == bool(loops) or transformed is not function
        for origin in named:
            assert origin.site is not None
            assert origin.site.file == str(file)
            loop = next(loop for loop in drawn.loops if loop.line == origin.site.line)
            assert origin.runs == loop.runs
            if transformed is function:
                assert loop.line in loops
                assert round(origin.share * first.total) == drawn.inside(loop, counts)
