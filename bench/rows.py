"""What was measured: every figure of the benchmark is part of one kind of row."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Self

from libraries import AGAIN, BASELINE, DICT, EMPTY, MANY, OURS, READY, SLOTS, WITHOUT_STATICS
from timing import Times

NO_PEERS: Final = frozenset({OURS, SLOTS, MANY, WITHOUT_STATICS, EMPTY, READY, AGAIN, DICT})
"""Never the best peer: ourselves, bounds, controls, and what has no static fields."""

_PER_SECOND: Final = {"ns": 1e9, "µs": 1e6, "ms": 1e3, "s": 1.0}
FACTOR: Final = "x"


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of the benchmark.

    Attributes:
        table: The table it belongs to.
        name: What was measured; no two rows share it.
        unit: Of all figures.
        figures: What each contestant takes, ours first.
        against: The contestant that the target is about; None: our figure itself counts.
        target: The most that `score` should be.
    """

    table: str
    name: str
    unit: str
    figures: Mapping[str, float]
    against: str | None = None
    target: float | None = None

    @property
    def ours(self) -> float:
        """Leafwise's figure."""
        return self.figures[OURS]

    @property
    def score(self) -> float:
        """What has a target and is compared with earlier runs; less is better."""
        return self.ours if self.against is None else self.ours / self.figures[self.against]

    @property
    def noise(self) -> float:
        """By what fraction two contestants that are the same came out apart."""
        again = self.figures.get(AGAIN)
        return 0.0 if again is None else abs(again / self.figures[BASELINE] - 1)

    @property
    def is_over(self) -> bool:
        """Whether the target is missed, by as many digits as the tables show, and not by noise."""
        return self.target is not None and round(self.score - self.noise, 2) > self.target

    def as_json(self) -> dict[str, Any]:
        """Return the row as data."""
        computed = {"score": self.score, "noise": self.noise, "over": self.is_over}
        return dataclasses.asdict(self) | computed

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the row that `as_json` was asked for."""
        return cls(**{field.name: data[field.name] for field in dataclasses.fields(cls)})


def best_peer(figures: Mapping[str, float]) -> str | None:
    """Return the fastest contestant that is another library and does the same work."""
    return min((name for name in figures if name not in NO_PEERS), key=figures.get, default=None)  # type: ignore[arg-type]


def timed(  # the parts of a row
    table: str,
    name: str,
    times: Times,
    *,
    unit: str = "µs",
    target: float | None = None,
    against: str | None = "",
) -> Row:
    """Return the row of a group of jobs that were timed side by side.

    Args:
        table: The table it belongs to.
        name: What was measured.
        times: Seconds by contestant.
        unit: Of the figures.
        target: The most that the ratio, or our own figure, should be.
        against: Whom the target is about: None for our own figure, by default the best peer.
    """
    figures = {each: taken * _PER_SECOND[unit] for each, taken in times.items()}
    return Row(table, name, unit, figures, best_peer(figures) if against == "" else against, target)


def growth(  # the parts of a row
    table: str,
    name: str,
    large: Times,
    small: Times,
    *,
    ours: str = OURS,
    target: float | None = None,
    against: str | None = None,
) -> Row:
    """Return the row of how much more each contestant takes where there is more to do.

    Args:
        table: The table it belongs to.
        name: What grows.
        large: The times by contestant with much of it.
        small: The same with little.
        ours: The contestant that stands for leafwise here.
        target: The most that our own growth should be, or its ratio to that of another.
        against: The other.
    """
    names = [ours, *(each for each in large if each not in NO_PEERS)]
    figures = {OURS if each == ours else each: large[each] / small[each] for each in names}
    return Row(table, name, FACTOR, figures, against, target)
