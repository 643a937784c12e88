"""Programs that JAX compiles ahead, as the page "Start warm" does it: what the first call finds."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from tests.kit.inside import count_events
from tests.kit.specimens import Slotted

import leafwise as lw
from leafwise.errors import RetraceStormWarning


def compile_ahead(*lowered: Any) -> None:
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda program: program.compile(), lowered))


@pytest.mark.parametrize(
    "wrap", [lw.jit, jax.jit, eqx.filter_jit], ids=["leafwise", "jax", "equinox"]
)
def test_the_first_call_traces_lowers_and_compiles_nothing(wrap: Any) -> None:
    """Of several functions, compiled in threads, from shapes where the function takes them."""
    functions = [wrap(lambda p, x, by=by: p.w * x + p.n * by) for by in (1, 2)]
    x = jnp.ones(3)
    given = x if wrap is eqx.filter_jit else jax.ShapeDtypeStruct((3,), jnp.float32)
    compile_ahead(*(each.lower(Slotted(given), given) for each in functions))
    with count_events() as counts:
        for each in functions:
            each(Slotted(x), x)
    assert (counts.traces, counts.lowerings, counts.compiles) == (0, 0, 0)


def test_a_sharding_stands_for_committed_arrays() -> None:
    """With a sharding the committed call finds its program, and without it the other one."""
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    struct = jax.ShapeDtypeStruct((3,), jnp.float32)
    one, two = lw.jit(lambda x: x + 1), lw.jit(lambda x: x + 2)
    placed = jax.ShapeDtypeStruct(struct.shape, struct.dtype, sharding=device)
    compile_ahead(one.lower(placed), two.lower(struct))
    x = jnp.ones(3)
    with count_events() as counts:
        one(jax.device_put(x, device)), two(x)
    assert counts.compiles == 0
    with count_events() as counts:
        one(x), two(jax.device_put(x, device))
    assert counts.compiles == 2


@pytest.mark.parametrize("wrap", [lw.jit, jax.jit], ids=["leafwise", "jax"])
def test_a_method_is_given_its_instance(wrap: Any) -> None:
    """The call of the bound method finds the program."""

    class Trainer:
        def step(self, x: Any) -> Any:
            return x * 3

    Trainer.step = wrap(Trainer.step, static_argnums=0)  # type: ignore[method-assign]
    trainer, step = Trainer(), Trainer.step
    compile_ahead(step.lower(trainer, jax.ShapeDtypeStruct((3,), jnp.float32)))  # type: ignore[attr-defined]
    with count_events("step") as counts:
        trainer.step(jnp.ones(3))
    assert counts.traces == counts.compiles == 0


def test_traces_made_ahead_are_no_storm() -> None:
    """They are in the log; they are not counted as retraces that one argument caused."""
    function = lw.jit(lambda x: x * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RetraceStormWarning)
        for size in range(1, 11):
            function.lower(jax.ShapeDtypeStruct((size,), jnp.float32))
    assert len(function.traces) == 10
