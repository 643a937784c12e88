"""In whatever way a function reads what it captures: a change of that is seen, and no other one."""

import dataclasses
import functools
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.things import Frozen
from tests.property.drawn_programs import COARSE, MISSED, PLACES, WAYS, Place, built_of, outcomes

import leafwise as lw

from . import stale_kinds
from .stale_kinds import AT_NIGHT, ROWS, Net, Other, Rule, by_rate, run

pytestmark = pytest.mark.hazard

ONES = jnp.ones(2)
jit: Any = lw.jit  # so that lambdas need no types


@pytest.fixture(autouse=True)
def _as_they_were(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(stale_kinds, "rate", 1.0)
    monkeypatch.setattr(stale_kinds, "shift", 0.0)
    another = threading.Timer(60, int)  # so that captures are read before a trace, too
    another.start()
    yield
    another.cancel()
    sys.modules.pop("leafwise_test_settings", None)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(each, marks=[pytest.mark.nightly] * (each in AT_NIGHT)) for each in ROWS],
)
def test_a_change_is_seen(kind: str) -> None:
    """Plain `jax.jit` goes on with the old value; `lw.jit` raises, or traces again."""
    name = ROWS[kind].name
    actions = ["retrace"] + ["raise"] * bool(name)
    if kind == "global":  # what is done is the same for each
        actions += ["plain jax", "warn", "ignore"]
    for action in actions:
        changes = run(ROWS[kind])
        function, args = next(changes)
        jitted = jax.jit(function) if action == "plain jax" else jit(function, on_stale=action)
        if name and len(args) > 1 and action == "raise":  # a call shows what arguments lead to
            assert name not in [each.name for each in jitted.captures]
        old = jitted(*args)
        assert np.array_equal(jitted(*args), old)
        for _ in changes:
            assert np.array_equal(jitted(*args), old)
        with jax.disable_jit():
            new = function(*args)
        assert not np.array_equal(new, old)
        if action == "raise":
            assert not name or name in [each.name for each in jitted.captures]
            with pytest.raises(lw.errors.StaleCaptureError, match="captures") as info:
                jitted(*args)
            assert not name or [each.name for each in info.value.captures] == [name]
        elif action == "warn":
            with pytest.warns(lw.errors.StaleCaptureWarning, match="captures"):
                assert np.array_equal(jitted(*args), new)
            assert np.array_equal(jitted(*args), new)  # it was said, and another warning raises
        elif action == "retrace":
            for _ in range(2):
                assert np.array_equal(jitted(*args), new)
            assert len(jitted.traces) == 2
            reason = jitted.traces[-1].explanation.reasons[0]
            assert reason.kind is lw.types.ReasonKind.CAPTURE
            assert not name or reason.path == name
        else:
            assert np.array_equal(jitted(*args), old)


def result_after(place: Place, way: str, count: int) -> Any:
    """Return what a function gives that is called for the first time after some changes."""
    with closing(built_of(place, way)) as built:
        for state in place.states[:count]:
            built.change(state.code)
        return outcomes(built.function(ONES))


def check_place(kind: str, way: str) -> None:
    """Change a place that one function reads, in each way that there is."""
    place = PLACES[kind](Random(0), "place")  # noqa: S311  # a fixed seed
    if way != WAYS["plain"]:  # the same number, another one, and what is not read
        place = dataclasses.replace(place, states=place.states[::2])
    with closing(built_of(place, way)) as built:
        strict = jit(built.function, on_stale="raise")
        fresh = jit(lambda x: built.function(x), on_stale="retrace")
        _ = strict(ONES), fresh(ONES)
        found = traced = place.states[0].found
        for count, state in enumerate(place.states, 1):
            built.change(state.code)
            found = found if state.found is None else state.found
            raised = False
            try:
                strict(ONES)
            except lw.errors.StaleCaptureError:
                raised = True
            assert raised == (found != traced) or kind in COARSE, state
            assert outcomes(fresh(ONES)) == result_after(place, way, count), state


@pytest.mark.parametrize("kind", sorted(PLACES.keys() - MISSED))
def test_a_change_of_a_place(kind: str) -> None:
    """It is seen wherever a trace reads something else then, and nothing else is."""
    check_place(kind, WAYS["plain"])


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_change_where_another_function_reads(way: str) -> None:
    """However the function around it is written, that calls it."""
    check_place("attribute", way)


@pytest.mark.parametrize("given", [by_rate, functools.partial(by_rate), Frozen(by_rate), Rule()])
def test_what_a_static_argument_reads(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that is handed over reads what it read when it was traced."""
    call = lambda f, x: getattr(f, "act", f)(x)  # noqa: E731
    strict = jit(lambda f, x: call(f, x), static_argnums=0, on_stale="raise")
    retraced = jit(lambda x, *, f: call(f, x), static_argnames="f", on_stale="retrace")
    assert (strict(given, ONES).tolist(), retraced(ONES, f=given).tolist()) == ([1, 1], [1, 1])
    assert strict(lambda x: x * 2, ONES).tolist() == [2, 2]
    monkeypatch.setattr(stale_kinds, "rate", 3.0)
    with pytest.raises(lw.errors.StaleCaptureError, match="captures `rate`"):
        strict(given, ONES)
    assert retraced(ONES, f=given).tolist() == [3, 3]


def test_each_call_has_its_own_classes() -> None:
    """What a method of another class reads says nothing of this call; but it stays watched."""
    stale_kinds.rate, stale_kinds.shift = 2.0, 1.0
    jitted = jit(lambda net, x: net(x), on_stale="raise")
    net, other = Net(ONES), Other(ONES)
    assert (jitted(net, ONES).tolist(), jitted(other, ONES).tolist()) == ([2, 2], [2, 2])
    stale_kinds.shift = 5.0
    assert jitted(net, ONES).tolist() == [2, 2]
    with pytest.raises(lw.errors.StaleCaptureError, match="captures `shift`"):
        jitted(other, ONES)
    stale_kinds.rate, stale_kinds.shift = 9.0, 1.0
    assert jitted(other, ONES).tolist() == [2, 2]
    with pytest.raises(lw.errors.StaleCaptureError, match="captures `rate`"):
        jitted(net, ONES)
