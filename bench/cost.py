"""What an instance costs: construct, flatten, unflatten, map and jit, for 1 and for 50."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
from contestants import BASELINE, OURS, WITHOUT_STATICS, Contestant
from timing import Effort, Job, Samples, interleave, job

CONSTRUCT: Final = "construct"
MEASURES: Final = (CONSTRUCT, "flatten", "unflatten", "tree.map", "jit in", "jit in+out")
COUNTS: Final = (1, 50)

LIMITS: Final = {measure: 2.0 if measure == CONSTRUCT else 1.25 for measure in MEASURES}
"""The most that leafwise may take, in multiples of `jax.tree_util.register_dataclass`."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One measure of all contestants.

    Attributes:
        measure: One of `MEASURES`.
        count: How many instances: 1, or a list of 50.
        samples: The times by contestant.
    """

    measure: str
    count: int
    samples: dict[str, Samples]

    @property
    def name(self) -> str:
        """The measure and the number of instances."""
        return self.measure if self.count == 1 else f"{self.measure}, {self.count}"

    @property
    def limit(self) -> float:
        """The most that `ratio` of leafwise may be."""
        return LIMITS[self.measure]

    @property
    def best_peer(self) -> str:
        """The quickest of the other contestants that carry all eight fields."""
        peers = [name for name in self.samples if name not in (OURS, WITHOUT_STATICS)]
        return min(peers, key=self.ratio)

    def ratio(self, name: str = OURS, to: str = BASELINE) -> float:
        """Return the time of one contestant over that of another."""
        return self.samples[name].ratio_to(self.samples[to])

    @property
    def is_over(self) -> bool:
        """Whether leafwise exceeds the limit."""
        return self.ratio() > self.limit


def measure(contestants: Sequence[Contestant], effort: Effort) -> list[Row]:
    """Measure the cost table."""
    keys = [(measure, count) for count in COUNTS for measure in MEASURES]
    groups = [{each.name: _job(each, *key) for each in contestants} for key in keys]
    samples = interleave(groups, effort)
    return [Row(*key, taken) for key, taken in zip(keys, samples, strict=True)]


def _same(value: Any) -> Any:
    return value


def _first_leaf(tree: Any) -> Any:
    return jax.tree.leaves(tree)[0]


def _job(contestant: Contestant, measure: str, count: int) -> Job:
    """Return the job of one cell."""
    tree = contestant.make() if count == 1 else [contestant.make() for _ in range(count)]
    tree_util = jax.tree_util
    if measure == CONSTRUCT:
        # `live`: as in a program's loop, an instance with the same statics is still there.
        call = f"cls({', '.join(f'{name}={name}' for name in contestant.arguments)})"
        statement = call if count == 1 else f"for _ in range({count}): {call}"
        return job(statement, {"cls": contestant.cls, "live": tree, **contestant.arguments})
    if measure == "flatten":
        return job("flatten(tree)", {"flatten": tree_util.tree_flatten, "tree": tree})
    if measure == "unflatten":
        leaves, treedef = tree_util.tree_flatten(tree)
        names = {"unflatten": tree_util.tree_unflatten, "treedef": treedef, "leaves": leaves}
        return job("unflatten(treedef, leaves)", names)
    if measure == "tree.map":
        return job("map_(same, tree)", {"map_": jax.tree.map, "same": _same, "tree": tree})
    body: Callable[[Any], Any] = _first_leaf if measure == "jit in" else _same
    # A function of its own: all programs of one function share a cache.
    compiled = jax.jit(lambda tree: body(tree))  # noqa: PLW0108
    return job("compiled(tree)", {"compiled": compiled, "tree": tree})
