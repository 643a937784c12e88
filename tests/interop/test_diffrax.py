"""diffrax solves with leafwise classes as state, arguments, vector field and solver's holder."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import leafwise as lw
from leafwise.interop.equinox import Module

diffrax: Any = pytest.importorskip("diffrax")


@lw.pytree
class Args:
    rate: jax.Array
    power: int = lw.static_field(default=1)


@lw.pytree
class Field:
    """A vector field that is an instance of a leafwise class."""

    scale: jax.Array
    sign: lw.Static[int] = -1

    def __call__(self, t: jax.Array, y: "State", args: Args) -> "State":
        """Return the derivative, which has the class of the state."""
        del t
        slope = self.sign * self.scale * args.rate * y.x**args.power
        return lw.replace(y, x=slope)


@lw.pytree
class State:
    x: jax.Array
    unit: lw.Static[str] = "m"


def solve(field: Field, y0: State, args: Args, **options: Any) -> Any:
    term, solver = diffrax.ODETerm(field), diffrax.Tsit5()
    return diffrax.diffeqsolve(
        term, solver, t0=0.0, t1=1.0, dt0=0.1, y0=y0, args=args, max_steps=32, **options
    )


@pytest.mark.slow
@pytest.mark.works("diffrax", "leafwise classes as state, arguments and vector field of a solve")
def test_diffrax() -> None:
    """The solution has the class of the state, and is traced once for equal statics."""
    run = eqx.filter_jit(solve)
    y0 = State(jnp.array([1.0, 2.0]))
    with lw.budget(traces=1, exact=True, of="solve"):
        for rate in (1.0, 0.5):
            found = run(Field(jnp.asarray(1.0)), y0, Args(jnp.asarray(rate)))
    assert (type(found.ys), found.ys.unit) == (State, "m")
    assert jnp.allclose(found.ys.x[0], y0.x * jnp.exp(-0.5), rtol=1e-4)
    with lw.budget(traces=1, exact=True, of="solve"):
        grown = run(Field(jnp.asarray(1.0), sign=1), y0, Args(jnp.asarray(0.5)))
    assert jnp.allclose(grown.ys.x[0], y0.x * jnp.exp(0.5), rtol=1e-4)


class Solver(Module):
    """A module with a sound key that holds a solver of diffrax as a static."""

    rate: jax.Array
    solver: Any = lw.static_field(default_factory=diffrax.Heun)

    def __call__(self, y0: jax.Array) -> jax.Array:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda _t, y, rate: -rate * y),
            self.solver,
            t0=0.0,
            t1=1.0,
            dt0=0.1,
            y0=y0,
            args=self.rate,
        )
        ys: Any = solution.ys
        return ys[0]


@pytest.mark.slow
@pytest.mark.works("diffrax", "a solver as a static of `leafwise.interop.equinox.Module`")
def test_solver_as_static() -> None:
    """A recreated solver is the same static: one trace; another solver is another program."""
    run = jax.jit(lambda solver, y0: solver(y0))
    with lw.budget(traces=1, exact=True, of="<lambda>", eager=False):
        for rate in (1.0, 0.5):
            out = run(Solver(jnp.asarray(rate)), jnp.asarray(2.0))
    assert jnp.allclose(out, 2.0 * jnp.exp(-0.5), rtol=1e-2)
    with lw.budget(traces=1, exact=True, of="<lambda>", eager=False):
        run(Solver(jnp.asarray(0.5), diffrax.Euler()), jnp.asarray(2.0))
