"""`leafwise explain --try` runs a script again with each fix, keeps what helps, and counts it."""

import argparse
import contextlib
import difflib
import importlib.util
import io
import json
import linecache
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from rich.console import Console
from tests.kit.inside import Script, print_report, seconds_of, trial, uncommitted
from tests.kit.processes import Done, Runner

pytestmark = pytest.mark.slow  # a process of its own for each run of a script

SCRIPT = """\
import sys
import jax
import jax.numpy as jnp
step = jax.jit(lambda x, f: f(x) + 1, static_argnames="f")
x = jnp.ones(3)
for _ in range(3):
    x = step(x, f=lambda x: x * 2)
print(sys.argv, __name__, __file__, float(x[0]))
"""
FIXED = SCRIPT.replace("for _", "f = lambda x: x * 2\nfor _").replace("f=lambda x: x * 2", "f=f")


def git(run: Runner, *arguments: str, patch: bytes = b"") -> None:
    subprocess.run(["git", *arguments], cwd=run.folder, check=True, input=patch)  # noqa: S607


def repository(run: Runner, *names: str) -> None:
    """Make a commit of files."""
    for command in ("init -q", f"add {' '.join(names)}", "commit -qm first"):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        git(run, *who, *command.split(" "))


def tried(run: Runner, *arguments: str) -> tuple[Done, Any]:
    done, report = run.report("--try", *arguments)
    return done, [each.get("tried") for each in report["findings"]]


def test_a_fix_that_helps(run: Runner) -> None:
    """It is printed with what it saves, and is in the patch; the files are as they were."""
    script = run.write(SCRIPT)
    repository(run, script)
    done, report = run.report("--diff", "--fail-on", "retrace", script, "one")
    assert done.returncode == 1  # the script as it is has a finding
    assert "['script.py', 'one'] __main__" in done.stderr  # standard output is for the patch
    assert "--try runs script.py one again, 1 time" in done.stderr
    lines = done.stderr.splitlines()
    place = next(n for n, line in enumerate(lines) if line.startswith("  fix, tried: "))
    assert lines[place].startswith("  fix, tried: 2 repeats in all -> 0, ")
    assert lines[place].endswith(", output the same")
    assert lines[place + 1 : place + 5] == [
        "    + f = lambda x: x * 2",
        "      for _ in range(3):",
        "    -     x = step(x, f=lambda x: x * 2)",
        "    +     x = step(x, f=f)",
    ]
    assert "1 of 1 finding has a fix that was tried; together: 2 repeats -> 0, " in done.stderr
    (finding,) = report["findings"]
    record = finding["tried"]
    assert (record["verdict"], record["before"], record["after"]) == ("confirmed", 2, 0)
    together = {"findings": 1, "before": 2, "after": 0, "seconds": record["seconds"], "left": []}
    assert report["together"] == together | {"verdict": "confirmed"}
    assert (run.folder / script).read_text() == SCRIPT
    names = sorted(each.name for each in run.folder.iterdir())
    assert names == [".git", "report.html", "report.json", script]
    git(run, "apply", patch=done.stdout.encode())
    assert (run.folder / script).read_text() == FIXED


@pytest.mark.nightly  # it is three runs of a script
def test_an_edit_that_takes_long(run: Runner) -> None:
    """A fix that has not helped within some time is not printed as one."""
    wait = "    if 'f' in vars(): __import__('time').sleep(99)\nprint(sys"
    done, (record,) = tried(run, run.write(SCRIPT.replace("print(sys", wait)))
    assert record["verdict"] == "took too long"
    assert "  tried: took too long\n" in done.stderr
    assert "fix" not in done.stderr


@pytest.mark.nightly
def test_several(run: Runner) -> None:
    """Confirmed fixes of the script and of a module, which stay compiled on disk, go together."""
    lines = SCRIPT.splitlines()
    function = ["def again(step, x):", *(f"    {each}" for each in lines[5:7])]
    call = ["from package.other import again", "again(step, x)", ""]
    run.write("", "package/__init__.py")
    module = run.write("\n".join(function), "package/other.py")
    run.write("\n".join([*lines, *call]), "package/__main__.py")
    assert run.run("-m", "package").returncode == 0  # compiles the module
    compiled = {each: each.read_bytes() for each in run.folder.rglob("*.pyc")}
    repository(run, "package")
    done, records = tried(run, "--write", "-m", "package")
    assert done.returncode == 0, done.stderr
    assert [each["verdict"] for each in records] == ["confirmed"] * 2
    assert "3 times" in done.stderr
    assert "2 of 2 findings have a fix that was tried; together: " in done.stderr
    assert {each: each.read_bytes() for each in run.folder.rglob("*.pyc")} == compiled
    assert "\n    f = lambda x: x * 2\n    for _" in (run.folder / module).read_text()
    assert "__main__" in done.stdout
    _, report = run.report("-m", "package")
    assert report["findings"] == []


@pytest.mark.nightly
@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1"])
def test_encoding_and_line_ends(run: Runner, encoding: str) -> None:
    """They stay, and the patch applies."""
    text = f"# coding: {encoding.removesuffix('-sig')}\n'ä'\n{SCRIPT}# the end"
    fixed = text.replace(SCRIPT, FIXED).replace("\n", "\r\n").encode(encoding)
    file = run.folder / "script.py"
    file.write_bytes(text.replace("\n", "\r\n").encode(encoding))
    repository(run, file.name)
    command = [sys.executable, "-m", "leafwise", "explain", "-q", "--diff", file.name]
    patch = subprocess.run(command, cwd=run.folder, check=True, capture_output=True).stdout
    git(run, "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn", patch=patch)
    assert file.read_bytes() == fixed


# The text of the script, what git knows of it, the options, why it is refused.
REFUSED = {
    "reads input": ("input()", False, ["--try"], "script.py reads standard input"),
    "no repository": (SCRIPT, False, ["--write"], "script.py has uncommitted changes"),
    "changed": (SCRIPT, True, ["--write"], "script.py has uncommitted changes"),
}


@pytest.mark.parametrize(
    "name", ["changed", *(pytest.param(each, marks=pytest.mark.nightly) for each in [*REFUSED][:2])]
)
def test_what_is_refused_first(run: Runner, name: str) -> None:
    """A script that reads standard input, and `--write` of what git could not bring back."""
    text, is_known, options, words = REFUSED[name]
    script = run.write(text)
    if is_known:
        repository(run, script)
        run.write(f"print()\n{text}")
    done = run.explain(*options, script)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""


@pytest.mark.nightly
def test_what_the_script_saves_is_kept(run: Runner) -> None:
    """A file that changed during the runs is not written, and the command says so."""
    script = run.write(f"{SCRIPT}open(__file__, 'a').write('# mine\\n')\n")
    text = (run.folder / script).read_text()
    done, (record,) = tried(run, "--write", "--force", script)
    assert record["verdict"] == "confirmed"
    assert done.returncode == 2
    words = "script.py: changed while the runs went on: run it again"
    assert f"leafwise explain: nothing was written: {words}\n" in done.stderr
    assert (run.folder / script).read_text() == text + "# mine\n" * 3


# How git is told to show no changes of a file.
HIDDEN = {
    ":(top)t.py": "status",
    "link.py": "status",
    "flag.py": "update-index --assume-unchanged flag.py",
    "new.py": "config status.showUntrackedFiles no",
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_git_could_not_restore(run: Runner, name: str) -> None:
    """A file is committed if the last commit has it as it is, whatever its name, link or flag."""
    (run.folder / "link.py").symlink_to("linked.py")
    for file in ("linked.py", ":(top)t.py", "flag.py"):
        run.write("1", file)
    repository(run, ".")
    path = run.folder / name
    assert uncommitted([str(path)]) == "" or name == "new.py"
    git(run, *HIDDEN[name].split())
    path.write_text("2")
    assert "has uncommitted changes" in uncommitted([str(path)])


@pytest.mark.nightly
def test_a_notebook(run: Runner) -> None:
    """The patch changes lines of its cell's source, and no other character of the file."""
    imports, step, rest = SCRIPT.replace("__file__", "'ä'").partition("step = ")
    setup, loop = (step + rest).split("for _")
    magic = "%precision 3" if importlib.util.find_spec("IPython") else "# 3"
    sources = [imports, "\n", setup, f"{magic}\nfor _{loop}"]
    texts = [{"cell_type": "markdown", "metadata": {}, "source": [loop]}]
    cells = [{"cell_type": "code", "source": each.splitlines(keepends=True)} for each in sources]
    document = {"metadata": {}, "cells": [*texts, *cells], "nbformat": 4}
    file = run.folder / "train.ipynb"
    file.write_text(json.dumps(document, indent=1, ensure_ascii=False), encoding="utf-8")
    repository(run, file.name)
    before = file.read_text(encoding="utf-8").splitlines()
    done, (record,) = tried(run, "--diff", file.name)
    assert record["verdict"] == "confirmed", done.stderr
    assert "Cell In[3]:3  x = step(x, f=lambda x: x * 2)" in done.stderr
    assert "    +     x = step(x, f=f)\n" in done.stderr
    git(run, "apply", patch=done.stdout.encode())
    changed = difflib.ndiff(before, file.read_text(encoding="utf-8").splitlines())
    assert [each for each in changed if each[0] in "+-"] == [
        r'+     "f = lambda x: x * 2\n",',
        r'-     "    x = step(x, f=lambda x: x * 2)\n",',
        r'+     "    x = step(x, f=f)\n",',
    ]


FIELD = """\
import jax
from models import Params, scaled
step = jax.jit(lambda x, params: x * params.rate)
for n in range(3):
    print(step(1.0, Params(n / 2)))
print(scaled(1.0))
"""
PARAMS = """\
import jax
import leafwise as lw
@lw.pytree
class Params:
    rate: float = lw.static_field()
def scaled(x):
    for _ in range(3):
        x = jax.jit(lambda x: x * 2)(x)
    return x
"""


@pytest.mark.nightly
def test_a_field_of_another_module(run: Runner) -> None:
    """It is made dynamic there, which is confirmed, unless its value is needed."""
    script, models = run.write(FIELD), run.write(PARAMS, "models.py")
    repository(run, script, models)
    done, records = tried(run, "--write", script)
    assert [each["verdict"] for each in records] == ["confirmed"] * 2, done.stderr
    text = PARAMS.replace(" = lw.static_field()", "").replace(
        "x = jax.jit(lambda x: x * 2)", "x = jitted"
    )
    before = "    jitted = jax.jit(lambda x: x * 2)\n    for"
    assert (run.folder / models).read_text() == text.replace("    for", before)
    run.write(PARAMS, models)
    run.write(FIELD.replace("* params", "if params").replace("rate)", "rate else 1)"))
    done, records = tried(run, "--force", script)
    assert "changed the exit code" in [each["verdict"] for each in records], done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals(run: Runner, number: signal.Signals) -> None:
    """The report has what is known by then; what ends the command leaves all files as they are."""
    # The first run sleeps, too: else a slow trial would be ended before it is interrupted.
    wait = "if 'f' in vars(): open('reached', 'w')\ntime.sleep(99 if 'f' in vars() else 3)\n"
    script = run.write(f"import time\n{SCRIPT}{wait}")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job may ignore it
    options = "--try", "--write", "--force"
    (run.folder / "temporary").mkdir()
    more: Any = {"env": {**os.environ, "TMPDIR": "temporary"}, "start_new_session": True}
    process = run.popen("-m", "leafwise", "explain", *options, script, **more)
    signal.signal(signal.SIGINT, before)
    for _ in range(1200):
        time.sleep(0.05)
        if (run.folder / "reached").exists():
            break
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "  fix: " in err
    assert "Traceback" not in err
    assert "__main__" in out
    assert (run.folder / script).read_text() == f"import time\n{SCRIPT}{wait}"
    assert list((run.folder / "temporary").iterdir()) == []


Tried: TypeAlias = Callable[..., tuple[Any, str]]


@pytest.fixture
def counted(reported: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tried:
    """Try the fixes of a script; return the report, and its text."""

    def run(script: Script, options: dict[str, Any], **streams: Any) -> tuple[Any, int]:
        file = Path(script.name)
        text = options.get("changed", {}).get(str(file), file.read_text())
        lines = text.splitlines(keepends=True)
        monkeypatch.setitem(linecache.cache, str(file), (len(text), None, lines, str(file)))
        printed, errors = io.StringIO(), list[Exception]()

        def program() -> None:
            try:
                exec(compile(text, str(file), "exec"), {"__name__": "__main__"})  # noqa: S102
            except Exception as error:  # noqa: BLE001  # of an edit
                errors.append(error)

        with contextlib.redirect_stdout(printed):
            report = reported(program, audit=options.get("audit", False))
        streams["stdout"].write(printed.getvalue().encode())
        report.seconds, report.exit = 1.0, len(errors)
        report.ended = next(map(repr, errors), "")
        return report, report.exit

    monkeypatch.setattr(trial, "run", run)

    def try_fixes(text: str, **options: Any) -> tuple[Any, str]:
        file = tmp_path / f"script_{len(text)}.py"
        file.write_text(text)
        wanted = {"max_tries": 5, "diff": False, "write": False, "force": True}
        namespace = argparse.Namespace(**(wanted | options))
        report, _ = trial.run_and_try(Script(str(file), [], is_module=False), {}, namespace)
        shown = io.StringIO()
        print_report(report, Console(file=shown, width=400))
        return report, shown.getvalue()

    return try_fixes


SOLVER = """\
import equinox as eqx, jax.numpy as jnp
@eqx.filter_jit
def solve(t, y): return jnp.sin(y) + t
t, y = 0.0, jnp.array(1.0)
for _ in range(3):
    y = solve(t, y) * jnp.ones(())
    t = round(t + 0.5, 1)
"""


def test_the_whole_program_is_counted(counted: Tried) -> None:
    """An edit is tried once, and the cause that it leaves has a finding with its own fix."""
    pytest.importorskip("equinox")
    report, text = counted(SOLVER)
    first, second = report.findings
    assert (first.tried.before, first.tried.after, second.tried) == (2, 1, None)
    assert text.count("fix, tried: 2 repeats in all -> 1, ") == text.count("    - ") == 1
    assert "1 of 2 findings has a fix that was tried; together: 2 repeats -> 1, " in text
    assert [reason.path for reason, _ in second.reasons()] == ["y"]
    assert "fix: use the same type in every call" in text.partition("and t (static): fix that")[2]
    assert "not tried: 1 finding" in text


TWO_CAUSES = """\
import equinox as eqx, jax.numpy as jnp
@eqx.filter_jit
def solve(t, y, f): return f(y) + t
t, y = 0.0, jnp.ones(3)
for t in (0.0, 0.5):
    for _ in range(2):
        y = solve(t, y, lambda z: 2 * z)
"""


def test_a_fix_that_needs_another(counted: Tried) -> None:
    """It is tried with the other one, and shown alone; one without an edit is not tried."""
    pytest.importorskip("equinox")
    report, text = counted(TWO_CAUSES)
    assert [finding.tried.after for finding in report.findings] == [1, 0]
    assert text.count("    + f = lambda z: 2 * z") == 1
    assert "    +         y = solve(jnp.asarray(t), y, f)" in text
    assert text.count("and f (static): fix that first") == 1
    spent = seconds_of(report.findings)
    assert all(finding.tried.saved <= spent for finding in report.findings)


def test_a_line_of_an_edited_file(run: Runner) -> None:
    """A report on a run with an edit has the lines and their text from the edited file."""
    file = run.folder / run.write(SCRIPT)
    changed = {os.path.realpath(file): f"# one line more\n{SCRIPT}"}
    target = Script(str(file), [], is_module=False)
    report, _ = trial.run(target, {"changed": changed}, stdout=subprocess.DEVNULL)
    (finding,) = report.findings
    assert (finding.site.line, finding.text) == (8, SCRIPT.splitlines()[6].strip())


STALE = """\
import functools, jax, jax.numpy as jnp
{tables}
@functools.partial(jax.jit, static_argnames="loss")
def step(w, loss): return loss(w)
halved = jax.jit(lambda w, rule: rule(w), static_argnames="rule")
w = jnp.ones(3)
for epoch in range(4):
    w = step(w, loss=lambda w: w + {rate})
    w = halved(w, rule=lambda w: w / 2)
    {grow}
open("answer", "w").write(str(w.sum()))
{printed}
"""
TABLES = """\
table = {"rate": 1.0}
def bump(): table["rate"] *= 2
def add(table, w): return w + table["rate"]
class Config:
    rate = 1.0
    def grow(self):
        self.rate *= 2
        return self.rate
"""
FINITE = "print('finite', bool(jnp.isfinite(w).all()))"
CHANGES = {
    "a call of a function": (TABLES, 'table["rate"]', "bump()", FINITE),
    "a call whose value is used": (f"{TABLES}cfg = Config()", "cfg.rate", "r = cfg.grow()", ""),
    "a function elsewhere": ("import tables", 'tables.table["rate"]', "tables.bump()", FINITE),
    "what it calls": ("rates = iter((2.0, 3.0, 4.0, 5.0))", "next(rates)", "pass", FINITE),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", CHANGES)
def test_no_answer_becomes_stale(run: Runner, name: str) -> None:
    """What reads a value that changes stays in the loop; the rest moves, if output is compared."""
    tables, rate, grow, printed = CHANGES[name]
    run.write(TABLES, "tables.py")
    text = STALE.format(tables=tables, rate=rate, grow=grow, printed=printed)
    script = run.write(text)
    assert run.run(script).returncode == 0
    answer = (run.folder / "answer").read_text()
    done, report = run.report("--try", "--write", "--force", script)
    (found,) = (each for each in report["findings"] if "step" in each["functions"])
    (other,) = (each for each in report["findings"] if each is not found)
    assert "tried" not in found
    if printed:
        assert other["tried"]["verdict"] == "confirmed"
        text = text.replace("rule=lambda w: w / 2", "rule=rule")
        text = text.replace("for epoch", "rule = lambda w: w / 2\nfor epoch")
    else:
        assert other["tried"]["verdict"] == "confirmed by counts alone"
        assert ", no output to compare" in done.stderr
        assert "no output was compared, so `--write` leaves it to you" in done.stderr
    assert report["together"].get("written", False) == bool(printed)
    assert (run.folder / script).read_text() == text
    assert run.run(script).returncode == 0
    assert (run.folder / "answer").read_text() == answer


ALIAS = """\
import jax, jax.numpy as jnp
step = jax.jit(lambda x, f: f(x), static_argnames="f")
cfg = {"rate": 1.0}
settings, x = [cfg], jnp.ones(3)
for _ in range(3):
    step(x, f=lambda x: x * cfg["rate"])
    for each in settings: each["rate"] += 1
print()
"""


def test_an_old_answer_refutes_an_edit(counted: Tried) -> None:
    """Where no two programs can be compared, calls are; the old value is named."""
    _, text = counted(ALIAS)
    wrong = "<lambda> answered for `cfg['rate']=1.0`, which is 2.0 now"
    assert f"  tried: made an answer stale: {wrong}\n" in text


FROZEN = """\
import functools, random, jax, jax.numpy as jnp; rng = random.Random()
@functools.partial(jax.jit, static_argnames="k")
def step(x, k): return x + k + rng.random()
@functools.partial(jax.jit, static_argnames="k")
def scale(x, k): return x * k
x = jnp.ones(3)
for k in range(4): x = scale(step(x, k), k)
print("finite", bool(jnp.isfinite(x).all()))
"""


@pytest.mark.nightly
def test_what_a_trace_draws_is_not_frozen(run: Runner) -> None:
    """A program that would answer for other random numbers is kept apart; its neighbour is not."""
    script = run.write(FROZEN)
    done, records = tried(run, "--write", "--force", script)
    assert {each["verdict"] for each in records} == {"made an answer stale", "confirmed"}
    assert "tried: made an answer stale: step answered for `" in done.stderr
    old, new = FROZEN.splitlines(), (run.folder / script).read_text().splitlines()
    assert new == [*old[:3], "@functools.partial(jax.jit)", *old[4:]]


SERVED = """\
import os, runpy, sys
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "models"))
import jax, jax.numpy as jnp
{}
for k in range(5): apply(jnp.ones(3), k=k)
print()
"""
APPLY = """\
import functools, jax
@functools.partial(jax.jit, static_argnames="k")
def apply(w, k): return w * k if k > 2 else w
"""


@pytest.mark.nightly
def test_an_edit_is_judged_where_it_ran(run: Runner) -> None:
    """Whatever way leads to the module; a run of the old text proves nothing."""
    run.write(APPLY, "models/apply.py")
    _, (record,) = tried(run, run.write(SERVED.format("from apply import apply"), "app/main.py"))
    assert record["verdict"] == "changed the exit code"
    run.write(MOVED, "main.py")
    done, records = tried(run, run.write("import runpy\nrunpy.run_path('main.py')", "run.py"))
    assert all("main.py ran without the edit" in each["verdict"] for each in records), done.stderr


MOVED = """\
import jax, jax.numpy as jnp
step = jax.jit(lambda x, f: f(x), static_argnames="f")
for n in range(9):
    y = step(jnp.ones(1 + n // 3), f=lambda x: x * 2)
print(y)
"""


EARLIER = """\
import jax, jax.numpy as jnp
@jax.jit
def draw(sigma): return jnp.arange(3.0) * sigma
for s in (1.0, 1.5): print(draw(s).sum())
{}
"""


@pytest.mark.parametrize(
    ("last", "edit"),
    [
        ("print(draw(jnp.float32(1.0)).sum())", "draw(jnp.float32(s))"),
        ("for s in (2, 3): print(draw(s).sum())", "draw(float(s))"),
    ],
)
def test_the_call_that_the_fix_names_is_edited(counted: Tried, last: str, edit: str) -> None:
    """Be it the earlier one, on another line, or this one."""
    report, text = counted(EARLIER.format(last), write=True)
    (finding,) = report.findings
    assert finding.tried.verdict == "confirmed"
    assert "fix, tried: 1 repeat in all -> 0, " in text
    (added,) = [line for line in finding.tried.edit if line[0] == "+"]
    assert edit in added
    assert "`--write` has applied the patch." in text
    assert "`--diff` prints" not in text


# How the program goes on, with the edit and without it; the verdict.
ENDS = {
    "round": ("print('[2.0000002 3.5]' if {edited} else '[2.  3.5]')", "confirmed up to rounding"),
    "another number": ("print(2.1 if {edited} else 2.2)", "changed the output"),
    "another small number": ("print(4.1e-19 if {edited} else 9.1e-19)", "changed the output"),
    "another error": ("print(); raise (KeyError if {edited} else ValueError)", "changed the error"),
    "nothing left to do": ("print()\nos.makedirs('done', exist_ok=True)", "did not help"),
    "the rest": ("if not {edited}: jax.jit(lambda x: time.sleep(0.2))(1)\nprint()", "confirmed"),
}


@pytest.mark.parametrize("name", ENDS)
def test_how_it_goes_on(counted: Tried, name: str) -> None:
    """Rounding is not a change, all else is; no edit is credited with what another run left."""
    end, verdict = ENDS[name]
    report, text = counted(
        "import os, time, jax, jax.numpy as jnp\n"
        "step = jax.jit(lambda x, f: f(x), static_argnums=1)\n"
        "for _ in range(0 if os.path.exists('done') else 3):\n"
        "    step(jnp.ones(3), lambda x: x * 2)\n" + end.format(edited="'f' in vars()")
    )
    (finding,) = report.findings
    assert finding.tried.verdict == verdict
    assert ("fix" in text) is ("confirmed" in verdict)
    assert finding.tried.saved <= finding.seconds


UNTRIED = """\
import jax, jax.numpy as jnp
step = jax.jit(lambda x: x * 2)
for n in (2, 3):
    step(jnp.ones(n))
"""


def test_what_is_not_tried_is_said(counted: Tried) -> None:
    """Where no edit is known, and where there are more than are to be tried."""
    _, text = counted(UNTRIED)
    assert "not tried: 1 finding, without a known edit" in text
    twice = EARLIER.format("print(draw(jnp.float32(1.0)).sum())") * 2
    report, _ = counted(twice, max_tries=1)
    assert report.untried == 1


@pytest.mark.parametrize(("body", "words"), [("x * n", "fix, tried: "), ("x[:n]", "fix: pass the")])
def test_a_static_argument_is_made_dynamic(counted: Tried, body: str, words: str) -> None:
    """It is kept if the program goes on as before; a size stays static, and is not tried."""
    _, text = counted(
        "import jax, jax.numpy as jnp\n"
        f"step = jax.jit(lambda x, n: {body}, static_argnames='n')\n"
        "for n in (1, 2, 3):\n    print(step(jnp.ones(3), n))\n"
    )
    assert f"\n  {words}" in text
    assert ("not tried: 1 finding" in text) is (body == "x[:n]")


CALL = """\
{imports}
import jax.numpy as jnp
xs = jnp.ones(3)
for {rate} in (1.0, 2.0, 3.0):
    out = {scan}(
        lambda c, x: (c + {rate} * x, x),  # a step
        jnp.float32(0), xs
    )
    print(out)
"""


@pytest.mark.parametrize(
    ("imports", "scan", "jit"),
    [
        ("from jax.lax import scan", "scan", "import jax; jitted_scan = jax.jit(lambda xs, "),
        ("from jax import jit, lax", "lax.scan", "jitted_scan = jit(lambda xs, "),
        ("import jax as j", "j.lax.scan", "jitted_scan = j.jit(lambda xs, "),
    ],
)
def test_the_code_of_a_fix(counted: Tried, imports: str, scan: str, jit: str) -> None:
    """It is printed and tried under any import of JAX, of a call over lines, at any length."""
    report, text = counted(CALL.format(imports=imports, scan=scan, rate="rate" * 99))
    (finding,) = report.findings
    assert finding.tried.verdict.startswith("confirmed"), finding.tried
    assert finding.tried.edit[0].startswith(f"+ {jit}")
    assert finding.tried.edit[0] in text
    (fix,) = finding.fixes()
    assert str(fix).startswith(f"`{jit}")
