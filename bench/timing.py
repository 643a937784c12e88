"""The stdlib's `timeit` loop, for several contestants in turn.

Machines slow down and recover within seconds, and contestants timed one after another would
each meet another machine. So a round runs every contestant for some milliseconds, in shuffled
order, and what counts is the least CPU time of the thread over all rounds: others that use the
machine take neither.
"""

import dataclasses
import random
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

_FEWEST_ROUNDS: Final = 5


@dataclasses.dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
        seconds: What the rounds of one table may take; at least five are run.
        slot: How many seconds one contestant runs in a round.
        loops: Calls a slot, instead of `slot`; two rounds are run. For tests.
    """

    seconds: float
    slot: float = 0.004
    loops: int | None = None


@dataclasses.dataclass
class Job:
    """One statement to be timed.

    Attributes:
        timer: The statement; `timeit` turns the garbage collector off around it.
        calls: How many calls of interest the statement makes.
        loops: How often it runs in a slot, if that must not be chosen by time.
    """

    timer: timeit.Timer
    calls: int = 1
    loops: int | None = None

    def calibrate(self, effort: Effort) -> None:
        """Warm up, and choose how often the statement runs in a slot."""
        self.timer.timeit(1)
        if self.loops is None:
            self.loops = effort.loops or self._loops_for(effort.slot)

    def _loops_for(self, slot: float) -> int:
        loops = 1
        # The least of three: an interruption must not pass for a slow statement, which
        # would then be timed cold, once a slot.
        while (taken := min(self.timer.repeat(3, loops))) < slot / 2:
            loops *= 2
        return max(1, round(loops * slot / taken))

    def run(self) -> float:
        """Return seconds per call."""
        loops = self.loops or 1
        return self.timer.timeit(loops) / (loops * self.calls)


def timer(
    statement: str,
    names: Mapping[str, Any],
    setup: str = "pass",
    clock: Callable[[], float] = time.thread_time,
) -> timeit.Timer:
    """Return what times a statement in the CPU time of its thread, or by another clock."""
    return timeit.Timer(statement, setup, clock, dict(names))


def job(statement: str, names: Mapping[str, Any], *, calls: int = 1) -> Job:
    """Return a job whose statement sees these names as local variables."""
    outer = {f"given_{name}": value for name, value in names.items()}
    setup = "; ".join(f"{name} = given_{name}" for name in names) or "pass"
    return Job(timer(statement, outer, setup), calls)


Group = Mapping[str, Job]
"""Jobs that are compared with each other, by contestant."""

Times = Mapping[str, float]
"""The least seconds per call, by contestant."""


def interleave(groups: Sequence[Group], effort: Effort) -> list[Times]:
    """Time all jobs, round after round, those of one group side by side.

    Args:
        groups: What to time.
        effort: How long.

    Returns:
        For each group, the times by contestant.
    """
    for group in groups:
        for each in group.values():
            each.calibrate(effort)
    taken = [dict.fromkeys(group, float("inf")) for group in groups]
    shuffler = random.Random(0)  # noqa: S311  # an order, no secret
    end = time.perf_counter() + effort.seconds
    rounds = 0
    while rounds < 2 or (
        effort.loops is None and (rounds < _FEWEST_ROUNDS or time.perf_counter() < end)
    ):
        for group, least in zip(groups, taken, strict=True):
            for name in shuffler.sample(list(group), len(group)):
                least[name] = min(least[name], group[name].run())
        rounds += 1
    return list(taken)
