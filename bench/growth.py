"""How costs grow with the statics of a class, and what comes before the first call."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
import rows
from libraries import AGAIN, BASELINE, MANY, OURS, Library, with_many_statics
from rows import Row
from timing import Effort, Group, Job, Times, interleave, job, timer

TABLE: Final = "growth"
STATIC: Final = ("a", "b", "c")

_CLASSES: Final = 10
"""Classes decorated in a slot. Each stays in JAX's registry for good, so they are few."""
_IN_A_ROW: Final = 20
_CYCLE: Final = 20
"""Instances that a dispatch goes through, also where they have one static value."""


@dataclasses.dataclass(frozen=True)
class Scale:
    """How far to go: programs in one cache, and entries in one tuple."""

    programs: tuple[int, ...]
    entries: int


FULL: Final = Scale((1, 100, 600), 10_000)
QUICK: Final = Scale((1, 100, 600), 10_000)
TINY: Final = Scale((1, 2), 10)


def specimen(library: Library) -> Any:
    """Return the class that all of this is about: a leaf and three statics."""
    return library.define("Grown", ("x",), STATIC)


def measure(libraries: Mapping[str, Library], effort: Effort, scale: Scale) -> list[Row]:
    """Measure the growth table."""
    both = {name: libraries[name] for name in (OURS, BASELINE)} | {AGAIN: libraries[BASELINE]}
    classes = {name: specimen(library) for name, library in both.items()}
    spread = {MANY: specimen(with_many_statics())}
    groups: dict[str, Group] = {}
    for programs in scale.programs:
        sides = (classes | spread).items()
        groups[dispatched(programs)] = {name: among(cls, programs) for name, cls in sides}
    for entries in (1, scale.entries):
        sides = classes.items()
        same = {name: dispatch_tuple(cls, entries, equal=False) for name, cls in sides}
        groups[f"dispatch, the same static tuple of {entries:,}"] = same
        equal = {name: dispatch_tuple(cls, entries, equal=True) for name, cls in sides}
        groups[_equal(entries)] = equal
        groups[_again(entries)] = {name: _again_from(cls, entries) for name, cls in sides}
    groups["construct, three statics never seen"] = {n: _new(cls) for n, cls in classes.items()}
    groups["construct, known statics, no other instance"] = {
        name: _alone(cls) for name, cls in classes.items()
    }
    groups["decorate a class of 10 fields"] = {n: _decorating(each) for n, each in both.items()}
    measured = interleave(list(groups.values()), effort)
    taken = dict(zip(groups, measured, strict=True))
    return [*(_row(name, times) for name, times in taken.items()), *_factors(taken, scale)]


_TARGETS: Final = {
    "decorate a class of 10 fields": 1.5,
    "construct, known statics, no other instance": 1.0,
}


def _row(name: str, times: Times) -> Row:
    if name.endswith("never seen"):
        return rows.timed(TABLE, name, times, target=10.0, against=None)
    return rows.timed(TABLE, name, times, target=_TARGETS.get(name))


def _factors(taken: Mapping[str, Times], scale: Scale) -> list[Row]:
    """Return how much more each takes with much than with one."""
    one = taken[dispatched(1)]
    made: list[Row] = []
    for programs in scale.programs[1:]:
        much = taken[dispatched(programs)]
        name = f"dispatch, {programs:,} cached static values over 1"
        made += [
            rows.growth(TABLE, f"{name}, {MANY}", much, one, ours=MANY, target=1.05),
            rows.growth(TABLE, name, much, one, target=1.0, against=BASELINE),
        ]
    for named, target in ((_equal, 1.05), (_again, 1.2)):
        name = f"{named(scale.entries)} over 1"
        large, small = taken[named(scale.entries)], taken[named(1)]
        made.append(rows.growth(TABLE, name, large, small, target=target))
    return made


def dispatched(programs: int) -> str:
    """Return the name of a row."""
    return f"dispatch, {programs:,} cached static value" + "s" * (programs > 1)


def _equal(entries: int) -> str:
    return f"dispatch, an equal but distinct tuple of {entries:,}"


def _again(entries: int) -> str:
    return f"construct again from one static tuple of {entries:,}"


def make(cls: Any, x: jax.Array, value: object) -> Any:
    """Return an instance with this static value."""
    return cls(x=x, a=value, b=None, c=None)


def among(cls: Any, programs: int) -> Job:
    """Dispatch twenty instances among as many programs as there are static values."""
    compiled, x = _compiled(), jnp.float32(0)
    trees = [make(cls, x, value % programs) for value in range(max(programs, _CYCLE))]
    for tree in trees:
        compiled(tree)
    some = trees[:: len(trees) // _CYCLE]
    # In a row: going from program to program shows the processor's caches, not a search.
    row = "; ".join(["compiled(tree)"] * _IN_A_ROW)
    names = {"compiled": compiled, "trees": some}
    return job(f"for tree in trees: {row}", names, calls=len(some) * _IN_A_ROW)


def dispatch_tuple(cls: Any, entries: int, *, equal: bool) -> Job:
    """Dispatch an instance whose static is a tuple, itself the cached one or its equal."""
    compiled, x = _compiled(), jnp.float32(0)
    tree, other = (make(cls, x, tuple(range(entries))) for _ in range(2))
    compiled(tree)
    return job("compiled(tree)", {"compiled": compiled, "tree": other if equal else tree})


def _compiled() -> Any:
    return jax.jit(lambda tree: tree.x)


_CALL: Final = "cls(x=x, a=a, b=b, c=c)"


def _again_from(cls: Any, entries: int) -> Job:
    values = {"x": jnp.float32(0), "a": tuple(range(entries)), "b": 0.75, "c": "gelu"}
    return job(_CALL, {"cls": cls, "live": cls(**values), **values})


def _alone(cls: Any) -> Job:
    return job(_CALL, {"cls": cls, "x": jnp.float32(0), "a": 7, "b": 0.75, "c": "gelu"})


_numbers: Final = itertools.count(10**6)


def _new(cls: Any) -> Job:
    names = {"cls": cls, "x": jnp.float32(0), "number": _numbers.__next__}
    return job("n = number(); cls(x=x, a=n, b=n + 0.5, c=-n)", names)


def _decorating(library: Library) -> Job:
    dynamic = [f"f{number}" for number in range(7)]
    static = [f"f{number}" for number in range(7, 10)]

    def fresh() -> list[type]:
        names = [f"Fresh{next(_numbers)}" for _ in range(_CLASSES)]
        return [library.undecorated(name, dynamic, static) for name in names]

    names = {"decorate": library.decorate, "fresh": fresh}
    # The setup runs before each slot, outside the time taken.
    return Job(timer("decorate(pop())", names, "pop = fresh().pop"), loops=_CLASSES)
