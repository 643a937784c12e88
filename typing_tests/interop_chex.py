"""What type checkers see of `leafwise.interop.chex`; chex itself has no types."""

from typing import Any, assert_type

import jax
import jax.numpy as jnp

import leafwise as lw
from leafwise.interop.chex import ChexCheck, chex_check


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
    w: jax.Array = lw.field(validator=matrix)
    depth: int = lw.static_field(default=2, validator=chex_check(is_matrix) & matrix)


assert_type(Params(jnp.ones((2, 3))).w, jax.Array)
