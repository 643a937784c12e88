"""A static flag alternates between two values: does JAX throw the old program away?

No: it keeps one program for each static value and each shape. Run me to see it:

    python examples/flags.py
    python examples/flags.py --limits  # fills JAX's own caches: takes a minute or two
"""

import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from support.counting import cache_size, counting

import leafwise as lw


@lw.pytree
class Model:
    """Weights, with two statics that determine the program."""

    weight: jax.Array = lw.field(default_factory=lambda: jnp.ones(3))
    training: bool = lw.static_field(default=False)
    depth: int = lw.static_field(default=2)


@jax.jit
def apply(model: Model, x: jax.Array) -> jax.Array:
    """Read the statics from the fields of an argument."""
    for _ in range(model.depth):
        x = jnp.tanh(model.weight.sum() * x)
    return 0.5 * x if model.training else x


@functools.partial(jax.jit, static_argnames="training")
def apply_flag(weight: jax.Array, x: jax.Array, training: bool) -> jax.Array:  # noqa: FBT001
    """Take the flag as a static argument instead."""
    x = jnp.tanh(weight.sum() * x)
    return 0.5 * x if training else x


@lw.pytree
class Fill:
    """A vector to fill with a value, whose type determines the dtype."""

    like: jax.Array
    value: int = lw.static_field(default=0)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["like"], meta_fields=["value"])
@dataclasses.dataclass(frozen=True)
class PlainFill:
    """The same, registered only with JAX: statics are compared by `==`."""

    like: jax.Array
    value: int = 0


@jax.jit
def fill(spec: Fill | PlainFill) -> jax.Array:
    """Return the vector: bool for True, int32 for 1."""
    return jnp.full(spec.like.shape, spec.value)


@lw.pytree
class Mapped:
    """A function to apply to every element."""

    x: jax.Array
    function: Callable[[jax.Array], jax.Array] = lw.static_field(default=jnp.tanh)


@jax.jit
def run_mapped(mapped: Mapped) -> jax.Array:
    """Apply the function."""
    return mapped.function(mapped.x)


class Limited:
    """Jitted functions, one for each depth; our own LRU cache keeps a few of them."""

    def __init__(self, limit: int) -> None:
        """Keep at most `limit` functions."""
        self.__name__ = self.jitted.__name__
        self.function_for = functools.lru_cache(limit)(self.jitted)

    def jitted(self, depth: int) -> Any:
        """Return a new jitted function."""

        def jitted(x: jax.Array) -> jax.Array:
            for _ in range(depth):
                x = jnp.sin(x)
            return x

        return jax.jit(jitted)

    def __call__(self, x: jax.Array, depth: int) -> jax.Array:
        """Call the function for a depth; make it if it is not in the cache."""
        return self.function_for(depth)(x)

    def _cache_size(self) -> int:
        return self.function_for.cache_info().currsize


@dataclasses.dataclass(frozen=True)
class Row:
    """What JAX did with a function over a series of calls."""

    calls: int
    traces: int
    compiles: int
    sizes: tuple[int, ...]  # the entries in the function's cache, after each call


def watch(title: str, function: Any, calls: Sequence[tuple[Any, ...]]) -> Row:
    """Call a jitted function with each tuple of arguments; print and return what JAX did."""
    sizes: list[int] = []
    with counting(function) as seen:
        for arguments in calls:
            function(*arguments).block_until_ready()
            sizes.append(cache_size(function))
    row = Row(len(sizes), seen.traces, seen.compiles, tuple(sizes))
    growth = " ".join(str(size) for size in sizes[:8]) + (" ..." if len(sizes) > 8 else "")
    print(f"{title:<38}{row.calls:>6}{row.traces:>8}{row.compiles:>10}   {growth}")
    return row


@dataclasses.dataclass(frozen=True)
class Result:
    """The report: its rows by name, and the dtypes of filling with True and then with 1."""

    rows: dict[str, Row]
    dtypes: dict[str, list[str]]


def main() -> Result:
    """Print the report and return it."""
    model, x = Model(), jnp.ones(8)
    flags = [call % 2 == 0 for call in range(100)]
    depths = [3 + call % 5 for call in range(100)]
    alternating = [(lw.replace(model, training=flag), x) for flag in flags]
    rows: dict[str, Row] = {}

    print(f"{'':<38}{'calls':>6}{'traces':>8}{'compiles':>10}   cache after each call")
    rows["field"] = watch("a bool in a static field", apply, alternating)
    rows["depth"] = watch(
        "an int field with 5 new values", apply, [(lw.replace(model, depth=d), x) for d in depths]
    )
    rows["shapes"] = watch(
        "the bool again, with 3 new shapes",
        apply,
        [(m, jnp.ones(size)) for m, _ in alternating for size in (1, 2, 4)],
    )
    rows["again"] = watch("the first 100 calls again", apply, alternating)
    rows["argument"] = watch(
        "a bool in static_argnames", apply_flag, [(model.weight, x, flag) for flag in flags]
    )

    print("\nWhat breaks it: a flag that is True here and 1 there")
    dtypes: dict[str, list[str]] = {}
    for kind in (PlainFill, Fill):
        specs = [kind(x, value) for value in (True, 1)]
        rows[kind.__name__] = watch(f"  {kind.__name__}", fill, [(spec,) for spec in specs])
        dtypes[kind.__name__] = [str(fill(spec).dtype) for spec in specs]
        print(f"    dtypes: True -> {dtypes[kind.__name__][0]}, 1 -> {dtypes[kind.__name__][1]}")

    print("\nWhat breaks it: a function recreated for each call")
    fresh = [(Mapped(x, lambda x: 2 * x),) for _ in range(8)]
    named = [(Mapped(x, jnp.sin),) for _ in range(8)]
    rows["lambda"] = watch("  a fresh lambda", run_mapped, fresh)
    rows["named"] = watch("  a named function", run_mapped, named)

    print("\nWhat breaks it: an LRU cache that holds fewer functions than there are values")
    turns = [(x, 1 + call % 3) for call in range(12)]
    for limit in (2, 3):
        rows[f"limit {limit}"] = watch(f"  3 values, lru_cache({limit})", Limited(limit), turns)

    print(
        f"\nNothing is thrown away: {rows['field'].calls} alternating calls compiled "
        f"{rows['field'].compiles} programs, and {rows['again'].compiles} when they came again."
    )
    return Result(rows, dtypes)


def fill_caches(entries: int = 8200, programs: int = 2100) -> tuple[Row, Row]:
    """Fill JAX's own caches; return what calls from long ago then cost.

    Args:
        entries: More than JAX's fast path has room for.
        programs: More than JAX keeps traces of.

    Returns:
        The cost of a call whose entry was dropped, and of one whose trace was dropped, too.
    """
    x = jnp.ones(3)

    @functools.partial(jax.jit, static_argnames="factor")
    def scaled(x: jax.Array, factor: int) -> jax.Array:
        return factor * x

    @jax.jit
    def first(*xs: jax.Array) -> jax.Array:
        return xs[0]

    scaled(x, 0)
    # A NumPy array has another entry than a JAX array, and the same program: 2**14 of them.
    kinds = itertools.product((jnp.ones(1), np.ones(1, "float32")), repeat=14)
    for arguments in itertools.islice(kinds, entries):
        first(*arguments)
    print(f"{'a call that was made long ago':<38}{'calls':>6}{'traces':>8}{'compiles':>10}   cache")
    dropped = watch("  its entry was dropped", first, [[jnp.ones(1)] * 14])
    for factor in range(1, programs):
        scaled(x, factor)
    again = watch("  its trace was dropped, too", scaled, [(np.ones(3, "float32"), 0)])
    return dropped, again


if __name__ == "__main__":
    if sys.argv[1:] == ["--limits"]:
        fill_caches()
    else:
        main()
