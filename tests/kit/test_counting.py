"""`assert_traces`, `assert_compiles`, `assert_no_retrace`."""

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import leafwise as lw
from leafwise.testing import assert_compiles, assert_no_retrace, assert_traces


def fresh() -> Any:
    def step(x: Any) -> Any:
        return x + 1

    return jax.jit(step)


def test_exact_numbers() -> None:
    """The number is exact: fewer and more both fail, and say what was seen."""
    step = fresh()
    with assert_traces(2), assert_compiles(2):
        step(jnp.ones(3))
        step(jnp.ones(3))
        step(jnp.ones(4))
    with pytest.raises(lw.errors.RetraceError, match=r"0 traces, 1 wanted"), assert_traces(1):
        step(jnp.ones(3))
    with (
        pytest.raises(
            lw.errors.RetraceError, match=r"1 compile, 0 wanted\n  compile of step from "
        ),
        assert_compiles(0),
    ):
        step(jnp.ones(5))


def test_why() -> None:
    """Of a function under `lw.jit` the error says why, and carries the explanation."""
    step = lw.jit(lambda x: x + 2)
    step(jnp.ones(3))
    with pytest.raises(lw.errors.RetraceError, match=r"x: shape: \(3,\) -> \(4,\)") as caught:  # noqa: SIM117
        with assert_traces(0):
            step(jnp.ones(4))
    (explanation,) = caught.value.explanations
    assert explanation.outcome == "retrace"


def test_operations_of_jax_do_not_count() -> None:
    """What was compiled before in the process makes no difference: such operations are left out."""
    with assert_traces(0), assert_compiles(0), assert_no_retrace():
        jnp.ones((3, 1, 4, 1, 5, 9)).sum(axis=(0, 3))


def test_of_one_function() -> None:
    """`of` counts one function alone: jitted, plain, or by name."""
    step, other = fresh(), jax.jit(lambda x: x - 1)
    with assert_traces(1, of=step), assert_traces(1, of="step"), assert_traces(2):
        step(jnp.ones(3))
        other(jnp.ones(3))
    with pytest.raises(lw.errors.RetraceError, match=r"1 trace of .*step, 0 wanted"):  # noqa: SIM117
        with assert_traces(0, of=step.__wrapped__):
            step(jnp.ones(6))
    with assert_no_retrace(of=step):
        other(jnp.ones(7))


def test_as_decorators() -> None:
    """On a function, each call counts for itself, also when calls are nested or on threads."""
    step = fresh()
    sizes = iter(range(10, 100))

    @assert_traces(1, of="step")
    def once() -> None:
        step(jnp.ones(next(sizes)))

    once()
    once()

    @assert_traces(2, of="step")
    def nested() -> None:
        once()
        once()

    nested()

    @assert_no_retrace()
    def never(call: Callable[[], Any]) -> None:
        call()

    never(lambda: None)
    with pytest.raises(lw.errors.RetraceError):
        never(once)
    never(lambda: None)


def test_an_exception_goes_through() -> None:
    """The block's own exception is not replaced, and counting stops."""
    step = fresh()
    with pytest.raises(ZeroDivisionError), assert_traces(5):
        step(jnp.ones(3 // 0))
    block = assert_traces(0)
    with block:
        pass
    with pytest.raises(lw.errors.RetraceError), block:
        step(jnp.ones(4))
    with block:
        pass


def test_the_log() -> None:
    """The block hands out the log of what was seen so far."""
    step = fresh()
    with assert_traces(1) as log:
        step(jnp.ones(3))
        assert [event.name for event in log.traces] == ["step"]
    with assert_no_retrace() as log:
        assert len(log) == 0


def test_threads_are_counted() -> None:
    """A trace on another thread counts."""
    step = fresh()
    with assert_traces(1):
        thread = threading.Thread(target=step, args=(jnp.ones(3),))
        thread.start()
        thread.join()


@pytest.mark.parametrize("number", [-1, 1.0, True, None, "1"])
def test_bad_numbers(number: Any) -> None:
    """What is no number of 0 or more is refused at once."""
    for function in (assert_traces, assert_compiles):
        with pytest.raises(TypeError, match=rf"{function.__name__} takes a number of 0 or more"):
            function(number)


def test_bad_functions() -> None:
    """`of` takes a function or a name."""
    with pytest.raises(
        TypeError, match=r"assert_traces\(of=...\) takes a function or a name, got 3"
    ):
        assert_traces(1, of=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"got 3"):
        assert_no_retrace(of=3)  # type: ignore[arg-type]
