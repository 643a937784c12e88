"""The property kit: what a checker sees of checks, counting blocks and strategies."""

from typing import assert_type

import jax
from hypothesis import strategies as st

import leafwise as lw
from leafwise import testing
from leafwise.testing import strategies


@lw.pytree
class Params:
    w: jax.Array
    n: int = lw.static_field(default=2)


@testing.recompiles_only_on("params.n")
def step(params: Params, x: jax.Array) -> jax.Array:
    return params.w * x


def checked(x: jax.Array) -> None:
    testing.check_pytree(Params, laws=["round-trip", testing.Law.NO_HIDDEN_STATE], seed=1)
    testing.check_pytree(st.just(Params(x)))
    testing.check_recompilation(Params, lambda params: params.w, retrace_on={"n"}, reuse_on="w")
    testing.check_pytree(Params, law="copies")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    testing.check_recompilation(Params, retrace_on=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(testing.Law.NO_HIDDEN_STATE.statement, str)


def guarded(params: Params, x: jax.Array) -> None:
    assert_type(step(params, x), jax.Array)
    step(params, "x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    step.check(x=strategies.arrays())
    assert_type(step.paths, tuple[str, ...])


def counted() -> None:
    with lw.budget(traces=1, exact=True, of="step") as log:
        assert_type(log, lw.types.Log)
    with lw.budget(compiles=1, exact=True), lw.no_retrace(of=step, eager=False):
        pass
    lw.budget(exact="1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@lw.budget(traces=1, exact=True)
def decorated(x: int) -> str:
    return str(x)


def drawn(params: Params) -> None:
    assert_type(decorated(1), str)
    edits = strategies.edits(params, kinds=["leaf value"], at="w")
    assert_type(edits, st.SearchStrategy[strategies.Edit[Params]])
    assert_type(edits.example().edited, Params)
    assert_type(edits.example().kind, strategies.EditKind)


def broken(error: lw.errors.LawViolation) -> None:
    assert_type(error.law, str)
    assert_type(error.path, str)
