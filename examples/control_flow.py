"""One parameter class through JAX's control flow and transformations.

Each takes an instance and returns one. Is it still the same class, with a plain int in its
static field? How often was it traced, and is it differentiable? Run me to see it:

    python examples/control_flow.py
"""

import contextlib
import dataclasses
import io
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from support.counting import counting

import leafwise as lw


@lw.pytree
class Decay:
    """A level that falls by a rate; `order` decides the formula, in plain Python."""

    level: jax.Array = lw.field(default_factory=lambda: jnp.ones(3))
    rate: jax.Array = lw.field(default_factory=lambda: jnp.full((), 0.25, "float32"))
    order: int = lw.static_field(default=2)

    def step(self) -> "Decay":
        """Return the next state: `order` is an int here, whatever JAX does around it."""
        fall = self.rate * self.level
        for _ in range(self.order - 1):
            fall = fall * self.level
        return lw.replace(self, level=self.level - fall)

    def total(self) -> jax.Array:
        """Return what is left."""
        return self.level.sum()


def cond(decay: Decay) -> Decay:
    """Trace both branches, run one."""
    return lax.cond(decay.total() > 1, Decay.step, lambda decay: decay, decay)


def switch(decay: Decay) -> Decay:
    """Choose one of several branches by a traced index."""
    branches = [lambda decay: decay, Decay.step, lambda decay: decay.step().step()]
    return lax.switch(1 + decay.level.argmax(), branches, decay)


def while_loop(decay: Decay) -> Decay:
    """Stop early, when little is left."""
    return lax.while_loop(lambda decay: decay.total() > 1, Decay.step, decay)


def fori_loop(decay: Decay) -> Decay:
    """Step a fixed number of times."""
    return lax.fori_loop(0, 4, lambda _, decay: decay.step(), decay)


def scan(decay: Decay) -> Decay:
    """Step four times and stack the states: one instance, whose leaves have a new axis."""
    return lax.scan(lambda decay, _: (decay.step(), decay), decay, length=4)[1]


def vmap(decay: Decay) -> Decay:
    """Step a batch of instances at once."""
    return jax.vmap(Decay.step)(batch_of(decay))


def map_batched(decay: Decay) -> Decay:
    """Step a batch of instances, two at a time: less memory than `vmap`."""
    return lax.map(Decay.step, batch_of(decay), batch_size=2)


def grad(decay: Decay) -> Decay:
    """Differentiate with respect to all leaves: the gradient is an instance too."""
    return jax.grad(lambda decay: decay.step().total())(decay)


def checkpoint(decay: Decay) -> Decay:
    """Step in a scan that keeps no intermediates for the gradient."""
    body = jax.checkpoint(lambda decay, _: (decay.step(), None))
    return lax.scan(body, decay, length=4)[0]


def debug_print(decay: Decay) -> Decay:
    """Print when the program runs, not when it is traced."""
    jax.debug.print("{total:.2f} is left of {decay}", total=decay.total(), decay=decay)
    return decay


def pure_callback(decay: Decay) -> Decay:
    """Step on the host, in NumPy: the callback gets an instance and returns one."""

    def on_host(decay: Decay) -> Decay:
        return lw.replace(decay, level=np.asarray(decay.level) / 2)

    return jax.pure_callback(on_host, decay, decay)


def batch_of(decay: Decay) -> Decay:
    """Stack an instance and four multiples of it."""
    return jax.tree.map(lambda leaf: jnp.stack([leaf * n / 4 for n in range(5)]), decay)


CONSTRUCTS = (
    *(cond, switch, while_loop, fori_loop, scan, vmap, map_batched),
    *(grad, checkpoint, debug_print, pure_callback),
)


@dataclasses.dataclass(frozen=True)
class Row:
    """What came out of one construct, and what JAX did."""

    out: Decay
    kept: bool  # whether it is a Decay, with its static int
    traces: int  # in two calls that differ in leaves
    more: int  # in a third call with another order
    no_forward: str  # why there is no derivative; empty if there is one
    no_backward: str


def objection(run: Callable[[], object]) -> str:
    """Return the first sentence of JAX's ValueError, or nothing if there is none."""
    try:
        run()
    except ValueError as error:
        return str(error).partition(". ")[0]
    return ""


def try_out(construct: Callable[[Decay], Decay]) -> Row:
    """Call a construct, jitted, on three instances, and differentiate it."""
    jitted = jax.jit(construct)
    first = Decay()
    second = jax.tree.map(lambda leaf: 0.9 * leaf, first)
    with counting(jitted) as two:
        out, _ = jitted(first), jitted(second)
    with counting(jitted) as third:
        jitted(lw.replace(first, order=3))
    return Row(
        out,
        kept=type(out) is Decay and type(out.order) is int and out.order == first.order,
        traces=two.traces,
        more=third.traces,
        no_forward=objection(lambda: jax.jvp(construct, (first,), (second,))),
        no_backward=objection(lambda: jax.vjp(construct, first)[1](out)),
    )


def main() -> dict[str, Row]:
    """Print the table and return its rows."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        rows = {construct.__name__: try_out(construct) for construct in CONSTRUCTS}
        jax.effects_barrier()  # wait for what `debug.print` still has to print

    print(f"{'':<65}traces of             derivative")
    print(f"{'construct':<15}{'result':<44}kept  two calls  new order  forward  backward")
    for name, row in rows.items():
        kept = "yes" if row.kept else "no"
        forward = "no" if row.no_forward else "yes"
        backward = "no" if row.no_backward else "yes"
        print(f"{name:<15}{row.out!r:<44}{kept:<6}{row.traces:<11}{row.more:<11}", end="")
        print(f"{forward:<9}{backward}")
    print()
    for name, row in rows.items():
        if row.no_backward:
            print(f"{name}: {row.no_backward}.")
    print(f"debug_print wrote: {printed.getvalue().splitlines()[0]}")
    whole = sum(row.kept for row in rows.values())
    once = sum(row.traces == 1 for row in rows.values())
    print(
        f"\n{whole} of {len(rows)} constructs gave the class back with its static int, and {once} "
        "traced two instances once:\nwherever JAX takes a pytree, it takes your class."
    )
    return rows


if __name__ == "__main__":
    main()
