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
from leafwise._findings.records import CallsRecord, LevelRecord, SiteRecord
from leafwise._findings.words import count, duration

_MOST: Final = 0.8  # of the seconds of a pass, for the line that is followed
_PAYS: Final = 0.6  # of the seconds of a pass that one `jit` takes, at most
_IF: Final = "if it has no side effects and needs no values"
_CACHE: Final = "JAX's cache on disk takes the next run to about a fifth"


class Pass(NamedTuple):
    """What one run of a piece of user code compiled outside `jit`, and what to do."""

    site: SiteRecord
    programs: list[ProgramEvents]
    fixes: list[Fix]


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


def passes(
    programs: list[ProgramEvents],
    jitted: list[list[LevelRecord]],
    calls: list[CallsRecord],
    least: float,
) -> Iterator[Pass]:
    """Yield the passes of at least so many seconds, with their fixes.

    `jitted` has the levels around the compiles of jitted functions.
    """
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
    region = _Region([level.site for level in levels[:depth]], levels[depth].function, largest)
    if _seconds(places[largest]) < _MOST * _seconds(inside):
        region = region._replace(place=None)
        if levels[depth].is_module or any(map(region.has, jitted)):
            for several in places.values():
                yield from passes(several, jitted, calls, least)
            return
    else:
        inside = places[largest]
    inner = levels[depth + 1] if len(path) > depth + 1 else None
    fixes = _fixes(region, inner, inside, jitted, calls)
    if fixes:
        yield Pass(region.place or levels[depth].site, inside, fixes)


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


def _fixes(
    region: _Region,
    inner: LevelRecord | None,
    programs: list[ProgramEvents],
    jitted: list[list[LevelRecord]],
    calls: list[CallsRecord],
) -> list[Fix]:
    depth, seconds = len(region.callers), busy(each for one in programs for each in one.events)
    calls = [call for call in calls if region.has(call.levels)]
    share, light, shared = _one_jit(programs, calls)
    takers = {level for program in programs for level in _levels(program)[depth:] if level.reads}
    reads = [call.levels[depth:] for call in calls if not call.maker]
    if share is None:
        return []
    if not (takers or reads or any(map(region.has, jitted))):
        if share <= _PAYS:
            about = f"{seconds * max(share, 0.25):.2g} s"
            words = f"{_whole(region)}, {_IF}: {{}} to about {{}}"
            return [Fix(words, names=(duration(seconds), about))]
        return [Fix(f"leave it: {shared}{_CACHE}")] if shared else []
    is_read = any(level.function != region.function for level in takers)
    if inner is None or is_read or not light:
        return []
    if any(level.function == inner.function for levels in reads for level in levels):
        return []
    name = inner.function[1].rpartition(".")[2]
    what = "this lambda" if name == "<lambda>" else f"`{name}`"
    words = f"`jax.jit` {what}, {_IF}: about half"
    more = "; to jit all of it, return the values that are read here, and read them later"
    return [Fix(words + more * bool(reads))]


def _whole(region: _Region) -> str:
    if region.place is None:
        return f"`jax.jit` all of `{region.function[1].rpartition('.')[2]}`"
    is_loop = region.place.text.startswith(("for ", "while ", "async for "))
    return f"put this {'loop' if is_loop else 'line'} into a function and `jax.jit` that"


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
    unit = light / max(1, len(compiles) - len(heavy))
    made, called = Counter(event.maker for event in heavy), Counter[str]()
    for call in calls:
        called[call.maker] += call.number
    if any(event.heavy is None for event in compiles) or not made.keys() <= called.keys():
        return None, False, ""
    reuse = {maker: called[maker] / number for maker, number in made.items()}
    weighted = sum(event.seconds * max(1.0, reuse[event.maker]) for event in heavy)
    again = weighted * max(0.0, 1 - 3 * unit * len(heavy) / slow) if heavy else 0.0
    share = (0.4 * light + again + 0.1 * (total - light - slow) + 2 * unit) / total
    most = max(made, key=lambda maker: reuse[maker] * made[maker], default="")
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
    return sum(program.seconds for program in programs)
