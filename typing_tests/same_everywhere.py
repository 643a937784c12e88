"""What type checkers see of `jit(same_everywhere=)`."""

import jax

import leafwise as lw


@lw.jit(same_everywhere=True)
def step(x: jax.Array, *, scale: float = 1.0) -> jax.Array:
    return x * scale


timed = lw.jit(step.__wrapped__, same_everywhere=30.0)
lw.jit(timed, same_everywhere="yes")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
