import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.inside import count_events

import leafwise as lw

pytestmark = pytest.mark.oracle

x = jnp.ones(3)


def seen(function: Callable[[], object]) -> tuple[int, int, int]:
    with count_events() as counts:
        function()
    return counts.traces, counts.lowerings, counts.compiles


def test_shardings_of_the_function_decide() -> None:
    """With `in_shardings`, where an argument lies is not decided by the arguments."""
    there = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    function = lw.jit(lambda x: x + 1, in_shardings=there)
    function(x)
    answer = function.explain(jax.device_put(x, jax.devices()[-1]))
    assert answer.outcome is lw.types.Outcome.UNKNOWN
    assert function.explain(jnp.ones(4)).outcome is lw.types.Outcome.RETRACE
    assert function.explain(x).outcome is lw.types.Outcome.REUSE


def test_ahead_of_time() -> None:
    """A function that was lowered ahead of time may be compiled, or not."""
    function = lw.jit(lambda x: x * 7)
    function.lower(x).compile()
    assert function.explain(x).outcome is lw.types.Outcome.UNKNOWN
    assert function.explain(jnp.ones(4)).outcome is lw.types.Outcome.RETRACE
    assert seen(lambda: function(x)) == (0, 0, 0)


def test_what_cannot_be_read_is_called_all_the_same() -> None:
    """Arguments whose own code raises when they are read do not stop the call; it is logged."""

    @dataclasses.dataclass
    class Odd:
        n: int = dataclasses.field(init=False)

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    jax.tree_util.register_pytree_node(Odd, lambda _: ((), 1), lambda *_: Odd())
    function = lw.jit(lambda x, _: x * 2)
    assert function(2.0, Odd()) == 4.0
    (only,) = function.traces
    assert only.explanation.outcome is lw.types.Outcome.UNKNOWN
    assert "RuntimeError: n" in str(only.explanation)
    assert only.trace_seconds > 0


@dataclasses.dataclass(frozen=True, slots=True)
class Config:
    """A frozen class whose instances take no weak references."""

    rate: float


@pytest.mark.hazard
def test_a_config_at_the_address_of_the_one_before() -> None:
    """Another object is another one, wherever Python puts it."""
    held: list[Any] = []
    step: Any = lw.jit(lambda x: x * dataclasses.astuple(held[0])[0], on_stale="retrace")
    for rate in (1.0, 2.0, 3.0):
        held.clear()
        held.append(Config(rate))
        assert step(1.0) == step(1.0) == rate


@pytest.mark.parametrize("odd", [np.ones(3, ">f4"), np.ma.ones(3, dtype="float32")])
def test_odd_arrays_are_unknown(odd: Any) -> None:
    """JAX takes such an array only where a plain one has paved the way."""
    answer = lw.signature(odd).explain(lw.signature(np.ones(3, "float32")))
    assert answer.outcome is lw.types.Outcome.UNKNOWN
