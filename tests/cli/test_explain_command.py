"""`leafwise explain` runs a script unchanged and says why JAX traced and compiled."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import pytest

from leafwise._display.words import NOTHING
from leafwise._jit import recorder
from leafwise_cli import main

from .conftest import Scripts
from .test_unchanged import ROW

pytestmark = pytest.mark.slow  # a process of its own for each script

Done = subprocess.CompletedProcess[str]


class Runner(Scripts):
    """Runs scripts in a folder of their own."""

    def command(self, *arguments: str, **environment: str) -> Done:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env={**os.environ, "COLUMNS": "120", "PYTHONIOENCODING": "utf-8", **environment},
        )

    def explain(self, *arguments: str, **environment: str) -> Done:
        return self.command("-m", "leafwise", "explain", *arguments, **environment)

    def report(self, script: str) -> tuple[Done, Any]:
        """Run a script; return the report as JSON."""
        done = self.explain("--json", "report.json", self.write(script))
        assert done.returncode == 0, done.stderr
        return done, json.loads((self.folder / "report.json").read_text(encoding="utf-8"))


@pytest.fixture
def run(tmp_path: Path) -> Runner:
    """A folder to run scripts in."""
    return Runner(tmp_path)


HEAD = """
import functools
import jax
import jax.numpy as jnp
from jax import jit
import leafwise as lw

@lw.pytree
class State:
    w: jax.Array
    n: int = lw.static_field(default=1)
"""

WAYS = {
    "decorator": "@jax.jit\ndef step(state): return state.w * state.n",
    "import": "@jit\ndef step(state): return state.w * state.n",
    "partial": "@functools.partial(jax.jit, keep_unused=True)\ndef step(state): return state.w",
    "called": "def step(state): return state.w * state.n\nstep = jax.jit(step)",
    "equinox": "import equinox as eqx\n@eqx.filter_jit\ndef step(state): return state.w * state.n",
    "flax": "from flax import nnx\n@nnx.jit\ndef step(state): return state.w * state.n",
    "leafwise": "@lw.jit\ndef step(state): return state.w * state.n",
    "with options": "@jax.jit(donate_argnums=())\ndef step(state): return state.w",
}


def _mostly_at_night(names: Iterable[str], *always: str) -> list[Any]:
    marks = {False: [pytest.mark.nightly], True: []}
    return [pytest.param(name, marks=marks[name in always]) for name in names]


@pytest.mark.parametrize("way", _mostly_at_night(WAYS, "decorator"))
def test_each_way_to_jit(run: Runner, way: str) -> None:
    """However the function is jitted: line and field path of the retrace are in the report."""
    script = HEAD + WAYS[way] + "\nstep(State(jnp.ones(3)))\nstep(State(jnp.ones(3), 2))\n"
    done, report = run.report(script)
    line = len(script.splitlines())
    assert f"script.py:{line}" in done.stderr
    assert "state.n" in done.stderr
    (step,) = (each for each in report["functions"] if each["name"] == "step")
    assert (step["traces"], step["lowerings"], step["compiles"]) == (2, 2, 2)
    why = [each for each in report["events"] if each["name"] == "step" and each["explanation"]]
    (last,) = (each for each in why if each["explanation"]["reasons"])
    assert (last["site"]["file"], last["site"]["line"]) == ("script.py", line)
    assert last["site"]["text"] == "step(State(jnp.ones(3), 2))"
    (reason,) = last["explanation"]["reasons"]
    assert (reason["path"], reason["kind"]) == ("state.n", "static")


@pytest.mark.nightly
def test_an_object_that_is_called(run: Runner) -> None:
    """A module under `filter_jit` is one function, where its class says what a call does."""
    _, report = run.report(
        """
        import equinox as eqx, jax, jax.numpy as jnp
        class Net(eqx.Module):
            w: jax.Array
            def __call__(self, x):
                return self.w * x
        step = eqx.filter_jit(Net(jnp.ones(3)))
        step(jnp.ones(3))
        """
    )
    (net,) = (each for each in report["functions"] if not each["eager"])
    assert (net["name"], net["file"], net["line"]) == ("Net", "script.py", 5)
    assert (net["traces"], net["lowerings"], net["compiles"]) == (1, 1, 1)


@pytest.mark.nightly
def test_static_names_and_commitment(run: Runner) -> None:
    """A static argument and a commitment are named with the parameters' names."""
    done, _ = run.report(
        """
        from functools import partial
        import jax, jax.numpy as jnp
        @partial(jax.jit, static_argnames=("mode",))
        def step(batch, mode):
            return batch * 2
        step(jnp.ones(3), mode="a")
        step(jnp.ones(3), mode="b")
        step(jax.device_put(jnp.ones(3), jax.devices()[0]), mode="a")
        """
    )
    assert "mode (static): 'a' -> 'b'" in done.stderr
    assert "batch (commitment)" in done.stderr
    for line in (8, 9):
        assert f"script.py:{line}" in done.stderr


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
    arguments = [script, "one", "--json", "-m", "--", "--help"]
    plain, explained = run.command(*arguments), run.explain(*arguments)
    assert plain.returncode == explained.returncode == 0
    assert explained.stdout == plain.stdout
    assert "--json behind script.py is an option of the script" in explained.stderr


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
    ("end", "code", "words", "expected"),
    [
        ("sys.exit(3)", 3, "", ROW),
        ("raise ValueError('boom')", 1, "ValueError: boom", ROW),
        pytest.param("1 +", 1, "SyntaxError", NOTHING, marks=pytest.mark.nightly),
    ],
    ids=["3", "error", "syntax"],
)
def test_the_exit_code_is_the_scripts_own(
    run: Runner, end: str, code: int, words: str, expected: str
) -> None:
    """The report comes whatever happened, and the code and the words are the script's."""
    script = run.write(f"import sys, jax\njax.jit(lambda x: x)(1.0)\n{end}\n")
    done = run.explain(script)
    assert done.returncode == code
    assert words in done.stderr
    assert expected in done.stderr
    assert "leafwise" not in done.stderr, "the traceback is the script's alone"
    assert "runpy" not in done.stderr


@pytest.mark.nightly
def test_a_script_that_never_jits(run: Runner) -> None:
    """It gets a sentence."""
    done = run.explain(run.write("print('hello')"))
    assert done.returncode == 0
    assert done.stdout == "hello\n"
    assert done.stderr == f"{NOTHING}\n"


def test_the_files(run: Runner) -> None:
    """JSON and HTML files are written, with the reason in each."""
    script = run.write(
        """
        import jax
        @jax.jit
        def step(rate): return rate
        step(1.0)
        step(2)
        """
    )
    names = "r.json", "r.html"
    done = run.explain("--json", names[0], "--html", names[1], script)
    assert done.returncode == 0
    texts = [(run.folder / name).read_text(encoding="utf-8") for name in names]
    for text in texts:
        assert "step" in text
        assert "rate" in text
    report = json.loads(texts[0])
    assert report["program"] == "script.py"
    assert (report["version"], report["exit"], report["ended"]) == (1, 0, "")
    assert texts[1].lstrip().startswith("<!")
    assert "</html>" in texts[1]


@pytest.mark.nightly
def test_the_files_are_written_though_the_script_fails(run: Runner) -> None:
    """An exception does not cost the report."""
    script = run.write("import jax\njax.jit(lambda x: x)(1.0)\nraise ValueError\n")
    done = run.explain("--json", "r.json", script)
    assert done.returncode == 1
    report = json.loads((run.folder / "r.json").read_text(encoding="utf-8"))
    assert report["exit"] == 1
    assert report["ended"].startswith("ValueError")
    assert sum(each["traces"] for each in report["functions"]) == 1


AT_NIGHT = [
    pytest.param(arguments, words, marks=pytest.mark.nightly)
    for arguments, words in (
        (["--json", "no/such/folder.json", "script.py"], "cannot write no/such/folder.json"),
        ([], "SCRIPT"),
    )
]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.py"], "there is no file missing.py"),
        (["-m", "no_such_module"], "no_such_module"),
        (["--html", ".", "script.py"], "cannot write ."),
        *AT_NIGHT,
    ],
    ids=["script", "module", "is a folder", "folder", "nothing"],
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
def test_names_that_are_not_ascii(run: Runner) -> None:
    """They come out, as escapes where the encoding lacks them, and in all files."""
    script = run.write(
        """
        import jax
        @jax.jit
        def größe(ü): return ü
        größe(1.0)
        größe(2)
        """,
        "ménage.py",
    )
    for encoding, expected in (("utf-8", "größe"), ("ascii", "gr\\xf6\\xdfe")):
        files = "--json", "r.json", "--html", "r.html"
        done = run.explain(*files, script, PYTHONIOENCODING=encoding)
        assert done.returncode == 0, done.stderr
        assert expected in done.stderr
        assert "größe" in (run.folder / "r.html").read_text(encoding="utf-8")


@pytest.mark.nightly
def test_a_reader_that_has_seen_enough(run: Runner) -> None:
    """A pipe that closes after the first line is no error of ours."""
    script = run.write("import jax\nprint('x', flush=True)\njax.jit(lambda x: x)(1.0)\n")
    command = [sys.executable, "-m", "leafwise", "explain", script]
    with subprocess.Popen(
        command,
        cwd=run.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "120"},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "x\n"
        process.stderr.close()
        rest = process.stdout.read()
        assert process.wait(timeout=300) == 0
    assert rest == ""


CURIOUS: dict[str, str] = {
    "threads": """
        import threading, jax
        step = jax.jit(lambda x: x)
        workers = [threading.Thread(target=step, args=(v,)) for v in (1.0, 1)]
        [w.start() for w in workers]; [w.join() for w in workers]
        """,
    "many options": """
        import jax
        step = jax.jit(lambda x, n: x, static_argnums=1, donate_argnums=(), inline=False)
        step(1.0, 1); step(1.0, 2)
        """,
    "class attribute": """
        import jax
        class Model:
            @jax.jit
            def step(self): return self[0]
        Model.step((1.0,)); Model.step((1,))
        """,
    "captured before": """
        import jax
        mine = jax.jit
        assert jax.jit is mine and jax.jit.__name__ == "jit"
        step = mine(lambda x: x)
        step(1.0); step(1)
        """,
    "another json": """
        import json, jax
        json.dumps = lambda value: b"of another library"
        step = jax.jit(lambda x: x)
        step(1.0); step(1)
        """,
    "typed": """
        import inspect, jax
        step = jax.jit(lambda x: x)
        assert type(step).__name__ == "PjitFunction"
        assert isinstance(step, jax.stages.Wrapped)
        assert "static_argnums" in inspect.signature(jax.jit).parameters
        step(1.0); step(1)
        """,
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", CURIOUS)
def test_curious_scripts(run: Runner, name: str) -> None:
    """Two traces and a reason, in each of them."""
    _, report = run.report(CURIOUS[name])
    functions = [each for each in report["functions"] if not each["eager"]]
    assert [each["traces"] for each in functions] == [2]
    reasons = [each["explanation"]["reasons"] for each in report["events"] if each["explanation"]]
    assert len([found for found in reasons if found]) == 1
    assert all(isinstance(found, list) for found in reasons)


def test_this_process_is_left_as_it_was(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The script runs in a process of its own: this one keeps its signals, path and `jax.jit`."""
    script = tmp_path / "script.py"
    script.write_text("import jax\njax.jit(lambda x: x)(1.0)\nraise ValueError\n", encoding="utf-8")

    def state() -> Any:
        signals = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
        return jax.jit, [*sys.argv], [*sys.path], recorder._watchers, signals

    before = state()
    assert main(["explain", str(script)]) == 1
    assert state() == before
    assert ROW in capfd.readouterr().err


def test_captures(run: Runner) -> None:
    """`--captures` lists what functions capture, and each stale call; else there is no check."""
    script = run.write(
        HEAD
        + """
lr = 0.1
table = jnp.ones((600, 600))
@jax.jit
def step(x): return x * lr * table[0, 0]
for _ in range(3):
    step(1.0)
    lr = lr / 2
"""
    )
    plain, done = (
        run.explain(*options, "--json", "report.json", "--html", "report.html", script)
        for options in ((), ("--captures",))
    )
    assert plain.returncode == done.returncode == 0, done.stderr
    assert "stale" not in plain.stderr
    report = json.loads((run.folder / "report.json").read_text(encoding="utf-8"))
    (found,) = [each for each in report["captures"] if each["function"] == "step"]
    assert found["nbytes"] == 600 * 600 * 4
    assert {"lr", "table"} <= {each["name"] for each in found["captures"]}
    assert [(each["name"], each["before"], each["after"]) for each in found["stale"]] == [
        ("lr", "0.1", "0.05"),
        ("lr", "0.1", "0.025"),
    ]
    assert "step was answered for lr = 0.1, which was 0.05" in done.stderr
    assert "1.37 MiB of captured arrays" in done.stderr
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    assert "step captures" in page
    assert "step was answered for lr = 0.1" in page


@pytest.mark.nightly
def test_captures_of_equinox(run: Runner) -> None:
    """Of `filter_jit`, JAX sees a function of equinox: the one behind it is looked at."""
    pytest.importorskip("equinox")
    script = run.write(
        HEAD
        + """
import equinox as eqx
lr = 0.1
@eqx.filter_jit
def step(x): return x * lr
class Model(eqx.Module):
    w: jax.Array
    @eqx.filter_jit
    def method(self, x): return self.w * x * lr
    def __call__(self, x): return self.w * x * lr
model = Model(jnp.ones(2))
called = eqx.filter_jit(model)
for _ in range(2):
    step(1.0)
    model.method(1.0)
    called(1.0)
    lr = lr / 2
"""
    )
    done = run.explain("--captures", "--json", "report.json", script)
    assert done.returncode == 0, done.stderr
    report = json.loads((run.folder / "report.json").read_text(encoding="utf-8"))
    found = {
        each["function"]: [(one["name"], one["before"], one["after"]) for one in each["stale"]]
        for each in report["captures"]
    }
    assert found == {name: [("lr", "0.1", "0.05")] for name in ("step", "method", "Model")}


def test_the_gate(run: Runner) -> None:
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
    for options, code, words in (
        (["--fail-on", "retrace"], 1, "1 finding with a retrace, 0 allowed\n  script.py:6: "),
        (["--fail-on", "recompile"], 1, "2 findings with a recompile, 0 allowed\n"),
        (["--fail-on", "recompile", "--allow", "2"], 0, ""),
    ):
        done = run.explain("-q", *options, "--json", "r.json", script, "0")
        assert (done.returncode, words in done.stderr) == (code, True), done.stderr
        report = json.loads((run.folder / "r.json").read_text(encoding="utf-8"))
        assert len(report["findings"]) == 2
        assert run.explain("-q", *options, script, "5").returncode == 5


def test_a_file_that_is_the_script(run: Runner) -> None:
    """An option that takes a file takes no script: that would be written over."""
    script = run.write("print('it ran')")
    done = run.explain("--json", script)
    assert done.returncode == 2
    assert "argument --json: this would write over script.py" in done.stderr
