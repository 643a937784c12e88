"""The command line: exit codes, JSON, help, and a process of its own."""

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import leafwise as lw

from .conftest import GOOD, JSON, NOT_BUILT, Check, Outcome, Write

# Without some packages.
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys({names}))
from leafwise_cli import main
sys.exit(main({argv}))
"""


def run(*argv: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run Python on `argv`, with a plain environment."""
    names = ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "JAX_ENABLE_X64")
    plain = {name: value for name, value in os.environ.items() if name not in names}
    return subprocess.run(
        [sys.executable, *argv],
        env=plain | environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=120,
    )


def test_exit_code_0(write: Write, check: Check) -> None:
    """All as promised: 0, and the last line says so, in a file with -o; no standard error."""
    outcome = check(file := write(GOOD))
    assert outcome.code == 0
    assert outcome.out.rstrip().splitlines()[-1] == "1 class, 6 changes: all as promised"
    assert not outcome.err
    assert check(file, "-o", "report") == Outcome(0, "", "")
    assert Path("report").read_text(encoding="utf-8") == outcome.out
    assert check(file, "-o", "no/report").code == 2


def codes(run: Check, *arguments: str) -> set[int]:
    """Return the exit codes: the process's, and that in the document."""
    outcome = run(*arguments, JSON)
    return {outcome.code, outcome.document["exit_code"]}


def test_exit_code_3(write: Write, check: Check) -> None:
    """A class that cannot be built: 3 in all formats, and the others are still checked."""
    file = write(NOT_BUILT + GOOD)
    outcome = check(file)
    assert outcome.code == 3
    assert codes(check, file) == {3}
    assert codes(check, file, "--allow-unchecked") == {0}
    assert "not checked" in outcome.out
    last = outcome.out.rstrip().splitlines()[-1]
    assert last.startswith("2 classes, 6 changes")
    assert last.endswith("1 class not checked")
    assert "Traceback" not in outcome.out + outcome.err


def test_an_error_of_ours(write: Write, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """What we raise is no fault of a class: it is not checked."""

    def deep(*_: object, **__: object) -> None:
        raise RecursionError

    # As if it stood in our own file.
    ours = str(Path(lw.__file__).parent / "cli" / "check_classes.py")
    deep.__code__ = deep.__code__.replace(co_filename=ours)
    monkeypatch.setattr("leafwise.cli.check_fields.observe", deep)
    file = write(GOOD)
    assert check(file, "--allow-unchecked").code == 0
    outcome = check(file)
    assert outcome.code == 3
    assert "not checked" in outcome.out.splitlines()[-1]
    assert "RecursionError" in outcome.out


@pytest.mark.parametrize(
    "arguments",
    [(), ("chekc",), ("check",), ("check", "--bogus"), ("check", "json", "--bogus"), (JSON,)],
)
def test_exit_code_2(arguments: tuple[str, ...], leafwise: Callable[..., Outcome]) -> None:
    """A wrong command line: 2, with the usage on standard error only."""
    outcome = leafwise(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert "usage: leafwise" in outcome.err


LIGHT = """
import sys
import leafwise_cli
try:
    leafwise_cli.main({argv})
finally:
    heavy = {{"jax", "jaxlib", "numpy", "hypothesis", "rich", "leafwise.errors"}}
    print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--help"], "usage: leafwise [-h] [--version]"),
        (["--version"], lw.__version__),
        (["check", "--help"], "usage: leafwise check [-h] [--fields] [--laws]"),
        (["explain", "--help"], "usage: leafwise explain [options] (SCRIPT | NOTEBOOK | -m"),
    ],
)
def test_help_imports_nothing_heavy(argv: list[str], words: str) -> None:
    """Help and version load neither JAX nor the parts of leafwise: they answer at once."""
    done = run("-c", LIGHT.format(argv=argv))
    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert done.stdout.startswith(words)


def test_json_is_the_record(write: Write, check: Check) -> None:
    """Each value of the record has its name; what can only be computed is added."""
    file = write(GOOD + NOT_BUILT)
    document = check(file, JSON).document
    assert {"python", "jax", "notes"} < set(document)
    assert (document["version"], document["exit_code"]) == (4, 3)
    good, bad = document["classes"]
    assert (good["library"], good["fields"]) == ("leafwise", ["x", "n"])
    assert (good["file"], good["line"]) == (file, 6)
    assert (good["name"], good["instance"]) == (f"{file}:Good", "Good(x=f32[3], n=2)")
    assert (good["error"], good["passed"]) == ("", True)
    assert (bad["rows"], bad["passed"]) == ([], False)
    assert "NotBuilt.part" in bad["error"]
    last: dict[str, Any] = good["rows"][-1]
    assert (last["field"], last["kind"], last["verdict"]) == ("n", "type", "ok")


@pytest.mark.parametrize("verbose", ["print('loading')\n", ""])
def test_json_alone_on_standard_output(verbose: str, write: Write, check: Check) -> None:
    """What a module or a constructor prints does not spoil the JSON."""
    source = verbose + GOOD + "\n    def __post_init__(self) -> None:\n        print('building')\n"
    outcome = check(write(source), JSON)
    assert outcome.document["exit_code"] == 0
    assert "building" in outcome.err


@pytest.mark.slow
@pytest.mark.parametrize("names", [["rich"], ["hypothesis"], ["hypothesis", "rich"]])
def test_without_the_extra(names: list[str], write: Write) -> None:
    """Without rich or Hypothesis the message names the extra; there is no traceback."""
    file = write(GOOD)
    done = run("-c", WITHOUT.format(names=names, argv=["check", file]))
    assert (done.returncode, done.stdout) == (2, "")
    assert "leafwise[cli]" in done.stderr
    for name in ("hypothesis", "rich"):
        assert (name in done.stderr) is (name in names)
    assert "Traceback" not in done.stderr


@pytest.mark.nightly
def test_as_a_module(write: Write, tmp_path: Path) -> None:
    """``python -m leafwise`` is the command; away from a terminal it is plain and quiet.

    And it leaves nothing behind in the working directory.
    """
    file = write(
        "@lw.pytree\nclass P:\n    x: jax.Array\n    n: lw.Static[str]\n    m: lw.Static[bytes]\n"
    )
    before = {path.name for path in tmp_path.iterdir()}
    done = run("-m", "leafwise", "check", "--fields", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "all as promised" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == before


# Everything here once came out in another way in another process.
RESTLESS = """
import hypothesis.strategies as st
from collections.abc import Callable

class Unit:
    def __init__(self, name: str) -> None:
        self.name = name

st.register_type_strategy(Unit, st.sampled_from([Unit("m"), Unit("km")]))

@lw.pytree
class Length:
    value: jax.Array
    unit: lw.Static[Unit]
    names: lw.Static[frozenset[str]]
    act: lw.Static[Callable]
    kind: lw.Static[type] = Unit
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_the_same_in_every_process(write: Write) -> None:
    """Two processes with different hash seeds print the same, addresses and all."""
    command = ("-m", "leafwise", "check", "--fields", write(RESTLESS), JSON)
    first, second = (run(*command, PYTHONHASHSEED=seed) for seed in ("1", "2"))
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == second.stdout
    assert "0x" not in first.stdout


@pytest.mark.parametrize("option", ["--quiet", JSON, "-v"])
def test_output_that_cannot_be_written(
    option: str, write: Write, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk ends with one line and 2."""
    target = f"{write(GOOD + NOT_BUILT)}:NotBuilt"
    if not Path("/dev/full").exists():
        return
    with monkeypatch.context() as patch, Path("/dev/full").open("w", encoding="utf-8") as full:
        patch.setattr(sys, "stdout", full)
        outcome = check(target, option)
    told = "leafwise check: output: No space left on device\n"
    assert (outcome.code, outcome.err) == (2, told)


def test_warnings_of_drawn_values(write: Write, check: Check) -> None:
    """A module's own warnings are shown; those for each value that is drawn are not."""
    source = """
import warnings
warnings.warn("of the module")

@lw.pytree
class Loud:
    n: lw.Static[int]
    def __post_init__(self):
        warnings.warn("of a value")
"""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert check(write(source)).code == 0
    assert {str(each.message) for each in caught} == {"of the module"}


@pytest.mark.slow
def test_quiet_shows_what_is_wrong_alone(write: Write, check: Check) -> None:
    """With `--quiet` nothing is printed if all is well; else what is wrong."""
    good = check(write(GOOD), "--quiet")
    assert (good.code, good.out) == (0, "")
    bad = check(write(GOOD + NOT_BUILT), "-q")
    assert bad.code == 3
    assert "Good" not in bad.out
    assert "NotBuilt" in bad.out


def test_where_an_import_fails(write: Write, check: Check) -> None:
    """The last line of the user's own code ends the message, in the file itself or behind it."""
    deep = write("def load():\n    raise RuntimeError('no display')\n", "behind_import.py")
    for source, line, place in (
        ("x = 1\nimport nonexist\n", 6, ""),
        ("import behind_import\nbehind_import.load()\n", 6, deep),
        ("import os\nos.makedirs('')\n", 6, ""),  # in `<frozen os>`
        ("jnp.zeros(2) + jnp.zeros(3)\n", 5, ""),
    ):
        file = write(source)
        outcome = check(file)
        assert outcome.code == 2
        assert outcome.err.rstrip().endswith(f", at {place or file}:{line}")
