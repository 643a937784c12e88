"""Passes outside `jit`, such as initializers: when one `jax.jit` pays, and around what.

Outside `jit`, equal calls share a program; in one `jit`, XLA compiles a copy for each call. So what
decides is the number of calls for each program that is slow to compile. The shares in `_one_jit`
were measured on thirty start-ups.
"""

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from leafwise._findings.findings import ProgramEvents, busy
from leafwise._findings.reasons import Fix, grouped
from leafwise._findings.records import CallsRecord, LevelRecord, SiteRecord, line_of
from leafwise._findings.words import count, duration

_MOST: Final = 0.8  # of the seconds of a pass, for the line that is followed
_PAYS: Final = 0.6  # of the seconds of a pass that one `jit` takes, at most
_LEAST_PROGRAMS: Final = 8  # of fewer, the first, which loads parts of JAX, counts for too much
_UNKNOWN: Final = 0.1  # of the seconds of a pass, in programs whose calls are not known, at most
_MANY: Final = 10  # calls for each that compiles: one `jit` would trace them all
_IF: Final = "if it has no side effects, needs no values, and may round differently"
_CACHE: Final = "JAX's cache on disk takes the next run to about a fifth"


class Pass(NamedTuple):
    """What one run of a piece of user code compiled outside `jit`, and what to do."""

    site: SiteRecord
    programs: list[ProgramEvents]
    fix: Fix


class Counted(NamedTuple):
    """What was seen in a run, besides the programs of a pass."""

    jitted: list[list[LevelRecord]]  # around the compiles of jitted functions
    calls: list[CallsRecord]
    runs: dict[str, int]  # of lines and functions, after the first that compiled


class _Region(NamedTuple):
    """A function, or a loop or a line in it, below some lines that call it."""

    callers: list[SiteRecord]
    function: tuple[str, str]
    place: SiteRecord | None

    def has(self, levels: Sequence[LevelRecord]) -> bool:
        """Return whether code with these levels ran in it."""
        depth = len(self.callers)
        if len(levels) <= depth or [level.site for level in levels[:depth]] != self.callers:
            return False
        level = levels[depth]
        return level.function == self.function and self.place in (None, level.place)

    @property
    def is_loop(self) -> bool:
        starts = "for ", "while ", "async for "
        return self.place is not None and self.place.text.startswith(starts)


def passes(programs: list[ProgramEvents], counted: Counted, least: float) -> Iterator[Pass]:
    """Yield the passes of at least so many seconds, with their fixes."""
    programs = [program for program in programs if _levels(program)]
    if not programs or _seconds(programs) < least:
        return
    path = _path(programs)
    starts = [{_levels(each)[depth].start for each in inside} for depth, inside in enumerate(path)]
    if any(None in numbers for numbers in starts):  # as before Python 3.12
        return
    # The last function that was called once has the whole pass, the next one is called in a loop.
    depth = next((at for at, numbers in enumerate(starts) if len(numbers) > 1), len(starts)) - 1
    if depth < 0:  # its caller is not known
        return
    inside = path[depth]
    places = grouped(inside, lambda program: _levels(program)[depth].place)
    largest = max(places, key=lambda place: _seconds(places[place]))
    levels = _levels(places[largest][0])
    region = _Region([level.site for level in levels[:depth]], levels[depth].function, None)
    is_split = _seconds(places[largest]) < _MOST * _seconds(inside)
    if is_split and (levels[depth].is_module or any(map(region.has, counted.jitted))):
        for several in places.values():
            yield from passes(several, counted, least)
    else:
        if not is_split:
            inside, region = places[largest], region._replace(place=largest)
        inner = _levels(path[depth + 1][0])[depth + 1] if len(path) > depth + 1 else None
        if _seconds(inside) >= least:
            fix = _fix(region, inner, inside, counted)
            yield Pass(region.place or levels[depth].site, inside, fix)
    known = set(map(id, inside))
    rest = [program for program in programs if id(program) not in known]
    yield from passes(rest, counted, least)


def _path(programs: list[ProgramEvents]) -> list[list[ProgramEvents]]:
    """Return the programs inside each function, from the outermost, until they split over lines."""
    lines = grouped(programs, functools.partial(_site, 0))
    path, depth = [programs], 0
    while lines:
        several, depth = max(lines.values(), key=_seconds), depth + 1
        functions = grouped(
            [program for program in several if len(_levels(program)) > depth],
            functools.partial(_function, depth),
        )
        below = max(functions.values(), key=_seconds, default=[])
        if _seconds(below) < _MOST * _seconds(path[-1]):
            break
        path.append(below)
        lines = grouped(below, functools.partial(_site, depth))
    return path


def _fix(
    region: _Region,
    inner: LevelRecord | None,
    programs: list[ProgramEvents],
    counted: Counted,
) -> Fix:
    depth, seconds = len(region.callers), busy(each for one in programs for each in one.events)
    calls = [call for call in counted.calls if region.has(call.levels)]
    share, light, shared = _one_jit(programs, calls)
    takers = {level for program in programs for level in _levels(program)[depth:] if level.reads}
    reads = [call.levels[depth:] for call in calls if not call.maker]
    if share is None:
        return Fix(_CACHE)
    is_free = not (takers or reads or any(map(region.has, counted.jitted)))
    pays = share <= _PAYS and len(programs) >= _LEAST_PROGRAMS
    if is_free and pays and _calls_each(region, programs, counted.runs) < _MANY:
        about = f"{seconds * max(share, 0.25):.2g} s"
        words = f"{_whole(region, programs)}, {_IF}: {{}} to about {{}}"
        return Fix(words, names=(duration(seconds), about))
    is_read = any(level.function != region.function for level in takers)
    if inner is not None:
        is_read |= any(level.function == inner.function for levels in reads for level in levels)
    has_inner = inner is not None or (is_free and region.is_loop)
    if (is_free and not pays) or is_read or not (light and has_inner):
        return Fix(_CACHE if pays else f"leave it: {shared}{_CACHE}")
    name = "" if inner is None else inner.function[1].rpartition("<locals>.")[2]
    what = f"`{name}`" if name else "a function of the loop's body"
    if inner is not None and name == "<lambda>":
        what = f"the lambda in line {inner.site.line}"
    is_method = "." in name  # `self` is not an argument of a `jit`
    jit = _jit_of(f"what {what} computes") if is_method else f"`jax.jit` {what}"
    words = f"{jit}, {_IF}: about half"
    more = "; to jit all of it, return the values that are read here, and read them later"
    return Fix(words + more * bool(reads))


def _calls_each(region: _Region, programs: list[ProgramEvents], runs: dict[str, int]) -> float:
    """Return how often the lines run in the pass, for each run in which they compiled."""
    lines = grouped(programs, lambda program: line_of(program.first.site))
    compiled = sum(len({one.explained.run for one in several}) for several in lines.values())
    passes = 1 + runs.get(":".join(region.function), 0)
    return sum(1 + runs.get(line, 0) for line in lines) / compiled / passes


def _whole(region: _Region, programs: list[ProgramEvents]) -> str:
    builders = {level.builder for program in programs for level in _levels(program)}
    jit = "eqx.filter_jit" if "equinox" in builders else "jax.jit"
    what = f"this {'loop' if region.is_loop else 'line'}"
    if region.place is None:
        what = f"what `{region.function[1].rpartition('<locals>.')[2]}` computes"
    return _jit_of(what, jit)


def _jit_of(what: str, jit: str = "jax.jit") -> str:
    return f"put {what} into a function of its arrays and `{jit}` that"


def _one_jit(
    programs: list[ProgramEvents], calls: list[CallsRecord]
) -> tuple[float | None, bool, str]:
    """Return the share of the seconds that one `jit` would take, and whether most is light.

    None if it is not known. The text says which calls share programs.
    """
    compiles = [program.events[-1] for program in programs]
    heavy = [event for event in compiles if event.heavy]
    light, slow = (
        sum(event.seconds for event in compiles if bool(event.heavy) is is_heavy)
        for is_heavy in (False, True)
    )
    total = sum(each.seconds for program in programs for each in program.events)
    traced = sum(busy(one.events[:-1]) for one in programs if one.events[-1].heavy)
    unit = light / max(1, len(compiles) - len(heavy))
    made, called = Counter(event.maker for event in heavy), Counter[str]()
    for call in calls:
        called[call.maker] += call.number
    del called[""]  # reads
    unknown = (
        one for one in compiles if one.heavy is None or (one.heavy and not called[one.maker])
    )
    if sum(event.seconds for event in unknown) > _UNKNOWN * total:
        return None, False, ""
    reuse = {maker: called[maker] / number for maker, number in made.items()}
    copies = {
        maker: max(1.0, reuse[maker]) * sum(event.seconds for event in several)
        for maker, several in grouped(heavy, lambda event: event.maker).items()
    }
    again = sum(copies.values()) * max(0.0, 1 - 3 * unit * len(heavy) / slow) if heavy else 0.0
    rest = traced + 0.1 * (total - light - slow - traced)
    share = (0.4 * light + again + rest + 2 * unit) / total
    most = max(copies, key=copies.__getitem__, default="")
    times, number = called[most], count(made[most], "program")
    shared = f"{times:,} calls of `{most}` share {number}, which one `jit` would compile for each; "
    return share, light > slow, shared if heavy and times >= 2 * made[most] else ""


def _levels(program: ProgramEvents) -> list[LevelRecord]:
    return program.events[-1].levels


def _site(depth: int, program: ProgramEvents) -> SiteRecord:
    return _levels(program)[depth].site


def _function(depth: int, program: ProgramEvents) -> tuple[str, str]:
    return _levels(program)[depth].function


def _seconds(programs: list[ProgramEvents]) -> float:
    return sum(program.spent for program in programs)
