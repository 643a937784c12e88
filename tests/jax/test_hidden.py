"""Where JAX does not show something, nothing is said that depends on it, and nothing untrue."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

HERE = Path(__file__).parent

SCRIPT = """
import jax
import jax.numpy as jnp
import leafwise as lw

@jax.jit
def grown(x):
    return x.sum()

@jax.jit
def batched(x):
    return jnp.sin(x).sum()

@jax.jit
def clean(x):
    return x * 2

for n in range(1, 5):
    grown(jnp.ones(n))
for n in range(1, 5):
    jax.grad(grown)(jnp.ones(n))
for n in range(1, 5):
    jax.vmap(batched)(jnp.ones((n, 7)))
for n in range(1, 5):
    jax.jit(lambda x: x + 1)(1.0)
for n in range(5):
    clean(jnp.ones(3))

ones = jnp.ones(3)
alone, inner, ahead, mapped = (lw.jit(lambda x: x + 1) for _ in range(4))
alone(ones)
jax.jit(lambda x: inner(x))(ones)
ahead.lower(ones).compile()
jax.vmap(mapped)(jnp.ones((2, 3)))
for function in (alone, inner, ahead, mapped):
    said = [str(function.explain(x).outcome) for x in (ones, ones[:2])]
    entries = function.cache_size()
    with lw.watch() as log:
        function(ones)
    did = "recompile" if log.compiles else "reuse"
    assert said[0] in (did, "unknown"), (said, did)
    assert said[1] in ("retrace", "unknown"), said
print("done")
"""

PAIRS = f"""
import sys
sys.path.insert(0, {str(HERE.parents[1])!r})
import jax
import jax.numpy as jnp
import leafwise as lw
from tests.compare.pairs import two_calls
from tests.compare.test_known_arguments import KNOWN, OPTIONS

for name, (_, calls, _) in KNOWN.items():
    seen = two_calls(*calls(), **OPTIONS.get(name, {{}}))
    assert seen.predicted.outcome in (seen.outcome, "unknown"), (name, seen)

value = 1.0
scaled = lw.jit(lambda x: x * value, on_stale="retrace")
takes = (
    lambda x: scaled(x),
    lambda x: jax.vmap(scaled)(x),
    lambda x: jax.grad(lambda x: scaled(x).sum())(x),
    lambda x: jax.jit(lambda x: scaled(x))(x),
)
for take in takes:
    for value in (1.0, 2.0):
        assert float(take(jnp.ones(2)).sum()) == 2 * value
print("done")
"""

CONTEXT, PROGRAMS = "all that a trace depends on", "programs before their compile"
HIDDEN = {  # by what is left out; nothing is, where JAX shows the same in another way
    "the arguments of its calls": (
        *("cache_miss", "jit_trace", "jit_info", "jit_func", "cache_miss:args cache_miss:kwargs"),
        *("cache_miss:fun", "jit_trace:args jit_trace:kwargs"),
    ),
    "what it lowers": (
        *("jit_lower", "jit_lower:args jit_lower:kwargs", "lower_sharding_computation"),
        *("global_in_avals", "lower_sharding_computation:jaxpr"),
        "lower_sharding_computation:device_assignment",
    ),
    "the results of its traces": (
        "_trace_for_jit _create_pjit_jaxpr",
        "_trace_for_jit:jaxpr _create_pjit_jaxpr:jaxpr",
    ),
    "traces inside other traces": ("trace_to_jaxpr trace_to_jaxpr_nocache trace_to_jaxpr_dynamic",),
    "the transformations of its calls": (
        *("_pjit_batcher", "axis_data", "_pjit_linearize", "_pjit_transpose _pjit_transpose_fancy"),
    ),
    CONTEXT: ("trace_context",),
    PROGRAMS: ("compile_or_get_cached",),
    "": (
        *("_cached_lowering_to_hlo _cached_compilation", "lowering_result", "trace_context_names"),
        *("_pjit_jvp _pjit_partial_eval _pjit_remat", "tracing_eqns", "_get_cache_key"),
        *("compile_args", "_lowering", "_jit_info", "reraise_with_filtered_traceback"),
        *("filter_traceback", "traceback_filtering", "register_exclusion", "global_state"),
        *("_check_carry_type _check_branch_outputs", "_registry", "deserialization_registry"),
        "make_jaxpr_f",
    ),
}
NAMES = [(name, what) for what, names in HIDDEN.items() for name in names]
FAST = {"cache_miss"}
FIRST = [names[0] for what, names in HIDDEN.items() if what]
OTHERS = HERE.parent / "foreign" / "scripts"
SCRIPTS = ("batch_sizes", "growing", "guards", "solver_again")  # which need JAX alone


class Ran(NamedTuple):
    """What `leafwise explain` printed and reported of a script."""

    out: str
    err: str
    report: Any

    @property
    def findings(self) -> set[str]:
        """What was found, but for the time that it took."""
        left_out = ("seconds",)
        every = ({**each, **dict.fromkeys(left_out)} for each in self.report["findings"])
        return {json.dumps(each, sort_keys=True) for each in every}


def explain(folder: Path, script: Path, hidden: str = "") -> Ran:
    """Run a script in a process in which JAX does not show something."""
    shutil.copy(HERE / "hiding.py", folder / "sitecustomize.py")
    env = {**os.environ, "HIDDEN": hidden, "PYTHONPATH": str(folder), "JAX_PLATFORMS": "cpu"}
    file, page = folder / "report.json", folder / "report.html"
    options = "--output-format=json", "-o", str(file), "--html", str(page)
    command = [sys.executable, "-m", "leafwise", "explain", *options, script.name]
    done = subprocess.run(
        command, cwd=script.parent, capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text(encoding="utf-8"))
    return Ran(done.stdout, page.read_text(encoding="utf-8"), report)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ran]:
    """The script, and what is said of it where JAX shows all."""
    script = tmp_path_factory.mktemp("shown") / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    found = explain(script.parent, script)
    assert len(found.findings) >= 4
    assert "left_out" not in found.report
    return script, found


def rows() -> list[Any]:
    fast, slow = pytest.mark.slow, (pytest.mark.slow, pytest.mark.nightly)
    return [
        pytest.param(name, what, id=name, marks=fast if name in FAST else slow)
        for name, what in NAMES
    ]


@pytest.mark.parametrize(("hidden", "what"), rows())
def test_nothing_is_said_that_depends_on_it(
    hidden: str, what: str, shown: tuple[Path, Ran], tmp_path: Path
) -> None:
    """Findings are left out, none is another one; what happened is counted, and a line says it."""
    script, known = shown
    found = explain(tmp_path, script, hidden)
    assert found.out == known.out == "done\n"
    assert set(found.report.get("left_out", {})) == ({what} if what else set())
    assert found.findings <= known.findings
    assert (found.findings == known.findings) is (what in ("", CONTEXT, PROGRAMS))
    counts = [
        sum(each[kind] for each in ran.report["functions"])
        for kind in ("lowerings", "compiles")
        for ran in (found, known)
    ]
    assert counts[::2] == counts[1::2]
    assert not found.report["warnings"]
    *_, last = found.err.split("JAX ")
    says = f"does not show {what} to this version of leafwise:"
    assert (says in " ".join(last.split())) is bool(what)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """What is said of scripts of other people where JAX shows all."""
    folder = tmp_path_factory.mktemp("others")
    return {name: explain(folder, OTHERS / f"{name}.py") for name in SCRIPTS}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("hidden", FIRST)
def test_scripts_of_others(hidden: str, others: dict[str, Ran], tmp_path: Path) -> None:
    """What only looks like a repeat is none; of other causes some are left out, none is new."""
    for name in SCRIPTS:
        found = explain(tmp_path, OTHERS / f"{name}.py", hidden)
        assert found.out == others[name].out
        assert found.findings <= others[name].findings


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("hidden", [name for name, _ in NAMES])
def test_the_oracle_and_the_captures(hidden: str, tmp_path: Path) -> None:
    """What is predicted of two calls is what JAX does; what a function captures is not stale."""
    script = tmp_path / "script.py"
    script.write_text(PAIRS, encoding="utf-8")
    assert explain(tmp_path, script, hidden).out == "done\n"


@pytest.mark.nightly
@pytest.mark.slow
def test_the_next_version(shown: tuple[Path, Ran], tmp_path: Path) -> None:
    """A JAX of another number that is otherwise today's is explained in the same words."""
    script, known = shown
    found = explain(tmp_path, script, "version:0.13.0")
    assert found.report["jax"] == "0.13.0"
    assert found.findings == known.findings
    assert "left_out" not in found.report
