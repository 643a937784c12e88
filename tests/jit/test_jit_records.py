"""What a function under `lw.jit` remembers, and that its predictions come true."""

import dataclasses
import gc
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.compare.pairs import Arguments, call, everything, first_device, observed, ones
from tests.kit.inside import Advice, count_events, recorder
from tests.kit.specimens import Slotted

import leafwise as lw
from leafwise.types import Outcome, ReasonKind

pytestmark = pytest.mark.oracle


def fresh(**options: Any) -> Any:
    """Return a function that nobody has called, under `lw.jit`."""

    def function(x: Any, y: Any = 0, *more: Any, mode: Any = 0) -> Any:
        return everything(x, y, more, mode)

    return lw.jit(function, **options)


SECOND_CALLS: dict[str, tuple[Callable[[], Arguments], Outcome]] = {
    "same": (lambda: call(Slotted(ones(3)), 1.0), Outcome.REUSE),
    "NumPy": (lambda: call(Slotted(np.ones(3, np.float32)), 1.0), Outcome.DISPATCH),
    "committed": (lambda: call(Slotted(first_device(ones(3))), 1.0), Outcome.RECOMPILE),
    "shape": (lambda: call(Slotted(ones(4)), 1.0), Outcome.RETRACE),
    "weak type": (lambda: call(Slotted(ones(3)), jnp.float32(1)), Outcome.RETRACE),
    "static type": (lambda: call(Slotted(ones(3), True), 1.0), Outcome.RETRACE),
    "keyword": (lambda: call(Slotted(ones(3)), y=1.0), Outcome.RETRACE),
    "string": (lambda: call(Slotted("relu"), 1.0), Outcome.ERROR),
}


@pytest.mark.parametrize("name", SECOND_CALLS)
def test_explain_says_what_then_happens(name: str) -> None:
    """`.explain` of a second call is what JAX does with it; then it is a reuse."""
    second, outcome = SECOND_CALLS[name]
    function = fresh()
    function(Slotted(ones(3)), 1.0)
    args, kwargs = second()
    said = function.explain(*args, **kwargs)
    seen = observed(function, (args, kwargs))
    assert seen is outcome, "the table is wrong about JAX"
    assert said.outcome is outcome, str(said)
    now = function.explain(*args, **kwargs).outcome
    if outcome is Outcome.DISPATCH:  # JAX does not say whose dispatch entry the new one is
        assert now in (Outcome.REUSE, Outcome.UNKNOWN)
    elif outcome is not Outcome.ERROR:
        assert now is Outcome.REUSE
    traces, recompiles = 1 + (outcome is Outcome.RETRACE), int(outcome is Outcome.RECOMPILE)
    assert (len(function.traces), len(function.recompiles)) == (traces, recompiles)
    if outcome in (Outcome.RETRACE, Outcome.RECOMPILE):
        record = [*function.traces, *function.recompiles][-1]
        # Before the call nobody knows what it returns, on which a fix may depend.
        facts = [each._replace(cause=Advice()) for each in said.reasons]
        assert [each._replace(cause=Advice()) for each in record.explanation.reasons] == facts


def test_explain_runs_nothing() -> None:
    """Asking makes no trace, no dispatch entry and no record."""
    function = fresh()
    said = function.explain(1.0)
    assert said.outcome is Outcome.RETRACE
    assert said.nearest is None
    assert "first call" in str(said)
    assert function.cache_size() == 0
    assert len(function.traces) == 0


def test_a_trace_is_recorded() -> None:
    """Line, signature, times and reason of each trace are there."""
    function = fresh()
    function(ones(3))
    line = inspect.currentframe().f_lineno - 1
    function(ones(4))
    first, second = function.traces
    assert (first.site.file, first.site.line) == (__file__, line)
    assert first.site.text == "function(ones(3))"
    assert first.site.function.endswith("test_a_trace_is_recorded")
    assert second.site.line == line + 2
    for program in (first, second):
        assert program.outcome is Outcome.RETRACE
        assert min(program.trace_seconds, program.lower_seconds, program.compile_seconds) > 0
    assert first.explanation.reasons == ()
    (reason,) = second.explanation.reasons
    assert (reason.path, reason.kind) == ("x", ReasonKind.SHAPE)
    assert (reason.before, reason.after) == ((3,), (4,))
    assert "x: shape (3,) -> (4,)" in str(second)
    assert repr(function.traces).count("\n") >= 2
    assert function.traces[-1] == second
    assert function.traces[:1] == (first,)


def test_programs_lowered_ahead_are_compiled_in_any_order() -> None:
    """Of two programs lowered ahead of time, of one function or two, each gets its own compile."""
    one, other = fresh(), fresh()
    lowered = [function.lower(ones(n)) for function in (one, other) for n in (3, 4)]
    for number, at in enumerate((2, 0, 3, 1), 1):
        lowered[at].compile()
        seconds = [program.compile_seconds for each in (one, other) for program in each.traces]
        assert seconds[at] > 0
        assert sum(each > 0 for each in seconds) == number


def test_a_program_that_is_never_compiled_is_forgotten() -> None:
    """What is lowered ahead of time is known as long as JAX has it, under one name or not."""
    gc.collect()
    before = len(recorder._ahead)
    functions = [fresh(), fresh()]
    for function in functions:
        function.lower(ones(3)), function.lower(ones(4))
    assert len(recorder._ahead) == before + 4
    function = functions.pop()
    function.clear_cache()
    del function
    gc.collect()
    assert len(recorder._ahead) == before + 2


def test_a_recompile_is_recorded_apart() -> None:
    """A second call with committed data is no trace: it is among the recompiles."""
    function = fresh()
    function(ones(3))
    function(first_device(ones(3)))
    assert len(function.traces) == 1
    (program,) = function.recompiles
    assert program.outcome is Outcome.RECOMPILE
    assert program.trace_seconds == 0 < min(program.lower_seconds, program.compile_seconds)
    assert [reason.kind for reason in program.explanation.reasons] == [ReasonKind.COMMITMENT]
    assert program.site.text == "function(first_device(ones(3)))"


def test_paths_begin_with_the_names_of_parameters() -> None:
    """Positional, variadic and keyword arguments are shown by name."""

    def function(state: Any, *rest: Any, scale: Any, **options: Any) -> Any:
        return everything(state, rest, scale, options)

    jitted = lw.jit(function)
    jitted({"w": ones(3)}, ones(3), ones(3), scale=ones(3), bias=ones(3))
    changed = np.ones((2, 2), np.float32)
    said = jitted.explain({"w": changed}, changed, changed, scale=changed, bias=changed)
    paths = {reason.path for reason in said.reasons if reason.kind is ReasonKind.SHAPE}
    assert paths == {"state['w']", "rest[0]", "rest[1]", "scale", "bias"}


def test_clear_cache_forgets() -> None:
    """After `clear_cache` there is no record, and the next call is the first one."""
    function = fresh()
    function(1.0)
    function(first_device(ones(3)))
    function.clear_cache()
    assert len(function.traces) == len(function.recompiles) == function.cache_size() == 0
    assert function.explain(1.0).nearest is None
    assert observed(function, call(1.0)) is Outcome.RETRACE
    assert len(function.traces) == 1
    assert function.explain(1.0).outcome is Outcome.REUSE


def test_caches_of_the_process_cleared() -> None:
    """After `jax.clear_caches` nothing is claimed; the new trace is no difference of arguments."""
    function = fresh()
    function(1.0)
    jax.clear_caches()
    assert function.explain(1.0).outcome in (Outcome.UNKNOWN, Outcome.RETRACE)
    assert observed(function, call(1.0)) is Outcome.RETRACE
    (reason,) = function.traces[-1].explanation.reasons
    assert reason.kind is ReasonKind.CACHE
    assert "cleared" in reason.change
    assert function.explain(1.0).outcome is Outcome.REUSE


def test_a_program_is_shown_on_one_line() -> None:
    """With what it was made of and where, and not with all that is known of it."""
    doubled = lw.jit(lambda x: 2 * x)
    doubled(1.0)
    shown = repr(doubled.traces[-1])
    assert shown.startswith("<retrace of <lambda> at ")
    assert "test_jit_records.py:" in shown
    assert len(shown) < 200
    assert "\n" not in shown


def test_shardings_of_the_function_decide() -> None:
    """With `in_shardings`, where an argument lies is not decided by the arguments."""
    there = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    function, x = lw.jit(lambda x: x + 1, in_shardings=there), ones(3)
    function(x)
    answer = function.explain(jax.device_put(x, jax.devices()[-1]))
    assert answer.outcome is Outcome.UNKNOWN
    assert function.explain(ones(4)).outcome is Outcome.RETRACE
    assert function.explain(x).outcome is Outcome.REUSE


def test_ahead_of_time() -> None:
    """A function that was lowered ahead of time may be compiled, or not."""
    function, x = fresh(), ones(3)
    function.lower(x).compile()
    assert function.explain(x).outcome is Outcome.UNKNOWN
    assert function.explain(ones(4)).outcome is Outcome.RETRACE
    with count_events() as counts:
        function(x)
    assert counts.traces == counts.lowerings == counts.compiles == 0


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
    assert only.explanation.outcome is Outcome.UNKNOWN
    assert "RuntimeError: n" in str(only.explanation)
    assert only.trace_seconds > 0


@pytest.mark.parametrize("odd", [np.ones(3, ">f4"), np.ma.ones(3, dtype="float32")])
def test_odd_arrays_are_unknown(odd: Any) -> None:
    """JAX takes such an array only where a plain one has paved the way."""
    answer = lw.signature(odd).explain(lw.signature(np.ones(3, "float32")))
    assert answer.outcome is Outcome.UNKNOWN
