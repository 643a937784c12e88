"""`leafwise explain` says why a first compile is slow: when it is done, and while XLA is at it."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from tests.kit.explained import recorded
from tests.kit.inside import first_compiles, program_recorder
from tests.kit.processes import Runner

from leafwise_explain import VARIABLE

from .conftest import Explained

pytestmark = pytest.mark.usefixtures("lines")

LOOP = """\
import jax, jax.numpy as jnp

def cell(h, x, w):
    z = jax.nn.sigmoid(h @ w + x)
    return (1 - z) * jnp.tanh(jax.nn.sigmoid(x @ w + h) * h @ w) + z * h

def loss(w, xs):
    h = jnp.zeros(8)
    for x in xs:
        h = cell(h, x, w)
    return h.sum()

step = jax.jit(jax.grad(loss))
print(step(jnp.ones((8, 8)), jnp.ones((RUNS, 8))).shape)
"""
LONG = LOOP.replace("RUNS", "300")


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "COLUMNS": "100", **more}


def script(name: str, text: str) -> Callable[[], None]:
    """Return what runs a script in this process."""
    Path(name).write_text(text, encoding="utf-8")
    code = compile(text, name, "exec")
    return lambda: exec(code, {})  # noqa: S102  # our own


@pytest.mark.nightly
def test_a_loop_in_a_package(run: Runner) -> None:
    """The user's line comes first, the package's behind it; `--fail-on` does not count it."""
    run.write(LOOP.partition("step =")[0], "site-packages/nets/__init__.py")
    script = run.write(
        """\
        import sys
        sys.path.insert(0, "site-packages")
        import jax, jax.numpy as jnp, nets
        def train(w, xs):
            return jax.grad(nets.loss)(w, xs)
        jax.jit(train)(jnp.ones((8, 8)), jnp.ones((20, 8)))
        """
    )
    done, report = run.report("--fail-on", "recompile", script, env=environment())
    assert done.returncode == 0
    (finding,) = report["first"]
    assert (finding["place"], finding["via"]) == ("script.py:5", ["nets/__init__.py:9"])
    assert "script.py:5 [nets/__init__.py:9]  return jax.grad(nets.loss)" in done.stderr


@pytest.mark.slow
def test_a_start_up(explained: Explained, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small programs that a package makes for one line may be one, if it needs no values."""
    monkeypatch.setattr(first_compiles, "LEAST", 0.01)
    folder = Path("site-packages")
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder.resolve()))
    body = "\n".join(f"    out.append(jnp.tile(x, {n}))" for n in range(2, 14))
    for name, last in (("nets_of_layers", "out"), ("nets_of_sizes", "[float(out[0][0])]")):
        net = f"import jax.numpy as jnp\ndef init(x):\n    out = []\n{body}\n    return {last}\n"
        (folder / f"{name}.py").write_text(net, encoding="utf-8")
        jax.clear_caches()
        code = f"import jax, numpy as np, {name} as nets\nx = np.ones(3)\nparams = nets.init(x)\n"
        found = explained(script("start.py", code)).get("first", [])
        if sys.version_info < (3, 12):  # calls are not counted there
            assert not found
            continue
        (finding,) = found
        assert (finding["place"], finding["kind"]) == ("start.py:3", "outside")
        assert finding["programs"] >= 12
        words = "JAX's cache on disk takes the next run to about a fifth"
        if last == "out":
            words = "put this line into a function of its arrays and `jax.jit` that"
        assert finding["fixes"][0].startswith(words)


BUILDERS = """import jax, jax.numpy as jnp, equinox as eqx, flax.linen as nn
from flax import nnx
class Net(nn.Module):
    reads: bool
    def setup(self):
        self.scale = float(jnp.arange(WIDTH)[2]) if self.reads else 2.0
    @nn.compact
    def __call__(self, x):
        for n in range(2):
            x = nn.Dense(WIDTH + n)(x) * self.scale
        return x
class Layers(eqx.Module):
    layers: list
    def __init__(self, key):
        self.layers = [eqx.nn.Linear(WIDTH + n, WIDTH, key=key) for n in range(2)]
key, x, rngs = jax.random.key(0), jnp.ones((2, WIDTH)), nnx.Rngs(0)
quiet, loud = Net(False), Net(True)
quiet.init(key, x)
loud.init(key, x)
Layers(key)
eqx.nn.MLP(3, WIDTH, 4, 2, key=key)
nnx.Linear(WIDTH + 3, 3, rngs=rngs)
print(float(x[0, 0]))
"""


@pytest.mark.slow
def test_what_builds() -> None:
    """Where a `jit` can trace what a package builds, neither stores nor `range` count as reads."""
    jax.clear_caches()
    records = recorded(script("builders.py", BUILDERS.replace("WIDTH", "13")))
    events = [record["event"] for record in records if "event" in record]
    built: dict[str, set[tuple[str, bool]]] = {}
    compiles = [event for event in events if event["kind"] == "compile"]
    assert all(0 < event["cpu"] <= event["seconds"] for event in compiles)
    for level in (event["levels"][-1] for event in compiles):
        text = level["site"]["text"].partition("(")[0]
        built.setdefault(text, set()).add((level.get("builder", ""), level.get("reads", False)))
    assert built["quiet.init"] == {("flax", False)}
    assert ("flax", True) in built["loud.init"]
    assert built["Layers"] == built["eqx.nn.MLP"] == {("equinox", False)}
    assert built["nnx.Linear"] == {("nnx", True)}  # it counts in `rngs`
    assert built["print"] == {("", False)}  # counted as it runs


DRAWS = """\
import jax, numpy as np
def one(key, shape):
    return jax.nn.initializers.he_normal()(key, shape)
def build(keys):
    out = []
    for key in keys:
        out.append(one(key, SHAPE))
    return out
def two(keys):
    return [one(key, SHAPE) for key in keys]
keys = jax.random.split(jax.random.key(0), 8)
keys = [keys[n] for n in range(8)]
FIRST(keys), SECOND(keys)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info < (3, 12), reason="calls are not counted")
@pytest.mark.parametrize(("first", "second"), [("build", "two"), ("two", "build")])
def test_draws_share_a_program(first: str, second: str) -> None:
    """Calls are counted by the lines around them: eight below each line, of one program."""
    jax.clear_caches()
    code = DRAWS.replace("SHAPE", "(16, 8)").replace("FIRST", first).replace("SECOND", second)
    records = recorded(script("draws.py", code))
    calls = [row for record in records for row in record.get("calls", ())]
    draws = [row for row in calls if row["maker"] == "truncated_normal"]
    assert [row["number"] for row in draws] == [8, 8]
    functions = [[level["site"]["function"] for level in row["levels"]][-3:] for row in draws]
    assert functions == [["<module>", name, "one"] for name in (first, second)]
    compiles = [record["event"] for record in records if record.get("event", {}).get("heavy")]
    assert [one["maker"] for one in compiles].count("truncated_normal") == 1


@pytest.mark.slow
def test_a_long_loop(explained: Explained, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop of a program that takes long enough is a finding, with what the time went into."""
    for module in (first_compiles, program_recorder):
        monkeypatch.setattr(module, "LEAST", 0.05)
    first = explained(script("loop.py", LOOP.replace("RUNS", "14")))["first"]
    (finding,) = [finding for finding in first if finding["kind"] != "outside"]
    assert (finding["place"], finding["kind"], finding["runs"]) == ("loop.py:9", "loop", 14)
    assert (finding["text"], finding["functions"]) == ("for x in xs:", ["loss"])
    assert finding["share"] > 0.8
    assert min(finding["seconds"].values()) > 0
    assert not finding["unfinished"]


def test_a_quick_loop(explained: Explained) -> None:
    """What compiles in less than a second is no finding."""

    def script() -> None:
        def solve(x: Any) -> Any:
            for _ in range(30):
                x = jnp.sin(x)
            return x

        jax.jit(solve)(1.0)

    assert not explained(script).get("first")


EXPLAIN = "-m", "leafwise", "explain"


def started(run: Runner, *command: str, own_session: bool = False, **variables: str) -> Any:
    """Start a script whose compile takes minutes; return once XLA is at it."""
    env = environment(TMPDIR=str(run.folder), **variables)
    process = run.popen(*command, run.write(LONG), env=env, start_new_session=own_session)
    deadline = time.monotonic() + 120
    while not any('"compiling"' in each.read_text() for each in run.folder.rglob("rank*.jsonl")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return process


@pytest.mark.nightly
def test_ctrl_c(run: Runner) -> None:
    """The first one says what XLA is at, the second one ends the program; the report is whole."""
    process = started(run, *EXPLAIN, "--output-format=json", "-o", "report.json", own_session=True)
    os.killpg(process.pid, signal.SIGINT)
    seen = ""
    while "Ctrl-C again ends the program" not in seen:
        seen += process.stderr.readline()
    assert "script.py:9  for x in xs:\n  XLA had not finished loss after " in seen
    assert "  fix: `jax.lax.scan` (or `fori_loop`)" in seen
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    report = json.loads((run.folder / "report.json").read_text())
    (finding,) = report["first"]
    assert (finding["unfinished"], finding["runs"]) == (True, 300)
    assert report["ended"] == "interrupted"


@pytest.mark.nightly
def test_sigterm_and_progress(run: Runner) -> None:
    """A scheduler's limit is met with a whole report; a line says after ten seconds what it is."""
    process = started(run, *EXPLAIN, "--progress")
    line = process.stderr.readline()
    assert line.startswith("leafwise explain: script.py:9: XLA had not finished loss after 1")
    assert line.endswith("from this loop, which ran 300 times in one trace\n")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "script.py:9  for x in xs:\n  XLA had not finished loss after " in err
    assert "the program ended: SIGTERM" in err


@pytest.mark.nightly
def test_a_folder_of_records(run: Runner) -> None:
    """Of a process that was killed the folder has the compile that it was at."""
    process = started(run, **{VARIABLE: str(run.folder / "records")})
    process.kill()
    process.communicate()
    _, report = run.report("records")
    (finding,) = report["first"]
    assert finding["what"].startswith("XLA had not finished loss: ")
    assert (finding["place"], finding["runs"]) == ("script.py:9", 300)


@pytest.mark.nightly
def test_unroll_is_left_out(run: Runner) -> None:
    """The edit is tried, and so is JAX's cache on disk: both with the seconds that they save."""
    script = run.write(
        """\
        import jax, jax.numpy as jnp
        def body(h, x):
            return jax.nn.softmax(jnp.tanh(jnp.tanh(h @ h + x) @ h)), None
        @jax.jit
        @jax.grad
        def step(h, xs):
            return jax.lax.scan(body, h, xs, unroll=60)[0].sum()
        print(step(jnp.ones((8, 8)), jnp.ones((60, 8, 8))).sum())
        """
    )
    done, report = run.report("--try", script, env=environment())
    (finding,) = report["first"]
    assert finding["kind"] == "unroll"
    assert finding["tried"]["verdict"] == "confirmed"
    assert finding["tried"]["edit"][1].endswith("jax.lax.scan(body, h, xs)[0].sum()")
    assert report["second_run"] < report["seconds"]
    assert " in first compiles, output the same" in done.stderr
    assert "with JAX_COMPILATION_CACHE_DIR" in done.stderr
