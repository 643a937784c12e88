"""Whole training steps and their compilation, with parameters in each kind of tree."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
import optax
import rows
from libraries import BASELINE, DICT, OURS, Library, plain_dicts
from rows import FLAT, STEPS, Figure, Row
from timing import Effort, Group, Job, Samples, interleave, job

TABLE: Final = "training"
BEYOND: Final = "beyond bare leaves"
_SIDES: Final = (OURS, BASELINE, "flax", "equinox")
_RATE: Final = 0.01
_CLEAR: Final = 0.5
_ADAM: Final = optax.scale_by_adam()


@dataclasses.dataclass(frozen=True)
class Scale:
    """How far to go.

    Attributes:
        blocks: Parts of each of the three layers whose gradient is traced.
        leaves: Of each training state.
        steps: In a slot of the small MLP.
    """

    blocks: int
    leaves: tuple[int, ...]
    steps: int


FULL: Final = Scale(34, (100, 1000, 5000), 100)
QUICK: Final = Scale(34, (100, 1000), 20)
TINY: Final = Scale(2, (14,), 2)


@dataclasses.dataclass(frozen=True)
class Plan:
    """How long each part is measured."""

    trace: Effort
    state: Effort
    small: Effort


def measure(libraries: Mapping[str, Library], plan: Plan, scale: Scale) -> list[Row]:
    """Measure the training table."""
    sides = {name: libraries[name] for name in _SIDES if name in libraries}
    sides[DICT] = plain_dicts()
    return [
        _traced(sides, plan.trace, scale.blocks),
        *_stepped(sides, plan.state, scale.leaves),
        _small(sides, plan.small, scale.steps),
    ]


def _read(tree: Any, name: str) -> Any:
    return tree[name] if isinstance(tree, dict) else getattr(tree, name)


def _static(tree: Any, name: str, otherwise: Any) -> Any:
    return getattr(tree, name, otherwise)  # dicts have no statics: theirs are in the program


def _traced(sides: Mapping[str, Library], effort: Effort, blocks: int) -> Row:
    """Trace and lower the gradient of three layers, each cut into blocks."""
    jobs: dict[str, Job] = {}
    for name, library in sides.items():
        parameters = _layers(library, blocks)

        def lowered(parameters: Any = parameters) -> object:
            # `grad` returns another function each time, which no cache of JAX has seen.
            gradient = jax.grad(_loss_of_layers)
            return jax.jit(gradient).trace(parameters, jnp.ones(4)).lower()

        jobs[name] = job("lowered()", {"lowered": lowered})
    (taken,) = interleave([jobs], effort)
    title = f"grad of an MLP, {6 * blocks} leaves: trace + lower"
    return rows.timed(TABLE, title, taken, unit="ms", target=1.0)


def _layers(library: Library, blocks: int) -> Any:
    block = library.define("Block", ("weight", "bias"))
    layer = library.define("Layer", ("blocks",), ("activation",))
    network = library.define("Network", ("first", "second", "third"))

    def made(inputs: int) -> Any:
        parts = [block(weight=jnp.ones((1, inputs)), bias=jnp.ones(1)) for _ in range(blocks)]
        return layer(blocks=parts, activation=jnp.tanh)

    return network(first=made(4), second=made(blocks), third=made(blocks))


def _loss_of_layers(parameters: Any, x: jax.Array) -> jax.Array:
    for name in ("first", "second", "third"):
        layer = _read(parameters, name)
        blocks = _read(layer, "blocks")
        weight = jnp.concatenate([_read(block, "weight") for block in blocks])
        bias = jnp.concatenate([_read(block, "bias") for block in blocks])
        x = _static(layer, "activation", jnp.tanh)(weight @ x + bias)
    return x.sum()


def _square(x: jax.Array) -> jax.Array:
    return x * x


def _stepped(sides: Mapping[str, Library], effort: Effort, counts: tuple[int, ...]) -> list[Row]:
    """Take a step with adam, and see what it takes beyond the program on bare leaves."""
    without_native = {name: side for name, side in sides.items() if name != BASELINE}
    groups: list[Group] = []
    for count in counts:
        jobs: dict[str, Job] = {}
        for name, library in without_native.items():
            state, step = _state(library, count)
            jobs[name] = _stepping(step, state)
            if name == OURS:
                jobs[FLAT] = _stepping(*_flattened(step, state))
        groups.append(jobs)
    made: list[Row] = []
    for count, taken in zip(counts, interleave(groups, effort), strict=True):
        made.append(rows.timed(TABLE, f"adam step, {count:,} leaves", taken))
        made.append(_beyond(f"adam step, {count:,} leaves, {BEYOND}", taken))
    return made


def _state(library: Library, leaves: int) -> tuple[Any, Callable[[Any], Any]]:
    """Return a training state of about so many scalar leaves, and its step.

    The loss is a sum of squares: what is asked is the way into and out of the program.
    """
    layer = library.define("Layer", ("weight", "bias"), ("activation",))
    training = library.define("Training", ("layers", "moments", "rate"), ("optimizer",))
    count = (leaves - 2) // 6  # six leaves a layer with both moments, a count and a rate
    one = functools.partial(layer, bias=jnp.float32(1), activation=_square)
    layers = [one(weight=jnp.float32(number)) for number in range(count)]

    def loss(layers: Any) -> jax.Array:
        total = jnp.float32(0)
        for each in layers:
            activation = _static(each, "activation", _square)
            total += activation(_read(each, "weight")) + activation(_read(each, "bias"))
        return total

    def step(state: Any) -> tuple[Any, jax.Array]:
        optimizer = _static(state, "optimizer", _ADAM)
        layers, rate = _read(state, "layers"), _read(state, "rate")
        gradient = jax.grad(loss)(layers)
        updates, moments = optimizer.update(gradient, _read(state, "moments"), layers)
        layers = jax.tree.map(lambda p, u: p - rate * u, layers, updates)
        # XLA takes minutes for a sum over thousands of leaves, so that the loss is not asked for.
        state = training(layers=layers, moments=moments, rate=rate, optimizer=optimizer)
        return state, _read(gradient[0], "weight")

    rate = jnp.float32(_RATE)
    moments = _ADAM.init(layers)
    state = training(layers=layers, moments=moments, rate=rate, optimizer=_ADAM)
    return state, step


def _flattened(step: Callable[[Any], Any], state: Any) -> tuple[Callable[[Any], Any], Any]:
    """Return the same step on a tuple of leaves: what is left is JAX and XLA."""
    leaves, treedef = jax.tree_util.tree_flatten(state)

    def flat(leaves: tuple[jax.Array, ...]) -> tuple[tuple[jax.Array, ...], jax.Array]:
        state, value = step(jax.tree_util.tree_unflatten(treedef, leaves))
        return tuple(jax.tree_util.tree_leaves(state)), value

    return flat, tuple(leaves)


def _stepping(step: Callable[[Any], Any], state: Any) -> Job:
    # Waiting for each step keeps the host's work and the device's apart.
    statement = "state, value = compiled(state); value.block_until_ready()"
    return job(statement, {"compiled": jax.jit(step), "state": state})


def _beyond(name: str, taken: Mapping[str, Samples]) -> Row:
    """Return the row of what steps take beyond the one on bare leaves."""
    extra = {each: taken[each].minus(taken[FLAT]) for each in taken if each != FLAT}
    mine = extra[OURS].median
    figures: dict[str, Figure] = {}
    for each, samples in extra.items():
        its, spread = samples.median, samples.spread
        # What is lost in its own spread is nothing to divide by.
        ratio = mine / its if its > 0 and spread < _CLEAR else None
        figures[each] = Figure(its * 1e6, spread, ratio)
    return Row(BEYOND, name, "µs", figures, rows.best_peer(figures), None, extra[OURS].spread)


def _small(sides: Mapping[str, Library], effort: Effort, steps: int) -> Row:
    """Take steps of plain gradient descent one after another, as a program's loop does."""
    jobs: dict[str, Job] = {}
    x = jnp.ones((8, 4))
    for name, library in sides.items():
        layer = library.define("Dense", ("weight", "bias"), ("activation",))
        made = [
            layer(weight=jnp.ones((4, 4)) / 4, bias=jnp.zeros(4), activation=jnp.tanh)
            for _ in range(3)
        ]
        compiled = jax.jit(_descend)
        # Only the last step of a slot is waited for.
        statement = "for _ in range(steps): layers = compiled(layers, x)\nwait(layers)"
        names = {"compiled": compiled, "layers": made, "x": x, "steps": steps}
        jobs[name] = job(statement, names | {"wait": jax.block_until_ready}, calls=steps)
    (taken,) = interleave([jobs], effort)
    return rows.timed(TABLE, "training step of a small MLP", taken, unit=STEPS)


def _descend(layers: Any, x: jax.Array) -> Any:
    def loss(layers: Any) -> jax.Array:
        out = x
        for each in layers:
            activation = _static(each, "activation", jnp.tanh)
            out = activation(out @ _read(each, "weight") + _read(each, "bias"))
        return (out * out).mean()

    gradient = jax.grad(loss)(layers)
    return jax.tree.map(lambda p, g: p - _RATE * g, layers, gradient)
