"""How costs grow with statics and classes, and what lies outside the cost table."""

import dataclasses
import gc
import itertools
import statistics
import subprocess
import sys
import timeit
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
from contestants import BASELINE, OURS, Contestant
from timing import MICRO, Effort, Job, Samples, interleave, job

import leafwise as lw

_CLASSES: Final = 10
"""Classes decorated in a slot. Each stays in JAX's registry for good, so they are few."""


@dataclasses.dataclass(frozen=True)
class Scale:
    """How far to go: programs in one cache, entries in one tuple, instances, processes."""

    programs: tuple[int, ...]
    entries: int
    instances: int
    processes: int


_NATIVE: Final = "jax register_dataclass"
_FROZEN: Final = "frozen dataclass"
_Pair = Mapping[str, Contestant]

FULL: Final = Scale((1, 100, 1000), 10_000, 10_000, 7)
QUICK: Final = Scale((1, 100), 10_000, 10_000, 3)
TINY: Final = Scale((1, 2), 10, 10, 1)


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of the growth table.

    Attributes:
        name: What was measured.
        unit: Of both figures.
        ours: Leafwise's figure.
        reference: What it is compared with, if anything.
        reference_name: What the reference is.
        ratio: Ours over the reference's.
    """

    name: str
    unit: str
    ours: float
    reference: float | None
    reference_name: str
    ratio: float | None


@lw.pytree
class _Ours:
    x: jax.Array
    a: Any = lw.static_field()
    b: Any = lw.static_field(default=None)
    c: Any = lw.static_field(default=None)


_STATIC: Final = {"static": True}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Native:
    x: jax.Array
    a: Any = dataclasses.field(metadata=_STATIC)
    b: Any = dataclasses.field(default=None, metadata=_STATIC)
    c: Any = dataclasses.field(default=None, metadata=_STATIC)


_SIDES: Final = {OURS: _Ours, BASELINE: _Native}


def measure(found: Sequence[Contestant], effort: Effort, scale: Scale) -> list[Line]:
    """Measure the growth table.

    Args:
        found: The contestants; leafwise and jax are looked at.
        effort: How long to time.
        scale: How far to go.

    Returns:
        The lines of the table.
    """
    pair = {each.name: each for each in found if each.name in _SIDES}
    timed: dict[tuple[str, str], Mapping[str, Job]] = {}
    for programs in scale.programs:
        name = f"dispatch, {programs} cached static value" + "s" * (programs > 1)
        timed[name, _NATIVE] = _both(lambda cls, n=programs: _among_programs(cls, n))
    for entries in (1, scale.entries):
        name = f"dispatch, static tuple of {entries:,}"
        timed[name, _NATIVE] = _both(lambda cls, n=entries: _with_tuple(cls, n, equal=False))
    name = f"dispatch, equal but distinct tuple of {scale.entries:,}"
    timed[name, _NATIVE] = _both(lambda cls: _with_tuple(cls, scale.entries, equal=True))
    timed["construct, three statics never seen", _NATIVE] = _both(_never_seen)
    timed["construct, known statics, no other instance", _NATIVE] = _both(_alone)
    timed["decorate a class of 10 fields", "dataclass + register_dataclass"] = {
        OURS: _decorating(lw.pytree),
        BASELINE: _decorating(_decorate_native),
    }
    timed["read an attribute, constructed", _FROZEN] = _reading(pair, Contestant.make)
    timed["read an attribute, unflattened", _NATIVE] = _reading(pair, _unflattened)
    samples = interleave(list(timed.values()), effort)
    lines = [_line(*key, taken) for key, taken in zip(timed, samples, strict=True)]
    return [*lines, *_sizes(pair, scale.instances), _import_time(scale.processes)]


def _line(name: str, reference: str, taken: dict[str, Samples]) -> Line:
    ours, its = taken[OURS], taken[BASELINE]
    return Line(name, "µs", ours.microseconds, its.microseconds, reference, ours.ratio_to(its))


def _both(make: Callable[[Any], Job]) -> dict[str, Job]:
    return {side: make(cls) for side, cls in _SIDES.items()}


def _compiled() -> Any:
    return jax.jit(lambda tree: tree.x)


def _among_programs(cls: Any, programs: int) -> Job:
    """Dispatch twenty instances among as many programs as there are static values."""
    compiled, x = _compiled(), jnp.float32(0)
    trees = [cls(x, value) for value in range(programs)]
    for tree in trees:
        compiled(tree)
    some = trees[:: max(1, programs // 20)]
    names = {"compiled": compiled, "trees": some}
    return job("for tree in trees: compiled(tree)", names, calls=len(some))


def _with_tuple(cls: Any, entries: int, *, equal: bool) -> Job:
    """Dispatch an instance whose static is a tuple, itself the cached one or its equal."""
    compiled, x = _compiled(), jnp.float32(0)
    tree, other = (cls(x, tuple(range(entries))) for _ in range(2))
    compiled(tree)
    return job("compiled(tree)", {"compiled": compiled, "tree": other if equal else tree})


_numbers: Final = itertools.count(10**6)


def _never_seen(cls: Any) -> Job:
    names = {"cls": cls, "x": jnp.float32(0), "number": _numbers.__next__}
    return job("n = number(); cls(x, n, n + 0.5, -n)", names)


def _alone(cls: Any) -> Job:
    return job("cls(x, a, b, c)", {"cls": cls, "x": jnp.float32(0), "a": 7, "b": 0.75, "c": "gelu"})


def _decorate_native(cls: type) -> type:
    return jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True)(cls))


def _fresh_classes(ours: bool) -> list[type]:  # noqa: FBT001  # called from a statement
    """Return undecorated classes of seven dynamic and three static fields."""
    static = lw.static_field if ours else lambda: dataclasses.field(metadata=_STATIC)
    classes: list[type] = []
    for _ in range(_CLASSES):
        annotations = {f"f{number}": jax.Array if number < 7 else int for number in range(10)}
        body: dict[str, Any] = {f"f{number}": static() for number in range(7, 10)}
        body |= {"__annotations__": annotations, "__module__": __name__}
        classes.append(type(f"Fresh{next(_numbers)}", (), body))
    return classes


def _decorating(decorate: Callable[[type], type]) -> Job:
    names = {
        "decorate": decorate,
        "fresh": _fresh_classes,
        "ours": decorate is lw.pytree,
    }
    # The setup runs before each slot, outside of the time taken.
    timer = timeit.Timer("decorate(pop())", "pop = fresh(ours).pop", globals=names)
    return Job(timer, loops=_CLASSES)


def _rebuild(contestant: Contestant) -> Callable[[], Any]:
    """Return what rebuilds an instance, as JAX does."""
    leaves, treedef = jax.tree_util.tree_flatten(contestant.make())
    return lambda: jax.tree_util.tree_unflatten(treedef, leaves)


def _unflattened(contestant: Contestant) -> Any:
    return _rebuild(contestant)()


def _reading(pair: _Pair, make: Callable[[Contestant], Any]) -> dict[str, Job]:
    jobs: dict[str, Job] = {}
    for side, each in pair.items():
        statement = "; ".join(f"tree.{name}" for name in each.arguments)
        jobs[side] = job(statement, {"tree": make(each)}, calls=len(each.arguments))
    return jobs


def _sizes(pair: _Pair, instances: int) -> list[Line]:
    """Measure memory: of instances alone, the values in their fields being shared."""
    lines: list[Line] = []
    for name, reference in (("constructed", _FROZEN), ("unflattened", _NATIVE)):
        figures = {
            side: _bytes(each.make if name == "constructed" else _rebuild(each), instances)
            for side, each in pair.items()
        }
        ours, its = figures[OURS], figures[BASELINE]
        lines.append(Line(f"an instance, {name}", "bytes", ours, its, reference, ours / its))
    return lines


def _bytes(make: Callable[[], Any], instances: int) -> float:
    """Return the memory that one more instance takes."""
    kept: list[Any] = [make() for _ in range(instances)]
    kept[1:] = [None] * (instances - 1)  # the first keeps what all share
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for place in range(1, instances):
        kept[place] = make()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / (instances - 1)


_IMPORT: Final = """
import time, jax
start = time.perf_counter()
import leafwise
print(time.perf_counter() - start)
"""


def _import_time(processes: int) -> Line:
    seconds = [_one_import() for _ in range(processes + 1)][1:]  # the first writes bytecode
    milliseconds = statistics.median(seconds) * MICRO / 1000
    return Line("import leafwise after jax", "ms", milliseconds, None, "", None)


def _one_import() -> float:
    command = [sys.executable, "-c", _IMPORT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    return float(done.stdout)
