"""A function has programs of its own under `vmap` and in derivatives: the second is a repeat."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import leafwise as lw

pytestmark = pytest.mark.oracle

Step = Callable[..., Any]


def make() -> Any:
    """Return a function that JAX has not seen."""
    return lw.jit(lambda x: jnp.sum(jnp.sin(x) * x))


def batches(step: Step) -> None:
    for n in (2, 3, 4):
        jax.vmap(step)(jnp.ones((n, 5)))


def keys(step: Step) -> None:
    mapped = jax.vmap(lambda key, x: step(x * jax.random.uniform(key)), in_axes=(0, None))
    for n in (2, 3):
        mapped(jax.random.split(jax.random.key(0), n), jnp.ones(5))


def axes(step: Step) -> None:
    for axis in (0, 1):
        jax.vmap(step, in_axes=axis)(jnp.ones((5, 5)))


def once(step: Step) -> None:
    x = jnp.ones(5)
    step(x)
    jax.grad(step)(x)
    jax.jacfwd(step)(x)
    jax.hessian(step)(x)
    jax.vmap(step)(jnp.ones((3, 5)))
    step.lower(jnp.ones(7)).compile()  # type: ignore[attr-defined]
    jax.jit(lambda x: step(x[:2]) + step(x[:3]))(x)


def repeats(step: Any) -> list[Any]:
    """Return the programs that JAX lowered or compiled again, without a trace."""
    return [
        each
        for each in step._leafwise_log.programs
        if each.outcome == "recompile" and each.is_call and each.explanation.nearest is not None
    ]


@pytest.mark.parametrize(("run", "number"), [(batches, 2), (keys, 1), (axes, 1), (once, 0)])
def test_what_is_compiled_again(run: Callable[[Step], None], number: int) -> None:
    """The first program of each role is none; each further one names what is of another size."""
    step = make()
    with lw.watch() as log:
        run(step)
    assert len(repeats(step)) == number
    told = {id(each.program) for each in log if each.explanation}
    assert {id(each) for each in repeats(step)} <= told
    if run is batches:
        reasons = [reason for each in repeats(step) for reason in each.explanation.reasons]
        assert [(each.before, each.after) for each in reasons] == [(2, 3), (3, 4)]
        assert {each.kind for each in reasons} == {"batch"}


def test_what_was_a_part_of_another_is_called_first() -> None:
    """A program inside another function is no call, whatever its shape: the next is the first."""
    step = make()
    jax.jit(lambda x: step(x[:2]) + step(x[:3]))(jnp.ones(5))
    step(jnp.ones(4))
    entries = step._leafwise_log.programs
    traced = [entry.is_inner for entry in entries if entry.outcome == "retrace"]
    assert traced == [True, True, False]
    assert step.traces[-1].explanation.nearest is None


@pytest.mark.slow
def test_gradients_of_several_sizes() -> None:
    """The forward and the backward pass are roles of their own."""
    step = make()
    for n in (2, 3):
        jax.vmap(jax.grad(step))(jnp.ones((n, 5)))
    roles = [each.role for each in repeats(step)]
    assert sorted(roles) == [("vmap", "backward"), ("vmap", "forward")]
