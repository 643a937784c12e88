"""A report on what a process recorded: rows, causes and totals."""

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import leafwise_cli
from leafwise.cli.explain_report import Process, make_report
from leafwise.cli.recording import Recorder

WIDTH = 91


@pytest.fixture
def explained() -> "Explained":
    """Returns the report on what a function does."""

    def run(script: Callable[[], Any], **options: Any) -> Any:
        records: list[dict[str, Any]] = []

        def write(**record: Any) -> None:
            records.append(record)

        recorder = Recorder(write, **options)
        recorder.start()
        try:
            script()
        finally:
            recorder.note_audit(os.getpid())
            recorder.stop()
        return make_report([Process(1, records)], 1, "0", "script.py", 0.0)

    return run


Explained = Callable[..., Any]


def test_a_loop_that_only_compiles(explained: Explained) -> None:
    """Masks and fresh bodies outside jit are the causes, each with its line and its time."""

    def script() -> None:
        x = jnp.arange(float(WIDTH))
        for n in range(1, 4):
            x[x < n]
            jax.lax.while_loop(lambda c: c < WIDTH, lambda c: c + 1, jnp.int32(0))

    found = {each["cause"]: each for each in explained(script)["causes"]}
    assert set(found) == {"a boolean mask", "a new lambda each call"}
    assert found["a new lambda each call"]["times"] == 2
    places = {each["place"].rpartition(":")[0] for each in found.values()}
    assert all(each.endswith("test_explain_report.py") for each in places)
    assert all(each["seconds"] > 0 for each in found.values())


def test_a_function_that_is_jitted_at_each_call(explained: Explained) -> None:
    """It is a cause and no warning."""

    def script() -> None:
        for _ in range(3):

            def step(x: Any) -> Any:
                return x + WIDTH

            jax.jit(step)(1.0)

    report = explained(script)
    (cause,) = report["causes"]
    assert (cause["cause"], cause["times"]) == ("a new function each call", 2)
    assert not report["warnings"]
    (row,) = (each for each in report["functions"] if not each["eager"])
    assert (row["name"], row["compiles"]) == ("step", 3)


def test_methods_of_several_objects_are_one_row(explained: Explained) -> None:
    """A method is one function, whatever objects it is jitted for."""

    class Model:
        def __init__(self) -> None:
            self.step = jax.jit(self.step_once)

        def step_once(self, x: Any) -> Any:
            return x * WIDTH

    def script() -> None:
        for model in (Model(), Model()):
            model.step(1.0)

    (row,) = (each for each in explained(script)["functions"] if not each["eager"])
    assert (row["name"], row["traces"]) == ("step_once", 2)


@dataclasses.dataclass(frozen=True)
class Settings:
    """A dataclass, whose methods are generated."""

    rate: float = 0.5
    names: list[str] = dataclasses.field(default_factory=list[str])


SCALE = 2.0


def test_captures_are_of_the_users_code(explained: Explained) -> None:
    """What generated methods and packages read has no row."""
    chex: Any = pytest.importorskip("chex")
    optax: Any = pytest.importorskip("optax")

    @chex.dataclass
    class State:
        x: Any
        steps: int = 0

    def step(x: Any) -> Any:
        state = State(x=x * SCALE * Settings().rate)
        return optax.tree.scale(2.0, state)

    def script() -> None:
        jax.jit(step)(1.0)

    report = explained(script, checks_captures=True)
    (found,) = (each for each in report["captures"] if each["function"] == "step")
    names = {each["name"] for each in found["captures"] if not each["of_package"]}
    assert {"SCALE", "Settings", "State"} <= names
    assert not [name for name in names if "dataclass" in name or name in ("cls", "steps", "names")]
    assert not [each for each in found["captures"] if "__qualname__" in each["name"]]
    assert "site-packages" not in str(found)
    assert "<string>" not in str(found)


# The audit.


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Config:
    """A class of JAX's own, whose statics are compared by `==`."""

    w: Any
    flag: Any = dataclasses.field(default=True, metadata={"static": True})
    shift: Any = dataclasses.field(default=0.0, metadata={"static": True})


def audited(explained: Explained, script: Callable[[], Any], audit: str = "compare") -> Any:
    report = explained(script, audit=audit)
    assert "captures" not in report
    return report["audit"]


def test_the_audit_names_both_values(explained: Explained) -> None:
    """Each call that a program of another value answered is named, with its line, each time."""

    def script() -> None:
        @jax.jit
        def step(config: Config, x: Any, *, mode: Any = 1) -> Any:
            return config.w + config.shift

        w = jnp.ones(2)
        step(Config(w), 1.0)
        for _ in range(3):
            step(Config(w, flag=1), 1.0)
            step(Config(w), 2.0)
        step(Config(w, shift=-0.0), 1.0)
        step(Config(w, flag=1.0), w)

    audit = audited(explained, script)
    said = {each["what"]: each for each in audit["found"]}
    assert list(said) == [
        "step answered for `config.flag=True`, but got `1` (int)",
        "step answered for `config.shift=0.0`, but got `-0.0` (float)",
    ]
    assert [each["times"] for each in said.values()] == [3, 1]
    assert all("test_explain_report.py:" in each["call"] for each in said.values())
    assert audit["calls"] == 9
    assert audit["seconds"] > 0


def test_a_clean_program_is_silent(explained: Explained) -> None:
    """Nothing is found where each value has a program, statics, lists, keys and numbers alike."""

    def script() -> None:
        @functools.partial(jax.jit, static_argnames=("mode", "act"))
        def step(config: Any, x: Any, mode: Any = None, act: Any = None) -> Any:
            return config.w

        config = Config(jnp.ones(3), flag=(1, "a"))
        for _ in range(3):
            for mode in (1, None, True, (1, 2)):
                step(config, {"a": [1.0, None]}, mode=mode)
            step(config, {"a": [jnp.ones(2), 3]}, act=jnp.sin)
            step(dataclasses.replace(config, flag=(1, "b")), {"b": 1})

    assert audited(explained, script)["found"] == []


rate = 0.5


def test_the_audit_finds_stale_captures(explained: Explained) -> None:
    """A captured global that changed is named with the lines that assign it and both calls."""

    def script() -> None:
        global rate  # noqa: PLW0603  # what the audit is to find

        @jax.jit
        def scaled(x: Any) -> Any:
            return x * rate

        scaled(1.0)
        rate = 0.25
        try:
            scaled(1.0)
        finally:
            rate = 0.5

    (found,) = audited(explained, script)["found"]
    assert "scaled answered for `rate=0.5`, which is 0.25 now" in found["what"]
    assert found["what"].count("test_explain_report.py:") == 4
    assert "; the call before it was at" in found["what"]


def test_a_replay_decides(explained: Explained) -> None:
    """A fresh trace of the call says whether the answer is wrong; nothing else of it is seen."""

    def script() -> None:
        @jax.jit
        def halved(config: Config, x: Any) -> Any:
            return jnp.asarray(x) // config.flag

        @jax.jit
        def unread(config: Config, x: Any) -> Any:
            return config.w * x

        for flag in (2, 2.0):
            halved(Config(1.0, flag), 3)
            unread(Config(1.0, flag), 3)

    audit = audited(explained, script, "replay")
    halved, unread = (each["what"] for each in audit["found"])
    assert "; wrong answer: " in halved
    assert unread.endswith("; the answer is right")
    (row,) = (
        each for each in explained(script, audit="replay")["functions"] if each["name"] == "halved"
    )
    assert row["traces"] == 1


def test_the_script_behind_the_option_is_the_script() -> None:
    """`--audit` takes no script for its value, and leaves the script's own arguments."""
    given = ["explain", "--json", "--audit", "--audit", "train.py", "--audit"]
    expected = ["explain", "--json", "--audit", "--audit=compare", "train.py", "--audit"]
    assert leafwise_cli.with_values(given) == expected
    assert leafwise_cli.with_values(["check", "--audit"]) == ["check", "--audit"]
