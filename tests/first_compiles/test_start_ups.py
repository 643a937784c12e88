"""What `explain` says of passes outside `jit`, of repeats, and of loops that JAX runs: a table."""

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.explained import program, report_on
from tests.kit.inside import first_compiles, program_recorder

pytestmark = [
    pytest.mark.nightly,  # shares of seconds, which a busy machine may change
    pytest.mark.usefixtures("lines"),
    pytest.mark.skipif(sys.version_info < (3, 12), reason="calls are not counted"),
]

HEAD = """\
import equinox as eqx, jax, jax.numpy as jnp, numpy as np
from flax import nnx
leaves = [np.ones(shape, np.float32) for shape in ((3, 4), (4,), (2, 2, 2), (5, 2))]
key = jax.random.key(0)
keys = [jax.random.key_data(k) for k in jax.random.split(key, 12)]
def squared(x):
    return jnp.roll(jnp.abs(x) * jnp.flip(x), 1)
class Model:
    def __init__(self, n):
        self.x = jnp.linspace(0, 1, n)
        self.y = jnp.roll(jnp.flip(self.x), 1)
        self.z = jnp.pad(self.y, 1) * jnp.arange(n + 2)
        self.w = jnp.outer(self.z, self.x) - jnp.tile(self.x, 2).max()
        self.v = jnp.stack([self.w, self.w]).mean(0)
    def one(self, x):
        return jnp.roll(jnp.abs(x) * jnp.flip(x), 1).max()
"""
BODY = "def body(h, x):\n    for _ in range({}): h = jnp.tanh(h @ h + x)\n    return h, None\n"
SCAN = f"{BODY}jax.lax.scan(body, np.ones((3, 3)), np.ones((4, 3)))"
PMAP = f"{BODY}jax.pmap(body)(np.ones((1, 3, 3)), np.ones((1, 3)))"
INTO = "into a function of its arrays and `jax.jit` that"
CACHE = "JAX's cache on disk"
PROGRAMS = {
    "comprehension": ("out = [squared(x) for x in leaves]", f"put this line {INTO}"),
    "genexpr": ("out = tuple(\n    squared(x)\n    for x in leaves\n)", f"put this line {INTO}"),
    "loop": (
        "def load(leaves):\n    for x in leaves:\n        squared(x)\nload(leaves)",
        f"put this loop {INTO}",
    ),
    "constructor": ("Model(7)", f"put what `Model.__init__` computes {INTO}"),
    "read": ("for x in leaves: squared(x).tolist()", "`jax.jit` `squared`"),
    "method": (
        "model = Model(7)\nfor x in leaves:\n    float(model.one(x))",
        f"put what `Model.one` computes {INTO}",
    ),
    "mask": ("for x in leaves:\n    y = squared(x)\n    y[y > 0]", "`jax.jit` `squared`"),
    "generator": (
        "def batches():\n    for x in leaves:\n        y = jnp.abs(x) * jnp.flip(x)\n"
        "        yield jnp.roll(y, 1)\nlist(batches())",
        CACHE,
    ),
    "condition": (
        "def checked(x):\n    assert squared(x).max() < 9\nfor x in leaves: checked(x)",
        CACHE,
    ),
    "equinox": ("[eqx.nn.Linear(8, 8, key=k) for k in jax.random.split(key, 9)]", CACHE),
    "draws": ("[jax.random.normal(k, (8, 4)) for k in jax.random.split(key, 9)]", "leave it: 9"),
    "nnx": ("nnx.Linear(11, 3, rngs=nnx.Rngs(0))", CACHE),
    "growing": ("y = jnp.ones(3)\nfor _ in range(9):\n    y = jnp.append(y, y.sum())", "preall"),
    "recreated": ("for n in (1, 2):\n    jax.jit(lambda x: x * n)(np.ones(3))", "`n`"),
    "of other sizes": ("for n in (3, 4):\n    jax.jit(lambda x: x * n)(np.ones(n))", ""),
    "scan": (SCAN.format(9), "which ran 9 times"),
    "pmap": (PMAP.format(9), "which ran 9 times"),
    "short scan": (SCAN.format(3), CACHE),
    "short pmap": (PMAP.format(3), ""),
}
"""Programs, and what the report says; nothing, or `CACHE`, if that is all."""


@pytest.fixture(autouse=True)
def each_compile_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (first_compiles, program_recorder):
        monkeypatch.setattr(module, "LEAST", 0.0)
    monkeypatch.setattr("leafwise._findings.findings.LEAST", 0.0)
    monkeypatch.setattr(program_recorder, "_SMALL", 0.0)
    monkeypatch.setattr(first_compiles, "_LEAST_SHARE", 9.0)  # lines from five seconds on


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the names that the programs use."""
    file, run = program(tmp_path_factory.mktemp("head"), HEAD)
    run()
    return vars(sys.modules[Path(file).stem])


def report_of(code: str, names: dict[str, Any], folder: Path) -> Any:
    """Return the report on a program that is compiled as in a process of its own."""
    jax.clear_caches()
    file, run = program(folder, code)
    module = vars(sys.modules[Path(file).stem])
    module.update(names | module)
    return report_on(run)


@pytest.mark.parametrize(("code", "words"), PROGRAMS.values(), ids=PROGRAMS)
def test_what_is_said(code: str, words: str, names: dict[str, Any], tmp_path: Path) -> None:
    """The fix is for the pass, the function or neither; of what is short nothing is said."""
    report = report_of(code, names, tmp_path)
    every = (*report.findings, *report.first)
    said = [str(text) for one in every for text in (one.headline, *one.fixes())]
    assert any(words in text for text in said) if words else not said, said
    if words in ("", CACHE):
        assert all(CACHE in str(fix) for finding in every for fix in finding.fixes())


@given(st.lists(st.sampled_from([(8, 4), (6, 4), (5, 3)]), min_size=6, max_size=12))
def test_calls_of_draws(names: dict[str, Any], shapes: list[Any]) -> None:
    """As many calls share as many programs as plain JAX counts; of less than two each, no words."""
    code = f"""\
def draws(keys):
    return [jax.random.truncated_normal(key, -2, 2, shape) for key, shape in zip(keys, {shapes})]
draws(keys)
"""
    compiles = Counter[str]()

    def count(event: str, _: float, **about: Any) -> None:
        compiles[str(about.get("fun_name"))] += event.endswith("backend_compile_duration")

    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        with tempfile.TemporaryDirectory() as folder:
            first = report_of(code, names, Path(folder)).first
    finally:
        jax.monitoring.unregister_event_duration_listener(count)
    number = sum(n for name, n in compiles.items() if "truncated_normal" in name)
    assert number == len(set(shapes))
    programs = f"{number} program{'s' * (number > 1)}"
    words = f"{len(shapes)} calls of `truncated_normal` share {programs}"
    fixes = [str(fix) for one in first for fix in one.fixes()]
    assert any(words in fix for fix in fixes) == (len(shapes) >= 2 * number)
