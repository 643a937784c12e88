"""`lw.budget` and `lw.no_retrace` allow so much, and name what was more."""

import inspect
import pickle
import re
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.inside import count_events, recorder, short_file

import leafwise as lw

pytestmark = pytest.mark.oracle

JITS = pytest.mark.parametrize("jit", [jax.jit, lw.jit], ids=["jax", "leafwise"])


def three_programs(jit: Any) -> Any:
    """Return a function that `call_it` traces twice and compiles three times."""

    def step(x: Any) -> Any:
        return x * 2

    return jit(step)


def call_it(step: Any) -> None:
    step(np.ones(3, np.float32))
    step(np.ones(4, np.float32))
    step(jax.device_put(np.ones(4, np.float32), jax.devices()[0]))


@JITS
@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        ({"traces": 2, "lowerings": 3, "compiles": 3}, ""),
        ({}, ""),
        ({"traces": 2, "compiles": 3, "exact": True}, ""),
        ({"traces": 1}, "2 traces, 1 allowed"),
        ({"traces": 1, "compiles": 2}, "2 traces, 1 allowed; 3 compiles, 2 allowed"),
    ],
    ids=str,
)
def test_counts_are_exact(jit: Any, allowed: Any, words: str) -> None:
    """What is allowed passes, one more does not; the message has the numbers."""
    step, text = three_programs(jit), re.escape(f"over budget of step: {words}")
    refused = pytest.raises(lw.errors.RetraceError, match=text) if words else nullcontext()
    with refused, lw.budget(**allowed, of="step"):
        call_it(step)


def test_exact_numbers() -> None:
    """With `exact` fewer and more both fail, and the message says what was seen."""
    step = three_programs(jax.jit)
    call_it(step)
    with (
        pytest.raises(
            lw.errors.RetraceError, match=r"^under budget: 0 traces, exactly 1 expected\nSee "
        ) as caught,
        lw.budget(traces=1, exact=True, eager=False),
    ):
        step(np.ones(3, np.float32))
    assert caught.value.explanations == ()
    with (
        pytest.raises(
            lw.errors.RetraceError,
            match=r"^over budget: 1 trace, exactly 2 expected; 1 compile, exactly 0 expected\n"
            r"  trace and compile of step from ",
        ),
        lw.budget(traces=2, compiles=0, exact=True, eager=False),
    ):
        step(np.ones(5, np.float32))


def test_the_error_names_function_line_and_reason() -> None:
    """Each event over the budget is there, with the call and why it happened."""
    step = three_programs(lw.jit)
    arguments = np.ones(3, np.float32), np.ones(4, np.float32)

    def block() -> None:
        with lw.budget(traces=1):
            step(arguments[0])
            step(arguments[1])

    line = inspect.getsourcelines(block)[1] + 3
    with pytest.raises(lw.errors.RetraceError) as caught:
        block()
    text = str(caught.value)
    assert "trace of step from" in text
    assert f"{short_file(__file__)}:{line} in {block.__qualname__}" in text
    assert "x: shape (3,) -> (4,)" in text
    assert f":{line - 1} in" not in text, "the first call was allowed"
    (explanation,) = caught.value.explanations
    assert [reason.path for reason in explanation.reasons] == ["x"]
    assert isinstance(caught.value, AssertionError)
    assert isinstance(caught.value, lw.LeafwiseError)


@pytest.mark.parametrize("kind", ["traces", "lowerings", "compiles"])
def test_every_kind_has_the_reason(kind: str) -> None:
    """A compile is explained by its program's trace; of another jit, the error says who knows."""
    for jit in (lw.jit, jax.jit):
        step = three_programs(jit)
        with (
            pytest.raises(lw.errors.RetraceError) as caught,
            lw.budget(**{kind: 1}, of=step),
        ):
            call_it(step)
        text, reasons = str(caught.value), len(caught.value.explanations)
        assert ("x: shape (3,) -> (4,)" in text) == (jit is lw.jit) == (reasons > 0)
        assert ("for the reason, use `lw.jit`" in text) == (jit is jax.jit)


def test_the_error_can_be_pickled() -> None:
    """It comes back from another process with its text and its explanations."""
    step = lw.jit(lambda x, act: x, static_argnames="act")
    step(1.0, act=lambda x: x)
    with pytest.raises(lw.errors.RetraceError) as caught, lw.no_retrace(of=step):
        step(1.0, act=lambda x: x)
    back = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # our own
    assert type(back) is lw.errors.RetraceError
    assert str(back) == str(caught.value)
    assert "act" in str(back)
    (mine,), (its,) = back.explanations, caught.value.explanations
    assert mine.outcome is its.outcome
    assert list(map(str, mine.reasons)) == list(map(str, its.reasons))


@JITS
@pytest.mark.parametrize("kind", ["traces", "compiles"])
def test_it_may_raise_in_the_call(jit: Any, kind: str) -> None:
    """It raises where it happens; the call can be repeated, and is then a cache hit."""
    step = three_programs(jit)
    argument = np.ones(3, np.float32)
    reached: list[str] = []

    def block() -> None:
        with lw.budget(**{kind: 0}, of=step, raise_at_once=True):
            reached.append("before")
            step(argument)
            reached.append("after")

    with pytest.raises(lw.errors.RetraceError, match=f"1 {kind[:-1]}, 0 allowed"):
        block()
    assert reached == ["before"]
    assert recorder._watchers == ()
    assert step(argument).tolist() == [2.0, 2.0, 2.0]
    with count_events() as counts:
        step(argument)
    assert counts.traces == counts.compiles == 0
    if jit is lw.jit:
        assert step.explain(argument).outcome is lw.types.Outcome.REUSE


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("at_once", [False, True])
def test_an_exception_of_the_block_is_not_masked(error: Any, at_once: bool) -> None:
    """What the block raises comes out, whatever was over the budget."""

    def block() -> None:
        with lw.budget(traces=0, of="f" if at_once else None, raise_at_once=at_once):
            jax.jit(lambda x: x)(1.0)
            raise error

    with pytest.raises(error):
        block()
    assert recorder._watchers == ()


OF: dict[str, Callable[[Any, Any], Any]] = {
    "the function": lambda function, _: function,
    "what was jitted": lambda _, jitted: jitted,
    "its name": lambda function, _: function.__name__,
    "its qualified name": lambda function, _: function.__qualname__,
}


@JITS
@pytest.mark.parametrize("of", OF.values(), ids=list(OF))
@pytest.mark.parametrize("is_lambda", [True, False])
def test_of_one_function(jit: Any, of: Any, is_lambda: bool) -> None:
    """Only the events of that function count."""
    function = (lambda x: x * 2) if is_lambda else three_programs(lambda step: step)
    jitted = jit(function)
    wanted = of(function, jitted)
    with lw.no_retrace(of=wanted):
        jit(abs)(1.0)
    with (
        pytest.raises(lw.errors.RetraceError, match="1 trace, 0 allowed"),
        lw.no_retrace(of=wanted),
    ):
        jitted(1.0)
    with lw.no_retrace(of=wanted):
        jitted(2.0)


@JITS
def test_no_retrace_sees_a_commitment(jit: Any) -> None:
    """A compile without a trace is over a budget of zero; with `lw.jit` the fix is given."""
    step = jit(lambda state: state * 2)
    argument = jnp.ones(3)
    committed = jax.device_put(argument, jax.devices()[0])
    step(argument)
    with pytest.raises(lw.errors.RetraceError) as caught, lw.no_retrace(of=step):
        step(committed)
    text = str(caught.value)
    assert "1 lowering, 0 allowed; 1 compile, 0 allowed" in text
    assert "trace of" not in text
    if jit is lw.jit:
        assert "state (commitment)" in text
        assert "device_put" in text


def test_one_line_for_each_call() -> None:
    """What JAX did for a call is one line with its reason; operations of its own come last."""

    @lw.jit
    def step(x: Any) -> Any:
        return x * 2

    @lw.no_retrace()
    def block() -> None:
        step(jnp.ones(41))
        step(jnp.ones(43))

    step(jnp.ones(3))
    with pytest.raises(lw.errors.RetraceError) as caught:
        block()
    lines = [line for line in caught.value.message.splitlines() if "    " not in line]
    assert [line.partition(" from ")[0] for line in lines[1:]] == [
        "  trace, lowering and compile of step",
        "  trace, lowering and compile of step",
        "  trace, lowering and compile of broadcast_in_dim",
        "  trace, lowering and compile of broadcast_in_dim",
    ]


def test_eager_operations() -> None:
    """They count, unless they are left out."""
    with (
        pytest.raises(lw.errors.RetraceError, match=r"trace, lowering and compile of \w+ from"),
        lw.no_retrace(),
    ):
        jnp.full((2, 3, 5, 7), 1.5)
    with lw.no_retrace(eager=False):
        jnp.full((2, 3, 5, 8), 1.5)


def test_other_threads_count() -> None:
    """What a thread of the block traces counts, once though several wait for it."""
    step = lw.jit(lambda x: x * 2)

    def block() -> None:
        workers = [threading.Thread(target=step, args=(1.0,)) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    with lw.budget(compiles=1, of=step) as log:
        block()
    assert len(log.compiles) == 1
    step.clear_cache()
    with pytest.raises(lw.errors.RetraceError), lw.no_retrace(of=step):
        block()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"traces": -1}, "budget(traces=...) takes a number of 0 or more, or None, got -1"),
        ({"compiles": True}, "budget(compiles=...)"),
        ({"traces": "1"}, "got '1' (str)"),
        ({"of": 5}, "budget(of=...) takes a function or a name, got 5 (int)"),
        ({"exact": True}, "budget(exact=True) has no number to compare with\n  fix: "),
        ({"nonsense": 1}, "nonsense"),
    ],
    ids=str,
)
def test_wrong_arguments(options: Any, words: str) -> None:
    """The error names the argument, and what was given."""
    with pytest.raises(TypeError, match=re.escape(words)):
        lw.budget(**options)


def test_as_a_decorator() -> None:
    """A budget decorates a function: each call has the whole of it, nested ones too."""
    step = jax.jit(lambda x: x + 1)
    sizes = iter(range(50, 60))

    @lw.budget(traces=1, of=step)
    def once() -> None:
        step(jnp.ones(next(sizes)))

    @lw.no_retrace(of=step)
    def never() -> None:
        once()

    @lw.budget(traces=2, exact=True, of=step)
    def twice() -> None:
        once()
        once()

    once()
    once()
    twice()
    with pytest.raises(lw.errors.RetraceError, match="1 trace"):
        never()


BLOCKS = {
    "budget": lw.budget(traces=0),
    "no_retrace": lw.no_retrace(),
    "storm_guard": lw.storm_guard(3),
    "explain_errors": lw.debug.explain_errors(),
}


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_what_cannot_be_decorated_is_refused(block: Any) -> None:
    """A generator or coroutine would run outside the block; a class would become a function."""

    def generator() -> Any:
        yield

    async def coroutine() -> None: ...

    for function in (generator, coroutine):
        with pytest.raises(TypeError, match="runs after its call has returned"):
            block(function)
    with pytest.raises(
        TypeError, match="not a class\\n  fix: open the block where it is used: with lw"
    ):
        block(type("Model", (), {}))
