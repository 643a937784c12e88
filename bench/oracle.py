"""What the oracle costs: `lw.jit`, `lw.watch`, `lw.signature` and `lw.explain`."""

import dataclasses
import timeit
from collections.abc import Callable, Mapping
from typing import Any, Final

import cost
import jax
import jax.numpy as jnp
import rows
from libraries import AGAIN, BASELINE, OURS, Library
from rows import Row
from timing import Effort, Group, Job, Samples, interleave, job

import leafwise as lw

TABLE: Final = "oracle"
_CALL: Final = 1.02
_REMEMBERED: Final = 1.05
"""Python forwards a call of what `lw.jit` returns to what `jax.jit` made."""
_CHECKED: Final = 1.25
"""Up to ten captures are looked at."""
_CAPTURES: Final = (1, 3, 10)
_MILLISECONDS: Final = 50.0
_FUNCTIONS: Final = 8
"""Functions that are called in turn: where one happens to lie in memory must not count."""
_TRACES: Final = 10
"""Functions traced where one is compiled: that takes so many times as long."""
_FIELDS: Final = ("a", "b", "c", "d", "e")


@dataclasses.dataclass(frozen=True)
class Scale:
    """How far to go: leaves of a tree, and functions that a slot traces or compiles."""

    leaves: int
    fresh: int


FULL: Final = Scale(10_000, 4)
QUICK: Final = Scale(10_000, 2)
TINY: Final = Scale(10, 1)


@dataclasses.dataclass(frozen=True)
class Plan:
    """How long each part is measured: the calls that nothing is made for, and the others."""

    calls: Effort
    fresh: Effort
    leaves: Effort


@dataclasses.dataclass
class Warmed(Job):
    """A job of jitted functions, which look closer once when a block of checks has ended."""

    def run(self) -> float:
        """Return seconds per call."""
        self.timer.timeit(1)
        return super().run()


class Checked(Warmed):
    """The same in a block that checks captures, whose beginning and end are not timed."""

    def run(self) -> float:
        """Return seconds per call."""
        with lw.debug.check_captures():
            return super().run()


@dataclasses.dataclass
class Watched(Job):
    """A job under an active watch, whose beginning and end are not timed."""

    def run(self) -> float:
        """Return seconds per call."""
        with lw.watch():
            return super().run()


def measure(libraries: Mapping[str, Library], plan: Plan, scale: Scale) -> list[Row]:
    """Measure the oracle table."""
    watched = _called_and_watched()
    # While a function under `lw.jit` lives leafwise listens to JAX, to whatever it compiles:
    # those that are called again and again are made behind all that compiles.
    made = _made(plan.fresh, scale.fresh)
    groups = {"call a compiled function, under a watch": watched, **_calls(libraries)}
    targets = dict.fromkeys(groups, _REMEMBERED) | {next(iter(groups)): _CALL}
    checked = _checked()
    targets |= dict.fromkeys(checked, _CHECKED)
    groups |= checked
    called = interleave(list(groups.values()), plan.calls)
    return [
        *(
            rows.timed(TABLE, name, samples, target=targets[name])
            for name, samples in zip(groups, called, strict=True)
        ),
        *made,
        *_leaves(libraries[OURS], plan.leaves, scale.leaves),
    ]


def _calls(libraries: Mapping[str, Library]) -> dict[str, Group]:
    """Return the calls of compiled functions under `lw.jit`, by the name of their row."""
    ours = libraries[OURS]
    x = jnp.float32(0)
    instance = cost.specimen(ours)(**cost.arguments(ours))
    given: dict[str, tuple[str, dict[str, Any]]] = {
        "one array": ("x", {"x": x}),
        "an instance": ("x", {"x": instance}),
        "two keyword arguments": ("x=x, y=y", {"x": x, "y": x}),
    }
    return {
        f"call under lw.jit, {what}": {
            name: _warmed(job(_in_turn(arguments), names | _functions(wrap), calls=_FUNCTIONS))
            for name, wrap in _WRAPS.items()
        }
        for what, (arguments, names) in given.items()
    }


def _in_turn(arguments: str) -> str:
    return "; ".join(f"f{number}({arguments})" for number in range(_FUNCTIONS))


def _functions(wrap: Any) -> dict[str, Any]:
    # Functions of their own: all programs of one function share a cache.
    # Without captures: `jax` is imported, and there is no default.
    return {
        f"f{number}": wrap(lambda x, **named: jax.tree.leaves((x, named))[0])
        for number in range(_FUNCTIONS)
    }


def _checked() -> dict[str, Group]:
    """Return the calls of functions that capture numbers, by the name of their row."""
    groups: dict[str, Group] = {}
    for count in _CAPTURES:
        jobs = {name: _capturing(wrap, count) for name, wrap in _WRAPS.items()}
        words = "1 capture" if count == 1 else f"{count} captures"
        groups[f"call under lw.jit, {words}"] = jobs
        within = Checked(jobs[OURS].timer, jobs[OURS].calls)
        groups[f"call under lw.jit, {words}, in check_captures"] = {
            OURS: within,
            BASELINE: jobs[BASELINE],
        }
    return groups


_WRAPS: Final[dict[str, Any]] = {OURS: lw.jit, BASELINE: jax.jit, AGAIN: jax.jit}


def _capturing(wrap: Any, count: int) -> Job:
    numbers = {f"number_{place}": float(place) for place in range(count)}
    source = f"lambda x: x + {' + '.join(numbers)}"
    names: dict[str, Any] = {
        f"f{place}": wrap(eval(source, dict(numbers)))  # noqa: S307  # each with its own globals
        for place in range(_FUNCTIONS)
    }
    return _warmed(job(_in_turn("x"), names | {"x": jnp.float32(0)}, calls=_FUNCTIONS))


def _warmed(each: Job) -> Warmed:
    return Warmed(each.timer, each.calls)


def _called_and_watched() -> Group:
    """Return calls of the same functions with and without a watch."""
    names = {"x": jnp.float32(0)} | _functions(jax.jit)
    jobs = {name: job(_in_turn("x"), names, calls=_FUNCTIONS) for name in (BASELINE, AGAIN)}
    ours = job(_in_turn("x"), names, calls=_FUNCTIONS)
    return {OURS: Watched(ours.timer, ours.calls)} | jobs


def _made(effort: Effort, fresh: int) -> list[Row]:
    """Measure what a watch and `lw.jit` add where JAX traces, lowers and compiles."""
    call, trace = "pop()(x, y)", "pop().trace(x, y)"
    plain, remembering = (_making(call, wrap, fresh) for wrap in (jax.jit, lw.jit))
    groups: dict[str, Group] = {
        "first call of a function, under a watch": {
            OURS: Watched(plain.timer, loops=fresh),
            BASELINE: plain,
        },
        "first call of a function, under lw.jit": {OURS: remembering, BASELINE: plain},
        "trace of a function, under lw.jit": {
            OURS: _making(trace, lw.jit, _TRACES * fresh),
            BASELINE: _making(trace, jax.jit, _TRACES * fresh),
        },
    }
    taken = interleave(list(groups.values()), effort)
    return [rows.timed(TABLE, name, samples) for name, samples in zip(groups, taken, strict=True)]


def _making(statement: str, wrap: Callable[..., Any], fresh: int) -> Job:
    """Return the job of what is done once for a function: each time with a new one."""

    def functions() -> list[Any]:
        return [wrap(lambda x, y: jnp.sin(x) * y + 1) for _ in range(fresh)]

    names = {"fresh": functions, "x": jnp.ones(3), "y": jnp.float32(2)}
    # The setup runs before each slot, outside the time taken.
    return Job(timeit.Timer(statement, "pop = fresh().pop", globals=names), loops=fresh)


@dataclasses.dataclass(frozen=True)
class Family:
    """Trees of one kind, with as many leaves as asked for.

    Attributes:
        before: The earlier one.
        later: The later ones, by how they differ.
    """

    before: Any
    later: Mapping[str, Any]


def trees_of(
    tree_of: Callable[[list[Any]], Any], leaves: Callable[[], list[Any]], part: int = 1
) -> Family:
    """Return the trees that are compared, of parts of so many leaves; they share no leaf."""
    count = len(leaves())
    other = leaves()
    other[count * 2 // 3] = jnp.zeros(1)
    later = {
        "equal": tree_of(leaves()),
        "one shape differs": tree_of(other),
        "every leaf differs": tree_of([jnp.zeros(1) for _ in range(count)]),
        "one part missing": tree_of(leaves()[:-part]),
    }
    return Family(tree_of(leaves()), later)


def _leaves(ours: Library, effort: Effort, count: int) -> list[Row]:
    """Measure signatures of trees with many leaves, and their comparison."""
    cls = ours.define("Five", _FIELDS)

    def arrays() -> list[Any]:
        return [jnp.float32(number) for number in range(count)]

    def floats() -> list[Any]:
        return [float(number) for number in range(count)]

    def keyed(leaves: list[Any]) -> Any:
        return {f"key{number}": leaf for number, leaf in enumerate(leaves)}

    def instances(leaves: list[Any]) -> Any:
        fives = zip(*(leaves[place::5] for place in range(5)), strict=True)
        return [cls(*five) for five in fives]

    families = {
        "a dict of arrays": trees_of(keyed, arrays),
        "instances of 5 arrays": trees_of(instances, arrays, len(_FIELDS)),
        "a list of floats": trees_of(list, floats),
    }
    jobs: dict[str, Job] = {}
    for what, family in families.items():
        jobs[f"signature of {count:,} leaves, {what}"] = _signing(family.before)
    for what, family in families.items():
        for how, tree in family.later.items():
            jobs[f"explain {count:,} leaves, {what}, {how}"] = _explaining(family.before, tree)
    taken = interleave([{OURS: each} for each in jobs.values()], effort)
    return [_absolute(name, samples) for name, samples in zip(jobs, taken, strict=True)]


def _absolute(name: str, samples: Mapping[str, Samples]) -> Row:
    return rows.timed(TABLE, name, samples, unit="ms", target=_MILLISECONDS, absolute=True)


def _signing(tree: Any) -> Job:
    return job("signature(tree)", {"signature": lw.signature, "tree": tree})


def _explaining(before: Any, after: Any) -> Job:
    """Return the job that explains a record which nobody has looked at before."""
    names: dict[str, Any] = {"explain": lw.explain, "sign": lw.signature}
    names |= {"before": lw.signature(before), "tree": after}
    # The setup runs before each slot, which therefore is one call.
    timer = timeit.Timer("explain(before, after)", "after = sign(tree)", globals=names)
    return Job(timer, loops=1)
