"""The laws: which are tried, on how many examples, on classes that hang or crash, at what cost.

What is planted is found: a check that cannot fail is no check.
"""

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import pytest
from tests.kit.inside import (
    EXAMPLES,
    Case,
    CheckOptions,
    CheckTarget,
    CheckVerdict,
    ClassResult,
    Example,
    FoundTargets,
    LawTest,
    TooLong,
    _check,
    check_fields,
    count_events,
    other_process,
    run_module,
    time_limit,
)
from tests.kit.specimens import Slotted

import leafwise as lw
from leafwise.testing import Law
from leafwise_cli import main

from .conftest import GOOD, Check, Outcome, Write, kinds, report_of

SOURCE = """
@lw.pytree
class P:
    x: jax.Array
    n: lw.Static[int] = 2

@lw.pytree
class Q:
    y: float
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Note which laws are asked, and check nothing."""
    calls: list[dict[str, Any]] = []

    def note(_: Any, laws: list[Law], *, settings: Any, seed: int, **__: Any) -> Any:
        options = {"examples": settings.max_examples, "seed": seed}
        calls.extend({"law": law, **options} for law in laws)
        return ""

    monkeypatch.setattr(run_module, "try_each", note)
    return calls


@pytest.fixture
def two(write: Write, check_all: Check, asked: list[Any]) -> Callable[..., Outcome]:
    """Run the command on two classes, without trying the laws."""
    return lambda *arguments: check_all(write(SOURCE), *arguments)


def test_all_laws_and_all_fields(write: Write, check_all: Check, asked: list[Any]) -> None:
    """By default every law is tried, and every field is changed; both numbers reach Hypothesis."""
    file = write(SOURCE)
    outcome = check_all(file, "--output-format=json")
    assert outcome.code == 0
    assert [each["law"] for each in asked] == [*Law, *Law]
    assert {(each["examples"], each["seed"]) for each in asked} == {(EXAMPLES, 0)}
    asked.clear()
    assert check_all(file, "--laws", "--examples", "3", "--seed", "7").code == 0
    assert {(each["examples"], each["seed"]) for each in asked} == {(3, 7)}
    for entry in outcome.document["classes"]:
        assert entry["rows"]
        assert [result["law"] for result in entry["laws"]] == list(map(str, Law))


@pytest.mark.parametrize(
    ("arguments", "laws", "fields"),
    [
        (["--laws"], list(Law), ""),
        (["--fields"], [], "nxy"),
        (["--laws", "--fields"], list(Law), "nxy"),
        (["--law", "copies"], [Law.COPIES], ""),
        (["--field", "n"], [], "n"),
        (["--field", "n", "--field", "y"], [], "ny"),
        (["--field", "n", "--law", "copies"], [Law.COPIES], "n"),
    ],
    ids=" ".join,
)
def test_narrowed(arguments: list[str], laws: list[Law], fields: str, two: Check) -> None:
    """Options choose the parts, the laws and the fields."""
    outcome = two("--output-format=json", *arguments)
    assert outcome.code == 0
    classes = outcome.document["classes"]
    tried = [result["law"] for entry in classes for result in entry["laws"]]
    assert tried == [*map(str, laws), *map(str, laws)]
    rows = [row for entry in classes for row in entry["rows"]]
    assert "".join(sorted({row["field"] for row in rows})) == fields


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--examples", "0"], "1 or more"),
        (["--examples", "many"], "'many' is not a number"),
        (["--seed", "1.5"], "--seed: invalid int value: '1.5'"),
        (
            ["--law", "statictypes"],
            "(did you mean 'static-types'?); the laws are round-trip, any-leaf",
        ),
        *((["--timeout", limit], "--timeout: ") for limit in ("0", "-1", "nan", "inf", "soon")),
    ],
    ids=" ".join,
)
def test_usage_errors(arguments: list[str], words: str, two: Check) -> None:
    """Nonsense is a usage error that says what is possible."""
    outcome = two(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.slow
def test_a_field_of_one_class(write: Write, check_all: Check) -> None:
    """A field need not be in each class, or may be in one that is not built; others are refused."""
    outcome = check_all(write(SOURCE), "--field", "y", "--output-format=json")
    assert outcome.code == 0
    assert [len(entry["rows"]) > 0 for entry in outcome.document["classes"]] == [False, True]
    refusing = "    def __post_init__(self): raise ValueError('no')\n"
    unbuilt = f"{SOURCE}\n@lw.pytree\nclass Bad:\n    x: float\n{refusing}"
    assert check_all(write(unbuilt), "--field", "zzz").code == 3
    outcome = check_all(write(SOURCE), "--field", "nn")
    assert outcome.code == 2
    assert "they have x, n, y" in outcome.err


@pytest.mark.parametrize(
    "error",
    [ValueError("no"), SystemExit(3), RecursionError("deep")],
    ids=lambda error: type(error).__name__,
)
def test_a_law_that_crashes(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a class raises is that law's error; the other laws are still tried."""

    def crash(_: Case) -> None:
        raise error

    monkeypatch.setitem(_check._TESTS, Law.COPIES, LawTest(crash))
    options = CheckOptions(laws=(Law.COPIES, Law.ROUND_TRIP), fields=False, examples=3)
    crashed, kept = report_of(Slotted, options).laws
    assert (crashed.verdict, kept.verdict) == (CheckVerdict.ERROR, CheckVerdict.OK)
    assert type(error).__name__ in crashed.message


@pytest.mark.skipif(sys.platform == "win32", reason="nothing interrupts a loop there")
def test_a_law_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up, also by a class that catches every exception; the others are tried."""

    def hang(_: Case) -> None:
        while True:
            with contextlib.suppress(Exception):
                sum(range(1000))

    monkeypatch.setitem(_check._TESTS, Law.COPIES, LawTest(hang))
    laws = (Law.ROUND_TRIP, Law.COPIES)
    options = CheckOptions(laws=laws, fields=False, examples=2, seconds=0.5)
    kept, given_up = report_of(Slotted, options).laws
    assert (kept.verdict, given_up.verdict) == (CheckVerdict.OK, CheckVerdict.NOT_CHECKED)
    assert given_up.message == "took longer than 0.5 seconds"


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform == "win32", reason="needs a timer signal")
def test_a_constructor_that_hangs(write: Write, check: Check) -> None:
    """A class that cannot be built in time is an error of that class, with a fix."""
    slow = """
        @lw.pytree
        class Slow:
            n: lw.Static[int] = 2
            def __post_init__(self):
                while True: pass
        """
    file = write(slow)
    outcome = check(file, write(SOURCE), "--timeout", "2", "--output-format=json")
    assert outcome.code == 3
    first, *others = outcome.document["classes"]
    assert "took longer than 2 seconds" in first["error"]
    assert "fix:" in first["error"]
    assert len(others) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="needs a timer signal")
def test_limits_are_of_the_processor() -> None:
    """A block that waits is not ended; one that works is, and leaves no clock running."""

    def work() -> None:
        while True:
            pass

    with time_limit(0.1):
        time.sleep(0.2)
    with pytest.raises(TooLong), time_limit(0.1):
        work()
    assert signal.getitimer(signal.ITIMER_PROF)[0] == signal.getitimer(signal.ITIMER_REAL)[0] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals(
    monkeypatch: pytest.MonkeyPatch, write: Write, check_all: Check, number: signal.Signals
) -> None:
    """What was found is reported, and that there is more; the exit code names the first signal."""
    real = run_module.check_class
    seen: list[str] = []

    def interrupted(target: CheckTarget, *arguments: Any) -> Any:
        if not seen:
            seen.append(target.name)
            return real(target, *arguments)
        if number == signal.SIGINT:  # a job may ignore it
            raise KeyboardInterrupt
        try:
            signal.raise_signal(number)
        finally:
            signal.raise_signal(number)

    monkeypatch.setattr(run_module, "check_class", interrupted)
    file = write(SOURCE)
    outcome = check_all(file, "--fields")
    assert outcome.code == 128 + number
    assert "interrupted, 1 class to go" in outcome.out
    assert "P(x=" in outcome.out
    seen.clear()
    document = check_all(file, "--fields", "--output-format=json").document
    assert (document["interrupted"], document["exit_code"]) == (True, 128 + number)
    assert [entry["name"] for entry in document["classes"]] == [f"{file}:P"]


def test_a_reader_that_stops(monkeypatch: pytest.MonkeyPatch, write: Write, check: Check) -> None:
    """What nobody reads is not checked any further; the exit code is that of SIGPIPE."""
    seen: list[str] = []
    real = run_module.check_class

    def note(target: CheckTarget, *arguments: Any) -> Any:
        seen.append(target.name.rpartition(":")[2])
        return real(target, *arguments)

    monkeypatch.setattr(run_module, "check_class", note)
    read, end = os.pipe()
    os.close(read)
    codes: list[int] = []
    with contextlib.suppress(BrokenPipeError), os.fdopen(end, "w", encoding="utf-8") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        codes.append(main(["check", "--fields", write(SOURCE)]))
    assert (codes, seen) == ([128 + 13], ["P"])


@lw.pytree
class MadeSlowly:
    x: jax.Array
    n: lw.Static[int]

    def __post_init__(self) -> None:
        until = time.process_time() + 0.005
        while time.process_time() < until:
            pass


@pytest.mark.slow
@pytest.mark.nightly
def test_what_takes_long() -> None:
    """Where instances take long to make, a law is tried on few, or on few changes, and says so."""
    laws = (Law.STATIC_VALUES,)
    for seconds, words in ((60.0, ""), (1.6, "there was no time for others")):
        options = CheckOptions(laws=laws, fields=False, seconds=seconds)
        (law,) = report_of(MadeSlowly, options).laws
        assert law.verdict is CheckVerdict.OK
        assert law.message.rpartition(", as ")[2] == words


def test_a_blind_prediction(write: Write, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """If all changes are predicted to reuse the program, each retrace is a mismatch."""
    explain = lw.types.Signature.explain
    monkeypatch.setattr(lw.types.Signature, "explain", lambda after, _: explain(after, after))
    outcome = check(write(GOOD), "--output-format=json")
    assert outcome.code == 1
    rows = outcome.document["classes"][0]["rows"]
    wrong = {(row["field"], row["kind"]) for row in rows if row["verdict"] == "mismatch"}
    everything = {(row["field"], row["kind"]) for row in rows}
    assert wrong == everything - {("x", "value")}
    assert all(row["note"] for row in rows if row["verdict"] == "mismatch")
    assert "wrong" in check(write(GOOD)).out.splitlines()[-1]


@jax.tree_util.register_pytree_node_class
class Nosy:
    """A foreign node whose key contains its leaf."""

    def __init__(self, leaf: Any) -> None:
        self.leaf = leaf

    def tree_flatten(self) -> tuple[tuple[Any], str]:
        return (self.leaf,), str(self.leaf)

    @classmethod
    def tree_unflatten(cls, _key: str, leaves: tuple[Any]) -> "Nosy":
        return cls(*leaves)


def test_a_dynamic_value_in_the_key() -> None:
    """A dynamic value that retraces is a violation: as predicted, and not as promised."""

    @lw.pytree
    class Holder:
        node: Any = lw.field(default_factory=lambda: Nosy(jnp.ones(3)))

    row = kinds(report_of(Holder), "node")["value"]
    assert (row.verdict, row.predicted, row.traces) == ("violation", "retrace", 1)
    assert "dynamic" in row.note


def test_what_a_class_computes_is_no_trace_of_the_function() -> None:
    """What is traced and compiled while an instance is rebuilt is not counted."""

    @flax.struct.dataclass
    class Computes:
        x: Any

        def __post_init__(self) -> None:
            if isinstance(self.x, jax.Array):
                # A program of its own for each shape, within the trace and beside it.
                object.__setattr__(self, "norm", jax.jit(lambda x: x * 2)(self.x))

    report = report_of(Computes)
    assert report.rows, report
    assert {row.verdict for row in report.tried} == {"ok"}, report


def test_with_a_compilation_cache(tmp_path: Any) -> None:
    """Programs from JAX's cache on disk count as compiles: the verdicts stay."""
    names = {
        "jax_compilation_cache_dir": str(tmp_path / "cache"),
        "jax_persistent_cache_min_compile_time_secs": 0,
    }
    before = {name: getattr(jax.config, name) for name in names}
    try:
        for name, value in names.items():
            jax.config.update(name, value)
        assert report_of(Slotted) == report_of(Slotted)
        assert report_of(Slotted).passed
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def test_inside_of_checks_of_statics() -> None:
    """The command works with ``LEAFWISE_CHECK_STATICS`` on."""
    with lw.debug.check_statics():
        assert report_of(Slotted).passed


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


@lw.pytree
class Few:
    is_posed: lw.Static[bool | None] = None


def test_a_law_that_holds_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hypothesis repeats a draw of a class with few values; it finds the test deterministic."""

    def search(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(run_module, "smallest_failure", search)
    for seed in range(5):
        assert report_of(Few, CheckOptions(fields=False, seed=seed)).passed


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
    target = CheckTarget(MadeSlowly, "here:Slow")
    options = CheckOptions(laws=(Law.ROUND_TRIP,), fields=False, examples=600, seconds=1)
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
