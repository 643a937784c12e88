"""What type checkers see of `precompile` and of `jit(same_everywhere=)`."""

from typing import Any, assert_type

import jax
import jax.numpy as jnp

import leafwise as lw


@lw.jit(same_everywhere=True)
def step(x: jax.Array, *, scale: float = 1.0) -> jax.Array:
    return x * scale


timed = lw.jit(step.__wrapped__, same_everywhere=30.0)
lw.jit(timed, same_everywhere="yes")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]

vector: Any = jax.eval_shape(lambda: jnp.ones(3))
done = lw.precompile([(step, ((vector,), {"scale": 2.0})), (step, step.signature(vector))])
assert_type(done, lw.types.Precompiled)
assert_type(done[0], lw.types.PrecompiledProgram)
assert_type(done[0].outcome, lw.types.PrecompileOutcome)
assert_type([each.error for each in done], list[Exception | None])
lw.precompile([(step, ((vector,), {}))], threads=2, progress=False)
lw.precompile([step])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
lw.precompile([(step, (vector,))])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
