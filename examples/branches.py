"""Which branch, and which way to map over a batch? One parameter class with all of them.

Does it jit, which sides run, alone and under `vmap`, what is the gradient if the other side
has none, and how does the memory grow with the batch? Run me to see it:

    python examples/branches.py
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import leafwise as lw

QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_parallel_codegen_split_count": 1}
"""Nothing here measures time, and memory is planned before machine code is made."""


@lw.pytree
class Root:
    """A root of a positive number, and 0 for all others."""

    x: jax.Array = lw.field(default_factory=lambda: jnp.zeros(()))
    order: int = lw.static_field(default=2)

    def root(self) -> "Root":
        """Return the root, whose derivative at 0 is infinite."""
        note("root", self)
        return lw.replace(self, x=self.x ** (1 / self.order))

    def zero(self) -> "Root":
        """Return 0."""
        note("zero", self)
        return lw.replace(self, x=jnp.zeros_like(self.x))


ran: list[str] = []
"""Which sides ran: noted when the program runs, not when it is traced."""


def note(side: str, root: Root) -> None:
    """Note that a side runs."""
    jax.debug.callback(lambda _: ran.append(side), root.x)


def python_if(root: Root) -> Root:
    """Choose while JAX traces, by what is known then: `x` is not known."""
    return root.root() if root.x > 0 else root.zero()


def cond(root: Root) -> Root:
    """Choose when the program runs."""
    return lax.cond(root.x > 0, Root.root, Root.zero, root)


def switch(root: Root) -> Root:
    """Choose one of many by a number."""
    return lax.switch(jnp.where(root.x > 0, 1, 0), [Root.zero, Root.root], root)


def where(root: Root) -> Root:
    """Compute both, and choose leaf by leaf."""
    return pick(root.x > 0, root.root(), root.zero())


def where_safe(root: Root) -> Root:
    """Compute both, but take the root of 1 where the root is not chosen."""
    there = root.x > 0
    safe = lw.replace(root, x=jnp.where(there, root.x, 1.0))
    return pick(there, safe.root(), root.zero())


def pick(which: jax.Array, one: Root, other: Root) -> Root:
    """Choose between two trees; for a single array, use `jnp.where` or `lax.select`."""
    return jax.tree.map(lambda a, b: jnp.where(which, a, b), one, other)


BRANCHES: dict[str, Callable[[Root], Root]] = {
    "Python if": python_if,
    "cond": cond,
    "switch": switch,
    "where, select": where,
    "where, safe inside": where_safe,
}


@lw.pytree
class Net:
    """The weights of a small network, whose gradient we want for each example of a batch."""

    w: jax.Array = lw.field(default_factory=lambda: jnp.eye(32) / 2)
    steps: int = lw.static_field(default=16)

    def loss(self, x: jax.Array) -> jax.Array:
        """Return the loss of one example: `float32[32]` to `float32[]`."""
        return lax.scan(lambda x, _: (jnp.tanh(self.w @ x), None), x, length=self.steps)[0].sum()


def vmap(net: Net, xs: jax.Array) -> Net:
    """Process all examples at once."""
    return jax.vmap(jax.grad(Net.loss), in_axes=(None, 0))(net, xs)


def map_one(net: Net, xs: jax.Array) -> Net:
    """Process one example at a time."""
    return lax.map(lambda x: jax.grad(Net.loss)(net, x), xs)


def map_batched(net: Net, xs: jax.Array) -> Net:
    """Process eight at a time."""
    return lax.map(lambda x: jax.grad(Net.loss)(net, x), xs, batch_size=8)


BATCHES: dict[str, Callable[[Net, jax.Array], Net]] = {
    "vmap": vmap,
    "lax.map": map_one,
    "lax.map, batch_size=8": map_batched,
}


@dataclasses.dataclass(frozen=True)
class Branch:
    """What one way of choosing does.

    Attributes:
        refused: The first words of JAX's error, if it does not jit.
        sides: The sides that ran for one number.
        mapped: The sides that ran under `vmap` for a batch with one 0.
        slope: The gradient at 0, which should be 0.
        mapped_slope: The same under `vmap`.
    """

    refused: str = ""
    sides: tuple[str, ...] = ()
    mapped: tuple[str, ...] = ()
    slope: float | None = None
    mapped_slope: float | None = None


def sides(function: Callable[[Root], Root], root: Root) -> tuple[str, ...]:
    """Run a function, jitted; return the sides that ran."""
    ran.clear()
    jax.block_until_ready(jax.jit(function, compiler_options=QUICK)(root))
    jax.effects_barrier()
    return tuple(sorted(ran))


def try_branch(choose: Callable[[Root], Root]) -> Branch:
    """Run one way of choosing, and differentiate it."""
    zero = Root()
    try:
        alone = sides(choose, zero)
    except jax.errors.TracerBoolConversionError as error:
        return Branch(str(error).partition("\n")[0].rstrip("."))
    batch = jax.tree.map(lambda leaf: leaf[None], zero)

    def slope(function: Callable[[Root], Root], root: Root) -> float:
        gradient = jax.grad(lambda root: function(root).x.sum())
        return float(jax.jit(gradient, compiler_options=QUICK)(root).x.sum())

    mapped = jax.vmap(choose)
    return Branch("", alone, sides(mapped, batch), slope(choose, zero), slope(mapped, batch))


def scratch(run: Callable[..., Any], batch: int) -> int:
    """Return the bytes that a program needs besides its arguments and results."""
    lowered = jax.jit(run).lower(Net(), jnp.ones((batch, 32)))
    return lowered.compile(compiler_options=QUICK).memory_analysis().temp_size_in_bytes


@dataclasses.dataclass(frozen=True)
class Report:
    """The branches by name, and the scratch bytes for 32 and for 64 examples."""

    branches: dict[str, Branch]
    batches: dict[str, tuple[int, int]]


def main() -> Report:
    """Print the tables and return them."""
    branches = {name: try_branch(choose) for name, choose in BRANCHES.items()}
    batches = {name: (scratch(run, 32), scratch(run, 64)) for name, run in BATCHES.items()}

    print(f"{'the root of 0, which is not taken':<36}{'sides that run':<31}gradient, should be 0")
    print(f"{'':<36}{'alone':<13}{'under vmap':<18}{'alone':<8}under vmap")
    for name, row in branches.items():
        if row.refused:
            print(f"{name:<36}{row.refused}")
            continue
        ran_alone, ran_mapped = ", ".join(row.sides), ", ".join(row.mapped)
        print(f"{name:<36}{ran_alone:<13}{ran_mapped:<18}{row.slope:<8}{row.mapped_slope}")
    print(f"\n{'gradients for each example':<36}{'KiB for 32':<13}for 64 examples")
    for name, (few, many) in batches.items():
        print(f"{name:<36}{few / 1024:<13.1f}{many / 1024:.1f}")
    print(
        "\nTake cond to save work or to guard a gradient, where for cheap sides; vmap for speed, "
        "and lax.map\nwith a batch_size when memory runs out."
    )
    return Report(branches, batches)


if __name__ == "__main__":
    main()
