"""Which loop? One parameter class with all of them: what each can do and what it costs.

Which loops jit, differentiate and stop early, how often the body is traced, how large the
program is, how long it takes to compile, and how memory grows with the number of steps, also
in the backward pass and with `jax.checkpoint`. Run me to see it:

    python examples/loops.py
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.stages import Lowered

import leafwise as lw

WIDTH = 64
NOTHING = jax.checkpoint_policies.nothing_saveable
DOTS = jax.checkpoint_policies.dots_saveable
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_parallel_codegen_split_count": 1}
"""Memory is planned before machine code is made: the same bytes in a third of the time."""


@lw.pytree
class Net:
    """The weights, which no step changes."""

    w: jax.Array = lw.field(default_factory=lambda: jnp.eye(WIDTH) / 2)
    depth: int = lw.static_field(default=2)

    def step(self, state: "State") -> "State":
        """Return the next state: a few layers, whose results a gradient needs."""
        x = state.x
        for _ in range(self.depth):
            x = jnp.tanh(self.w @ x)
        return lw.replace(state, x=x, steps=state.steps + 1)


@lw.pytree
class State:
    """What the loop carries: one vector, and how many steps were taken."""

    x: jax.Array = lw.field(default_factory=lambda: jnp.ones(WIDTH))
    steps: jax.Array = lw.field(default_factory=lambda: jnp.zeros((), "int32"))


Step = Callable[[State], State]
Going = Callable[[State], jax.Array]
Bound = int | jax.Array


# Loops. `going` says whether there is more to do, or is None to take all steps.


def python_loop(step: Step, going: Going | None, state: State, bound: int) -> State:
    """Unroll: every step is traced, and compiled, by itself."""
    for _ in range(bound):
        if going is not None and not going(state):
            break
        state = step(state)
    return state


def scan(step: Step, going: Going | None, state: State, bound: int) -> State:
    """Run a fixed number of steps."""
    step = step if going is None else skipping(step, going)
    return lax.scan(lambda state, _: (step(state), None), state, length=bound)[0]


def fori_loop(step: Step, going: Going | None, state: State, bound: Bound) -> State:
    """Count. With a bound that is a Python int this is a scan, else a `while_loop`."""
    step = step if going is None else skipping(step, going)
    return lax.fori_loop(0, bound, lambda _, state: step(state), state)


def while_loop(step: Step, going: Going | None, state: State, bound: Bound) -> State:
    """Continue while a condition holds."""

    def more(state: State) -> jax.Array:
        left = state.steps < bound
        return left if going is None else left & going(state)

    return lax.while_loop(more, step, state)


def skipping(step: Step, going: Going) -> Step:
    """Do nothing in the remaining rounds, for a loop that cannot stop."""
    return lambda state: lax.cond(going(state), step, lambda state: state, state)


LOOPS: dict[str, tuple[Callable[..., State], bool]] = {
    "Python loop": (python_loop, False),
    "scan": (scan, False),
    "fori_loop, bound an int": (fori_loop, False),
    "fori_loop, bound traced": (fori_loop, True),
    "while_loop": (while_loop, True),
}
"""Each loop, and whether it is given its bound as an argument of the program."""


# Loops that keep less for the backward pass.


def checkpointed(net: Net, state: State, bound: int, policy: Any = NOTHING) -> State:
    """Keep the carry of each step, and repeat the step in the backward pass."""
    body = jax.checkpoint(lambda state, _: (net.step(state), None), policy=policy)
    return lax.scan(body, state, length=bound)[0]


def segmented(net: Net, state: State, bound: int) -> State:
    """Keep the carry of each of `sqrt(bound)` segments; repeat one segment at a time."""
    segments = math.isqrt(bound)
    assert segments**2 == bound
    body = jax.checkpoint(lambda state, _: (checkpointed(net, state, segments), None))
    return lax.scan(body, state, length=segments)[0]


def weights_in_carry(net: Net, state: State, bound: int) -> State:
    """Carry what does not change: it is kept once for each step."""
    body = jax.checkpoint(lambda both, _: ((both[0], both[0].step(both[1])), None))
    return lax.scan(body, (net, state), length=bound)[0][1]


KEEPING: dict[str, tuple[Callable[[Net, State, int], State], tuple[int, ...]]] = {
    "scan": (lambda net, state, n: scan(net.step, None, state, n), (16, 256)),
    "checkpoint, dots_saveable": (
        functools.partial(checkpointed, policy=DOTS),
        (16, 256),
    ),
    "checkpoint": (checkpointed, (16, 256)),
    "checkpoint, segments": (segmented, (16, 64, 256)),
    "checkpoint, weights in the carry": (weights_in_carry, (16, 64)),
}
"""Each way to keep less, and the numbers of steps it is measured at."""


@dataclasses.dataclass(frozen=True)
class Loop:
    """What one loop does.

    Attributes:
        traced: How often the body ran in Python for eight steps.
        again: Whether it runs in Python again for another number of steps.
        forward: The first words of JAX's error, if it has no `jvp`.
        reverse: The same for `grad`.
        rounds: How many times `going` was asked when there were three of eight steps to do, or
            the first words of JAX's error.
        last: The state after these three steps.
        growth: How many times as long the program is for four steps as for two.
        seconds: What it took to compile eight steps.
        ahead: Bytes of scratch memory for each step, in carries.
        back: The same for a gradient; None if there is none.
    """

    traced: int
    again: bool
    forward: str
    reverse: str
    rounds: int | str
    last: State | None
    growth: float
    seconds: float
    ahead: float
    back: float | None

    @property
    def stops(self) -> bool:
        """Whether it stops when there is nothing more to do."""
        return isinstance(self.rounds, int) and self.rounds < 8


def first_words(run: Callable[[], object]) -> str:
    """Return the first sentence of JAX's error, or nothing if there is none."""
    try:
        run()
    except (ValueError, jax.errors.JAXTypeError) as error:
        return str(error).partition("\n")[0].partition(". ")[0].rstrip(".")
    return ""


def scratch(lowered: Lowered) -> int:
    """Return the bytes that a program needs besides its arguments and results."""
    text = lowered.as_text()
    if text not in measured:
        compiled = lowered.compile(compiler_options=QUICK)
        measured[text] = compiled.memory_analysis().temp_size_in_bytes
    return measured[text]


measured: dict[str, int] = {}
"""The scratch memory of each program by its text: some loops share a program."""


def per_step(sizes: dict[int, int]) -> float:
    """Return by how many carries memory grows with each step, between the last two numbers."""
    (*_, (few, less), (many, more)) = sizes.items()
    return (more - less) / (many - few) / State().x.nbytes


def try_loop(loop: Callable[..., State], *, bound_is_argument: bool) -> Loop:
    """Compile and differentiate a loop, and see whether it stops."""
    calls: list[str] = []

    def final(net: Net, state: State, bound: Bound) -> State:
        def step(state: State) -> State:
            calls.append("traced")
            return net.step(state)

        return loop(step, None, state, bound)

    def loss(net: Net, state: State, bound: Bound) -> jax.Array:
        return final(net, state, bound).x.sum()

    def derivative(net: Net, state: State, bound: Bound) -> jax.Array:
        return jax.jvp(lambda net: loss(net, state, bound), (net,), (net,))[1]

    def lower(run: Callable[..., Any], steps: int) -> Lowered:
        static = () if bound_is_argument else (2,)
        return jax.jit(run, static_argnums=static).lower(Net(), State(), steps)

    eight = lower(final, 8)
    traced = len(calls)
    few, many = lower(final, 2), lower(final, 4)
    again = len(calls) > traced
    start = time.perf_counter()
    eight.compile()
    seconds = time.perf_counter() - start
    reverse = first_words(lambda: lower(jax.grad(loss), 8))
    return Loop(
        traced,
        again,
        first_words(lambda: lower(derivative, 8)),
        reverse,
        *rounds_of(loop),
        length(many) / length(few),
        seconds,
        per_step({2: scratch(few), 4: scratch(many)}),
        None if reverse else per_step({n: scratch(lower(jax.grad(loss), n)) for n in (2, 4)}),
    )


def length(lowered: Lowered) -> int:
    """Return the lines of a program."""
    return lowered.as_text().count("\n")


def rounds_of(loop: Callable[..., State]) -> tuple[int | str, State | None]:
    """Stop a loop of at most eight steps after three; return how often it asked, and its end.

    If it cannot stop, return the first words of JAX's error, and None.
    """
    asked: list[int] = []

    def going(state: State) -> jax.Array:
        jax.debug.callback(asked.append, state.steps)
        return state.steps < 3

    @functools.partial(jax.jit, compiler_options=QUICK)
    def run(state: State) -> State:
        return loop(Net().step, going, state, 8)

    ends: list[State] = []
    refused = first_words(lambda: ends.append(jax.block_until_ready(run(State()))))
    jax.effects_barrier()
    return refused or len(asked), ends[0] if ends else None


def backward_bytes(run: Callable[[Net, State, int], State], steps: int) -> int:
    """Return the scratch memory of a gradient with respect to the weights."""
    gradient = jax.grad(lambda net, state: run(net, state, steps).x.sum())
    return scratch(jax.jit(gradient).lower(Net(), State()))


@lw.pytree
class Noting(Net):
    """The same weights, which record each step when it runs."""

    def step(self, state: State) -> State:
        """Record the step and take it."""
        jax.debug.callback(noted.append, state.steps)
        return super().step(state)


noted: list[jax.Array] = []


def times_taken(run: Callable[[Net, State, int], State]) -> tuple[int, Net]:
    """Return how often a gradient runs each of four steps, and the gradient."""
    gradient = jax.grad(lambda net, state: run(net, state, 4).x.sum())
    noted.clear()
    found = jax.block_until_ready(jax.jit(gradient, compiler_options=QUICK)(Noting(), State()))
    jax.effects_barrier()
    assert len(noted) % 4 == 0
    return len(noted) // 4, found


@dataclasses.dataclass(frozen=True)
class Report:
    """What was measured.

    Attributes:
        loops: The loops by name.
        backward: The bytes of a gradient, for each way of keeping and number of steps.
        times: How often a gradient runs each step, for each way of keeping.
        gradients: The gradient of four steps, for each way of keeping.
    """

    loops: dict[str, Loop]
    backward: dict[str, dict[int, int]]
    times: dict[str, int]
    gradients: dict[str, Net]

    def kept(self, name: str) -> float:
        """Return how many carries a gradient keeps for each of the last steps."""
        return per_step(self.backward[name])


def main() -> Report:
    """Print the tables and return them."""
    loops = {
        name: try_loop(loop, bound_is_argument=traced) for name, (loop, traced) in LOOPS.items()
    }
    backward = {
        name: {steps: backward_bytes(run, steps) for steps in lengths}
        for name, (run, lengths) in KEEPING.items()
    }
    taken = {name: times_taken(run) for name, (run, _) in KEEPING.items()}
    times = {name: count for name, (count, _) in taken.items()}
    report = Report(loops, backward, times, {name: each for name, (_, each) in taken.items()})

    print(f"{'':<26}body    other    forward  reverse  stops  lines,  compile  scratch a step")
    print(f"{'':<26}traced  bound    mode     mode     early  4 : 2   time     forward  gradient")
    unit = loops["scan"].seconds
    for name, row in loops.items():
        bound = "retrace" if row.again else "same"
        forward, reverse = ("no" if words else "yes" for words in (row.forward, row.reverse))
        stops = "yes" if row.stops else "no"
        back = "-" if row.back is None else f"{row.back:.0f}"
        print(f"{name:<26}{row.traced:<8}{bound:<9}{forward:<9}{reverse:<9}{stops:<7}", end="")
        print(f"{row.growth:<8.1f}{row.seconds / unit:<9.1f}{row.ahead:<9.0f}{back}")
    print()
    for name, row in loops.items():
        for words in filter(None, (row.forward, row.reverse, row.rounds)):
            if isinstance(words, str):
                print(f"{name}: {words}.")
    print(f"\n{'kept for the gradient':<34}{'KiB at 16':>10}{'64':>8}{'256':>8}", end="")
    print("   carries a step   steps taken")
    for name, sizes in backward.items():
        kib = {steps: f"{size / 1024:.1f}" for steps, size in sizes.items()}
        cells = "".join(f"{kib.get(steps, ''):>8}" for steps in (16, 64, 256))
        print(f"{name:<36}{cells}   {report.kept(name):<17.2f}{times[name]}x")
    saved = report.kept("scan") / report.kept("checkpoint")
    print(
        "\nTake scan where the steps are counted, while_loop where they are not and no gradient "
        f"is needed;\ncheckpoint its body when memory runs out: {saved:.0f} times less a step here."
    )
    return report


if __name__ == "__main__":
    main()
