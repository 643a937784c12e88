"""What the oracle costs: `lw.jit`, `lw.watch`, `lw.signature` and its `explain`."""

import dataclasses
import time
import types
from collections.abc import Callable, Mapping
from typing import Any, Final

import cost
import jax
import jax.numpy as jnp
import optax
import rows
import steps
from libraries import AGAIN, BASELINE, OURS, Library
from rows import Row
from timing import Effort, Group, Job, Times, interleave, job, timer

import leafwise as lw

TABLE: Final = "oracle"
_CALL: Final = 1.02
_FORWARDED: Final = 1.01
"""Python forwards a call of what `lw.jit` returns to what `jax.jit` made."""
_CAPTURES: Final = {1: 1.07, 3: 1.10, 10: 1.15}
"""Captured numbers that are looked at, and what a call may take for that."""
_OPTIMIZER: Final = 1.06
_NETWORK: Final = 1.10
_COMPILED: Final = 1.02
_STEP: Final = 1.05
_LAYERS: Final = 20
_WRAPS: Final[dict[str, Any]] = {OURS: lw.jit, BASELINE: jax.jit, AGAIN: jax.jit}
_PLAIN: Final = dict.fromkeys(_WRAPS, jax.jit)
_MILLISECONDS: Final = 50.0
_WHOLE: Final = time.process_time
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
    made = _made(libraries, plan.fresh, scale.fresh)
    groups = {"call a compiled function, under a watch": watched, **_calls(libraries)}
    targets = dict.fromkeys(groups, _FORWARDED) | {next(iter(groups)): _CALL}
    for count, target in _CAPTURES.items():
        name = "1 capture" if count == 1 else f"{count} captures"
        name = f"call under lw.jit, {name}"
        targets[name] = target
        groups[name] = {each: _capturing(wrap, count) for each, wrap in _WRAPS.items()}
    for name, (each, target) in _captured(libraries).items():
        targets[name], groups[name] = target, each
    called = interleave(list(groups.values()), plan.calls)
    return [
        *(
            rows.timed(TABLE, name, times, target=targets[name])
            for name, times in zip(groups, called, strict=True)
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


def _captured(libraries: Mapping[str, Library]) -> dict[str, tuple[Group, float]]:
    """Return calls of functions that capture an optimizer or a network, and what they may take."""
    optimizer = optax.adam(1e-3)
    weight = jnp.ones(3)
    moments = optimizer.init(weight)

    def update(weight: jax.Array, moments: Any) -> Any:
        updates, moments = optimizer.update(weight, moments)
        return optax.apply_updates(weight, updates), moments

    given = {"x": weight, "moments": moments}
    found = {
        "call under lw.jit, an optimizer of optax captured": (
            _each_wrapped(update, "f(x, moments)", given),
            _OPTIMIZER,
        )
    }
    if "equinox" in libraries:
        import equinox as eqx  # noqa: PLC0415  # it may be missing

        network = eqx.nn.MLP(2, 2, 8, 2, key=jax.random.key(0))
        found["call under lw.jit, an MLP of equinox captured"] = (
            _each_wrapped(lambda x: network(x), "f(x)", {"x": jnp.ones(2)}),  # noqa: PLW0108
            _NETWORK,
        )
    return found


def _each_wrapped(fun: Callable[..., Any], statement: str, names: Mapping[str, Any]) -> Group:
    return {
        name: _warmed(job(statement, {"f": wrap(_copy(fun)), **names}))
        for name, wrap in _WRAPS.items()
    }


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
    jobs = {name: job(_in_turn("x"), names, calls=_FUNCTIONS) for name in _WRAPS}
    return jobs | {OURS: Watched(jobs[OURS].timer, jobs[OURS].calls)}


LAYERED: Final = f"trace, lower and compile {_LAYERS} layers, under lw.jit"
STEP: Final = "trace, lower and compile a step of equinox with adamw, under lw.jit"


def _made(libraries: Mapping[str, Library], effort: Effort, fresh: int) -> list[Row]:
    """Measure what a watch and `lw.jit` add where JAX traces, lowers and compiles."""
    ours = libraries[OURS]
    simple = {"x": jnp.ones(3), "y": jnp.float32(2)}
    layered = {"x": steps.network(ours, _LAYERS), "y": jnp.ones(4)}
    call, trace = "pop()(x, y)", "pop().trace(x, y)"
    watched = _each_made(call, _small, simple, fresh, _PLAIN)
    groups: dict[str, Group] = {
        "first call of a function, under a watch": watched
        | {OURS: Watched(watched[OURS].timer, loops=fresh)},
        "first call of a function, under lw.jit": _each_made(call, _small, simple, fresh),
        "trace of a function, under lw.jit": _each_made(trace, _small, simple, _TRACES * fresh),
        LAYERED: _each_made("pop().lower(x, y).compile()", steps.through, layered, 1),
    }
    if "equinox" in libraries:
        groups[STEP] = _each_made("pop().lower(x, y).compile()", *_step_of_equinox(), 1)
    taken = interleave(list(groups.values()), effort)
    targets = {LAYERED: _COMPILED, STEP: _STEP}
    return [
        rows.timed(TABLE, name, times, target=targets.get(name))
        for name, times in zip(groups, taken, strict=True)
    ]


def _step_of_equinox() -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return a training step that captures its optimizer, and what it takes."""
    import equinox as eqx  # noqa: PLC0415  # it may be missing

    optimizer = optax.adamw(1e-3)
    network = eqx.nn.MLP(8, 1, 32, 3, key=jax.random.key(0))
    arrays, rest = eqx.partition(network, eqx.is_array)

    def loss(arrays: Any, batch: jax.Array) -> jax.Array:
        return jnp.mean(jax.vmap(eqx.combine(arrays, rest))(batch) ** 2)

    def step(state: Any, batch: jax.Array) -> Any:
        arrays, moments = state
        gradients = jax.grad(loss)(arrays, batch)
        updates, moments = optimizer.update(gradients, moments, arrays)
        return eqx.apply_updates(arrays, updates), moments

    return step, {"x": (arrays, optimizer.init(arrays)), "y": jnp.ones((16, 8))}


def _small(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sin(x) * y + 1


def _each_made(
    statement: str,
    fun: Callable[..., Any],
    names: Mapping[str, Any],
    fresh: int,
    wraps: Mapping[str, Any] = _WRAPS,
) -> dict[str, Job]:
    """Return the jobs of what is done once for a function: each time with a new one."""

    def making(wrap: Callable[..., Any]) -> Job:
        def functions() -> list[Any]:
            return [wrap(_copy(fun)) for _ in range(fresh)]

        # The setup runs before each slot, outside the time taken. XLA compiles in threads.
        made = timer(statement, {"fresh": functions, **names}, "pop = fresh().pop", _WHOLE)
        return Job(made, loops=fresh)

    return {name: making(wrap) for name, wrap in wraps.items()}


def _copy(fun: Callable[..., Any]) -> Any:
    # A function of its own: all programs of one function share a cache.
    return types.FunctionType(fun.__code__, fun.__globals__, closure=fun.__closure__)


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
    return [_absolute(name, times) for name, times in zip(jobs, taken, strict=True)]


def _absolute(name: str, times: Times) -> Row:
    return rows.timed(TABLE, name, times, unit="ms", target=_MILLISECONDS, against=None)


def _signing(tree: Any) -> Job:
    return job("signature(tree)", {"signature": lw.signature, "tree": tree})


def _explaining(before: Any, after: Any) -> Job:
    """Return the job that explains a record which nobody has looked at before."""
    names: dict[str, Any] = {"sign": lw.signature}
    names |= {"before": lw.signature(before), "tree": after}
    # The setup runs before each slot, which therefore is one call.
    return Job(timer("after.explain(before)", names, "after = sign(tree)"), loops=1)
