"""The seconds that `explain` promises for a pass outside `jit`: its fix is done and measured."""

import os
import re
import resource
import sys
from pathlib import Path

import pytest
from tests.kit.processes import Runner, run_python

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(sys.version_info < (3, 12), reason="calls are not counted"),
]

PASSES = """\
import jax, jax.numpy as jnp, numpy as np
shapes = [(n % 7 + 2, n % 5 + 3) for n in range(24)]
arrays = {n: np.ones(shape, np.float32) for n, shape in enumerate(shapes)}
keys = [jax.random.key(n) for n in range(12)]
def quantize(x):
    scale = jnp.abs(x).max() / 127
    return jnp.round(x / scale).astype(jnp.int8), jnp.roll(jnp.flip(x), 1), scale
def build(keys):
    shapes = [(64, 64), (32, 16), (3, 48)] * 4
    return [jax.nn.initializers.he_normal()(*each) for each in zip(keys, shapes)]
"""
ALL = "jax.tree.map(quantize, arrays)"
EACH = "[float(quantize(x)[2]) for x in arrays.values()]"
DONE = {
    "loop": (f"def load(arrays): return {ALL}\nload(arrays)", "jax.jit(load)(arrays)"),
    "line": (ALL, f"jax.jit(lambda arrays: {ALL})(arrays)"),
    "read": (EACH, f"quantize = jax.jit(quantize)\n{EACH}"),
    "draws": ("build(keys)", "jax.jit(build)(keys)"),
}


def cpu_seconds(code: str) -> float:
    """Return how many seconds of CPU a process takes."""
    spent: list[float] = []
    for _ in range(2):
        before = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
        run_python(code, JAX_DISABLE_MOST_OPTIMIZATIONS="0")
        spent.append(sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before)
    return min(spent)


@pytest.mark.parametrize(("code", "fixed"), DONE.values(), ids=DONE)
def test_the_promise(code: str, fixed: str, tmp_path: Path) -> None:
    """Done, a fix takes the CPU seconds that it says; what is left as it is would take more."""
    run = Runner(tmp_path)
    env = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}
    (fix,) = run.report(run.write(PASSES + code), env=env)[1]["first"][0]["fixes"]
    least = cpu_seconds(PASSES)
    fixed = code.rpartition("\n")[0] + "\n" + fixed
    before, after = (cpu_seconds(PASSES + each) - least for each in (code, fixed))
    if promise := re.search(r"([\d.]+) s to about ([\d.]+) s", fix):
        assert 0.5 <= after / before / (float(promise[2]) / float(promise[1])) <= 1.65
    elif "about half" in fix:
        assert after <= 0.75 * before
    else:
        assert fix.startswith("leave it: 12 calls of") and after > before  # noqa: PT018
