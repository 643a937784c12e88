"""Where the operations of a program come from: random draws, an unrolled loop, and so on.

JAX traces the body of an unrolled loop once for each run, so the number of runs is how often most
primitives in the body occur, each counted at one piece of code. If at least two occur once more,
it is one more, as the first run may lack derivatives.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from leafwise._compare.fixes import LAYER_LOOPS, fix_of_draws, fix_of_loop
from leafwise._findings.records import FirstCompile, Origin, SiteRecord, place
from leafwise._jax.compiles import module_of, shows_lines
from leafwise._jax.operations import (
    LARGE_BYTES,
    Frames,
    Operations,
    Statement,
    read_operations,
)
from leafwise._objects.source.call_site import Site, is_users_file
from leafwise._objects.source.loops import Loop, loops_around

_LEAST_RUNS: Final = 8
_LEAST_COPIES: Final = 4

_MANY: Final = 500
"""Fewer operations than these are not what takes XLA long if it folds constants: it was measured to
need at most 6.4 ms each."""

_MOST: Final = 0.8
"""The least share of the operations of three lines that is shown for functions in their place."""

_Branch: TypeAlias = tuple[Any, ...]
"""A line of user code, or None, and the functions of packages below, each with its file."""

_ALIKE: Final = 0.8
"""In a loop that can be scanned, the least share of runs with results of one type, and of
statements with such runs."""


def first_compile(lowered: Any, site: Site | None = None) -> FirstCompile | None:
    """Return the program that XLA gets for a function lowered at a line, or None if not shown."""
    module = module_of(lowered)
    if module is None or not shows_lines():
        return None
    return describe_operations(read_operations(module, () if site is None else (site[:2],)))


def describe_operations(operations: Operations) -> FirstCompile:
    constants = list(_constants(operations))
    origins = list(_deep_draws(operations)) or list(_loops(operations))
    if not operations.is_folded or operations.total >= _MANY:
        origins = origins or list(_copies(operations)) or list(_lines(operations))
    several = [*constants, *origins] if operations.is_folded else [*origins, *constants]
    return FirstCompile(operations.total, several)


def _constants(operations: Operations) -> Iterator[Origin]:
    if operations.nbytes >= LARGE_BYTES:
        largest = max(operations.constants, key=lambda frames: operations.constants[frames])
        site, nbytes = SiteRecord.of(_users_site(largest)), operations.nbytes
        yield Origin("constants", site, nbytes=nbytes, is_folded=operations.is_folded)


def _deep_draws(operations: Operations) -> Iterator[Origin]:
    """Yield the random draws of three axes or more, if at least half of the operations are theirs.

    XLA for CPU is slow to compile their nested loops: a draw takes it as long as several of two
    axes, at any size.
    """
    draws = {statement for statement in operations.counts if statement.is_deep}
    total = sum(operations.counts[statement] for statement in draws)
    if operations.is_flat and 2 * total >= operations.total:
        frames = max(draws, key=lambda draw: operations.counts[draw]).frames
        inside = frames[: operations.depth(frames)]
        yield Origin(
            "draws",
            SiteRecord.of(_users_site(inside)),
            share=total / operations.total,
            runs=sum(operations.counts[draw] for draw in draws if draw.label),
            fix=fix_of_draws([frame.file for frame in inside[: _package_depth(inside)]]),
        )


def _copies(operations: Operations) -> Iterator[Origin]:
    """Yield the function whose copies have most operations, if at least half come from it.

    That is a function of the user, or one of `jax.random`.
    """
    functions: dict[tuple[str, str], dict[Statement, int]] = {}
    for statement in operations.counts:
        inside = statement.frames[: operations.depth(statement.frames)]
        for start, frame in enumerate(inside[:-1]):  # the last one is traced once
            if frame.function[:1] != "<" and is_users_file(frame.file):
                key = frame.file, frame.function  # in a recursion, its outermost call
                functions.setdefault(key, {})[statement] = start
        if statement.draw:
            functions.setdefault(("", statement.draw), {})[statement] = -1
    most = 0.0
    found: list[Origin] = []
    for (file, function), starts in functions.items():
        own = sum(operations.counts[statement] for statement in starts)
        if 2 * own < operations.total:
            continue
        labelled = [operations.counts[draw] for draw in starts if draw.draw and draw.label]
        # The number is not that of the calls if most of the function is in loops of its own.
        runs = _calls(operations, starts, least=own / 2) if file else sum(labelled)
        if runs >= _LEAST_COPIES and own * (1 - 1 / runs) > most:
            most, share = own * (1 - 1 / runs), own / operations.total
            largest = max(starts, key=lambda statement: operations.counts[statement])
            site = SiteRecord.of(_users_site(largest.frames[starts[largest] + 1 :]))
            name = _name(function) if file else f"jax.random.{function}"
            found = [Origin("copies", site, path=name, share=share, runs=runs)]
    yield from found


def _lines(operations: Operations) -> Iterator[Origin]:
    """Yield the lines of user code that most operations come from, or functions of packages below.

    A function is replaced by those that it calls, as long as three of them have most of what the
    first three lines have.
    """
    totals = Counter[_Branch]()
    below: dict[_Branch, set[_Branch]] = {}
    statements: dict[_Branch, list[Statement]] = {}
    for statement, number in operations.counts.items():
        inside = statement.frames[: operations.depth(statement.frames)]
        branch: _Branch = (_users_site(inside),)
        frames = reversed(inside[: _package_depth(inside)])
        for step in (*((frame.file, frame.function) for frame in frames), None):
            totals[branch] += number
            statements.setdefault(branch, []).append(statement)
            below.setdefault(branch, set()).add(branch := (*branch, step))
        totals[branch] += number  # what the function does itself
    shown = {branch for branch in totals if len(branch) == 1}
    lines = largest = heapq.nlargest(3, shown, totals.__getitem__)
    least = _MOST * sum(totals[branch] for branch in lines)
    while sum(totals[branch] for branch in largest) >= least:
        lines = largest
        for branch in lines:
            if branch in below and 2 * totals[*branch, None] < totals[branch]:
                shown = (shown - {branch}) | below[branch]
                break
        else:
            break
        largest = heapq.nlargest(3, shown, totals.__getitem__)
    functions: list[Any]
    found: dict[tuple[Any, str], Origin] = {}  # two lambdas of one function are one
    for site, *functions in lines:
        branch = (site, *functions)
        names = [_name(step[1]) for step in functions if step is not None]
        names = [name for name in names if name[:1] != "<"]
        if names or site is not None:
            depth = len(functions) - (functions[-1:] == [None])
            starts = {
                statement: _package_depth(frames[: operations.depth(frames)]) - depth
                for statement in statements.get(branch[: depth + 1], ())
                for frames in [statement.frames]
            }
            path = " > ".join(dict.fromkeys((*names[:1], *names[-1:])))
            share, runs = totals[branch] / operations.total, 0
            if (same := found.get((site, path))) is not None:
                share += same.share
            elif depth:
                runs = _calls(operations, starts)
            place = SiteRecord.of(site)
            found[site, path] = Origin("line", place, path=path, share=share, runs=runs)
    yield from found.values()


def _name(function: str) -> str:
    return function.rpartition("<locals>.")[2]


def _package_depth(frames: Frames) -> int:
    """Return how many frames of packages are inside the innermost one of user code."""
    files = (frame.file for frame in frames)
    return next((depth for depth, file in enumerate(files) if is_users_file(file)), len(frames))


def _calls(operations: Operations, starts: Mapping[Statement, int], least: float = 0) -> int:
    """Return how often a function was called, by the places of its frames; 0 if unknown.

    What is in a loop of the function, or of those that it calls, is not counted: if `least`
    operations are not left, the number is unknown.
    """
    calls: dict[Frames, dict[Statement, int]] = {}
    for statement, start in starts.items():
        inside = statement.frames[: operations.depth(statement.frames)]
        counts = calls.setdefault(inside[start + 1 :], {})
        if next(_loops_of(inside[: start + 1]), None) is None:
            counts[statement] = operations.counts[statement]
    number = left = 0
    for around, counts in calls.items():
        runs = _runs(counts)
        # Without a loop around the call, a loop that is not seen may be in the function.
        if runs == 0 or (runs > 1 and next(_loops_of(around, calls=True), None) is None):
            return 0
        number, left = number + runs, left + sum(counts.values())
    return number if left >= least else 0


class _LoopOperations:
    """The operations in a loop; those not in an inner loop are in `own`, by the outer frames."""

    def __init__(self) -> None:
        self.around: list[Loop] = []  # around its most frequent statement, innermost first
        self.most = self.total = 0
        self.own: dict[Frames, dict[Statement, int]] = {}

    @property
    def largest(self) -> Frames:
        """The frames around the loop; with several callers, those with most operations."""
        return max(self.own, key=lambda frames: sum(self.own[frames].values()))

    @property
    def runs(self) -> int:
        """How often the body was traced, over all runs of the enclosing loops."""
        return _runs(self.own[self.largest]) if self.own else 0


def _loops(operations: Operations) -> Iterator[Origin]:
    """Yield the loop that multiplies operations most, if at least half of them come from it."""
    least = operations.total / 2
    often = [number for number in operations.counts.values() if number >= _LEAST_RUNS]
    if sum(often) < least:
        return  # without reading any file
    loops = _operations_by_loop(operations)
    factors: dict[Loop, float] = {}
    for candidate, inside in loops.items():
        if inside.own and inside.total >= least:
            # Divide by the runs of the nearest enclosing loop that has operations of its own: if
            # a short loop is inside a long one, the long one is yielded.
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
    if user is None:  # no user code is involved
        return
    yield Origin(
        loop.kind if loop.is_call else "loop",
        SiteRecord.of(user),
        via="" if user is own else place(SiteRecord.of(own)),
        share=inside.total / operations.total,
        runs=inside.runs,
        fix=fix_of_loop(
            loop,
            is_alike=is_alike,
            library=loop.library or _library(inside),
            is_inner=bool(inside.around),
        ),
    )


def _operations_by_loop(operations: Operations) -> dict[Loop, _LoopOperations]:
    loops: dict[Loop, _LoopOperations] = {}
    for statement, number in operations.counts.items():
        frames = statement.frames
        around = list(_loops_of(frames[: operations.depth(frames)]))
        chain = list(dict.fromkeys(loop for _, loop in around))  # without repeats by recursion
        for depth, loop in enumerate(chain, 1):
            inside = loops.setdefault(loop, _LoopOperations())
            if number > inside.most:
                inside.most, inside.around = number, chain[depth:]
            inside.total += number
        for depth, loop in around[:1]:
            loops[loop].own.setdefault(frames[depth + 1 :], {})[statement] = number
    return loops


def _loops_of(frames: Frames, *, calls: bool = False) -> Iterator[tuple[int, Loop]]:
    """Yield the loops around an operation or a call, innermost first, with their frames' depth."""
    for depth, frame in enumerate(frames):
        for loop in loops_around(*frame[:3], calls=calls or depth > 0):
            yield depth, loop


def _runs(counts: Mapping[Statement, int]) -> int:
    primitives: dict[tuple[Frames, str], int] = {}  # each may lower to several operations
    for statement, number in counts.items():
        if statement.label:
            key = statement.frames, statement.label.rpartition(" ")[0]
            primitives[key] = min(number, primitives.get(key, number))
    numbers = Counter(primitives.values())
    runs = max(numbers, key=lambda number: (numbers[number], -number), default=1)
    runs += runs > 1 and numbers[runs + 1] > 1
    fitting = [number for number in numbers if abs(math.remainder(number, runs)) <= 1]
    return runs if sum(numbers[number] for number in fitting) * 2 > numbers.total() else 0


def _library(inside: _LoopOperations) -> str:
    """Return the library whose layers a loop calls, if it has its own loop for layers, or ""."""
    files = {frame.file for one in inside.own[inside.largest] for frame in one.frames}
    folders = {part for file in files for part in Path(file).parts}
    return next((name for name in LAYER_LOOPS if name in folders), "")


def _users_site(frames: Frames) -> Site | None:
    sites = (Site(frame.file, frame.line, "") for frame in frames)
    return next((site for site in sites if is_users_file(site.file)), None)
