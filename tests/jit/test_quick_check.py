"""The check before each call sees what has changed, and passes on what it is given."""

import linecache
import re
import sys
from typing import Any

import jax
import optax
import pytest
from tests.kit.things import Frozen, Model

import leafwise as lw

from .stale_kinds import Rates

rates: Any = Rates(0.5, 2.0)


def summed(x: Any, y: Any = 10.0, *more: Any, scale: Any = 1.0, **others: Any) -> Any:
    return rates.first * (x + y + sum(more)) * scale + sum(others.values())


@pytest.mark.slow  # four programs, twice
def test_any_way_to_call() -> None:
    """A call finds its arguments, those of the names in the check among them."""
    mine, its = lw.jit(summed), jax.jit(summed)
    for args, named in (
        ((1.0,), {}),
        ((1.0, *range(12)), {}),
        ((), {"x": 1.0, "scale": 3.0}),
        ((1.0, 2.0), {"args": 4.0, "kwargs": 1.0, "call": 2.0, "same": 3.0, "self": 4.0}),
    ):
        assert mine(*args, **named) == mine(*args, **named) == its(*args, **named)


def source_of_check(function: Any) -> str:
    """Return the code that runs before each call."""
    return "".join(linecache.getlines(function.__call__.__code__.co_filename))


def test_it_reads_all_parts_of_a_value_itself() -> None:
    """Nothing of what is captured in the usual ways is left to a function that reads it."""
    a, b, c = Model(rate=1.0), Frozen([1.0]), Rates(Model(rate=1.0), 1.0)
    held = {"{a}": {"b": [1.0]}}

    def step(x: Any, by: float = 1.0) -> Any:
        return x * by * a.step(2.0) * sum(b.act) * c.first.rate * held["{a}"]["b"][0]

    jitted = lw.jit(step)
    assert jitted(1.0) == jitted(1.0) == 2.0
    assert not {"same_", "read_"} & set(re.findall(r"[a-z]+_", source_of_check(jitted)))


def test_what_holds_no_array_is_compared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class, functions with a closure, a tuple of such: each is one comparison of identity."""
    monkeypatch.delitem(sys.modules, "IPython", raising=False)  # which changes functions in place
    optimizer, rule = optax.sgd(0.1), optax.cosine_decay_schedule(0.1, 9)

    def step(x: Any) -> Any:
        return Rates(x).scaled(rule(x)), repr(optimizer)

    jitted = lw.jit(lambda x: step(x)[0])
    jitted(1.0)
    terms = re.findall(r"^ {16}(?:and )?(.+)", source_of_check(jitted), re.MULTILINE)
    read = [re.fullmatch(r"([a-zA-Z]+)(?:_\d+)? is value_\d+", term) for term in terms]
    assert {"Rates", "optimizer", "rule", "step"} <= {found[1] for found in read if found}


def test_a_tuple_of_numbers_is_compared_at_once() -> None:
    """It cannot change: one comparison is enough, and another tuple is looked into."""
    sizes: Any = (1.0, (2.0, 3.0))
    step = lw.jit(lambda x: x * sizes[1][1], on_stale="retrace")
    assert step(1.0) == 3.0
    assert "[0]" not in source_of_check(step)
    sizes = (1.0, (2.0, 3.0))
    assert (step(1.0), len(step.traces)) == (3.0, 1)
    sizes = (1.0, (2.0, 4.0))
    assert (step(1.0), len(step.traces)) == (4.0, 2)
