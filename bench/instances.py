"""What an instance is beside a plain frozen dataclass, and what the import takes."""

import dataclasses
import gc
import os
import resource
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any, Final

import cost
import jax
import rows
from libraries import BASELINE, FROZEN, OURS, SLOTS, Library, frozen_dataclass
from rows import Row
from timing import Effort, Group, interleave, job

TABLE: Final = "instances"
_READ: Final = 1.1
_BYTES: Final = 1.3
_IMPORT_MILLISECONDS: Final = 15.0
_HELP_SECONDS: Final = 0.3
_REBUILT: Final = "unflattened"
_TIMES: Final = 10
"""Reads of each field in one statement: the loop around it is not what is asked."""


@dataclasses.dataclass(frozen=True)
class Scale:
    """How far to go: instances whose memory is measured, and processes that import."""

    instances: int
    processes: int


FULL: Final = Scale(10_000, 9)
QUICK: Final = Scale(10_000, 3)
TINY: Final = Scale(10, 1)

Make = Callable[[], Any]


def measure(
    libraries: Mapping[str, Library], effort: Effort, scale: Scale, python: tuple[int, int]
) -> list[Row]:
    """Measure attribute reads, memory and the import."""
    kinds = _kinds(libraries)
    groups: dict[str, Group] = {}
    for name, makers in kinds.items():
        for what, fields in (("dynamic", cost.DYNAMIC), ("static", cost.STATIC)):
            statement = "; ".join(f"tree.{field}" for field in fields * _TIMES)
            calls = len(fields) * _TIMES
            groups[f"read a {what} attribute, {name}"] = {
                each: job(statement, {"tree": make()}, calls=calls) for each, make in makers.items()
            }
    taken = interleave(list(groups.values()), effort)
    read = [
        rows.timed(TABLE, name, times, unit="ns", target=_read_target(name, python))
        for name, times in zip(groups, taken, strict=True)
    ]
    sizes = [_size(name, makers, scale.instances) for name, makers in kinds.items()]
    return [*read, *sizes, *_first_uses(scale.processes)]


def _read_target(name: str, python: tuple[int, int]) -> float | None:
    return None if python != (3, 13) or name.endswith(_REBUILT) else _READ


def _kinds(libraries: Mapping[str, Library]) -> dict[str, dict[str, Make]]:
    """Return what makes instances, by what they are and by contestant."""

    def maker(library: Library) -> Make:
        cls, values = cost.specimen(library), cost.arguments(library)
        return lambda: cls(**values)

    ours, native = maker(libraries[OURS]), maker(libraries[BASELINE])
    plain, slots = (maker(frozen_dataclass(slots=each)) for each in (False, True))
    return {
        "constructed": {OURS: ours, FROZEN: plain},
        "slots": {OURS: maker(libraries[SLOTS]), FROZEN: slots},
        _REBUILT: {OURS: _rebuilding(ours), BASELINE: _rebuilding(native)},
    }


def _rebuilding(make: Make) -> Make:
    """Return what rebuilds an instance, as JAX does."""
    leaves, treedef = jax.tree_util.tree_flatten(make())
    return lambda: jax.tree_util.tree_unflatten(treedef, leaves)


def _size(name: str, makers: Mapping[str, Make], instances: int) -> Row:
    figures = {each: _bytes(make, instances) for each, make in makers.items()}
    against = rows.best_peer(figures)
    target = None if name == _REBUILT else _BYTES
    return Row(TABLE, f"memory, {name}", "bytes", figures, against, target)


def _bytes(make: Make, instances: int) -> float:
    """Return the memory that one more instance takes, the values in its fields being shared."""
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
start = time.process_time()
import leafwise
leafwise.pytree
print(time.process_time() - start)
"""


def _first_uses(processes: int) -> list[Row]:
    """Measure what a process pays once."""
    with tempfile.TemporaryDirectory() as folder:
        # Compiled files as an installed package has them, whatever this shell asks for.
        kept = {name: each for name, each in os.environ.items() if name != _NO_BYTECODE}
        environment = kept | {"PYTHONPYCACHEPREFIX": folder}
        times = range(processes + 1)
        imported = [float(_output(["-c", _IMPORT], environment)) for _ in times][1:]
        helped = [cpu_seconds([*COMMAND, "--help"], environment) for _ in times][1:]
    return [
        Row(TABLE, name, unit, {OURS: min(taken) * scale}, None, target)
        for name, unit, taken, scale, target in (
            ("import leafwise after jax", "ms", imported, 1000, _IMPORT_MILLISECONDS),
            ("leafwise --help", "s", helped, 1, _HELP_SECONDS),
        )
    ]


_NO_BYTECODE: Final = "PYTHONDONTWRITEBYTECODE"


def _output(arguments: list[str], environment: Mapping[str, str]) -> str:
    return subprocess.run(  # noqa: S603  # our own code
        [sys.executable, *arguments], stdout=-1, text=True, check=True, env=environment
    ).stdout


COMMAND: Final = ("-c", "import sys; from leafwise_cli import main; sys.exit(main())")
"""What the console script `leafwise` does, for `cpu_seconds`."""


def cpu_seconds(arguments: list[str], environment: Mapping[str, str]) -> float:
    """Return the CPU time of a process and of those that it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _output(arguments, environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
