"""`leafwise compare` says why a second run compiled other programs, or missed the cache.

And what a report as JSON keeps of each program.
"""

import functools
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.kit.inside import (
    Compile,
    LoweredRecord,
    compiles,
    from_json,
    packed,
    read_program,
    unpacked,
)
from tests.kit.processes import Runner

import leafwise as lw

from .conftest import JSON, Check, Explained

X = np.ones(3, np.float32)
SETTINGS: dict[str, Any] = {}


@lw.pytree
class State:
    w: Any
    mode: str = lw.static_field(default="a")
    names: frozenset[str] = lw.static_field(default=frozenset("abc"))


def run_script(**settings: Any) -> None:
    SETTINGS.update({"rate": 2.0, "mode": "a", "hidden": 1.0, "dtype": np.float32} | settings)
    rate, hidden = SETTINGS["rate"], [SETTINGS["hidden"]]
    hide = functools.cache(hidden.pop)  # which shows nothing of what it holds

    @jax.jit
    def step(state: State, x: Any) -> Any:
        y = state.w * rate * len(state.mode)
        return y + x + hide()

    @jax.jit
    def init(x: Any) -> Any:
        return x - 1.5

    init(X)
    step(State(X, SETTINGS["mode"]), X.astype(SETTINGS["dtype"]))


REPORTS: dict[str, str] = {}


@pytest.fixture
def run(explained: Explained, tmp_path: Path) -> Callable[..., str]:
    """Runs the script with settings, once, and writes the report; `edit` changes that before."""

    def make(edit: Callable[[Any], None] = lambda _: None, **settings: Any) -> str:
        if str(settings) not in REPORTS:
            report = explained(lambda: run_script(**settings), programs=True)
            REPORTS[str(settings)] = json.dumps(report)
        report = json.loads(REPORTS[str(settings)])
        edit(report)
        file = tmp_path / f"run{len(list(tmp_path.iterdir()))}.json"
        file.write_text(json.dumps(report), encoding="utf-8")
        return file.name

    return make


def compared(leafwise: Check, *files: str) -> dict[str, Any]:
    """Return what differs, and check the exit code."""
    outcome = leafwise("compare", JSON, *files)
    assert outcome.code == bool(outcome.document["causes"])
    assert outcome.document["version"] == 1
    return outcome.document


def causes(leafwise: Check, *files: str) -> dict[tuple[str, str], tuple[str, str]]:
    """Return both values by kind and path."""
    found = compared(leafwise, *files)["causes"]
    return {(each["kind"], each["path"]): (each["before"], each["after"]) for each in found}


def test_nothing_differs(run: Callable[..., str], leafwise: Check) -> None:
    """Two equal runs, whatever JAX logs: one line, and exit code 0."""
    first = run()
    REPORTS.clear()
    second = run()
    outcome = leafwise("compare", first, second)
    assert outcome.out == f"{first} -> {second}: nothing differs, in 2 programs\n"
    assert (outcome.code, outcome.err) == (0, "")
    for path, value in (
        (("environment", "JAX_LOG_COMPILES"), "1"),
        (("config", "jax_log_compiles"), 7),
    ):
        assert causes(leafwise, first, run(edited("processes", 0, *path, value=value))) == {}


DIFFERENT = {
    "static": ({"mode": "bb"}, "argument", "state.mode", ("'a'", "'bb'")),
    "capture": ({"rate": 2.5}, "capture", "rate", ("2.0", "2.5")),
    "dtype": ({"dtype": np.int32}, "argument", "x", ("float32[3]", "int32[3]")),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_an_input_differs(run: Callable[..., str], leafwise: Check, name: str) -> None:
    """A static, a capture or a dtype is named by path with both values, and nothing else is."""
    settings, kind, path, values = DIFFERENT[name]
    files = run(), run(**settings)
    found = causes(leafwise, *files)
    assert found == {(kind, path): values}
    (cause,) = compared(leafwise, *files)["causes"]
    assert [each.partition(" ")[0] for each in cause["programs"]] == ["step"]


def test_the_operations_differ(run: Callable[..., str], leafwise: Check) -> None:
    """Where all inputs agree, the first operation that differs is shown with its line."""
    found = causes(leafwise, run(), run(hidden=3.0))
    ((kind, path), (before, after)) = next(iter(found.items()))
    assert (kind, path.partition(" ")[0]) == ("operation", "step")
    assert "dense<1.000000e+00>" in before
    assert "dense<3.000000e+00>" in after
    assert "test_compare.py:" in before
    text = leafwise("compare", run(), run(hidden=4.0)).out
    assert "arguments and captures agree, and the program differs\n  first run: " in text


def edited(*path: Any, value: Any) -> Callable[[Any], None]:
    """Return what changes one entry of a report."""

    def edit(report: Any) -> None:
        *way, last = path
        for each in way:
            report = report[each]
        report[last] = value

    return edit


OF_THE_RUN = {
    ("version", "jax"): ("versions", "jax", "0.9.9"),
    ("environment", "XLA_FLAGS"): ("environment", "XLA_FLAGS", "--xla_dump_to=/tmp"),
    ("config", "jax_enable_x64"): ("config", "jax_enable_x64", None),
    ("devices", "devices"): ("devices", "3 x cpu"),
}


@pytest.mark.parametrize("cause", OF_THE_RUN)
def test_the_run_differs(run: Callable[..., str], leafwise: Check, cause: tuple[str, str]) -> None:
    """Versions, variables, configuration and devices are compared once for all programs."""
    *way, value = OF_THE_RUN[cause]
    found = compared(leafwise, run(), run(edited("processes", 0, *way, value=value)))
    ((kind, path, *_, programs),) = (tuple(each.values()) for each in found["causes"])
    assert ((kind, path), programs) == (cause, [])
    other = run(edited("processes", 0, *way, value=value), rate=3.0)
    found = compared(leafwise, run(), other)["causes"]
    assert [[each.split()[0] for each in cause["programs"]] for cause in found] == [["step"]] * 2


def cached(
    answer: str, key: str = "k", folder: str = "/cache", unwritten: str = "", **parts: str
) -> Callable[[Any], None]:
    """Return what makes a report one of a run with the persistent cache."""

    def edit(report: Any) -> None:
        report["processes"][0]["config"]["jax_compilation_cache_dir"] = folder
        for each in report["programs"]:
            each.update(cache=answer, key=key, key_parts={"computation": "1", **parts})
            each.update(unwritten=unwritten)

    return edit


def test_hits_and_misses(run: Callable[..., str], leafwise: Check) -> None:
    """A hit is no difference; a miss names both answers, and the folder or parts that differ."""
    again = "not found; written now"
    assert causes(leafwise, run(cached(again)), run(cached("hit"))) == {}
    both = {("missed", "the persistent cache"): (again, again)}
    assert causes(leafwise, run(cached(again)), run(cached(again))) == both
    other = run(cached(again, folder="/other"))
    folder = {("config", "jax_compilation_cache_dir"): ("/cache", "/other")}
    assert causes(leafwise, run(cached(again)), other) == folder | both
    off = {("missed", "the persistent cache"): ("hit", "off")}
    assert causes(leafwise, run(cached("hit")), run(cached("off"))) == off
    key = run(cached(again, "other", **{"jax_lib version": "2", "XLA flags": "3"}))
    (cause,) = compared(leafwise, run(cached(again)), key)["causes"]  # once for all programs
    assert (cause["kind"], len(cause["programs"])) == ("key", 2)
    assert cause["path"] == "the version of jaxlib and the XLA flags"


def test_a_miss_of_what_was_never_written(run: Callable[..., str], leafwise: Check) -> None:
    """What is too quick to be written is a note, and no difference between the runs."""
    why = "as it compiled faster than jax_persistent_cache_min_compile_time_secs=1"
    quick = cached(f"not found; not written, {why}", unwritten=why)
    outcome = leafwise("compare", run(quick), run(quick))
    assert outcome.code == 0
    (note,) = (line for line in outcome.out.splitlines() if line.startswith("note"))
    assert "the first run did not write it, as it compiled faster than" in note
    assert "init" in note
    assert "step" in note


def test_programs_of_one_run_only(run: Callable[..., str], leafwise: Check) -> None:
    """A program that the other run lacks is named with its line."""
    shorter = run(lambda report: report["programs"].pop(0))
    assert causes(leafwise, run(), shorter) == {("absent", "init"): ("compiled", "")}
    assert causes(leafwise, shorter, run()) == {("absent", "init"): ("", "compiled")}


def test_a_second_program_of_a_function(run: Callable[..., str], leafwise: Check) -> None:
    """Where one run compiled a function once more, it says by what that differs from before."""

    def again(report: Any) -> None:
        step = report["programs"][-1]
        other = json.loads(json.dumps(step))
        other["end"] += 1
        other["arguments"]["x"]["array"]["shape"] = ["4"]
        report["programs"].append(other)

    why = "compiled again, by argument x: float32[3] -> float32[4]"
    assert causes(leafwise, run(), run(again)) == {("absent", "step"): ("", why)}


def test_without_operations(run: Callable[..., str], leafwise: Check) -> None:
    """Inputs are compared all the same; what is known to lack something is not called equal."""

    def forget(report: Any) -> None:
        for each in report["programs"]:
            each["program"] = None

    assert causes(leafwise, run(forget), run(forget)) == {}
    assert [*causes(leafwise, run(forget), run(forget, rate=2.5))] == [("capture", "rate")]
    large = edited("programs", -1, "program", "packed", value="")
    outcome = leafwise("compare", run(), run(large, hidden=3.0))
    assert outcome.code == 1
    assert "note: too large to compare its operations: step (" in outcome.out
    text = "4 records are missing"
    outcome = leafwise("compare", run(), run(edited("warnings", value=[text])))
    assert (outcome.code, outcome.out.endswith(f".json: {text}\n")) == (1, True)


def test_the_order_of_a_set(run: Callable[..., str], leafwise: Check) -> None:
    """A set that only has another order is named where the program differs, next to that."""

    def turn(report: Any) -> None:
        for each in report["programs"]:
            if names := each["arguments"].get("state.names"):
                names["static"]["parts"].reverse()
        report["processes"][0]["hash_seed"] += 1

    assert causes(leafwise, run(), run(turn)) == {}
    files = run(), run(turn, hidden=5.0)
    found = causes(leafwise, *files)
    assert [kind for kind, _ in found] == ["order", "operation"]
    assert "PYTHONHASHSEED" not in leafwise("compare", *files).out  # another constant


def test_what_was_traced_before(run: Callable[..., str], leafwise: Check) -> None:
    """The first trace that the other run did not make is named, with where its function is."""

    def add_trace(report: Any) -> None:
        first = report["events"][0]
        report["events"].insert(0, {**first, "name": "warm_up", "defined": "train.py:3"})

    found = causes(leafwise, run(), run(add_trace, hidden=6.0))
    before, after = found["history", "traced before"]
    assert before.startswith("init (")
    assert after == "warm_up (train.py:3)"


def test_wrong_files(run: Callable[..., str], leafwise: Check, tmp_path: Path) -> None:
    """Each says what is wrong with which file, and how to write one; exit code 2."""
    good = run()
    text = (tmp_path / good).read_text(encoding="utf-8")
    report = json.loads(text)
    files: Mapping[str, tuple[str, str]] = {
        "cut.json": (text[: len(text) // 2], "cannot read cut.json: "),
        "list.json": ("[1, 2]", "is not a report of leafwise explain"),
        "other.json": ('{"version": 2, "classes": []}', "is not a report of leafwise explain"),
        "newer.json": (json.dumps({**report, "version": 99}), "of leafwise explain in layout 1"),
        "older.json": (json.dumps({**report, "programs": []}), "has no programs"),
        "edited.json": (json.dumps({**report, "programs": [{"name": "f"}]}), "in layout 1: "),
    }
    for name, (content, words) in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
        for pair in ((good, name), (name, good)):
            outcome = leafwise("compare", *pair)
            assert (outcome.code, outcome.out) == (2, ""), name
            assert words in outcome.err
            assert name in outcome.err
            assert "fix: leafwise explain --output-format json -o" in outcome.err
    outcome = leafwise("compare", good, "nowhere.json")
    assert outcome.code == 2
    assert "cannot read nowhere.json: " in outcome.err
    assert leafwise("compare", good).code == 2


def test_output_goes_to_a_file(run: Callable[..., str], leafwise: Check, tmp_path: Path) -> None:
    """With -o standard output stays empty; for GitHub a difference is at the line of a program."""
    files = run(), run(rate=9.0)
    outcome = leafwise("compare", "-o", "differs.txt", *files)
    assert (outcome.code, outcome.out) == (1, "")
    assert "capture rate: 2.0 -> 9.0" in (tmp_path / "differs.txt").read_text(encoding="utf-8")
    assert leafwise("compare", "-o", "no/folder.txt", *files).code == 2
    shown = leafwise("compare", "--output-format=github", *files).out
    assert ",title=capture::capture rate: 2.0 -> 9.0%0A  step (" in shown


SCRIPT = """
import sys, jax, jax.numpy as jnp, numpy as np
import leafwise as lw
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
weights = {"alpha": 1.0, "beta": 2.0, "gamma": 3.0, "delta": 4.0, "epsilon": 5.0}
@lw.pytree
class State:
    w: jax.Array
    n: int = lw.static_field(default=1)
@jax.jit
def step(state, x):
    y = jnp.tanh(x) * state.n
    for name in set(weights) if "--set" in sys.argv else ():
        y = y + weights[name]
    return state.w @ y
step(State(np.ones((3, 3))), np.ones(3))
"""

LAST = len(SCRIPT.splitlines())


def explain(folder: Path, name: str, *arguments: str, **environment: str) -> str:
    """Run the script, and return its report."""
    cache = {"JAX_COMPILATION_CACHE_DIR": str(folder / "cache")}
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))}
    options = JSON, "-o", name, "script.py", *arguments
    done = Runner(folder).explain(*options, env={**outside, **cache, **environment})
    assert done.returncode == 0, done.stderr
    return name


@pytest.mark.nightly
def test_runs_of_a_script(leafwise: Check, tmp_path: Path) -> None:
    """A restart has only hits; a loop over a set makes another program with another seed."""
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    first, second = (explain(tmp_path, f"run{seed}.json", PYTHONHASHSEED=seed) for seed in "12")
    assert causes(leafwise, first, second) == {}
    report = json.loads((tmp_path / second).read_text(encoding="utf-8"))
    assert {each["cache"] for each in report["programs"]} == {"hit"}
    files = [explain(tmp_path, f"set{seed}.json", "--set", PYTHONHASHSEED=seed) for seed in "12"]
    outcome = leafwise("compare", *files)
    assert outcome.code == 1
    assert f"step (script.py:{LAST}): arguments and captures agree" in outcome.out
    assert f"# script.py:{LAST - 2}" in outcome.out
    assert "note: the same operations in another order" in outcome.out


RATE = 0.25
TABLE = jnp.arange(5.0)
CALLS: list[str] = []


class Own:
    def __call__(self, x: Any) -> Any:
        return x


def scaled(x: Any) -> Any:
    return x * RATE + TABLE


def run_recorded() -> None:
    @jax.jit
    def step(state: State, x: Any) -> Any:
        CALLS.append("traced")
        return scaled(state.w) * x

    step(State(jnp.ones(5)), 2.0)
    with jax.default_matmul_precision("highest"):
        step(State(jnp.ones(5), "b"), 2.0)
    jax.jit(lambda x, f: f(x), static_argnums=1)(1.0, Own())


def test_what_made_a_program(explained: Explained, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs by content, configuration, operations are kept, what is refused is named; no more."""
    monkeypatch.setenv("MY_SECRET", "do not tell")
    monkeypatch.setenv("XLA_SOMETHING", "on")
    report = explained(run_recorded, programs=True)
    first, second = (each for each in report["programs"] if each["name"] == "step")
    assert first["function"].endswith(":run_recorded.<locals>.step")
    assert first["site"]["file"].endswith("test_compare.py")
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
    (refused,) = (each["refused"] for each in report["programs"] if each["refused"])
    assert "Own object" in refused["f"]
    assert "0x" not in refused["f"]


def test_nothing_is_kept_unless_asked(explained: Explained) -> None:
    """Without it no program is read, and afterwards JAX has its own function again."""
    explained(run_recorded, programs=True)
    assert not compiles._listeners
    assert not {"programs", "processes"} & explained(run_recorded).keys()


def test_a_program_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its digest and its inputs are kept, and no operation."""
    module = jax.jit(scaled).lower(1.0).compiler_ir()
    program = read_program(Compile(module, None, None, None))
    whole = packed(program)
    assert unpacked(whole) == program
    monkeypatch.setattr("leafwise._programs.program._MOST_BYTES", len(whole.packed) - 1)
    nothing = packed(program)
    assert unpacked(nothing) is None
    assert nothing.fingerprint == program.fingerprint


def test_captures_alike_or_large(explained: Explained, monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr("leafwise._programs.digest._MOST_ARRAY", 1)
    assert found()["captures"]["TABLE"] == {"array": {"dtype": "float32", "shape": ["5"]}}
