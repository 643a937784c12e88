"""Whole steps, with next to nothing to compute: what the trees of a program cost its user."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
import optax
import rows
from libraries import AGAIN, BASELINE, OURS, Library, plain_dicts
from rows import Row
from timing import Effort, Group, Job, interleave, job

import leafwise as lw

TABLE: Final = "steps"
ADAM: Final = "adam step, 20 leaves"
RL: Final = "RL step, 27 leaves, two calls"
ODE: Final = "ODE step, 6 leaves"
TARGETS: Final = {ADAM: 0.90, RL: 0.95, ODE: 0.90}
"""The most that leafwise should take, in multiples of the best other library."""
UNDER_LW_JIT: Final = 1.03

_PEERS: Final = (BASELINE, "flax", "equinox", "jdc", "jarp")
_RATE: Final = 0.01
_ADAM: Final = optax.scale_by_adam()

Wrap = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Step:
    """One step: a statement, and the values that it begins with."""

    statement: str
    names: Mapping[str, Any]

    def job(self, wrap: Wrap) -> Job:
        """Return the job of this step, its functions compiled by `wrap`."""
        given = {name: wrap(each) if callable(each) else each for name, each in self.names.items()}
        return job(self.statement, given)


def measure(libraries: Mapping[str, Library], effort: Effort) -> list[Row]:
    """Measure whole steps: with each library, and under `lw.jit`."""
    sides = {OURS: libraries[OURS]} | {
        name: libraries[name] for name in _PEERS if name in libraries
    }
    sides |= {AGAIN: libraries[BASELINE], "dict": plain_dicts()}
    groups: dict[str, Group] = {}
    targets = dict(TARGETS)
    against: dict[str, str] = {}
    for name, make in STEPS.items():
        groups[name] = {side: make(library).job(jax.jit) for side, library in sides.items()}
    for name, make in STEPS.items():
        under = f"{name}, under lw.jit"
        wraps = {OURS: lw.jit, BASELINE: jax.jit, AGAIN: jax.jit}
        groups[under] = {side: make(libraries[OURS]).job(wrap) for side, wrap in wraps.items()}
        targets[under], against[under] = UNDER_LW_JIT, BASELINE
    taken = interleave(list(groups.values()), effort)
    return [
        rows.timed(TABLE, name, times, target=targets[name], against=against.get(name, ""))
        for name, times in zip(groups, taken, strict=True)
    ]


def _read(tree: Any, name: str) -> Any:
    return tree[name] if isinstance(tree, dict) else getattr(tree, name)


def _static(tree: Any, name: str, otherwise: Any) -> Any:
    return getattr(tree, name, otherwise)  # dicts have no statics: theirs are in the program


def network(library: Library, layers: int) -> Any:
    """Return layers of a small network."""
    dense = library.define("Dense", ("weight", "bias"), ("activation",))
    weight, bias = jnp.eye(4), jnp.zeros(4)
    return [dense(weight=weight, bias=bias, activation=jnp.tanh) for _ in range(layers)]


def through(layers: Any, x: jax.Array) -> jax.Array:
    """Return what a network makes of its input."""
    for each in layers:
        activation = _static(each, "activation", jnp.tanh)
        x = activation(_read(each, "weight") @ x + _read(each, "bias"))
    return x


def _adam(library: Library) -> Step:
    """Train a network of ten layers; the state has both moments of adam, too."""
    training = library.define("Training", ("layers", "moments", "rate"), ("optimizer",))

    def step(state: Any, x: jax.Array) -> Any:
        optimizer = _static(state, "optimizer", _ADAM)
        layers, rate = _read(state, "layers"), _read(state, "rate")
        gradient = jax.grad(lambda layers: through(layers, x).sum())(layers)
        updates, moments = optimizer.update(gradient, _read(state, "moments"), layers)
        layers = jax.tree.map(lambda p, u: p - rate * u, layers, updates)
        return training(layers=layers, moments=moments, rate=rate, optimizer=optimizer)

    layers, rate = network(library, 10), jnp.float32(_RATE)
    state = training(layers=layers, moments=_ADAM.init(layers), rate=rate, optimizer=_ADAM)
    return Step("state = step(state, x)", {"step": step, "state": state, "x": jnp.ones(4)})


_PHYSICS: Final = ("position", "speed", "angle", "spin", "time", "reward", "done", "seed")
_LIMITS: Final = ("gravity", "mass", "length", "force", "tau", "bound")
_STATISTICS: Final = ("returns", "lengths", "episodes", "steps")


def _rl(library: Library) -> Step:
    """Choose an action with a network of four layers, and let a pole on a cart go on."""
    agent_of = library.define("Agent", ("layers", "scale"), ("name",))
    physics_of = library.define("Physics", _PHYSICS, ("integrator",))
    limits_of = library.define("Limits", _LIMITS)
    statistics_of = library.define("Statistics", _STATISTICS)
    world_of = library.define("World", ("physics", "limits", "statistics"), ("horizon",))

    def act(agent: Any, world: Any) -> jax.Array:
        physics = _read(world, "physics")
        seen = jnp.stack([_read(physics, name) for name in _PHYSICS[:4]])
        return through(_read(agent, "layers"), seen)[0] * _read(agent, "scale")

    def move(world: Any, action: jax.Array) -> Any:
        physics, limits = _read(world, "physics"), _read(world, "limits")
        statistics = _read(world, "statistics")
        now = {name: _read(physics, name) for name in _PHYSICS}
        tau, horizon = _read(limits, "tau"), _static(world, "horizon", 500)
        now["speed"] += tau * action * _read(limits, "force") / _read(limits, "mass")
        now["position"] += tau * now["speed"]
        now["spin"] += tau * _read(limits, "gravity") * now["angle"] / _read(limits, "length")
        now["angle"] += tau * now["spin"]
        now["time"] += 1
        now["reward"] = jnp.where(now["angle"] < _read(limits, "bound"), 1.0, 0.0)
        now["done"] = jnp.where(now["time"] > horizon, 1.0, 0.0)
        counted = {name: _read(statistics, name) for name in _STATISTICS}
        counted["returns"] += now["reward"]
        counted["steps"] += 1
        return world_of(
            physics=physics_of(**now, integrator="euler"),
            limits=limits,
            statistics=statistics_of(**counted),
            horizon=horizon,
        )

    zero, one = jnp.float32(0), jnp.float32(1)
    agent = agent_of(layers=network(library, 4), scale=one, name="pole")
    world = world_of(
        physics=physics_of(**dict.fromkeys(_PHYSICS, zero), integrator="euler"),
        limits=limits_of(**dict.fromkeys(_LIMITS, one)),
        statistics=statistics_of(**dict.fromkeys(_STATISTICS, zero)),
        horizon=500,
    )
    names = {"act": act, "move": move, "agent": agent, "world": world}
    return Step("world = move(world, act(agent, world))", names)


def _ode(library: Library) -> Step:
    """Take a step of Heun's method for hares and lynxes."""
    rates_of = library.define("Rates", ("birth", "hunt", "death"))
    state_of = library.define("State", ("time", "hares", "lynxes", "rates"), ("method",))

    def slope(hares: jax.Array, lynxes: jax.Array, rates: Any) -> tuple[jax.Array, jax.Array]:
        hunted = _read(rates, "hunt") * hares * lynxes
        return _read(rates, "birth") * hares - hunted, hunted - _read(rates, "death") * lynxes

    def step(state: Any) -> Any:
        rates, hares, lynxes = (_read(state, name) for name in ("rates", "hares", "lynxes"))
        first = slope(hares, lynxes, rates)
        second = slope(hares + _RATE * first[0], lynxes + _RATE * first[1], rates)
        return state_of(
            time=_read(state, "time") + _RATE,
            hares=hares + _RATE * (first[0] + second[0]) / 2,
            lynxes=lynxes + _RATE * (first[1] + second[1]) / 2,
            rates=rates,
            method=_static(state, "method", "heun"),
        )

    one = jnp.float32(1)
    rates = rates_of(birth=one, hunt=one, death=one)
    state = state_of(time=one, hares=one, lynxes=one, rates=rates, method="heun")
    return Step("state = step(state)", {"step": step, "state": state})


STEPS: Final[Mapping[str, Callable[[Library], Step]]] = {ADAM: _adam, RL: _rl, ODE: _ode}
