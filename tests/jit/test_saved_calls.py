"""Calls that `leafwise explain --json` wrote, compiled ahead in another run."""

import collections
import dataclasses
import enum
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import leafwise as lw
from leafwise._compare.saved_call import load_call, save_call
from leafwise._jax.events import count_events
from leafwise._jit import precompile
from leafwise.cli import explain_report
from leafwise.errors import PortableError, PrecompileError


class Mode(enum.Enum):
    A = 1
    B = 2


@dataclasses.dataclass(frozen=True)
class Config:
    n: int = 3
    sizes: tuple[float, ...] = (1.0, -0.0)


@lw.pytree
class Params:
    w: Any
    mode: Mode = lw.static_field(default=Mode.A)
    config: Config = lw.static_field(default=Config())


@lw.pytree(many_statics=True)
class Many(Params):
    b: Any = 0.0
    act: Any = lw.static_field(default=jax.nn.relu)


class Pair(NamedTuple):
    m: Any
    v: Any


@struct.dataclass
class OfFlax:
    a: Any
    k: int = struct.field(pytree_node=False, default=2)


class Plain:
    def __init__(self, x: Any, n: int) -> None:
        self.x, self.n = x, n


lw.register(Plain, dynamic=("x",), static=("n",))

X = np.ones(3, np.float32)


def total(*args: Any, **kwargs: Any) -> Any:
    leaves = jax.tree.leaves((args, kwargs))
    return [leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf) for leaf in leaves]


def mesh(kind: AxisType) -> Any:
    return jax.make_mesh((4, 2), ("data", "model"), axis_types=(kind, kind))


CALLS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "leafwise": lambda: ((Params(X, Mode.B), [Many(jnp.ones(3), b=X, act=jnp.tanh), None]), {}),
    "containers": lambda: (
        ({"b": X, "a": (1, Pair(2.0, True))}, collections.OrderedDict(z=X, y=X), {2: X, 1: X}),
        {"kw": collections.defaultdict(list, a=X), "other": jax.tree_util.Partial(jnp.tanh, X)},
    ),
    "registered": lambda: ((Plain(X, 3),), {}),
    "flax": lambda: ((OfFlax(jnp.ones(3), 5),), {}),
    "equinox module": lambda: ((eqx.nn.Linear(3, 3, key=jax.random.key(0)),), {}),
    "numbers and keys": lambda: (
        (1, 2.0, True, 1j, np.float32(1), np.int64(2), jnp.array(0.5), jnp.bfloat16(1)),
        {"key": jax.random.key(0, impl="rbg")},
    ),
    "committed": lambda: ((jax.device_put(X, jax.devices()[3]),), {}),
    "sharded": lambda: (
        (jax.device_put(np.ones((8, 4)), NamedSharding(mesh(AxisType.Auto), P("data", "model"))),),
        {},
    ),
    "explicit": lambda: (
        (jax.device_put(np.ones((8, 4)), NamedSharding(mesh(AxisType.Explicit), P("data"))),),
        {},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_call_of_a_file_leads_to_the_program_of_the_call(name: str) -> None:
    """After a round trip through JSON, the real call traces, lowers and compiles nothing."""
    args, kwargs = CALLS[name]()
    saved = json.loads(json.dumps(save_call(lw.signature(*args, **kwargs))))
    fun = jax.jit(lambda *args, **kwargs: total(*args, **kwargs))
    lw.precompile([(fun, tuple(load_call(saved)))])
    with count_events("<lambda>") as counts:
        fun(*args, **kwargs)
    assert (counts.traces, counts.lowerings, counts.compiles) == (0, 0, 0)


def test_filter_jit_and_static_arguments_come_back() -> None:
    """Leaves that equinox takes for static, and arguments that JAX is told are."""
    linear = eqx.nn.Linear(3, 3, key=jax.random.key(0))
    signature = lw.signature(linear, X, "mode", filter_jit=True)
    fun = eqx.filter_jit(lambda linear, x, mode: linear(x) if mode == "mode" else x)
    lw.precompile([(fun, tuple(load_call(save_call(signature))))])
    with count_events("<lambda>") as counts:
        fun(linear, X, "mode")
    assert counts.compiles == 0

    @lw.jit
    def step(x: Any, n: lw.Static[Any]) -> Any:
        return x * len(n)

    call = load_call(save_call(step.signature(X, n=(1, Mode.A))))
    lw.precompile([(step, tuple(call))])
    with count_events("step") as counts:
        step(X, n=(1, Mode.A))
    assert counts.compiles == 0


def test_what_means_nothing_elsewhere_is_named() -> None:
    """By path, with the value; the file then has no call."""
    step = lw.jit(total)
    saved = save_call(step.signature(Many(X, act=lambda x: x), object()))
    assert "opaque" in saved["refused"]["args[0].act"]
    assert "without its data" in saved["refused"]["args[1]"]


@lw.pytree
class Changing:
    x: Any
    s: int = lw.static_field(default=1)


def report_of(tmp_path: Path, *calls: tuple[str, Any], version: int = 1) -> Path:
    """Write a file as `leafwise explain --json` does."""
    programs = [{"function": name, "call": call} for name, call in calls]
    file = tmp_path / "RUN.json"
    file.write_text(json.dumps({"version": version, "programs": programs}))
    return file


def test_a_file_is_compiled_with_the_functions_that_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By import, by name, and from `__main__` by the rest of their name; each program once."""
    found = jax.jit(lambda p: p.x * 2)
    monkeypatch.setitem(globals(), "found", found)
    own = jax.jit(lambda p: p.x * 3)

    @jax.jit
    def step(p: Any) -> Any:
        return p.x * 4

    call = save_call(lw.signature(Changing(X)))
    refused = {"refused": {"p.act": "a lambda"}}
    calls = [(f"{__name__}:found", call), ("__main__:own", call), ("other:own", refused)]
    name = f"__main__:{step.__qualname__}"
    file = report_of(tmp_path, *calls, *calls, (name, call), ("jax:stage", None))
    done = lw.precompile(file, functions={"own": own, "step": step} | {step.__qualname__: step})
    assert [str(each.outcome) for each in done] == ["compiled", "compiled", "skipped", "compiled"]
    assert done[2].reason == "p.act: a lambda"
    assert lw.precompile(str(report_of(tmp_path, (name, call))), functions=[step])[0].compiled
    for fun in (found, own, step):
        with count_events() as counts:
            fun(Changing(X))
        assert counts.compiles == 0


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    """A function, a module, a class, a field, a device: each failure has its name and a fix."""
    call = save_call(lw.signature(Changing(X)))
    text = json.dumps(call)
    one = jax.jit(total)
    gone = json.loads(text.replace(":Changing", ":Gone"))
    unloaded = json.loads(text.replace(f"{__name__}:Changing", "no_such_module:Changing"))
    changed = json.loads(text.replace('".s": 1', '".t": 1'))
    sharding = '"sharding": {"devices": [99], "memory": null}'
    away = json.loads(text.replace('"dtype"', f'{sharding}, "dtype"'))
    strange = {"arguments": {"args[0]": {"tree": {"class": "builtins:int"}}}, "leaves": []}
    calls = [("a:one", each) for each in (gone, unloaded, changed, away, strange)]
    file = report_of(tmp_path, ("m:f", call), (f"{__name__}:total", call), *calls)
    with pytest.raises(PrecompileError) as caught:
        lw.precompile(file, functions={"one": one})
    words = [
        "m:f: the function is not found here\n      fix: import m, or give the jitted one",
        "which is not jitted",
        f"there is no Gone in {__name__} here",
        "fix: import no_such_module",
        "Changing.t: static (1) in the file, not there here",
        "device 99 is in the file",
        "the call in the file cannot be made: KeyError: 'children'\n      fix: write it again",
    ]
    for each in words:
        assert each in caught.value.message
    assert "no_such_module" not in sys.modules
    assert len(caught.value.exceptions) == len(words)


def test_another_file_and_another_version_are_refused(tmp_path: Path) -> None:
    """Before anything is compiled, by the name of the file."""
    with pytest.raises(PortableError, match=r"RUN\.json: its version is 7"):
        lw.precompile(report_of(tmp_path, version=7))
    other = tmp_path / "other.json"
    entries = ("3", "[3]", '[{"call": {}}]', '[{"function": "a:b", "call": 3}]')
    reports = [f'{{"version": {precompile.VERSION}, "programs": {each}}}' for each in entries]
    for text in ("[", "[]", "{}", *reports):
        other.write_text(text)
        with pytest.raises(PortableError, match=r"other\.json: not a report with programs"):
            lw.precompile(other)
    assert precompile.VERSION == explain_report.VERSION


SCRIPT = """
import sys
import leafwise as lw
import jax, jax.numpy as jnp

@lw.pytree
class Net:
    w: jax.Array
    act: object = lw.static_field(default=jnp.tanh)

@jax.jit
def step(net, x):
    return net.act(net.w * x)

if len(sys.argv) > 1:
    print(lw.precompile(sys.argv[1])[0].outcome)
    with lw.watch() as log:
        step(Net(jnp.ones(3)), jnp.ones(3))
    assert not [each for each in log.events if each.name == "step"]
else:
    step(Net(jnp.ones(3)), jnp.ones(3))
"""


@pytest.mark.nightly
def test_a_script_is_warm_from_the_file_of_its_last_run(tmp_path: Path) -> None:
    """`leafwise explain --json RUN.json train.py`, and the next run compiles all ahead."""
    (tmp_path / "train.py").write_text(SCRIPT)
    path = os.pathsep.join(filter(None, sys.path))
    for command in (
        ["-m", "leafwise", "explain", "--json", "RUN.json", "train.py"],
        ["train.py", "RUN.json"],
    ):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
    assert done.stdout.strip() == "compiled"


def test_a_dtype_that_is_not_allowed_here_is_refused() -> None:
    """JAX would compile another program, and warn."""
    with jax.enable_x64(True):
        saved = save_call(lw.signature(jnp.ones(3)))
        assert load_call(saved).args[0].dtype == "float64"
    with pytest.raises(PortableError, match=r"leaf 0: float64 is in the file.*float32(?s:.*)x64"):
        load_call(saved)
