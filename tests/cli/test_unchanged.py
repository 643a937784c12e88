"""A script finds under `leafwise explain` what it finds under `python`, and ends as there."""

import json
import os
import pkgutil
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
from tests.kit.processes import Runner

from leafwise_explain import VARIABLE

from .conftest import Outcome

pytestmark = pytest.mark.slow  # processes of their own

LOOKS = """
import sys
seen = {
    "path": sys.path[:], "argv": sys.argv[:], "flags": repr(sys.flags),
    "xoptions": sys._xoptions, "modules": sorted(sys.modules),
}
import __main__, json, os, signal, warnings
seen |= {
    "main": sorted(vars(__main__)), "name": __name__, "file": __file__, "spec": repr(__spec__),
    "environ": [e for e in os.environ.items() if not e[0].startswith("LEAFWISE_EXPLAIN")],
    "cwd": os.getcwd(), "filters": repr(warnings.filters), "line": sys.stdin.readline(),
    "handlers": [str(signal.getsignal(each)) for each in (signal.SIGINT, signal.SIGTERM)],
    "buffered": not sys.stdout.write_through,
}
os.environ["JAX_ENABLE_X64"] = "1"
warnings.simplefilter("error")
import jax, functools
import jax.numpy as jnp
from jax._src import xla_bridge
seen["threads"] = len(os.listdir("/proc/self/task")) if os.path.exists("/proc") else 1
if not (pid := os.fork()): os._exit(0)
os.waitpid(pid, 0)
jax.eval_shape(jax.jit(lambda x: x), 1.0)
seen |= {"started": xla_bridge.backends_are_initialized(), "loader": type(jax.__loader__).__name__}
jax.config.update("jax_num_cpu_devices", 3)
seen |= {"x64": str(jnp.ones(2).dtype), "devices": jax.device_count()}
@functools.partial(jax.jit, static_argnums=0)
def apply(fun, x): return fun(x)
for n in range(12):
    apply(lambda y: y * 2, 1.0)
seen |= {"after": repr(warnings.filters), "environ after": sorted(set(os.environ))}
seen["modules after"] = sorted(sys.modules)
print(json.dumps(seen))
sys.stderr.write("on stderr\\n")
sys.exit(3)
"""

ROW = "1         1  "
"""Of a function with one trace and one compile."""


@pytest.mark.parametrize(
    ("wanted", "options", "environment"),
    [
        ((), (), {}),
        pytest.param(
            ("-o", "report.json", "--output-format", "json"), (), {}, marks=pytest.mark.nightly
        ),
        pytest.param(("-q", "--output-format", "github"), (), {}, marks=pytest.mark.nightly),
        pytest.param(("--captures",), (), {}, marks=pytest.mark.nightly),
        pytest.param(("--audit", "--progress"), (), {}, marks=pytest.mark.nightly),
        pytest.param(("--html", "report.html"), (), {}, marks=pytest.mark.nightly),
        pytest.param(
            (),
            ("-BbuO", "-Xutf8", "-W", "error::ResourceWarning", "-X", "faulthandler"),
            {"PYTHONPATH": os.environ.get("PYTHONPATH", "")},
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["text", "json", "quiet", "captures", "audit", "html", "options"],
)
def test_a_script_that_looks(
    run: Runner, wanted: tuple[str, ...], options: tuple[str, ...], environment: dict[str, str]
) -> None:
    """Whatever the report, a script finds and ends as with `python`; nothing starts JAX's backend.

    The environment also has our variables; of modules there are also ours, and parts of Python.
    """
    script = run.write(LOOKS, "folder/looks.py")
    more = {"options": options, "env": {**os.environ, **environment}}
    arguments = script, "one", "--two", "-m"
    plain, explained = run.run(*arguments, **more), run.explain(*wanted, *arguments, **more)
    assert plain.returncode == explained.returncode == 3, explained.stderr
    assert plain.stderr == "on stderr\n"
    assert explained.stderr.startswith(plain.stderr)
    expected, found = (json.loads(done.stdout.splitlines()[0]) for done in (plain, explained))
    before, after = (
        set(found.pop(key)) ^ set(expected.pop(key)) for key in ("modules", "modules after")
    )
    assert before == {"leafwise_explain"}
    others = {name.partition(".")[0] for name in after} - sys.stdlib_module_names
    assert others == {"leafwise", "leafwise_explain"}
    names = set(found.pop("environ after")) ^ set(expected.pop("environ after"))
    assert all(name.startswith(VARIABLE) for name in names)
    assert found == expected
    assert (found["x64"], found["devices"], found["started"]) == ("float64", 3, False)
    if not wanted:
        assert "apply retraced 11 times" in explained.stderr


ENDS: dict[str, str] = {
    "exit": "sys.exit(3)",
    "error": "def inner():\n    raise ValueError('boom')\ninner()",
    "interrupt": "raise KeyboardInterrupt",
    "quit at once": "os._exit(4)",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
}


@pytest.mark.nightly
@pytest.mark.parametrize("end", ENDS)
def test_each_way_to_end(run: Runner, end: str) -> None:
    """Exit code, output and traceback are the script's own, and there is a report."""
    script = run.write(f"import jax, os, signal, sys\njax.jit(lambda x: x)(1.0)\n{ENDS[end]}")
    plain, explained = run.run(script), run.explain(script)
    code = plain.returncode
    assert explained.returncode == (code if code >= 0 else 128 - code)
    assert explained.stdout == plain.stdout
    assert explained.stderr.startswith(plain.stderr)
    report = explained.stderr[len(plain.stderr) :]
    assert ROW in report, report
    if code < 0 and end != "interrupt":
        assert signal.Signals(-code).name in report


WAITS = """
import jax, signal, sys, time
jax.jit(lambda x: x)(1.0)
times = []
if "handle" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: times.append(1))
    signal.signal(signal.SIGUSR1, lambda *_: times.append(1))
try:
    print("ready", flush=True)
    for _ in range(60 if not times else 0):
        time.sleep(0.5)
        if times: break
    time.sleep(0.5)
except KeyboardInterrupt:
    time.sleep(0.5)
    print("interrupted")
    sys.exit(7)
print(len(times))
"""


WAYS = {
    "to the group": (signal.SIGINT, 7),
    "term": (signal.SIGTERM, 143),
    "term handled": (signal.SIGTERM, 0),
    "usr1 handled": (signal.SIGUSR1, 0),
    "hup": (signal.SIGHUP, 129),
    "nohup": (signal.SIGHUP, 143),
    "quit": (signal.SIGQUIT, 131),
}


@pytest.mark.nightly
@pytest.mark.parametrize("way", WAYS)
def test_signals(run: Runner, way: str) -> None:
    """A signal reaches the script once, or stays ignored; the report comes, and nothing is left."""
    script = run.write(WAITS)
    arguments = [script, *(["handle"] if "handled" in way else [])]
    command = ["-m", "leafwise", "explain", *arguments]
    files = run.folder / "temporary"
    files.mkdir()
    number, expected = WAYS[way]
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if way == "nohup" else signal.SIG_DFL)
    process = run.popen(*command, start_new_session=True, env={**os.environ, "TMPDIR": str(files)})
    signal.signal(signal.SIGHUP, before)
    with process:
        assert process.stdout.readline() == "ready\n"
        (os.killpg if way == "to the group" else os.kill)(process.pid, number)
        if way == "nohup":
            process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=100)
    assert process.returncode == expected
    assert ROW in err
    assert "Traceback" not in err
    assert list(files.iterdir()) == []
    if number not in (signal.SIGINT, signal.SIGUSR1):
        ended = signal.SIGTERM if way == "nohup" else number
        assert f"the program ended: {ended.name}" in err
    if expected in (0, 7):
        assert out == {7: "interrupted\n", 0: "1\n"}[expected]


def test_descriptors_and_options_are_those_of_the_command(run: Runner) -> None:
    """What a shell opens for the script, and what ``-X`` says, arrives there."""
    script = run.write("import os, sys; os.write(int(sys.argv[1]), b'x'); print(sys._xoptions)")
    reader, writer = os.pipe()
    options = "-X", "one=1", "-X", "other"
    command = "-m", "leafwise", "explain", "-q", script, str(writer)
    done = run.run(*command, options=options, pass_fds=[writer])
    assert done.stdout == "{'one': '1', 'other': True}\n"
    assert os.read(reader, 9) == b"x"
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("where", ["subprocess.Popen.__init__", "leafwise.cli.recorded.read"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_while_no_script_runs(
    leafwise: Callable[..., Outcome],
    run: Runner,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    number: signal.Signals,
) -> None:
    """Before the script starts it ends the script; while the report is made, the command."""
    function = pkgutil.resolve_name(where)
    script = run.write("import time\ntime.sleep(99)" if "Popen" in where else "")

    def interrupted(*arguments: Any, **options: Any) -> Any:
        signal.raise_signal(number)
        return function(*arguments, **options)

    (run.folder / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(run.folder / "temporary"))
    monkeypatch.setattr(where, interrupted)
    assert leafwise("explain", script).code == 128 + number
    assert list((run.folder / "temporary").iterdir()) == []


CHILDREN = """
import multiprocessing, os, subprocess, sys
import jax
class Job:
    pass
def work(number, job=None):
    step(float(number))
    step(int(number))
@jax.jit
def step(x):
    return x
if __name__ == "__main__":
    before = dict(os.environ)
    for way in sys.argv[1:]:
        if way in ("spawn", "forkserver", "fork"):
            context = multiprocessing.get_context(way)
            each = context.Process(target=work, args=(1, Job()), name=way)
            each.start(); each.join(); print(way, each.exitcode)
        elif way == "pool":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(work, [1, 2]))
        else:
            command = [sys.executable, "child.py"]
            more = {"env": {**os.environ, "MINE": "1"}} if way == "env" else {}
            print(subprocess.run(command, close_fds=way != "posix_spawn", **more).returncode)
    sys.stdout.flush()
    subprocess.run(["env"])
    assert dict(os.environ) == before
"""
CHILD = """
import os, sys
print(os.environ.get("PYTHONPATH"), os.environ.get("MINE"), sys.path[:2])
import jax
jax.jit(lambda child: child)(1.0)
"""


@pytest.mark.nightly
def test_children(run: Runner) -> None:
    """Processes that the script starts are in the report."""
    script = run.write(CHILDREN)
    run.write(CHILD, "child.py")
    ways = "spawn", "forkserver", "fork", "pool", "subprocess", "posix_spawn", "env"
    plain = run.run(script, *ways)
    explained, report = run.report(script, *ways)
    assert explained.returncode == plain.returncode == 0
    ours = "_=", "LEAFWISE_EXPLAIN"
    lines = [line for line in plain.stdout.splitlines() if not line.startswith(ours)]
    found = [line for line in explained.stdout.splitlines() if not line.startswith(ours)]
    assert found[: len(lines)] == lines
    counts = {each["name"]: each["traces"] for each in report["functions"]}
    assert counts["<lambda>"] == 3
    assert counts["step"] == 2 * 4, "the pool has one process"
    assert report["warnings"] == []
    assert len({each["process"] for each in report["events"]}) >= 7


@pytest.mark.nightly
def test_without_the_launcher(run: Runner) -> None:
    """Processes of `LEAFWISE_EXPLAIN` leave their records, by rank; one report is made of them."""
    script = run.write(
        """
        import jax, os, sys
        os.chdir("/")
        step = jax.jit(lambda x: x)
        step(1.0)
        if os.environ["RANK"] == "1":
            step(1)
        sys.exit(3)
        """
    )
    for rank in "01":
        more = {"LEAFWISE_EXPLAIN": "records", "RANK": rank}
        done = run.run(script, env={**os.environ, **more})
        assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
    done, report = run.report("records")
    assert done.returncode == 0
    assert {each["process"] for each in report["events"]} == {"rank 0", "rank 1"}
    (found,) = report["findings"]
    assert (found["processes"], found["retraces"]) == (["rank 1"], 1)
    assert ", in rank 1\n" in done.stderr
    assert "records of 2 processes\n" in done.stderr
    assert report["program"] == script


def test_records_of_a_process_that_was_killed(run: Runner) -> None:
    """A line that is cut off is counted, and no other is lost; other files are no records."""
    (run.folder / "records").mkdir()
    lines = '{"jax": "0', '{"command": "t.py"}', "", '{"jax": "0'
    (run.folder / "records" / "rank-1-7.jsonl").write_text("\n".join(lines))
    (run.folder / "records" / "lost").write_text("-")
    done, report = run.report("records")
    assert (done.returncode, report["program"]) == (0, "t.py")
    assert "warning: 3 records are missing: " in done.stderr
    assert "No compile was recorded.\nrecords of 1 process\n" in done.stderr
    (run.folder / "data").mkdir()
    (run.folder / "data" / "train.jsonl").write_text("{}")
    assert run.explain("data").stderr == "leafwise explain: there is no __main__.py in data\n"


@pytest.mark.nightly
def test_a_folder_that_cannot_be_written(run: Runner) -> None:
    """The script runs all the same, and one line says that nothing is recorded."""
    (run.folder / "file").write_text("")
    environment = {**os.environ, "LEAFWISE_EXPLAIN": "file/records"}
    done = run.run(run.write("import jax\nprint(1)"), env=environment)
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert done.stderr.startswith("leafwise: LEAFWISE_EXPLAIN=")
    assert done.stderr.endswith("nothing is recorded\n")


PLANTED = """
import json, os, pathlib, sys
folder = pathlib.Path(os.environ["LEAFWISE_EXPLAIN"])
texts = {name: "print('planted')" for name in (__file__, str(pathlib.Path("mine.py").resolve()))}
for name in ("changed.json", "options.json", "mine.py", "sitecustomize.py", "jax.py"):
    text = "print('planted')" if name.endswith(".py") else json.dumps({"captures": 3, **texts})
    (folder / name).write_text(text)
(folder / "rank-1.txt").write_text("no record")
if "again" not in sys.argv:
    os.execv(sys.executable, [sys.executable, __file__, "again"])
import mine
"""


@pytest.mark.nightly
def test_nothing_in_the_folder_of_records_is_run(run: Runner) -> None:
    """Texts and options that others put there are neither imported nor read."""
    (run.folder / "records").mkdir()
    run.write("import jax\njax.jit(lambda x: x)(1.0)\nprint('mine')", "mine.py")
    script = run.write(PLANTED)
    done = run.run(script, env={**os.environ, "LEAFWISE_EXPLAIN": "records"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "mine\n", "")
    done = run.explain("records")
    assert (done.returncode, done.stdout) == (0, "")
    assert "<lambda>  mine.py:2" in done.stderr
    assert run.explain(script).stdout == "mine\n"


OUTLIVES = """
import os, time
if os.fork():
    os._exit(0)
folder = os.environ["LEAFWISE_EXPLAIN"]
while os.path.exists(os.path.dirname(folder)):
    time.sleep(0.05)
import jax
jax.jit(lambda x: x)(1.0)
print(os.path.exists(os.path.dirname(folder)))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a child that outlives its parent")
def test_a_child_that_outlives_the_report(run: Runner) -> None:
    """It records nothing, prints nothing, and does not make the removed folder again."""
    done = run.explain("-q", run.write(OUTLIVES))
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


def test_a_folder_that_a_script_names_for_its_child(run: Runner) -> None:
    """The options of the command are not for the child: its folder is made, without captures."""
    run.write("import jax\nn = 1.0\njax.jit(lambda x: x * n)(1.0)", "child.py")
    child = "subprocess.run([sys.executable, 'child.py'], env={**os.environ, 'LEAFWISE_EXPLAIN': "
    script = run.write(f"import os, subprocess, sys\n{child}'other'}})")
    done = run.explain("--captures", "--fail-on", "retrace", script)
    assert "warning: no process that was seen imported JAX\nNo compile was recorded" in done.stderr
    assert done.returncode == 1  # a gate has no evidence
    _, report = run.report("other")
    assert (len(report["functions"]), report.get("captures")) == (1, None)
