"""Differences of trees: what a checker sees."""

from typing import assert_type

import jax

import leafwise as lw


def compared(x: jax.Array) -> None:
    found = lw.diff({"w": x}, [x], values=True, rtol=1e-6)
    assert_type(found, lw.types.Diff)
    assert_type(found[0], lw.types.Reason)
    assert_type(found[0].kind, lw.types.ReasonKind)
    lw.diff(x)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def asserted(x: jax.Array) -> None:
    lw.assert_same_structure(x, x, shapes=True, dtypes=True, weak_types=True)
    try:
        lw.assert_same_structure(x, x, shape=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    except lw.errors.StructureMismatchError as error:
        assert_type(str(error), str)


def explained(x: jax.Array) -> float:
    with lw.debug.explain_errors():
        return float(x)


@lw.debug.explain_errors()
def decorated(x: jax.Array, n: int = 1) -> jax.Array:
    return x * n


def calls(x: jax.Array) -> None:
    assert_type(decorated(x, n=2), jax.Array)
    decorated("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
