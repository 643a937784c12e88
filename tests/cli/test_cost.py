"""What a check costs, in what can be counted: compilations, constructions, processes."""

import re
import time
from typing import Any

import jax
import pytest
from tests.kit.inside import (
    CheckOptions,
    CheckTarget,
    ClassResult,
    Example,
    FoundTargets,
    check_fields,
    count_events,
    run_module,
)

import leafwise as lw
from leafwise.testing._laws import other_process
from leafwise.testing._laws.law import Law

from .asked import report_of


@lw.pytree
class Three:
    w: jax.Array
    b: jax.Array
    n: lw.Static[int] = 2


@pytest.mark.nightly
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
            report = report_of(Three, CheckOptions())
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


@pytest.mark.slow
def test_layers_of_nnx_are_made_with_keys_for_any_name() -> None:
    """Few draws are refused, as constructors find the keys that they ask for."""
    nnx: Any = pytest.importorskip("flax.nnx")
    asked: list[None] = []

    class Layer(nnx.Module):  # type: ignore[misc]
        def __init__(self, size: int, *, rngs: nnx.Rngs) -> None:
            asked.append(None)
            self.w = nnx.Param(jax.random.normal(rngs.params(), (size,)))

    report = report_of(Layer, CheckOptions(laws=(Law.ROUND_TRIP,)))
    assert report.passed
    assert len(asked) < 100


def test_no_class_takes_longer(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """What there was no time for is said, with the option, and the class under work is named."""

    def wait(_: Any) -> None:
        until = time.process_time() + 0.01
        while time.process_time() < until:
            pass

    body = {"__annotations__": {"x": float}, "__post_init__": wait, "__module__": __name__}
    target = CheckTarget(lw.pytree(type("Slow", (), body)), "here:Slow")
    options = CheckOptions(laws=(Law.ROUND_TRIP,), fields=False, examples=300, seconds=1)
    monkeypatch.setattr(run_module, "_SILENCE", 0.1)
    run = run_module.run_checks(FoundTargets([target], {}, []), options)
    (note,) = run.notes
    says = r"here:Slow: laws were tested on \d+ instances?, as there was no time for others: "
    assert re.fullmatch(f"{says}`--timeout 2` takes longer", note)
    assert run.exit_code == 0
    assert "leafwise check: 1 of 1: here:Slow\n" in capsys.readouterr().err


def test_fields_without_time() -> None:
    """They are passed over, and the report says which."""
    rows = tuple(check_fields(Example(Three), until=0.0))
    assert run_module._late(ClassResult("Three", rows=rows)) == "not changed: w, b, n"
