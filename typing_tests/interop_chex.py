"""What type checkers see of `leafwise.interop.chex`; chex itself has no types."""

from typing import Any, assert_type

import jax
import jax.numpy as jnp

import leafwise as lw
from leafwise.interop.chex import ChexCheck, chex_check, from_chex


def is_matrix(value: Any, rows: int = 2) -> None:
    if value.shape != (rows, 3):
        raise AssertionError


matrix = chex_check(is_matrix, rows=2)
assert_type(matrix, ChexCheck)
assert_type(matrix & chex_check(is_matrix), ChexCheck)
matrix & is_matrix  # type: ignore[operator]  # pyright: ignore
chex_check()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
chex_check(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@lw.pytree
class Params:
    w: jax.Array = lw.field(check=matrix)
    depth: int = lw.static_field(default=2, check=chex_check(is_matrix) & matrix)


assert_type(Params(jnp.ones((2, 3))).w, jax.Array)


@from_chex
class State:
    w: jax.Array
    act: lw.Static[str] = "relu"

    def __post_init__(self) -> None:
        self.w = jnp.asarray(self.w)


@from_chex(static=["depth"])
class Net:
    state: State
    depth: int = 2


state = State(w=jnp.ones(3))
assert_type(state, State)
assert_type(state.act, str)
assert_type(Net(state=state, depth=3), Net)

# The constructor is checked: by keyword only, as chex's is when it runs.
State(jnp.ones(3))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
State(act="relu")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Net(state=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


class Plain:
    x: int = 1


# A class that is migrated by a call keeps its type.
assert_type(from_chex(Plain), type[Plain])
assert_type(from_chex(Plain, static=["x"]), type[Plain])
from_chex(3)  # type: ignore[call-overload]  # pyright: ignore
from_chex(Plain, static=3)  # type: ignore[call-overload]  # pyright: ignore
