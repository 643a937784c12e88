"""The command line and `pyproject.toml`: exit codes, JSON, help, processes, and what is printed."""

import dataclasses
import io
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.kit.inside import (
    CheckPrinter,
    CheckRun,
    CheckVerdict,
    ClassResult,
    FieldChange,
    LawResult,
)
from tests.kit.processes import Runner

import leafwise as lw

from .conftest import BROKEN, GOOD, JSON, NOT_BUILT, Check, Outcome, Write

# Without some packages.
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys({names}))
from leafwise_cli import main
sys.exit(main({argv}))
"""


def test_exit_code_0(write: Write, check: Check) -> None:
    """All as promised: 0, and the last line says so, in a file with -o, or nothing with -q."""
    outcome = check(file := write(GOOD))
    assert outcome.code == 0
    assert outcome.out.rstrip().splitlines()[-1] == "1 class, 6 changes: all as promised"
    assert not outcome.err
    assert check(file, "--quiet") == Outcome(0, "", "")
    assert check(file, "-o", "report") == Outcome(0, "", "")
    assert Path("report").read_text(encoding="utf-8") == outcome.out
    assert check(file, "-o", "no/report").code == 2


def test_exit_code_3(write: Write, check: Check) -> None:
    """A class that cannot be built: 3 in all formats, and the others are still checked."""
    file = write(NOT_BUILT + GOOD)
    outcome = check(file)
    assert outcome.code == 3
    for options, code in (([], 3), (["--allow-unchecked"], 0)):
        as_json = check(file, *options, JSON)
        assert as_json.code == as_json.document["exit_code"] == code
    quiet = check(file, "-q").out
    assert "Good" not in quiet
    assert "NotBuilt" in quiet
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("chekc", "json"), "no command 'chekc' (did you mean 'check'?)"),
        (("check", "json", "--feild", "w"), "arguments: --feild w (did you mean '--field' or "),
        (("explain", "--captrues", "x.py"), "--captrues (did you mean '--captures'"),
        (
            ("compare", "a", "b", "--xyz"),
            "leafwise compare: error: unrecognized arguments: --xyz\n",
        ),
    ],
)
def test_the_nearest_name(
    arguments: tuple[str, ...], words: str, leafwise: Callable[..., Outcome]
) -> None:
    """A wrong command or option leads to the right one, with the usage of its command."""
    outcome = leafwise(*arguments)
    assert outcome.code == 2
    assert words in outcome.err


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
def test_help_imports_nothing_heavy(run: Runner, argv: list[str], words: str) -> None:
    """Help and version load neither JAX nor the parts of leafwise: they answer at once."""
    done = run.run("-c", LIGHT.format(argv=argv))
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


LOUD = """
import atexit, ctypes, os, sys
atexit.register(print, "the end")
os.chdir("/")
os.system("echo a command")
os.write(1, b"a module")
def write_all():
    ctypes.CDLL(None).puts(b"C code")
    print("Python", file=sys.__stdout__)
"""


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="`puts` is in a library of another name there")
def test_the_report_alone_is_written_to_descriptor_1(run: Runner, write: Write) -> None:
    """What commands, C code and children write there is on standard error; it may be closed."""
    file = write(LOUD + GOOD + "\n    def __post_init__(self) -> None:\n        write_all()\n")
    command = ["-m", "leafwise", "check", "--fields", file]
    done = run.run(*command, JSON)
    assert json.loads(done.stdout)["exit_code"] == done.returncode == 0
    assert all(word in done.stderr for word in ("a command", "a module", "C code", "Python", "end"))
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, *command, "-o", "report"]
    assert subprocess.run(closed, capture_output=True, check=True).stdout == b""
    assert Path("report").read_text(encoding="utf-8").startswith(file)


@pytest.mark.slow
@pytest.mark.parametrize("names", [["rich"], ["hypothesis"], ["hypothesis", "rich"]])
def test_without_the_extra(run: Runner, names: list[str], write: Write) -> None:
    """Without rich or Hypothesis the message names the extra; there is no traceback."""
    file = write(GOOD)
    done = run.run("-c", WITHOUT.format(names=names, argv=["check", file]))
    assert (done.returncode, done.stdout) == (2, "")
    assert "leafwise[cli]" in done.stderr
    for name in ("hypothesis", "rich"):
        assert (name in done.stderr) is (name in names)
    assert "Traceback" not in done.stderr


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
def test_the_same_in_every_process(run: Runner, write: Write) -> None:
    """Processes with different hash seeds print the same, plain, and leave nothing behind."""
    command = ("-m", "leafwise", "check", "--fields", "-v", write(RESTLESS))
    before = {path.name for path in run.folder.iterdir()}
    seeds = [{**os.environ, "PYTHONHASHSEED": seed} for seed in "12"]
    first, second = (run.run(*command, env=seed) for seed in seeds)
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == second.stdout
    assert "all as promised" in first.stdout
    assert not re.search("0x|\x1b", first.stdout)
    assert {path.name for path in run.folder.iterdir()} - {"__pycache__"} == before


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


ROWS = (
    FieldChange("width", True, "value", "2 -> 3", "retrace", 7, 8, CheckVerdict.OK),
    FieldChange(
        "x", False, "value", "other elements", "reuse", 1, 1, CheckVerdict.MISMATCH, "no [b]\\"
    ),
    FieldChange("y", False, "structure", ":heart: no leaf"),
)
LAWS = (
    LawResult("round-trip", CheckVerdict.OK),
    LawResult("copies", CheckVerdict.VIOLATION, "P.n", "P.n: [lost]\n  got: 2"),
    LawResult("treedef-equality", CheckVerdict.ERROR, "", "RuntimeError: deep"),
    LawResult("replace", CheckVerdict.ERROR, "", "RuntimeError: deep"),
)
WRONG = ClassResult("m.py:P", "P(s=':heart:')", ROWS, laws=LAWS, fields=("width", "x", "y"))
FAILED = ClassResult("m.py:Q", error="Q.part: no values\n  fix: lw.Static[int] :heart:")
LEFT_OUT = ClassResult("m.py:R", left_out="R.text: JAX cannot trace it")


def printed(*results: ClassResult, width: int = 120, verbose: bool = False) -> str:
    """Return some classes as the command prints them on a console of that width."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, emoji=False)
    printer = CheckPrinter(console, verbose=verbose)
    printer.start([result.name for result in results])
    for result in results:
        printer.add(result)
    printer.finish(CheckRun(results))
    return stream.getvalue()


def test_each_change() -> None:
    """One line a change: field, kind, changed, change, predicted, counts, verdict; no markup."""
    text = printed(WRONG, FAILED, verbose=True)
    lines = [line.split() for line in text.splitlines()]
    assert ["width", "static", "value", "2", "->", "3", "retrace", "7", "8", "ok"] in lines
    assert ["y", "dynamic", "structure", ":heart:", "no", "leaf", "skipped"] in lines, "no counts"
    assert "mismatch: no [b]\\" in text
    assert "P(s=':heart:')" in text
    assert "not checked Q.part: no values" in text


@pytest.mark.parametrize("width", [60, 80])
def test_narrow_tables_keep_everything(width: int) -> None:
    """No width loses a name, a count or a verdict; lines are as long as asked."""
    text = printed(dataclasses.replace(WRONG, laws=()), width=width, verbose=True)
    assert all(len(line) <= width for line in text.splitlines())
    for word in ("7", "8", "ok"):
        assert re.search(rf"\b{word}\b", text)
    assert "…" not in text


def test_summary_has_one_line_a_class() -> None:
    """Name, fields, changes, laws kept, result; below it what is wrong, and nothing else."""
    text = printed(WRONG, FAILED, LEFT_OUT)
    lines = [line.split() for line in text.splitlines()]
    assert ["m.py:P", "3", "2", "1/4", *["1", "change", "wrong,", "3", "laws", "broken"]] in lines
    assert ["m.py:Q", "-", "-", "-", "not", "checked"] in lines
    assert ["m.py:R", "-", "-", "-", "left", "out"] in lines
    assert not any(line[-1:] == ["ok"] for line in lines), "no row that is ok"
    assert "broken: law copies\n  P.n: [lost]\n    got: 2\n" in text
    assert "error: laws treedef-equality, replace\n  RuntimeError: deep\n" in text
    assert "1 change wrong, 3 laws broken, 1 class not checked, 1 class left out" in text


@pytest.mark.parametrize("verdict", list(CheckVerdict))
def test_which_verdicts_pass(verdict: CheckVerdict) -> None:
    """What is wrong fails the class; what is skipped, accepted or a warning does not."""
    row = dataclasses.replace(ROWS[0], verdict=verdict)
    expected = verdict in (CheckVerdict.OK, CheckVerdict.SKIPPED, CheckVerdict.WARNING)
    assert ClassResult("m:P", "P()", (row,)).passed is expected


def test_of_many_classes_what_is_not_right() -> None:
    """Of more than 20 classes, those that are right are counted alone."""
    good = [ClassResult(f"m.py:P{n}", "P()", ROWS[:1], fields=("width",)) for n in range(21)]
    for results, rows in ((good[2:], 19), (good, 0)):
        text = printed(*results, FAILED)
        assert len(re.findall(r"^m.py:P\d+ ", text, re.MULTILINE)) == rows, text
        assert "m.py:Q" in text
        assert f"{len(results) + 1} classes" in text


def test_the_fault_of_a_base_is_shown_once(write: Write, check_all: Check) -> None:
    """Classes that have the `tree_flatten` of one base share its fault; their own stands apart."""
    file = write("""
class Base:
    def __init__(self, x: float, n: int = 2): self.x, self.n = x, n
    def tree_flatten(self): return (self.x,), None
    @classmethod
    def tree_unflatten(cls, _, children): return cls(*children)

@jax.tree_util.register_pytree_node_class
class One(Base): ...

@jax.tree_util.register_pytree_node_class
class Two(Base): ...

@jax.tree_util.register_pytree_node_class
class Own(Base):
    def tree_flatten(self): return (self.x,), None
""")
    out = check_all(file, "--law", "static-values").out
    assert out.count("broken: law static-values") == 3
    assert f"broken: law static-values  as shown for {file}:One: both have Base.tree_flatten" in out
    assert out.count("Base.tree_flatten") == 1
    assert out.count("breaks the law static-values") == 2


SWAPPED = """
@jax.tree_util.register_pytree_node_class
class Swapped:
    def __init__(self, a: float, b: float):
        self.a, self.b = a, b
    def tree_flatten(self): return (self.a, self.b), None
    @classmethod
    def tree_unflatten(cls, _, children): return cls(children[1], children[0])
"""


def test_one_fault_is_shown_once(write: Write, check_all: Check) -> None:
    """Of a swapped pair the first law is shown in full, the others in one line."""
    laws = [word for law in ("any-leaf", "round-trip", "identity-map") for word in ("--law", law)]
    outcome = check_all(write(SWAPPED), *laws, "--examples", "5")
    assert outcome.code == 1
    assert "3 laws broken" in outcome.out
    assert outcome.out.count("got: ") == 1
    assert "broken: law round-trip\n  Swapped.a: breaks the law round-trip" in outcome.out
    assert "\n  also breaks: identity-map, any-leaf\n" in outcome.out
    alone = check_all(write(SWAPPED), "--law", "any-leaf", "--examples", "5").out
    assert "fix: convert nothing in flatten, and restore in unflatten" in alone


THREE_LAWS = ("--law", "no-hidden-state", "--law", "key-paths", "--law", "post-init")


def settings(lines: str, folder: str = ".") -> None:
    """Write the settings of a project."""
    head = "" if lines.startswith("[") else "[tool.leafwise]\n"
    Path(folder, "pyproject.toml").write_text(f"{head}{lines}\n", encoding="utf-8")


def laws_of(outcome: Outcome) -> list[str]:
    """Return the laws that were tried on the first class."""
    return [law["law"] for law in outcome.document["classes"][0]["laws"]]


def test_without_a_law(write: Write, check_all: Check) -> None:
    """Laws that are named are not tried, and no unknown one is taken for one."""
    file = write(BROKEN)
    outcome = check_all(file, *THREE_LAWS, "--without", "no-hidden-state", "--output-format=json")
    assert (outcome.code, laws_of(outcome)) == (0, ["key-paths", "post-init"])
    outcome = check_all(file, "--law", "copies", "--without", "copies")
    assert (outcome.code, outcome.out) == (2, "")
    assert "no law is left" in outcome.err
    outcome = check_all(file, "--without", "keypaths")
    assert outcome.code == 2
    assert "--without: there is no law 'keypaths' (did you mean 'key-paths'?)" in outcome.err


def test_settings_of_the_project(
    write: Write, check_all: Check, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They are found from below, stand for the options, and the command line adds to them."""
    file = write(GOOD)
    settings(f'targets = ["{file}"]\nwithout = ["key-paths"]\nexamples = 2')
    outcome = check_all(*THREE_LAWS, "--output-format=json")
    assert (outcome.code, laws_of(outcome)) == (0, ["post-init", "no-hidden-state"])
    (tmp_path / "sub" / "deeper").mkdir(parents=True)
    (tmp_path / "sub" / "pyproject.toml").write_text("[project]\nname = 'it'\n")
    monkeypatch.chdir(tmp_path / "sub" / "deeper")
    outcome = check_all(*THREE_LAWS, "--output-format=json", "--without", "post-init")
    assert (outcome.code, laws_of(outcome)) == (0, ["no-hidden-state"])
    other = write(GOOD.replace("Good", "Other"))
    outcome = check_all(str(tmp_path / other), *THREE_LAWS, "--output-format=json")
    assert outcome.names == ["Other"], "targets of the command line alone"


def test_strategies_of_the_project(write: Write, check: Check) -> None:
    """They stand in files of their own, which are imported first; what is missing may be."""
    file = write(NOT_BUILT)
    settings("allow-unchecked = true")
    assert check(file).code == 0
    settings(f'targets = ["{file}"]\nstrategies = ["tests/strategies.py"]')
    assert "tests/strategies.py: there is no such file" in check().err
    code = f"import hypothesis.strategies as st\nfrom {file[:-3]} import NotBuilt, Opaque\n"
    write(f"{code}st.register_type_strategy(Opaque, st.just(object))", "tests/strategies.py")
    assert check().code == 0


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            "strict = true",
            "unknown setting 'strict'; the settings are targets, strategies, without, examples,",
        ),
        ("examples = 0", "argument --examples: '0' is not a number, 1 or more"),
        ("examples = true", "examples takes a number, got True"),
        ("allow-unchecked = 'yes'", "allow-unchecked takes true or false, got 'yes'"),
        ("targets = 'model'", "targets takes a list of strings, got 'model'"),
        ("without = ['zzz']", "--without: there is no law 'zzz'"),
        ("examples =", "pyproject.toml"),
        (f"examples = {'[' * 9999}", "pyproject.toml: "),
        ("[tool]\nleafwise = 3", "pyproject.toml: tool.leafwise takes a table, got 3"),
    ],
)
def test_wrong_settings(lines: str, words: str, write: Write, check_all: Check) -> None:
    """A key or a value that means nothing is refused by its name, and nothing is run."""
    settings(lines)
    outcome = check_all(write("raise ValueError('was run')") if "zzz" not in lines else "json")
    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err
    assert "Traceback" not in outcome.err
