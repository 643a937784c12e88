"""What was measured: every figure of the benchmark is part of one kind of row."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Self

from libraries import AGAIN, EMPTY, MANY, OURS, READY, SLOTS, WITHOUT_STATICS
from timing import Samples

FLAT: Final = "flat"
NO_PEERS: Final = frozenset({OURS, SLOTS, MANY, WITHOUT_STATICS, EMPTY, READY, FLAT, AGAIN})
"""Never the best peer: ourselves, bounds, controls, and chex, which has five fields, not eight."""

_PER_SECOND: Final = {"ns": 1e9, "µs": 1e6, "ms": 1e3}
STEPS: Final = "steps/s"
FACTOR: Final = "x"


@dataclasses.dataclass(frozen=True)
class Figure:
    """What one contestant takes.

    Attributes:
        value: In the unit of the row.
        spread: Half of the interquartile range over the rounds, as a fraction.
        ratio: Our time over that of this contestant, as the median over rounds; below one,
            leafwise is quicker. None where the difference of two times came out as nothing.
    """

    value: float
    spread: float = 0.0
    ratio: float | None = None


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of the benchmark.

    Attributes:
        table: The table it belongs to.
        name: What was measured; no two rows share it.
        unit: Of all figures.
        figures: By contestant, ours first.
        against: The contestant that the target is about; None: our figure itself counts.
        target: The most that `score` should be.
        spread: Of `score`, as a fraction.
    """

    table: str
    name: str
    unit: str
    figures: Mapping[str, Figure]
    against: str | None = None
    target: float | None = None
    spread: float = 0.0

    @property
    def ours(self) -> Figure:
        """Leafwise's figure."""
        return self.figures[OURS]

    @property
    def score(self) -> float | None:
        """What has a target and is compared with earlier runs; less is better."""
        return self.ours.value if self.against is None else self.ratio_to(self.against)

    @property
    def is_over(self) -> bool:
        """Whether the target is missed, by as many digits as the tables show."""
        if self.target is None or self.score is None:
            return False
        return round(self.score, 2) > self.target

    def ratio_to(self, name: str) -> float | None:
        """Return our time over that of another contestant, if both are there."""
        return self.figures[name].ratio if name in self.figures else None

    def relative(self, name: str, to: str) -> float | None:
        """Return one contestant's time over another's, through ours."""
        this, other = self.ratio_to(name), self.ratio_to(to)
        return other / this if this and other else None

    def as_json(self) -> dict[str, Any]:
        """Return the row as data."""
        return dataclasses.asdict(self) | {"score": self.score, "over": self.is_over}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the row that `as_json` was asked for."""
        fields = {field.name: data[field.name] for field in dataclasses.fields(cls)}
        figures = {name: Figure(**figure) for name, figure in data["figures"].items()}
        return cls(**fields | {"figures": figures})


def best_peer(figures: Mapping[str, Figure]) -> str | None:
    """Return the quickest contestant that is another library and does the same work."""
    ratios = {name: figure.ratio for name, figure in figures.items() if name not in NO_PEERS}
    if not ratios or None in ratios.values():
        return None
    return max(ratios, key=lambda name: ratios[name] or 0.0)


def timed(
    table: str,
    name: str,
    samples: Mapping[str, Samples],
    *,
    unit: str = "µs",
    target: float | None = None,
    absolute: bool = False,
) -> Row:
    """Return the row of a group of jobs that were timed side by side.

    Args:
        table: The table it belongs to.
        name: What was measured.
        samples: The times by contestant.
        unit: Of the figures.
        target: The most that the ratio to the best peer, or our own figure, should be.
        absolute: Whether the target is about our own figure.
    """
    figures = {
        each: Figure(_in_unit(taken.median, unit), taken.spread, samples[OURS].ratio_to(taken))
        for each, taken in samples.items()
    }
    against = None if absolute else best_peer(figures)
    spread = samples[OURS].spread
    if against is not None:
        spread = samples[OURS].over(samples[against]).spread
    return Row(table, name, unit, figures, against, target, spread)


def growth(
    table: str,
    name: str,
    large: Mapping[str, Samples],
    small: Mapping[str, Samples],
    *,
    ours: str = OURS,
    target: float | None = None,
) -> Row:
    """Return the row of how much more each contestant takes where there is more to do.

    Args:
        table: The table it belongs to.
        name: What grows.
        large: The times by contestant with much of it.
        small: The same with little.
        ours: The contestant that stands for leafwise here.
        target: The most that our own growth should be.
    """
    names = [ours, *(each for each in large if each not in NO_PEERS)]
    factors = {each: large[each].over(small[each]) for each in names}
    mine = factors[ours].median
    figures = {
        OURS if each == ours else each: Figure(factor.median, factor.spread, mine / factor.median)
        for each, factor in factors.items()
    }
    return Row(table, name, FACTOR, figures, None, target, factors[ours].spread)


def _in_unit(seconds: float, unit: str) -> float:
    return 1 / seconds if unit == STEPS else seconds * _PER_SECOND[unit]
