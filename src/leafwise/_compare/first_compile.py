"""What the operations of a program are from: an unrolled loop, constants, or a few lines.

The number of runs of a loop is how often most primitives in its body are there, each at one piece
of code: exact, as JAX traces the body once for each run. It is one more, if that holds of two: the
first run may lack derivatives.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from leafwise._compare.fixes import LAYER_LOOPS, fix_of_loop
from leafwise._display.report import FirstCompile, Origin, SiteRecord
from leafwise._display.words import place
from leafwise._jax.compiles import module_of, shows_lines
from leafwise._jax.operations import Frames, Operations, Statement, read_operations
from leafwise._objects.call_site import Site, is_users_file
from leafwise._objects.loops import Loop, loops_around

_LEAST_SHARE: Final = 0.5
_LEAST_RUNS: Final = 8
LARGE_BYTES: Final = 1 << 20
"""Constants of so many bytes are named."""

_ALIKE: Final = 0.8
"""The share of runs with results of one type, and of statements with them, in a loop that scans."""

_MOST_LINES: Final = 3


def first_compile(lowered: Any, site: Site | None = None) -> FirstCompile | None:
    """Return what XLA gets of a function, lowered at a line; None where JAX does not show it."""
    module = module_of(lowered)
    if module is None or not shows_lines():
        return None
    return describe_operations(read_operations(module, () if site is None else (site[:2],)))


def describe_operations(operations: Operations) -> FirstCompile:
    """Return what there is to say of the operations of a program."""
    origins = [*_constants(operations), *_loops(operations)] or list(_lines(operations))
    return FirstCompile(operations.total, origins)


def _constants(operations: Operations) -> Iterator[Origin]:
    if operations.nbytes >= LARGE_BYTES:
        largest = max(operations.constants, key=lambda frames: operations.constants[frames])
        yield Origin("constants", SiteRecord.of(_users_site(largest)), nbytes=operations.nbytes)


def _lines(operations: Operations) -> Iterator[Origin]:
    """Yield the lines of the user's that most operations are from."""
    lines = Counter[Site]()
    for statement, number in operations.counts.items():
        inside = statement.frames[: operations.depth(statement.frames)]
        if (site := _users_site(inside)) is not None:
            lines[site] += number
    for site, number in lines.most_common(_MOST_LINES):
        yield Origin("line", SiteRecord.of(site), share=number / operations.total)


class _LoopOperations:
    """The operations in a loop: those in no other loop inside it by the frames around the loop."""

    def __init__(self) -> None:
        self.around: list[Loop] = []  # of the statement with most of them, the innermost first
        self.most = self.total = 0
        self.own: dict[Frames, dict[Statement, int]] = {}

    @property
    def largest(self) -> Frames:
        """The frames around the loop; of a function with several callers those with most."""
        return max(self.own, key=lambda frames: sum(self.own[frames].values()))

    @property
    def runs(self) -> int:
        """How often the body was traced, over all runs of the loops around it."""
        return _runs(self.own[self.largest]) if self.own else 0


def _loops(operations: Operations) -> Iterator[Origin]:
    """Yield the loop that multiplies most, of those that at least half of the operations are from.

    A loop multiplies by its own runs, not by those of the loops around it: of a short loop in a
    long one it is the long one.
    """
    least = operations.total * _LEAST_SHARE
    often = [number for number in operations.counts.values() if number >= _LEAST_RUNS]
    if sum(often) < least:
        return  # no file is read
    loops = _operations_by_loop(operations)
    factors: dict[Loop, float] = {}
    for candidate, inside in loops.items():
        if inside.own and inside.total >= least:
            # By the runs of the next loop around it that has operations of its own.
            around = (loops[outer].runs for outer in inside.around)
            factors[candidate] = inside.runs / next(filter(None, around), 1)
    loop = max(factors, key=lambda loop: factors[loop], default=None)
    if loop is None or factors[loop] < _LEAST_RUNS:
        return
    inside = loops[loop]
    most = _ALIKE * inside.runs
    are_alike = [
        operations.alike[statement] >= most
        for statement, number in inside.own[inside.largest].items()
        if statement.label and number >= most
    ]
    is_alike = sum(are_alike) >= _ALIKE * len(are_alike)
    own = Site(loop.file, loop.line, "")
    user = own if is_users_file(loop.file) else _users_site(inside.largest)
    if user is None:  # a package of its own accord
        return
    yield Origin(
        loop.kind if loop.is_call else "loop",
        SiteRecord.of(user),
        via="" if user is own else place(SiteRecord.of(own)),
        share=inside.total / operations.total,
        runs=inside.runs,
        fix=fix_of_loop(
            loop, is_alike=is_alike, library=_library(inside), is_inner=bool(inside.around)
        ),
    )


def _operations_by_loop(operations: Operations) -> dict[Loop, _LoopOperations]:
    loops: dict[Loop, _LoopOperations] = {}
    for statement, number in operations.counts.items():
        frames = statement.frames
        around = list(_loops_of(frames[: operations.depth(frames)]))
        chain = list(dict.fromkeys(loop for _, loop in around))  # of a recursion, each once
        for depth, loop in enumerate(chain, 1):
            inside = loops.setdefault(loop, _LoopOperations())
            if number > inside.most:
                inside.most, inside.around = number, chain[depth:]
            inside.total += number
        for depth, loop in around[:1]:
            loops[loop].own.setdefault(frames[depth + 1 :], {})[statement] = number
    return loops


def _loops_of(frames: Frames) -> Iterator[tuple[int, Loop]]:
    """Yield the loops around an operation, the innermost first, with the depth of their frame."""
    for depth, frame in enumerate(frames):
        for loop in loops_around(*frame, calls=depth > 0):
            yield depth, loop


def _runs(counts: Mapping[Statement, int]) -> int:
    primitives: dict[tuple[Frames, str], int] = {}  # which may be several operations each time
    for (frames, label), number in counts.items():
        if label:
            key = frames, label.rpartition(" ")[0]
            primitives[key] = min(number, primitives.get(key, number))
    numbers = Counter(primitives.values())
    runs = max(numbers, key=lambda number: (numbers[number], -number), default=1)
    runs += numbers[runs + 1] > 1
    fitting = [number for number in numbers if abs(math.remainder(number, runs)) <= 1]
    return runs if sum(numbers[number] for number in fitting) * 2 > numbers.total() else 0


def _library(inside: _LoopOperations) -> str:
    """Return the library whose layers a loop calls, if that has a loop of its own for them."""
    folders = {
        part
        for one in inside.own[inside.largest]
        for frame in one.frames
        for part in Path(frame.file).parts
    }
    return next((name for name in LAYER_LOOPS if name in folders), "")


def _users_site(frames: Frames) -> Site | None:
    sites = (Site(frame.file, frame.line, "") for frame in frames)
    return next((site for site in sites if is_users_file(site.file)), None)
