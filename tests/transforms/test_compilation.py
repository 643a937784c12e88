"""jit and its relatives: staged, lowered, compiled, exported, sharded, called back."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from .specimens import Check, Config, Layer

ROOT = Path(__file__).parents[2]


def double(layer: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf * 2, layer)


@pytest.mark.usefixtures("no_leaks")
def test_jit(check: Check) -> None:
    """In and out, class and statics; a second instance of equal statics traces nothing."""
    program = jax.jit(lambda p: double(check.seen(p)))
    results = [program(layer) for layer in (check.layer, check.again(), check.layer)]
    assert check.traces == 1
    assert [float(result.w) for result in results] == [1.0] * 3
    check.done(*results)


@pytest.mark.parametrize("change", ["act", "config", "config note"])
def test_every_static_counts(check: Check, change: str) -> None:
    """A change of one static traces again, a change back does not."""
    traces: list[Any] = []
    program = jax.jit(lambda p: traces.append((p.act, p.config, p.config.note)) or p(1.0))
    options: dict[str, Any] = {"act": "tanh", "config": Config(2, "note")}
    changed = {
        "act": {"act": "sin"},
        "config": {"config": Config(3, "note")},
        "config note": {"config": Config(2, "other")},
    }[change]
    for settings in (options, options | changed, options):
        program(check.cls(jnp.float32(0.5), jnp.float32(0.1), **settings))
    assert len(traces) == 2
    assert traces[0] != traces[1]


@pytest.mark.usefixtures("no_leaks")
def test_inside_of_containers_and_static_arguments(check: Check) -> None:
    """Instances in lists and dicts, and beside static arguments."""

    def program(tree: Any, mode: str) -> Any:
        check.seen(tree["a"][0])
        return tree, jax.tree.leaves(tree)[0] * len(mode)

    jitted = jax.jit(program, static_argnames="mode")
    for _ in range(2):
        result, _ = jitted({"a": [check.layer]}, mode="x")
    jitted({"a": [check.layer]}, mode="xy")
    assert check.traces == 2
    check.done(result["a"][0])


@pytest.mark.usefixtures("no_leaks")
def test_eval_shape_and_make_jaxpr(check: Check) -> None:
    """Abstract results are instances of structs; jaxprs have one input per leaf."""
    shapes = jax.eval_shape(lambda p: double(check.seen(p)), check.layer)
    assert isinstance(shapes.w, jax.ShapeDtypeStruct)
    again = jax.eval_shape(double, shapes)
    jaxpr, out = jax.make_jaxpr(double, return_shape=True)(check.layer)
    assert len(jaxpr.in_avals) == len(jaxpr.out_avals) == 2
    check.done(shapes, again, out)


@pytest.mark.usefixtures("no_leaks")
def test_ahead_of_time(check: Check) -> None:
    """Lowered and compiled ahead of time, for values or for structs."""
    struct = jax.ShapeDtypeStruct((), jnp.float32)
    abstract = jax.tree.map(lambda _: struct, check.layer)
    lowered = jax.jit(lambda p: double(check.seen(p))).lower(abstract)
    compiled = lowered.compile()
    result = compiled(check.again())
    assert result.w == 1.0
    assert check.traces == 1
    assert lowered.in_tree == jax.tree.structure(((check.layer,), {}))
    check.intact(abstract)
    check.done(result)


def test_ahead_of_time_refuses_other_statics(check: Check) -> None:
    """A compiled program says which class and field differ from what it was made for."""
    compiled = jax.jit(double).lower(check.layer).compile()
    with pytest.raises(TypeError, match=rf"{check.cls.__name__}\(act='sin'"):
        compiled(check.cls(jnp.float32(0.5), jnp.float32(0.1), act="sin"))


def test_donation(check: Check) -> None:
    """A donated instance's buffers are used up; the result is whole."""
    layer = jax.tree.map(lambda leaf: leaf + 0, check.layer)
    result = jax.jit(double, donate_argnums=0)(layer)
    assert result.w == 1.0
    assert layer.w.is_deleted()
    check.done(result)


@pytest.mark.usefixtures("no_leaks")
def test_pure_callback(check: Check) -> None:
    """The host function gets an instance, and may return one."""

    def host(p: Any) -> Any:
        check.seen(p)
        return jax.tree.map(lambda leaf: np.asarray(leaf) * 2, p)

    @jax.jit
    def program(p: Any) -> Any:
        return jax.pure_callback(host, jax.eval_shape(double, p), p)

    result = program(check.layer)
    assert result.w == 1.0
    assert check.traces == 1
    check.done(result)


@pytest.mark.usefixtures("no_leaks")
def test_io_callback_and_debug_callback(check: Check) -> None:
    """Side effects see an instance."""
    seen: list[Any] = []

    @jax.jit
    def program(p: Any) -> Any:
        jax.experimental.io_callback(seen.append, None, p, ordered=True)
        jax.debug.callback(seen.append, p)
        return p.w

    program(check.layer).block_until_ready()
    jax.effects_barrier()
    assert len(seen) == 2
    assert all(float(p.w) == 0.5 for p in seen)
    check.done(*seen)


def test_debug_print(check: Check, capfd: pytest.CaptureFixture[str]) -> None:
    """`jax.debug.print` takes an instance."""

    @jax.jit
    def program(p: Any) -> Any:
        jax.debug.print("layer {p} and leaf {w}", p=p, w=p.w)
        return p.w

    program(check.layer).block_until_ready()
    jax.effects_barrier()
    assert "leaf 0.5" in capfd.readouterr().out
    check.done()


def test_export(check: Check) -> None:
    """An exported program takes and gives instances."""
    from jax import export

    exported = export.export(jax.jit(double))(check.layer)
    result = exported.call(check.again())
    assert result.w == 1.0
    check.done(result)


def test_named_sharding(check: Check) -> None:
    """`device_put` and ``in_shardings`` take trees of the same structure."""
    device = jax.devices()[0]
    sharding = jax.sharding.SingleDeviceSharding(device)
    placed = jax.device_put(check.layer, sharding)
    tree = jax.tree.map(lambda _: sharding, check.layer)
    result = jax.jit(double, in_shardings=(tree,), out_shardings=tree)(placed)
    assert result.w == 1.0
    check.done(placed, result, tree)


def test_disable_jit(check: Check) -> None:
    """Without jit the body runs at each call, on an instance like any other."""
    program = jax.jit(lambda p: double(check.seen(p)))
    with jax.disable_jit():
        results = [program(check.layer), program(check.layer)]
    assert check.traces == 2
    check.done(*results)


def test_ravel_and_reductions(check: Check) -> None:
    """`ravel_pytree` and `tree.reduce` see the leaves and give back the class."""
    from jax.flatten_util import ravel_pytree

    flat, unravel = ravel_pytree(check.layer)
    assert flat.shape == (2,)
    assert jax.tree.reduce(lambda a, b: a + b, check.layer) == pytest.approx(0.6)
    check.done(unravel(flat))


SHARDED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from tests.transforms.specimens import CLASSES, Config, statics_of

assert jax.device_count() == 4
mesh = Mesh(np.array(jax.devices()), ("i",))
for cls in CLASSES:
    layer = cls(jnp.arange(8.0), jnp.ones(8), act="sin", config=Config(3, "n"))
    specs = jax.tree.map(lambda _: P("i"), layer)
    placed = jax.device_put(layer, jax.tree.map(lambda s: NamedSharding(mesh, s), specs))
    seen = []

    def body(p):
        seen.append((statics_of(p), p.w.shape))
        return jax.tree.map(lambda leaf: leaf * 2, p)

    program = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=(specs,), out_specs=specs))
    for _ in range(2):
        result = program(placed)
    assert seen == [(statics_of(layer), (2,))], seen
    assert statics_of(result) == statics_of(layer)
    np.testing.assert_allclose(result.w, np.arange(8.0) * 2)
    everywhere = NamedSharding(mesh, P())
    gathered = jax.jit(lambda p: jax.lax.with_sharding_constraint(p, everywhere))(result)
    assert statics_of(gathered) == statics_of(layer)
print("done")
"""


def test_shard_map_over_four_devices() -> None:
    """Shards are instances with the same statics, traced once."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", SHARDED],
        env={**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "done"


def test_shapes_and_dtypes_trace_again() -> None:
    """Leaves are traced by shape, dtype and weak type, as anywhere in JAX."""
    traces: list[Any] = []
    program = jax.jit(lambda p: traces.append(p.w) or p.w)
    leaves = [
        jnp.ones(2),
        jnp.ones(3),
        jnp.ones(2),
        jnp.ones(2, jnp.int32),
        1.0,
        np.float32(1),
        2.0,
    ]
    for leaf in leaves:
        layer = jax.tree.unflatten(jax.tree.structure(Layer(jnp.ones(1))), [leaf, 0.0])
        program(layer)
    assert len(traces) == 5
