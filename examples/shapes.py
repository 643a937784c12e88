"""A function branches on `x.shape[0]` and answers differently for 8 and 3: was it traced again?

Yes, once for each shape: the Python branch runs while JAX traces, and what it chose is saved
in a jaxpr, one for each key. Run me to see them:

    python examples/shapes.py
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from support.counting import cache_size, counting

import leafwise as lw


@lw.pytree
class Pool:
    """Pool a vector: its mean if it is long enough, else its sum."""

    scale: jax.Array = lw.field(default_factory=lambda: jnp.ones(()))
    enough: int = lw.static_field(default=5)


branches: list[str] = []
"""What the Python branch did: a side effect like this one happens at trace time only."""


@jax.jit
def pooled(params: Pool, x: jax.Array) -> jax.Array:
    """Branch in Python on what is known at trace time: a shape and a static field."""
    if x.shape[0] >= params.enough:
        branches.append(f"mean of {x.shape[0]}")
        return params.scale * x.mean()
    branches.append(f"sum of {x.shape[0]}")
    return params.scale * x.sum()


@dataclasses.dataclass(frozen=True)
class Call:
    """One call: what went in, what came out, and the program that JAX used."""

    size: int
    enough: int
    answer: float
    traced: bool
    program: str


@dataclasses.dataclass(frozen=True)
class Result:
    """The calls in order, the jaxprs of the programs, and what JAX did in all."""

    calls: list[Call]
    jaxprs: dict[str, str]
    branches: list[str]
    traces: int
    compiles: int
    entries: int


def main() -> Result:
    """Print the report and return it."""
    calls: list[Call] = []
    programs: list[Any] = []
    with counting(pooled) as total:
        for size, enough in ((8, 5), (8, 5), (3, 5), (8, 5), (8, 9)):
            params = Pool(enough=enough)
            x = jnp.arange(1.0, size + 1)
            with counting(pooled) as seen:
                answer = float(pooled(params, x))
            # For a known call, JAX returns the same jaxpr object that it saved. If it had
            # traced again, `total` would show it.
            jaxpr = pooled.trace(params, x).jaxpr
            if not any(jaxpr is known for known in programs):
                programs.append(jaxpr)
            program = next(f"#{n}" for n, known in enumerate(programs, 1) if known is jaxpr)
            calls.append(Call(size, enough, answer, seen.traces > 0, program))
    jaxprs = {f"#{number}": str(jaxpr) for number, jaxpr in enumerate(programs, 1)}

    print("call  x.shape  enough  answer  traced  jaxpr")
    for number, made in enumerate(calls, 1):
        shape, new = f"({made.size},)", "yes" if made.traced else "no"
        print(f"{number:<6}{shape:<9}{made.enough:<8}{made.answer:<8}{new:<8}{made.program}")
    for (program, text), branch in zip(jaxprs.items(), branches, strict=True):
        print(f"\njaxpr {program}, for which the branch chose the {branch}:\n{text}")
    traced = sum(call.traced for call in calls[:4])
    print(
        f"\nShapes 8, 8, 3, 8 gave {traced} traces, and another static one more: the branch ran "
        f"{len(branches)} times in {len(calls)} calls.\nJAX saved one jaxpr and one program for "
        "each key (shapes, dtypes, statics); no branch is left in any."
    )
    return Result(calls, jaxprs, branches, total.traces, total.compiles, cache_size(pooled))


if __name__ == "__main__":
    main()
