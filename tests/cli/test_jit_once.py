"""The code that `leafwise explain` prints for a call outside `jit`, pasted, changes no result."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.explained import package, program, report_on
from tests.kit.inside import Act

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="runs of lines are not counted")

HEAD = """\
import jax, types
import jax.numpy as jnp
import numpy as np
out, log, table = [], [], {"k": 1.0}
x, counts, scale = jnp.arange(4.0) - 1, jnp.array([1, 0, 2, 1]), 1.0
rate = types.SimpleNamespace(k=1.0)
def twice(y): return y * 2
def helped(c, y): return c + twice(y), None
def scaled(c, y): return c + y * scale, None
def listed(c, y): return c + y * table["k"], None
def noted(c, y): log.append(0); return c + y, None
def set_table(k): table["k"] = k
"""
FUNCTIONS = (
    *("lambda c, y: (c + y * k, None)", "lambda c, y: (c + y * scale, None)"),
    *("lambda c, y: (c + twice(y), None)", "lambda c, y: (c + y * rate.k, None)"),
    *("lambda c, y: (c + (y if k > 1 else -y), None)", "lambda c, y: (c + y * int(k), None)"),
    *("lambda c, y: (log.append(0), (c + y, None))[1]", "lambda c, y: (c + np.float32(k), None)"),
    *("lambda c, y, k=k: (c + y * k, None)", "lambda c, y: (c + y * (not k), None)"),
    *("helped", "scaled", "listed", "noted", "lambda c, y: scaled(c, y)", "local"),
    *("lambda c, y: (c + y * k[0], None)", "lambda c, y: (c + jnp.where(k > 1, y, -y), None)"),
)
ARRAYS = (
    *("x", "np.sort(x)", "-x", "x[x > 0]", "x * k", "jnp.repeat(x, counts)", "x[:3]", "(x, x)[0]"),
    *("np.arange(3.0) * scale", "jnp.arange(k + 2)", "np.sort(k * np.ones(3))", "x[counts]"),
)
CALLS = (
    *("jax.lax.scan(F, 0.0, XS)", "jax.lax.scan(F, 0.0, xs=XS)", "jax.lax.scan(F, k, XS)"),
    *("jax.lax.map(lambda y: (F)(0.0, y)[0], XS)", "jax.tree.map(lambda y: (F)(0.0, y)[0], XS)"),
    *("jax.lax.fori_loop(0, 3, lambda i, c: (F)(c, i)[0], XS)", "apply(F, XS)"),
)
CHANGES = (
    *(
        "pass",
        "scale = k",
        "set_table(k)",
        "rate.k = k",
        "x = x * 2",
        "twice = abs",
        "log.append(k)",
    ),
    *("def local(c, y): return c + y * k, None", "np = jnp", "counts = counts[::-1]"),
)
VALUES = ("(0.5, 1.0, 2.0)", "(1, 2, 3)", "jnp.arange(3.0)", "np.ones((3, 1))", "(True, False)")


def loop(call: str, change: str, values: str, *, is_in_function: bool) -> str:
    """Return a program with a call in a loop, which a function may contain."""
    lines = [f"for k in {values}:", f"    {change}", f"    out.append(jax.tree.leaves({call}))"]
    head = f"{HEAD}def local(c, y): return c + y, None\n"
    if is_in_function:
        names = "global scale, x, twice, np, counts" if " = " in change else ""
        return "\n    ".join([f"{head}def main():", names, *lines]) + "\nmain()\n"
    return "\n".join([f"{head}", *lines]) + "\n"


def run(folder: Path, source: str, **known: Any) -> tuple[str, int, list[tuple[str, ...]]]:
    """Return what a program computes or raises, how often it repeats, and the code of its fixes."""
    errors: list[str] = []
    file, body = program(folder, source)
    names = vars(sys.modules[Path(file).stem])
    names.update(known)

    def script() -> None:
        try:
            body()
        except Exception as error:  # noqa: BLE001  # some raise with or without the fix
            errors.append(repr(error))

    report = report_on(script)
    fixes = [fix for finding in report.findings for fix in finding.fixes()]
    repeats = sum(len(finding.programs) for finding in report.findings)
    codes = [fix.code for fix in fixes if fix.act is Act.JIT_ONCE]
    return repr((names.get("out"), names.get("log"), errors)), repeats, codes


def pasted(source: str, call: str, code: tuple[str, ...]) -> str:
    """Return a program with the code of a fix as its words say: once, and in place of the call."""
    definition, use = code
    assert source.count(call) == 1
    before = "def main():" if "def main():" in source else "for k in"
    return source.replace(call, use).replace(before, f"{definition}\n{before}")


@pytest.mark.slow
@given(st.data())
def test_the_code_changes_no_result(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """With it a drawn loop computes the same to the last bit, and compiles nothing again."""
    function, values = (data.draw(st.sampled_from(each)) for each in (FUNCTIONS, VALUES))
    arrays = data.draw(st.just("x") | st.sampled_from(ARRAYS))
    change = data.draw(st.just("pass") | st.sampled_from(CHANGES))
    call = data.draw(st.sampled_from(CALLS)).replace("F", function).replace("XS", arrays)
    source = loop(call, change, values, is_in_function=data.draw(st.booleans()))
    check(tmp_path_factory.mktemp("loop"), source, call)


def check(folder: Path, source: str, call: str) -> bool:
    """Check that the code of a fix, if there is some, does what it promises."""
    results, repeats, codes = run(folder, source)
    for code in codes:
        after, left, _ = run(folder, pasted(source, call, code))
        assert (after, left) == (results, 0)
        assert repeats
    return bool(codes)


STEP = "lambda c, y: (c + y * k, None)"
CERTAIN = {
    "a lambda": (f"jax.lax.scan({STEP}, 0.0, x)", "pass"),
    "a function": ("jax.lax.fori_loop(0, 3, lambda i, c: helped(c, i)[0] * k, x)", "pass"),
    "a default": ("jax.lax.scan(lambda c, y, k=k: (c + y * k, None), 0.0, x)", "pass"),
    "NumPy": (f"jax.lax.scan({STEP}, 0.0, np.sort(x))", "x = x * 2"),
    "an array that changes": ("jax.lax.map(lambda y: y * k, x)", "x = x * 2"),
}


@pytest.mark.parametrize("name", CERTAIN)
@pytest.mark.parametrize("is_in_function", [False, True])
def test_code_is_printed(name: str, is_in_function: bool, tmp_path: Path) -> None:
    """Where all that a call reads is an argument, or stays, pasting removes the repeats."""
    call, change = CERTAIN[name]
    source = loop(call, change, "(0.5, 1.0, 2.0)", is_in_function=is_in_function)
    assert check(tmp_path, source, call)


PACKAGE = """\
import jax
import jax.numpy as jnp
class Stepper:
    def __init__(self, nu): self.nu = nu
    def __call__(self, x): return x * self.nu
def rollout(step, n): return lambda x: jax.lax.scan(lambda c, _: (step(c), None), x, length=n)[0]
def fit(x, w): return jax.lax.scan(lambda c, y: (c + y * w, None), 0.0, jnp.asarray(x))[0]
def counted(f, x): return f(rollout(f, 2)(x))
def circuit(x):
    y = fit(x, 2.0)
    return lambda: y
def steps(x):
    for _ in range(jnp.divmod(len(x), 2)[0]): x = rollout(lambda c: c * 2, 2)(x)
    return x
"""
# What a loop does with `k`; in what a package makes of it nothing was shown.
WORDS = {
    "another object": "stepper = fl.Stepper(k); y = fl.rollout(stepper, 3)(x)",
    "another function": "def local(c): return c * k\n    y = fl.rollout(local, 3)(x)",
    "NumPy": "y = fl.fit(np.sort(x), k)",
    "a store": "y = fl.counted(lambda c: (setattr(rate, 'k', c), c)[1], x)",
    "a function is returned": "y = fl.circuit(x * k)()",
    "a range": "y = fl.steps(x)",
    "a mask": f"y = jax.lax.scan({STEP}, 0.0, x[x > 0])[0]",
    "a test": "y = jax.lax.scan(lambda c, y: (c + y if k > 1 else c, None), 0.0, x)[0]",
    "what the loop binds": "scale = k; y = jax.lax.scan(lambda c, y: scaled(c, y), 0.0, x)",
    "what is stored": f"rate.k = k; y = jax.lax.scan({STEP.replace('k,', 'rate.k,')}, 0.0, x)[0]",
    "what is appended": "y = jax.lax.map(lambda y: (log.append(0), y)[1], x)",
    "a tree": "y = jax.tree.map(lambda y: jax.lax.map(lambda z: z * k, y), [x])",
}


@pytest.mark.parametrize("name", WORDS)
def test_words_are_printed(name: str, tmp_path: Path) -> None:
    """Where pasted code could compute something else, or raise, there is none."""
    source = f"{HEAD}def local(c, y): return c + y, None\n"
    source += f"for k in (0.5, 1.0, 2.0):\n    {WORDS[name]}\n"
    names = types.ModuleType("fl")
    vars(names).update(package(PACKAGE, "fl"))
    _, repeats, codes = run(tmp_path, source, fl=names)
    assert repeats
    assert [code for code in codes if code] == []
