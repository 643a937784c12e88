"""What type checkers see of `hoist` and `stable_carry`."""

from typing import Any, assert_type

import jax
import jax.numpy as jnp

import leafwise as lw


@lw.pytree
class State:
    w: jax.Array


def step(state: State, x: jax.Array) -> State:
    return State(state.w * x)


state, x = State(jnp.ones(3)), jnp.ones(3)

hoisted, captured = lw.hoist(step)
assert_type(captured, dict[str, Any])
assert_type(hoisted(captured, state, x), State)
hoisted(state, x)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
lw.hoist(step, lw.where("w") & ~lw.where("b"))
lw.hoist(step, "w", "scalars")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

carry, changes = lw.stable_carry(step, state, x)
assert_type(carry, State)
assert_type(changes, tuple[lw.types.CarryChange, ...])
assert_type(changes[0].path, str)
assert_type(changes[0].before, lw.types.Leaf)
assert_type(changes[0].outcome, lw.types.Outcome)
lw.stable_carry(step, state, has_aux="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
lw.stable_carry(step)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
