"""What a check costs, in what can be counted: compilations, constructions, processes."""

import inspect
import time
from typing import Any

import hypothesis
import jax
import pytest
from hypothesis import strategies as st

import leafwise as lw
from leafwise._jax.events import count_events
from leafwise.cli.fields import Example, check_fields
from leafwise.cli.laws import CheckOptions
from leafwise.cli.run import check_class
from leafwise.cli.targets import CheckTarget
from leafwise.testing._laws import other_process
from leafwise.testing.strategies._edit_positions import edit_positions
from leafwise.testing.strategies._edits import options_of, static_values


@lw.pytree
class Three:
    w: jax.Array
    b: jax.Array
    n: lw.Static[int] = 2


@pytest.mark.slow
def test_a_class_of_three_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """Laws share their instances and little is compiled: there are two classes and one process."""
    started: list[Any] = []
    real = other_process._start

    def start() -> Any:
        started.append(None)
        return real()

    monkeypatch.setattr(other_process, "_start", start)
    other_process.PROCESS.close()
    for _ in range(2):
        with count_events() as counts:
            report = check_class(CheckTarget(Three, "here:Three"), CheckOptions())
        assert report.passed
        assert counts.compiles < 50
    assert len(started) == 1


def wide(fields: int) -> tuple[Any, list[None]]:
    """Return a class of many fields, and what grows with each construction."""
    made: list[None] = []

    def note(_: Any) -> None:
        made.append(None)

    kinds = {f"x{number}": jax.Array for number in range(fields)}
    body = {"__annotations__": kinds, "__post_init__": note, "__module__": __name__}
    return lw.pytree(type("Wide", (), body)), made


def test_one_program_for_the_instance_that_is_changed() -> None:
    """Each change compiles for itself alone: the instance as it was has one program for all."""
    cls, _ = wide(6)
    example = Example(cls)
    with count_events() as counts:
        rows = list(check_fields(example))
    assert {str(row.verdict) for row in rows} == {"ok"}
    # The arrays that are weakly typed are made by a program of their own.
    assert counts.compiles <= sum(row.compiles for row in rows) + 2 + 6


@pytest.mark.slow
def test_many_fields_are_simplified_one_by_one() -> None:
    """Twice as many fields do not take four times as many constructions."""
    counted: list[int] = []
    for fields in (20, 40):
        cls, made = wide(fields)
        Example(cls)
        counted.append(len(made))
    assert counted[1] <= 2 * counted[0] + 2


def test_signatures_of_constructors_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Edits of many statics read the constructor's parameters once."""
    kinds = {f"s{number}": lw.Static[int] for number in range(20)}
    cls = lw.pytree(type("Statics", (), {"__annotations__": kinds, "__module__": __name__}))
    calls: list[Any] = []
    real = inspect.signature
    monkeypatch.setattr(
        inspect, "signature", lambda each, **options: (calls.append(each), real(each, **options))[1]
    )
    instance: Any = cls(*range(20))
    for _ in range(3):
        options_of(edit_positions(instance))
    assert calls.count(cls) == 1


def test_other_numbers_do_not_end_an_example() -> None:
    """Of a hundred floats all take other values: none that is drawn ends the whole example."""
    finished = 0

    @hypothesis.settings(max_examples=5, database=None, derandomize=True)
    @hypothesis.given(st.data())
    def draw_many(data: st.DataObject) -> None:
        nonlocal finished
        strategy = static_values(0.5)
        assert strategy is not None
        assert all(data.draw(strategy) != 0.5 for _ in range(100))
        finished += 1

    draw_many()
    assert finished == 5


@pytest.mark.nightly
@pytest.mark.parametrize("kinds", [(jax.Array,), (jax.Array, float, lw.Static[int])])
def test_three_hundred_fields(kinds: tuple[Any, ...]) -> None:
    """A class of 300 fields takes at most a minute of CPU."""
    named = {f"x{number}": kinds[number % len(kinds)] for number in range(300)}
    cls = lw.pytree(type("Wide", (), {"__annotations__": named, "__module__": __name__}))
    before = time.process_time()
    report = check_class(CheckTarget(cls, "here:Wide"), CheckOptions())
    assert report.passed
    assert time.process_time() - before < 60
