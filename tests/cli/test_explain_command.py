"""`leafwise explain` runs a script or a notebook, and says why JAX traced and compiled."""

import importlib.util
import json
import os
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.kit.inside import notebook
from tests.kit.processes import Runner

from .conftest import Check

pytestmark = pytest.mark.slow  # a process of its own for each script

HEAD = """
import functools
import equinox as eqx
import jax
import jax.numpy as jnp
from flax import nnx
from jax import jit
import leafwise as lw

@lw.pytree
class State:
    w: jax.Array
    n: int = lw.static_field(default=1)
"""

WAYS = {
    "decorated": "@jax.jit\n{}",
    "imported": "@jit\n{}",
    "partial": "@functools.partial(jax.jit, keep_unused=True)\n{}",
    "called": "{}\ncalled = jax.jit(called)",
    "equinox": "@eqx.filter_jit\n{}",
    "flax": "@nnx.jit\n{}",
    "leafwise": "@lw.jit\n{}",
}


def test_each_way_to_jit(run: Runner) -> None:
    """However a function is jitted: line and field path of the retrace are in each report."""
    script = HEAD
    for way, code in WAYS.items():
        script += code.format(f"def {way}(state): return state.w * state.n\n")
        script += f"\n{way}(State(jnp.ones(3)))\n{way}(State(jnp.ones(3), 2))\n"
    done, report = run.report("--captures", run.write(script))
    assert "captures" in report
    assert (report["program"], report["version"]) == ("script.py", 1)
    assert (report["exit"], report["ended"], done.returncode) == (0, "", 0)
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    assert page.lstrip().startswith("<!")
    assert "</html>" in page
    rows = {row["name"]: row for row in report["functions"]}
    for way in WAYS:
        text = f"{way}(State(jnp.ones(3), 2))"
        line = script[: script.index(text)].count("\n") + 1
        assert f"script.py:{line}  {text}\n" in done.stderr
        row = rows[way]
        assert (row["traces"], row["lowerings"], row["compiles"]) == (2, 2, 2)
        why = [each for each in report["events"] if each["name"] == way and each["explanation"]]
        (last,) = (each for each in why if each["explanation"]["reasons"])
        assert last["site"]["text"] == text
        assert (last["site"]["file"], last["site"]["line"]) == ("script.py", line)
        (reason,) = last["explanation"]["reasons"]
        assert (reason["path"], reason["kind"]) == ("state.n", "static")
        assert "state.n (static): 1 -> 2" in done.stderr


def test_the_script_is_run_as_python_runs_it(run: Runner) -> None:
    """Name, arguments, path and the modules next to it are as without leafwise."""
    run.write("VALUE = 41", "neighbour.py")
    script = run.write(
        """
        import pickle, sys
        import neighbour
        class Local: pass
        print(__name__, sys.argv, neighbour.VALUE, sys.path[0])
        print(type(pickle.loads(pickle.dumps(Local()))).__name__, sys.modules["__main__"].Local)
        if __name__ == "__main__":
            print("guarded")
        """
    )
    arguments = [script, "one", "--html", "-m", "--", "--help"]
    plain, explained = run.run(*arguments), run.explain(*arguments)
    assert plain.returncode == explained.returncode == 0
    assert explained.stdout == plain.stdout
    assert "--html after script.py is passed to the script" in explained.stderr


@pytest.mark.nightly
def test_a_module(run: Runner) -> None:
    """With `-m`, a module or a package is run, from the working directory."""
    run.write("", "package/__init__.py")
    run.write("import jax\nstep = jax.jit(lambda x: x)\n", "package/other.py")
    run.write(
        """
        import sys
        from .other import step
        print(__name__, __package__, sys.argv[1:])
        step(1.0)
        step(1)
        """,
        "package/__main__.py",
    )
    for name in ("package", "package.__main__"):
        done = run.explain("-m", name, "a", "--b")
        assert done.returncode == 0, done.stderr
        assert "__main__ package ['a', '--b']" in done.stdout
        assert f"{Path('package', '__main__.py')}:6" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.py"], "there is no file missing.py"),
        (["-m", "no_such_module"], "no_such_module"),
        (["--html", ".", "script.py"], "cannot write ."),
        (["-o", "script.py"], "argument -o/--output: this would overwrite script.py"),
    ],
    ids=["script", "module", "is a folder", "is the script"],
)
def test_what_cannot_be_done_is_said_first(run: Runner, arguments: list[str], words: str) -> None:
    """Code 2, one sentence, and the script was not run."""
    run.write("print('it ran')")
    done = run.explain(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert "it ran" not in done.stdout


@pytest.mark.nightly
def test_the_page_on_an_error_of_jax(run: Runner) -> None:
    """The last line leads to it; of another error there is none."""
    for line in ("jax.jit(len)('a')", "raise TypeError('of the user')"):
        *_, last = run.explain(run.write(f"import jax\n{line}")).stderr.splitlines()
        is_linked = last.startswith("leafwise: docs: https:") and "/#is-not-a-valid-jax" in last
        assert is_linked is ("jit" in line)


def test_the_gate(run: Runner, leafwise: Check) -> None:
    """More findings than allowed fail, and are named; the script's own failure wins."""
    script = run.write(
        """
        import jax, jax.numpy as jnp, sys
        step = jax.jit(lambda x: x)
        step(1.0)
        step(jax.device_put(1.0, jax.devices()[0]))
        step(1)
        sys.exit(int(sys.argv[1]))
        """
    )
    recorded = run.run(script, "0", env={**os.environ, "LEAFWISE_EXPLAIN": "records"})
    assert recorded.returncode == 0
    for options, code, words in (
        (["--fail-on", "retrace"], 1, "1 finding with a retrace, 0 allowed\n  script.py:6: "),
        (["--fail-on", "recompile"], 1, "2 findings with a recompile, 0 allowed\n"),
        (["--fail-on", "recompile", "--allow", "2"], 0, ""),
    ):
        done = leafwise("explain", *options, "--output-format=json", "-o", "r.json", "records")
        assert (done.code, words in done.err) == (code, True), done.err
        report = json.loads((run.folder / "r.json").read_text(encoding="utf-8"))
        assert len(report["findings"]) == 2
    assert json.loads(leafwise("explain", "--output-format=json", "records").err) == report
    assert run.explain("-q", "--fail-on", "recompile", script, "5").returncode == 5
    stale = "import jax\nn = 1.0\nf = jax.jit(lambda x: x * n)\nf(1)\nn = 2.0\nf(1)\n"
    done = run.explain("-q", "--fail-on", "stale", run.write(stale))
    assert done.returncode == 1
    assert "1 call with an old value, 0 allowed\n  script.py:6: <lambda> used n = " in done.stderr


LOSES = """
import jax, os, pathlib, resource, shutil, sys
folder = pathlib.Path(os.environ["LEAFWISE_EXPLAIN"])
step = jax.jit(lambda x: x)
step(1.0)
def fill(size): resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
{}
step(1)
"""

LOST = {
    "a full disk": ("fill(sum(file.stat().st_size for file in folder.iterdir()) + 9)", "missing: "),
    "no room at all": ("fill(0)", "it is not known how many records are missing"),
    "no descriptor": (
        "files = [open(0, closefd=False)]\nresource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))",
        "records are missing: the disk was full, too many files were open,",
    ),
    "no folder": ("shutil.rmtree(folder)", "it is not known how many records are missing"),
    "a shadowed module": ("", "not recorded, of process "),
}


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.nightly] * (way != "a full disk")) for way in LOST]
)
def test_a_gate_that_cannot_decide(run: Runner, leafwise: Check, way: str) -> None:
    """Where events could not be recorded, the report says so, and the gate fails."""
    lines, words = LOST[way]
    script = run.write(LOSES.format(lines))
    if way == "a shadowed module":
        run.write("", "uuid.py")
    assert run.run(script, env={**os.environ, "LEAFWISE_EXPLAIN": "records"}).returncode == 0
    assert leafwise("explain", "--fail-on", "retrace", "records").code > 0
    done = run.explain("--fail-on", "retrace", script)
    assert done.returncode == 1, done.stderr
    *report, last = done.stderr.splitlines()
    assert words in last
    assert last.startswith("leafwise explain: --fail-on retrace cannot be decided: ")
    assert "warning: " in str(report)
    assert "nothing was compiled again" not in done.stderr


# A script in which JAX retraces, or a call is stale, twice; the gate.
SEEN = {
    "asked for": ("import importlib.util\nassert importlib.util.find_spec('jax')", "retrace"),
    "failed first": (
        "import sys\nsys.modules['jaxlib'] = None\ntry: import jax\nexcept ImportError: pass\n"
        "del sys.modules['jaxlib']",
        "retrace",
    ),
    "no environment": ("import os\npath = os.environ['PATH']\nos.environ.clear()", "stale"),
}
REPEATS = """
import functools, jax
def named(function):
    @functools.wraps(function)
    def wrapper(*args): return function(*args)
    return wrapper
class Model:
    rate = 1.0
    @named
    def apply(self, x): return x * self.rate
one, other = Model(), Model()
for model in (one, one, one, other): jax.jit(model.apply)(1.0)
f, g = jax.jit(one.apply), jax.jit(other.apply)
f(1.0), g(1.0)
one.rate = other.rate = 2.0
g(1.0), f(1.0)
"""


@pytest.mark.parametrize("way", SEEN)
def test_what_scripts_do_before_jax(run: Runner, way: str) -> None:
    """Whatever it is, what JAX repeats is seen; so is a method that is jitted again."""
    head, gate = SEEN[way]
    done = run.explain("--fail-on", gate, run.write(head + REPEATS))
    assert done.returncode == 1
    assert "apply (function): a method of another object" in done.stderr
    assert "apply (function): `jax.jit(...)` creates a new function each time" in done.stderr
    words = {
        "retrace": "apply retraced 3 times",
        "stale": "apply used self.rate = 1.0, which was 2",
    }
    assert words[gate] in done.stderr, done.stderr


@pytest.mark.nightly
def test_a_look_at_records_adds_none(run: Runner) -> None:
    """The command itself is not recorded, nor is a process for which the variable is empty."""
    script, more = run.write("import jax"), {**os.environ, "LEAFWISE_EXPLAIN": "records"}
    assert run.run(script, env=more).returncode == 0
    for _ in range(2):
        assert "records of 1 process" in run.explain("records", env=more).stderr
    run.run(script, env={**more, "LEAFWISE_EXPLAIN": ""})
    assert {file.name for file in run.folder.iterdir()} == {"records", script}


def test_records_are_not_enough_for_all_options(leafwise: Check, tmp_path: Path) -> None:
    """What records never have is refused, and does not count as nothing found."""
    (tmp_path / "rank-7.jsonl").write_text("")
    for option in ("--captures", "--audit", "--progress", "--fail-on=stale"):
        done = leafwise("explain", option, ".")
        assert (done.code, done.out) == (2, "")
        words = option.replace("=", " ")
        assert done.err == f"leafwise explain: {words} needs a run: . is a folder of records\n"


IPYTHON = importlib.util.find_spec("IPython") is not None

CELLS = (
    "import os\nos.environ['JAX_ENABLE_X64'] = '1'\nimport jax, jax.numpy as jnp\nimport beside",
    "",
    "@jax.jit\ndef step(x):\n    return x * beside.VALUE\nstep(1.0)",
    "for n in (2, 3):\n    step(jnp.ones(n))\nprint(jnp.ones(2).dtype, __name__)",
)


def save(folder: Path, *cells: str) -> str:
    """Write a notebook with a text before each cell; return its name."""
    texts = [{"cell_type": "markdown", "metadata": {}, "source": "# text"}]
    code = [{"cell_type": "code", "metadata": {}, "source": each} for each in cells]
    document = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": {"language": "python", "name": "kernel"}},
        "cells": [part for each in code for part in (*texts, each)],
    }
    (folder / "nb").mkdir(exist_ok=True)
    (folder / "nb" / "beside.py").write_text("VALUE = 2")
    (folder / "nb" / "train.ipynb").write_text(json.dumps(document), encoding="utf-8")
    return "nb/train.ipynb"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "ipython",
    [
        pytest.param(True, marks=pytest.mark.skipif(not IPYTHON, reason="needs IPython")),
        pytest.param(False, marks=pytest.mark.nightly),
    ],
)
def test_a_notebook(run: Runner, ipython: bool) -> None:
    """Cells run in one namespace and in their folder; lines of cells are the sites."""
    magic = ["%time step(7)"] if ipython else ["step(7)"]
    name = save(run.folder, *CELLS, *magic, "step(1.0)\nraise ValueError('at:\\nboom\\nno more')")
    blocked = "" if ipython else "import sys; sys.modules['IPython'] = None\n"
    (run.folder / "sitecustomize.py").write_text(blocked, encoding="utf-8")
    path = f"{run.folder}:{Path(notebook.__file__).parents[2]}"
    done, report = run.report(name, env={"PYTHONPATH": path, "PATH": ""})
    assert done.returncode == 1, done.stderr
    assert "float64 __main__\n" in done.stdout
    sites = [each["site"] for each in report["events"] if each["name"] == "step"]
    assert {(each["file"], each["line"], each["text"]) for each in sites} >= {
        ("Cell In[2]", 4, "step(1.0)"),
        ("Cell In[3]", 2, "step(jnp.ones(n))"),
    }
    (step,) = (each for each in report["functions"] if each["name"] == "step")
    assert (step["file"], step["line"]) == ("Cell In[2]", 1)
    assert report["ended"] == "ValueError: at: boom"
    if not ipython:
        assert 'train.ipynb[5]", line 2, in <module>' in done.stderr


def test_what_is_no_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another format and magics without IPython are said before anything runs."""
    name = tmp_path / save(tmp_path, "1 +", "%matplotlib inline")
    assert notebook.problem(name) is None or not IPYTHON
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.chdir(tmp_path / "nb")
    assert notebook.problem(name) == (
        "train.ipynb[1]:1: `1 +` is not plain Python; for magics: pip install ipython"
    )
    for text in ("no json", "[]", '{"worksheets": []}'):
        name.write_text(text)
        assert "is not a notebook of format 4" in (notebook.problem(name) or "")


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("kinds", [("raw", "code", "markdown"), ("code", "markdown")])
def test_the_cell_that_is_edited(kinds: tuple[str, ...], indent: int | None) -> None:
    """Of equal cells it is the right one, a list or one string; nothing else changes."""
    loop, other = "for _ in x:\n    'ä'\n", {"cells": ["source"]}
    sources = [loop, loop.splitlines(keepends=True), "\n", ['"source": ["\\\n', "x"], loop]
    cells: list[dict[str, Any]] = [
        {"cell_type": kind, "metadata": other, "source": source, "outputs": [loop]}
        for source in sources
        for kind in kinds
    ]
    cells[-1] = dict(reversed(cells[-1].items()))
    document = {"metadata": other, "cells": cells, "nbformat": 4}
    data = json.dumps(document, indent=indent, ensure_ascii=False)
    code = [cell for cell in cells if cell["cell_type"] == "code" and cell["source"] != "\n"]
    found = list(notebook.sources_of(data))
    assert [source for *_, source in found] == ["".join(cell["source"]) for cell in code]
    for cell, (start, end, source) in zip(code, found, strict=True):
        assert notebook.with_source(data, start, end, source) == data
        changed = notebook.with_source(data, start, end, f"f = 1\n{source}")
        before = cell["source"]
        cell["source"] = ["f = 1\n", *before] if isinstance(before, list) else f"f = 1\n{before}"
        assert changed == json.dumps(document, indent=indent, ensure_ascii=False)
        cell["source"] = before


MAGIC = """
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
config = Config()
config.HistoryManager.enabled = False
config.InteractiveShell.colors = "nocolor"
class ZMQInteractiveShell(InteractiveShell):  # the name by which rich knows Jupyter
    pass
shell = ZMQInteractiveShell.instance(config=config)
for cell in (
    "import jax, jax.numpy as jnp\\noriginal = jax.jit",
    "%load_ext leafwise\\n@jax.jit\\ndef step(x):\\n    return x * 2\\nstep(0)",
    "%%explain\\ny = step(2.0)\\nstep(True)\\nraise ValueError('bad base\\\\n  got: 1')",
    "print('defined', y)",
    "%%explain --captures\\nk = jnp.ones(9)\\n@jax.jit\\ndef f(x):\\n    return x * k\\nf(1.0);",
    "%%explain --captures\\nk = 2 * k\\nf(1.0);",
    "%%explain\\nk = 2 * k\\nf(1.0);\\nf(2);",
    "%%explain\\nstep(4)",
    "%explain step(jnp.ones(41))\\nprint('next')",
    "%%explain --try\\nstep(3)",
    "%%explain --capture\\nstep(3)",
    "from IPython.utils.capture import capture_output\\nmagic = get_ipython().run_cell_magic",
    "with capture_output() as c:\\n    magic('explain', '', 'step(jnp.ones(43));')",
    "with capture_output() as d:\\n    magic('explain', '', 'step(jnp.ones(44))')",
    "print('html' if '<pre' in c.outputs[-1].data['text/html'] else 'text')",
    "print(len(c.outputs), len(d.outputs))",
    "%unload_ext leafwise\\nprint(jax.jit is original)",
):
    shell.run_cell(cell, store_history=True)
"""


@pytest.mark.nightly
@pytest.mark.skipif(not IPYTHON, reason="needs IPython")
def test_the_cell_magic(run: Runner) -> None:
    """`%%explain` explains its own cell, `%explain` a line, each in one output; both unload."""
    done = run.run(run.write(textwrap.dedent(MAGIC)))
    assert done.returncode == 0, done.stderr
    before, defined, after = done.stdout.partition("defined")
    assert defined
    assert "the cell ended: ValueError: bad base\n" in before
    assert "Cell In[3]:2  y = step(2.0)\n" in before
    assert "Cell In[3]:3  step(True)\n" in before
    assert "step retraced once" in before
    assert "Cell In[2]:2" in before
    assert "JAX compiled nothing." in after
    assert "Cell In[9]:1  step(jnp.ones(41))\n" in after
    assert "no argument but --captures: `leafwise explain --try NOTEBOOK.ipynb`" in done.stderr
    assert "no argument but --captures: did you mean that?" in done.stderr
    assert after.count("functions jitted in earlier cells are not checked") == 1
    _, listed, stale = after.split("f captures")  # and none of the last cell, without the option
    assert "global of Cell In[5], read at Cell In[5]:5 by f" in listed
    assert "stale" not in listed
    assert "stale: Cell In[6]:3: f used k = float32[9]" in stale
    assert "magics.py" not in done.stderr
    # A report is one output; the value of the cell is another, which a semicolon hides.
    assert after.endswith("next\nhtml\n1 2\nTrue\n")
