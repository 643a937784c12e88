"""The laws: which are tried, on how many examples, and classes that hang or crash."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import pytest
from tests.kit.inside import (
    EXAMPLES,
    CheckOptions,
    CheckTarget,
    CheckVerdict,
    TooLong,
    run_module,
    time_limit,
)

import leafwise as lw
from leafwise.testing import Law, _check
from leafwise.testing._laws.case import Case
from leafwise.testing._laws.run import LawTest
from leafwise_cli import main

from .asked import report_of
from .conftest import Check, Outcome, Write

SOURCE = """
@lw.pytree
class P:
    x: jax.Array
    n: lw.Static[int] = 2

@lw.pytree
class Q:
    y: float
"""


@lw.pytree
class Own:
    x: jax.Array
    n: lw.Static[int] = 2


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
def test_narrowed(
    arguments: list[str], laws: list[Law], fields: str, two: Callable[..., Outcome]
) -> None:
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
def test_usage_errors(arguments: list[str], words: str, two: Callable[..., Outcome]) -> None:
    """Nonsense is a usage error that says what is possible."""
    outcome = two(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err
    assert "Traceback" not in outcome.err


def test_a_field_that_no_class_has(two: Callable[..., Outcome]) -> None:
    """It is refused, with those that there are."""
    outcome = two("--field", "nn")
    assert outcome.code == 2
    assert "they have x, n, y" in outcome.err


@pytest.mark.slow
def test_a_field_of_one_class(write: Write, check_all: Check) -> None:
    """A field need not be in every class; a class that was not built may have it."""
    outcome = check_all(write(SOURCE), "--field", "y", "--output-format=json")
    assert outcome.code == 0
    assert [len(entry["rows"]) > 0 for entry in outcome.document["classes"]] == [False, True]
    refusing = "    def __post_init__(self): raise ValueError('no')\n"
    unbuilt = f"{SOURCE}\n@lw.pytree\nclass Bad:\n    x: float\n{refusing}"
    assert check_all(write(unbuilt), "--field", "zzz").code == 3


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
    crashed, kept = report_of(Own, options).laws
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
    kept, given_up = report_of(Own, options).laws
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
    """What was found so far is reported, and that there is more; the exit code names the signal.

    A second one, as `timeout` sends it, is ignored.
    """
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
