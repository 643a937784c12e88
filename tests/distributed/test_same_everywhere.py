"""`lw.jit(same_everywhere=True)` between real processes on this machine."""

from typing import Any

import cloudpickle
import jax.numpy as jnp
import numpy as np
import pytest

import leafwise as lw
from leafwise._jax import compiles

from .processes import HEAD, run

PLANTED = """
import functools, os, threading, cloudpickle, jax.numpy as jnp
initialize()
x = np.ones((4, 6), np.float32)
by_index = lambda *values: values[min(index, len(values) - 1)]
jit = functools.partial(lw.jit, same_everywhere=20)
rate = 0.1 + index
os.environ["BLOCK"] = str(2 + index)
names = tuple(map(str, range(30)))
unused = object()

@jit
def step(p):
    return jnp.sin(p.x) * 2 if p.n else p.x

@jit
def captured(x):
    return jnp.sin(x) * rate  # captured here

@jit
def environment(x):
    return x.reshape(-1, int(os.environ["BLOCK"])).sum(0)  # read here

@jit
def of_a_set(x):
    for name in set(names):
        x = jnp.where(x > int(name), x, -x)
    return x

@jit
def autotuned(x):
    block = by_index(2, 3)
    return jax.lax.map(jnp.sum, x.reshape(block, -1))

@jit
def matmul(x):
    return x @ x.T

@jit
def harmless(x):
    if index < 0 or unused is None:
        return x
    return x + 1

@jax.jit
def inner(x):
    return jnp.tanh(x) @ x.T @ x

@jit
def history(x):
    y = inner(x)
    if index == 1:
        jax.clear_caches()
    return inner(y)

def differentiated(x):
    return (jnp.sin(x) * by_index(1.5, 2.5)).sum()

switch = [2.0 + index]

@functools.partial(lw.jit, same_everywhere=20, on_stale="retrace")
def fixed(x):
    return x * switch[0]

def donating(x):
    return x + 1

@functools.partial(lw.jit, same_everywhere=20, static_argnames="mode")
def moded(x, mode):
    return x + mode if isinstance(mode, int) else x

with_precision = jax.default_matmul_precision("highest")

def configured():
    if index:
        with with_precision:
            matmul(x)
    else:
        matmul(x)

def global_array(devices):
    mesh = jax.sharding.Mesh(np.array(devices), ("d",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
    return jax.make_array_from_callback((4,), sharding, lambda at: np.ones(4, np.float32)[at])

@jit
def total(x):
    return x.sum()

@jit
def total_in_any_order(x):
    return x.sum()

def ahead():
    made = jit(donating)
    lowered = [made.lower(x[:n]) for n in range(1, 5)]
    errors = []
    run = lambda each: errors.append(attempt(each.compile)["error"])
    threads = [threading.Thread(target=run, args=(each,)) for each in lowered]
    for thread in threads[:: by_index(1, -1)]:
        thread.start()
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    assert errors == [None] * 4, errors

pickled = cloudpickle.loads(cloudpickle.dumps(jit(donating)))
cases = {
    "same": lambda: step(P(x, (1, "a", frozenset({1, 2})))),
    "hit": lambda: step(P(x, (1, "a", frozenset({1, 2})))),
    "global": lambda: report(name="sum", value=float(total(global_array(jax.devices())))),
    "harmless": lambda: harmless(x),
    "value": lambda: step(P(x, by_index(1, 2))),
    "type": lambda: step(P(x, by_index(1, True))),
    "argument": lambda: moded(x, mode=by_index(1, 2)),
    "order": lambda: step(P(x, frozenset(names))),
    "dtype": lambda: step(P(by_index(x, x.astype(np.int32)), 1)),
    "captured": lambda: captured(x),
    "environment": lambda: environment(x),
    "set": lambda: of_a_set(x),
    "autotuned": lambda: autotuned(x),
    "config": configured,
    "history": lambda: history(x),
    "donated": lambda: jit(donating, donate_argnums=by_index((), 0))(x),
    "devices": lambda: total_in_any_order(global_array(jax.devices()[:: by_index(1, -1)])),
    "grad": lambda: jax.grad(jit(differentiated))(x),
    "vmap": lambda: jax.vmap(jit(differentiated))(x),
    "lowered": lambda: jit(differentiated).lower(x).compile(),
    "ahead": ahead,
    "inner": lambda: jax.jit(lambda y: jit(differentiated)(y))(x),
    "inner input": lambda: jax.jit(lambda y: moded(y, mode=by_index(3, 4)))(x),
    "pickled": lambda: pickled(by_index(x, x[:2])),
    "fixed": lambda: fixed(x),
}
for name, act in cases.items():
    report(name=name, **attempt(act))
switch[0] = 3.0
report(name="fixed later", **attempt(lambda: fixed(x)), value=float(fixed(x)[0, 0]))

from leafwise._jax import compat
compat.ANSWERS.update(dict.fromkeys(compat.Internal, False))
report(name="unknown same", **attempt(lambda: jit(lambda x: x)(x)))

@jit
def unknown(x):
    return x * rate

report(name="unknown", **attempt(lambda: unknown(x)))
"""

OPERATIONS = {
    "captured": ("dense<1.000000e-01>", "dense<1.100000e+00>", "captured here"),
    "environment": ("tensor<12x2xf32>", "tensor<8x3xf32>", "read here"),
    "set": ("stablehlo.constant", "stablehlo.constant", ""),
    "autotuned": ("tensor<2x12xf32>", "tensor<3x8xf32>", ""),
    "config": ("precision = [DEFAULT, DEFAULT]", "precision = [HIGHEST, HIGHEST]", ""),
    "history": ("call @inner(", "call @inner_", ""),
    "donated": ("func.func public @main(", "tf.aliasing_output", ""),
    "grad": ("dense<1.500000e+00>", "dense<2.500000e+00>", ""),
    "vmap": ("dense<1.500000e+00>", "dense<2.500000e+00>", ""),
    "lowered": ("dense<1.500000e+00>", "dense<2.500000e+00>", ""),
    "fixed": ("dense<2.000000e+00>", "dense<3.000000e+00>", ""),
}
INPUTS = {
    "value": ("p.n", "1", "2"),
    "type": ("p.n", "1", "True"),
    "argument": ("mode", "1", "2"),
    "order": ("p.n", None, None),
    "dtype": ("p.x", "float32[4,6]", "int32[4,6]"),
    "inner input": ("mode", "3", "4"),
    "pickled": ("x", "float32[4,6]", "float32[2,6]"),
}


@pytest.mark.nightly
def test_planted_differences_between_two_processes() -> None:
    """Each process names inputs or operations that differ, with lines; nothing hangs."""
    done = run(PLANTED, 2, limit=120)
    assert [status for status, _, _ in done] == [0, 0], done
    first, second = ({line["name"]: line for line in lines} for _, lines, _ in done)
    assert first["sum"]["value"] == second["sum"]["value"] == 4.0
    for name in (
        "same",
        "hit",
        "global",
        "harmless",
        "ahead",
        "inner",
        "fixed later",
        "unknown same",
    ):
        assert first[name]["error"] is second[name]["error"] is None, (first[name], second[name])
    assert first["fixed later"]["value"] == second["fixed later"]["value"] == 3.0
    for name in {*OPERATIONS, *INPUTS, "devices", "unknown"}:
        assert first[name]["error"] == "DifferentProcessesError", first[name]
        assert first[name]["message"] == second[name]["message"]
        assert first[name]["seconds"] < 15
        for texts in first[name]["differences"].values():
            assert sorted(texts.values()) == [[0], [1]]
    for name, (path, mine, its) in INPUTS.items():
        assert {*first[name]["differences"]} == {path}
        assert mine is None or first[name]["differences"][path] == {mine: [0], its: [1]}
    source = PLANTED.splitlines()
    for name, (mine, its, comment) in OPERATIONS.items():
        one, other = first[name]["differences"]["operation 1"]
        assert mine in one
        assert its in other
        for text in (one, other):
            line = int(text.rpartition("program.py:")[2])
            offset = len(HEAD.splitlines())
            assert not comment or comment in source[line - 1 - offset], text
    assert first["captured"]["differences"]["captured rate"] == {"0.1": [0], "1.1": [1]}
    assert first["fixed"]["differences"]["captured switch[0]"] == {"2.0": [0], "3.0": [1]}
    config = first["config"]["differences"]["config jax_default_matmul_precision"]
    assert config == {"None": [0], "'highest'": [1]}
    assert "option devices" in first["devices"]["differences"]
    assert first["unknown"]["differences"] == {"captured rate": {"0.1": [0], "1.1": [1]}}


ALONE = """
initialize(heartbeat_timeout_seconds=5, shutdown_timeout_seconds=5)
x = np.ones((2, 2), np.float32)

@lw.jit(same_everywhere=2)
def step(x):
    return x + 1

step(x)
found = attempt(lambda: step(x[:1] if index == 1 else x))
again = attempt(lambda: step(x[:, :1])) if index == 1 else {}
report(found=found, again=again)
time.sleep(40)
report(name="hung")
"""


@pytest.mark.nightly
@pytest.mark.parametrize("alone", [0, 1])
def test_the_one_that_traces_ends_those_that_hit_their_caches(alone: int) -> None:
    """It says why it traced and who did not come; JAX ends the others, though it lives on."""
    done = run(ALONE.replace("index == 1", f"index == {alone}"), 2, limit=60)
    (status, (hit,), _), (_, (traced, *_), _) = done if alone else done[::-1]
    assert hit["found"]["error"] is None
    assert status != 0
    assert traced["found"]["error"] == "ProcessTimeoutError"
    assert traced["found"]["missing"] == [1 - alone]
    message = traced["found"]["message"]
    assert f"process {1 - alone} did not respond within 2 s" in message
    assert "shape (2, 2) -> (1, 2)" in message
    assert "JAX client of this process is shut down" in message
    assert traced["found"]["seconds"] < 8
    assert traced["again"]["error"] == "ProcessTimeoutError"
    assert traced["again"]["seconds"] < 1


FAILING = """
import functools, jax.numpy as jnp
initialize()
x = np.ones((4, 6), np.float32)
jit = functools.partial(lw.jit, same_everywhere=20)
broken = [True]

@functools.partial(lw.jit, same_everywhere=20, on_stale="ignore")
def step(x):
    if index == 1 and broken:
        raise RuntimeError("planted")
    return jnp.sin(x)

@functools.partial(lw.jit, same_everywhere=20, on_stale="ignore")
def outer(x):
    return inner(x) + step(x)

@jit
def inner(x):
    return jnp.cos(x)

@jax.custom_vjp
def backward(x):
    return jnp.sin(x)

backward.defvjp(lambda x: (jnp.sin(x), x), lambda r, c: (c * r * (2.0 + index),))

cases = {
    "first": lambda: step(x),
    "again": lambda: step(x[:, :1]),
    "nested": lambda: outer(x[:2]),
    "lowered": lambda: step.lower(x[:3]).compile(),
    "gradient": lambda: jax.grad(lambda x: step(x).sum())(x[:1]),
}
for name, act in cases.items():
    broken[:] = [True]
    report(name=name, **attempt(act))
    broken.clear()
    report(name=f"{name}, fixed", **attempt(act))
    report(name=f"{name}, inner", **attempt(lambda: inner(x[:2])))
report(name="backward", **attempt(lambda: jax.grad(jit(lambda x: backward(x).sum()))(x)))
twice = jax.grad(lambda x: jax.grad(jit(lambda x: jnp.sin(x).sum()))(x).sum())
report(name="twice", **attempt(lambda: twice(x)))
mine = jax.device_put(x, jax.local_devices()[0])
if index:
    os.environ["XLA_FLAGS"] = "--xla_cpu_enable_fast_math=true"
report(name="flags", **attempt(lambda: jit(lambda x: x + 2)(x)))
os.environ["XLA_FLAGS"] = ""
report(name="local device", **attempt(lambda: jit(lambda x: x + 1)(mine)))
"""


@pytest.mark.nightly
def test_an_error_in_one_process_reaches_those_that_wait() -> None:
    """At once, with its text; the next call works in all. So it does under a gradient."""
    done = run(FAILING, 2, limit=120)
    assert [status for status, _, _ in done] == [0, 0], done
    first, second = ({line["name"]: line for line in lines} for _, lines, _ in done)
    for name in ("first", "again", "nested", "lowered", "gradient"):
        assert second[name]["error"] == "RuntimeError", second[name]
        assert first[name]["error"] == "DifferentProcessesError", first[name]
        assert "process 1: RuntimeError: planted" in first[name]["message"]
        assert first[name]["seconds"] < 10
        for each in (first, second):
            assert each[f"{name}, fixed"]["error"] is None, each
            assert each[f"{name}, inner"]["error"] is None, each
    for each in (first, second):
        assert each["backward"]["error"] == "DifferentProcessesError", each["backward"]
        mine, its = each["backward"]["differences"]["operation 1"]
        assert "dense<2.0" in mine
        assert "dense<3.0" in its
        flags = {"nothing": [0], "--xla_cpu_enable_fast_math=true": [1]}
        assert each["flags"]["differences"] == {"option XLA_FLAGS": flags}
        assert each["twice"]["error"] is each["local device"]["error"] is None, each


def test_one_process_compares_nothing() -> None:
    """Nothing listens to compiles, JAX finds its cache hits, and what has no digest is allowed."""
    traced: list[Any] = []

    @lw.jit(same_everywhere=True, static_argnums=1)
    def step(x: Any, f: Any) -> Any:
        traced.append(f)
        return f(x)

    x = np.ones(3, np.float32)
    same = jnp.sin
    for _ in range(3):
        step(x, same)
    assert len(traced) == 1
    assert not compiles._listeners
    plain = lw.jit(step.__wrapped__, static_argnums=1)
    plain(x, same)
    assert len(traced) == 2  # the option is a part of what JAX keys


def test_the_option_is_checked_and_kept() -> None:
    """A timeout is positive; a method, a pickled function and a decorator keep the option."""
    for wrong in (0, -1, 0.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="positive"):
            lw.jit(jnp.sin, same_everywhere=wrong)
    made: Any = lw.jit(same_everywhere=5)(np_sin)
    back = cloudpickle.loads(cloudpickle.dumps(made))
    for each in (made, back):
        assert each._leafwise_log.callee.timeout == 5.0
    whole: Any = lw.jit(np_sin, same_everywhere=True)
    assert whole._leafwise_log.callee.timeout == 300.0
    assert lw.jit(np_sin)._leafwise_log.callee.timeout is None  # type: ignore[attr-defined]


def np_sin(x: Any) -> Any:
    return jnp.sin(x)
