"""What a report as JSON keeps of each program."""

import json
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from tests.kit.inside import LoweredRecord, from_json, packed, program_recorder, unpacked

import leafwise as lw
from leafwise._jax import compiles
from leafwise._jax.compiles import Compile
from leafwise._programs.program import read_program

from .conftest import Explained

RATE = 0.25
TABLE = jnp.arange(5.0)
CALLS: list[str] = []


@lw.pytree
class State:
    w: jax.Array
    mode: str = lw.static_field(default="a")


class Own:
    def __call__(self, x: Any) -> Any:
        return x


def scaled(x: Any) -> Any:
    return x * RATE + TABLE


def run_script() -> None:
    @jax.jit
    def step(state: State, x: Any) -> Any:
        CALLS.append("traced")
        return scaled(state.w) * x

    step(State(jnp.ones(5)), 2.0)
    with jax.default_matmul_precision("highest"):
        step(State(jnp.ones(5), "b"), 2.0)
    jax.jit(lambda x, f: f(x), static_argnums=1)(1.0, Own())


def test_what_a_program_was_made_from(
    explained: Explained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statics, avals, captures by content, configuration and operations; nothing of the rest."""
    monkeypatch.setenv("MY_SECRET", "do not tell")
    monkeypatch.setenv("XLA_SOMETHING", "on")
    report = explained(run_script, programs=True)
    first, second = (each for each in report["programs"] if each["name"] == "step")
    assert first["function"].endswith(":run_script.<locals>.step")
    assert first["site"]["file"].endswith("test_program_recorder.py")
    assert first["site"]["text"] == "step(State(jnp.ones(5)), 2.0)"
    assert first["arguments"]["state.mode"] == {"static": "a"}
    assert second["arguments"]["state.mode"] == {"static": "b"}
    assert first["arguments"]["state.w"] == {"array": {"dtype": "float32", "shape": ["5"]}}
    assert first["digest"] != second["digest"]
    assert first["config"] == {}
    assert second["config"]["jax_default_matmul_precision"] == "highest"
    captured = first["captures"]
    assert captured["RATE"] == {"static": {"class": "float", "parts": ["0.25"]}}
    assert captured["TABLE"]["static"]["class"] == "jax:Array"
    assert "CALLS" not in captured  # which is only written to
    assert (first["cache"], first["key"], first["key_parts"]) == ("off", None, {})
    operations = unpacked(from_json(LoweredRecord, first["program"]))
    assert operations is not None
    assert operations.fingerprint == first["program"]["fingerprint"]
    assert any("multiply" in each.text for each in operations.operations)
    (process,) = report["processes"]
    assert process["environment"]["XLA_SOMETHING"] == "on"
    assert process["versions"]["jax"] == jax.__version__
    assert "do not tell" not in json.dumps(report)


def test_what_another_process_could_not_read_is_named(explained: Explained) -> None:
    """An object that compares by identity is named as refused, without its address."""
    report = explained(run_script, programs=True)
    (found,) = (each for each in report["programs"] if each["refused"])
    ((path, what),) = found["refused"].items()
    assert path == "f"
    assert "Own object" in what
    assert "0x" not in what


def test_nothing_is_kept_unless_asked(explained: Explained) -> None:
    """Without it no program is read, and afterwards JAX has its own function again."""
    explained(run_script, programs=True)
    assert not compiles._listeners
    assert not {"programs", "processes"} & explained(run_script).keys()


def test_a_program_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its digest and its inputs are kept, and no operation."""
    module = jax.jit(scaled).lower(1.0).compiler_ir()
    program = read_program(Compile(module, None, None, None))
    whole = packed(program)
    assert unpacked(whole) == program
    monkeypatch.setattr(program_recorder, "_MOST_BYTES", len(whole.packed) - 1)
    nothing = packed(program)
    assert unpacked(nothing) is None
    assert nothing.fingerprint == program.fingerprint


def test_captures_that_share_a_name_or_are_large(
    explained: Explained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are kept; over the limit there is a shape and no digest."""

    def script() -> None:
        def inner(n: int) -> Any:
            value = float(n)

            def scaled(x: Any) -> Any:
                return x * value

            return scaled

        value, scaled = 3.0, inner(4)

        @jax.jit
        def step(x: Any) -> Any:
            return scaled(x) + value + TABLE

        step(2.0)

    def found() -> Any:
        report = explained(script, programs=True)
        return next(each for each in report["programs"] if each["name"] == "step")

    both = {path: each for path, each in found()["captures"].items() if path.startswith("value")}
    assert sorted(each["static"]["parts"] for each in both.values()) == [["3.0"], ["4.0"]]
    monkeypatch.setattr(program_recorder, "_MOST_ARRAY", 1)
    assert found()["captures"]["TABLE"] == {"array": {"dtype": "float32", "shape": ["5"]}}
