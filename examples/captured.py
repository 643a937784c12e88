"""A step closes over an optimizer and a learning rate: changing the rate has no effect.

JAX reads what a function closes over while it traces: an array becomes a constant of the jaxpr,
a Python number a literal in it, and neither is looked at again. Run me to see it:

    python examples/captured.py
"""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from support.counting import counting

import leafwise as lw

CHANGES = 100
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_parallel_codegen_split_count": 1}
"""A hundred programs are compiled below; nothing here measures how fast they are."""


@lw.pytree
class Fit:
    """Weights to fit, and the momentum of the optimizer."""

    w: jax.Array = lw.field(default_factory=lambda: jnp.zeros(3))
    momentum: Any = lw.field(default_factory=lambda: optax.trace(0.9).init(jnp.zeros(3)))

    def moved(self, optimizer: Any, scale: jax.Array, rate: jax.Array | float) -> "Fit":
        """Take a step towards 1."""
        direction, momentum = optimizer.update(scale * (self.w - 1), self.momentum)
        return lw.replace(self, w=self.w - rate * direction, momentum=momentum)


def closing_over(rate: Any) -> tuple[Callable[[Fit], Fit], Callable[[float], None]]:
    """Return a step that closes over all its settings, and a function that sets the rate."""
    optimizer = optax.trace(decay=0.9)
    scale = jnp.array([1.0, 0.5, 0.25])

    def step(fit: Fit) -> Fit:
        return fit.moved(optimizer, scale, rate)

    def set_rate(value: float) -> None:
        nonlocal rate
        rate = value

    return step, set_rate


# The fixes: pass the rate as an argument. The weights are enough to see that it has an effect.

OPTIMIZER = optax.trace(decay=0.9)
SCALE = jnp.array([1.0, 0.5, 0.25])


@lw.pytree
class Dynamic:
    """Settings with the rate as a leaf: another rate uses the same program."""

    rate: float = 0.1


@lw.pytree
class Fixed:
    """Settings with the rate as a static: another rate is another program."""

    rate: float = lw.static_field(default=0.1)


@jax.jit
def with_argument(fit: Fit, rate: float) -> jax.Array:
    """Take the rate as an argument."""
    return fit.moved(OPTIMIZER, SCALE, rate).w


@jax.jit
def with_dynamic_field(fit: Fit, settings: Dynamic) -> jax.Array:
    """Take the rate in a dynamic field."""
    return fit.moved(OPTIMIZER, SCALE, settings.rate).w


def with_static_field(fit: Fit, settings: Fixed) -> jax.Array:
    """Take the rate in a static field."""
    return fit.moved(OPTIMIZER, SCALE, settings.rate).w


FIXES: dict[str, tuple[Any, Callable[[float], Any]]] = {
    "an argument": (with_argument, float),
    "a dynamic field": (with_dynamic_field, Dynamic),
    "a static field": (jax.jit(with_static_field, compiler_options=QUICK), Fixed),
}
"""A jitted step for each fix, and what makes its argument from a rate."""


@dataclasses.dataclass(frozen=True)
class Row:
    """What a hundred changes of the rate cost, and how many of them had an effect."""

    traces: int
    compiles: int
    right: int


@dataclasses.dataclass(frozen=True)
class Result:
    """The jaxprs of both steps, the weights before and after a change, and the fixes by name.

    Then what leafwise reports about the step: its captures, and that one of them is stale.
    """

    captured: str
    argument: str
    consts: list[list[float]]
    jitted: tuple[float, float]
    plain: tuple[float, float]
    fixes: dict[str, Row]
    captures: tuple[Any, ...]
    warning: str


def try_fix(step: Any, make: Callable[[float], Any]) -> Row:
    """Change the rate a hundred times; count traces, compiles, and right answers."""
    fit, right = Fit(), 0
    with counting(step) as seen:
        for change in range(CHANGES):
            rate = (change + 1) / CHANGES
            moved = step(fit, make(rate))
            right += abs(float(moved[0]) - rate) < 1e-6  # from 0, one step leads to the rate
    return Row(seen.traces, seen.compiles, right)


def what_leafwise_says() -> str:
    """Change the rate of a step under `lw.jit`; return the warning that it gives."""
    step, set_rate = closing_over(rate=0.1)
    watched = lw.jit(step)
    watched(Fit())
    set_rate(0.5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        watched(Fit())
    (warning,) = caught
    assert warning.category is lw.errors.StaleCaptureWarning
    return str(warning.message)


def main() -> Result:
    """Print the report and return it."""
    fit = Fit()
    step, set_rate = closing_over(rate=0.1)
    jitted = jax.jit(step)
    closed = jitted.trace(fit).jaxpr
    by_argument = jax.make_jaxpr(with_argument.__wrapped__)(fit, 0.1)
    captures = lw.captures(step)
    print(f"What the step captures, by lw.captures:\n{captures}\n")
    print(f"All settings captured; the array is `a`, the rate a literal:\n{closed}")
    consts = [[float(each) for each in const] for const in closed.consts]
    print(f"constants: {consts}\n")
    print(f"The rate is an argument, `d`:\n{by_argument}\n")

    before = float(jitted(fit).w[0]), float(step(fit).w[0])
    set_rate(0.5)
    after = float(jitted(fit).w[0]), float(step(fit).w[0])
    print(f"{'the first weight after a step':<34}rate 0.1   then 0.5")
    print(f"{'jax.jit':<34}{before[0]:<11.1f}{after[0]:.1f}  (stale)")
    print(f"{'plain Python':<34}{before[1]:<11.1f}{after[1]:.1f}\n")
    warning = what_leafwise_says()
    print(f"The same under lw.jit:\n{warning}\n")

    fixes = {name: try_fix(step, make) for name, (step, make) in FIXES.items()}
    print(f"{CHANGES} changes, the rate in ...{'':<11}traces   compiles   right answers")
    for name, row in fixes.items():
        print(f"{name:<38}{row.traces:<9}{row.compiles:<11}{row.right}")
    print(
        "\nWhat is captured is read once, while JAX traces. What changes belongs in an argument "
        "or a dynamic\nfield, and in a static field only if it determines the program and rarely "
        "changes."
    )
    jitted_answers, plain_answers = zip(before, after, strict=True)
    return Result(
        *(str(closed), str(by_argument), consts),
        *(jitted_answers, plain_answers, fixes, captures, warning),
    )


if __name__ == "__main__":
    main()
