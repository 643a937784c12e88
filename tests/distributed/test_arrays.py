"""Arrays on the devices of several processes: `lw.shard`, checkpoints of orbax, and a training."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .processes import run

LAYER = """
initialize()
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec

@lw.pytree
class Layer:
    w: jax.Array = lw.field(sharding=PartitionSpec("data"))
    b: Any
    key: jax.Array
    rate: Any = 0.5
    act: str = lw.static_field(default="tanh")

def create(scale=1.0):
    w = jnp.arange(32.0).reshape(8, 4)
    return Layer(w * scale, jnp.array([np.nan, 2, 3]), jax.random.key(3), 0.5 * scale)

def mesh_of(kind=AxisType.Auto):
    return jax.make_mesh((count,), ("data",), axis_types=(kind,))

def attempt(name, act):
    try:
        report(name=name, error=None, found=act())
    except Exception as error:
        differences = getattr(error, "differences", {})
        report(name=name, error=type(error).__name__, message=str(error), found=differences)

def check(made, mesh):
    places = lw.shardings(made, mesh)
    for leaf, wanted in zip(jax.tree.leaves(made), jax.tree.leaves(places)):
        assert leaf.sharding.is_equivalent_to(wanted, leaf.ndim), (leaf.sharding, wanted)
    wanted = create()
    for part in made.w.addressable_shards:
        np.testing.assert_array_equal(part.data, wanted.w[part.index])
    np.testing.assert_array_equal(made.b.addressable_data(0), wanted.b)
    np.testing.assert_array_equal(made.rate.addressable_data(0), wanted.rate)
    mine = jax.random.key_data(made.key).addressable_data(0)
    np.testing.assert_array_equal(mine, jax.random.key_data(wanted.key))
    return [str(jax.typeof(leaf)) for leaf in jax.tree.leaves(made)]
"""

SHARD = """
auto, explicit = map(mesh_of, (AxisType.Auto, AxisType.Explicit))
here = jax.device_put(create(), jax.local_devices()[0])
across = lw.shard(create(), auto)
attempt("shard", lambda: check(across, auto))
attempt("explicit", lambda: check(lw.shard(create(), explicit), explicit))
attempt("committed", lambda: check(lw.shard(here, auto), auto))
mixed = lw.replace(create(), w=np.asarray(create().w))
attempt("numpy", lambda: check(lw.shard(mixed, auto), auto))
attempt("again", lambda: check(lw.shard(across, explicit), explicit))
swapped = lw.shard(across, auto, paths={"w": PartitionSpec(None, "data")})
attempt("moved", lambda: [*swapped.w.sharding.spec])

def initialize_sharded():
    abstract = lw.shard(jax.eval_shape(create), auto)
    return check(jax.jit(create, out_shardings=lw.shardings(abstract, auto))(), auto)

attempt("sharded initialization", initialize_sharded)
WEAK = (1, 1.0, jnp.full(3, 1.0), jax.device_put(1.0, jax.local_devices()[0]), True)
attempt("weak", lambda: [lw.shard(x, auto).weak_type for x in WEAK])
attempt("different", lambda: lw.shard(create(1.0 + index), auto))
attempt("a part each", lambda: lw.shard({"x": np.arange(4) + 4 * index}, auto))
alone = jax.make_mesh((1,), ("data",), devices=jax.local_devices())
attempt("own mesh", lambda: lw.shard({"x": index}, alone)["x"].item())
attempt("after", lambda: check(lw.shard(create(), auto), auto))
attempt("other leaves", lambda: lw.shard({"x": 1, "yz"[index]: 2}, auto))
attempt("too late", lambda: index or lw.shard({"x": 1}, auto, timeout=0.5))
lw.distributed.assert_same(across, name="across", timeout=30)
"""


@pytest.mark.nightly
def test_shard_over_processes() -> None:
    """Each device gets its part, also of keys and NaNs; values that differ are named by all."""
    done = run(LAYER + SHARD, 2)
    assert [status for status, _, _ in done] == [0, 0], done
    for index, (_, lines, _) in enumerate(done):
        found = {line["name"]: line for line in lines}
        different, parts = found.pop("different"), found.pop("a part each")
        other, late = found.pop("other leaves"), found.pop("too late")
        assert {name: each["message"] for name, each in found.items() if each["error"]} == {}
        assert found["moved"]["found"] == [None, "data"]
        assert found["weak"]["found"] == [True] * 4 + [False]
        assert found["own mesh"]["found"] == index
        types = found["shard"]["found"]
        for name in ("committed", "numpy", "after"):
            assert found[name]["found"] == types
        assert different["error"] == parts["error"] == "DifferentProcessesError"
        assert {*different["found"]} == {"Layer.w", "Layer.rate"}
        assert [*different["found"]["Layer.w"].values()] == [[0], [1]]
        assert "make_array_from_process_local_data" in parts["message"]
        assert {*parts["found"]} == {"dict['x']"}
        assert other["found"]["dict['y']"]["no such leaf"] == [1]
        assert late["error"] == (None if index else "ProcessTimeoutError")
        assert index or "process 1 did not respond within 0.5 s" in late["message"]


SAVE = """
from leafwise.interop import orbax as lob
import orbax.checkpoint as ocp
made = lw.shard(create(), mesh_of())
attempt("save", lambda: lob.save(made, FOLDER + "/one"))

def manage():
    with ocp.CheckpointManager(FOLDER + "/steps") as manager:
        manager.save(1, args=lob.save_args(made))
        manager.wait_until_finished()
    return check(lob.restore(made, FOLDER + "/steps/1"), mesh_of())

attempt("manage", manage)
attempt("local", lambda: lob.save({"x": jnp.ones(2), "k": made.key}, FOLDER + "/local"))
"""

RESTORE = """
from leafwise.interop import orbax as lob
mesh = mesh_of()
target = lw.shard(jax.eval_shape(create), mesh)
other = lw.replace(target, act="relu")
attempt("restore", lambda: check(lob.restore(target, FOLDER + "/one"), mesh))
attempt("other", lambda: lob.restore(other, FOLDER + "/one"))
attempt("in one", lambda: lob.restore(target if index else other, FOLDER + "/one"))
into = lw.shard(create(0.0), mesh)
attempt("after", lambda: check(lob.restore(into, FOLDER + "/one"), mesh))
"""


def _reported(body: str, count: int, folder: Path) -> list[dict[str, Any]]:
    done = run(LAYER + body.replace("FOLDER", repr(str(folder))), count, limit=90)
    assert [status for status, _, _ in done] == [0] * count, done
    return [{line["name"]: line for line in lines} for _, lines, _ in done]


@pytest.mark.nightly
def test_orbax_saves_on_four_and_restores_on_two_and_one(tmp_path: Path) -> None:
    """Each device reads its part; a static that differs in one process is named in all."""
    pytest.importorskip("orbax.checkpoint")
    for each in _reported(SAVE, 4, tmp_path):
        assert each["save"]["error"] is each["manage"]["error"] is None, each
        assert each["local"]["error"] == "ValueError"  # of orbax
    for count in (2, 1):
        for index, each in enumerate(_reported(RESTORE, count, tmp_path)):
            for name in ("restore", "after"):
                assert each[name]["error"] is None, each[name]
            for name in ("other", "in one"):
                assert each[name]["error"] == "CheckpointError", each[name]
                assert "Layer.act: saved 'tanh', target 'relu'" in each[name]["message"]
            assert each["in one"]["message"].startswith("in process 0: ") == (index == 1)


EXAMPLES = str(Path(__file__).parents[2] / "examples")
# What JAX reads where a cluster starts the processes.
SLURM = """{"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": str(count),
    "SLURM_PROCID": str(index), "SLURM_LOCALID": str(index)}"""
OPEN_MPI = """{"OMPI_MCA_orte_hnp_uri": "4096.0;tcp://127.0.0.1:1",
    "OMPI_COMM_WORLD_SIZE": str(count), "OMPI_COMM_WORLD_RANK": str(index),
    "OMPI_COMM_WORLD_LOCAL_RANK": str(index)}"""
TRAIN = f"""
os.environ |= {{"JAX_COORDINATOR_PORT": str(port)}} | CLUSTER
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=DEVICES"
sys.argv[1:] = ["cluster"]
sys.path.insert(0, {EXAMPLES!r})
import many_hosts
report(losses=many_hosts.main(), devices=jax.device_count())
"""


@pytest.fixture(scope="module")
def alone() -> list[float]:
    """Return the losses of one process with one device."""
    ((status, lines, errors),) = run(TRAIN.replace("CLUSTER", SLURM).replace("DEVICES", "1"), 1)
    assert status == 0, errors
    losses: list[float] = lines[0]["losses"]["data-parallel"]
    return losses


@pytest.mark.nightly  # sharding, comparing and this training are tried on each change, one by one
@pytest.mark.parametrize(
    ("count", "devices", "cluster"),
    [
        pytest.param(2, 2, SLURM, id="two, as SLURM starts them"),
        pytest.param(4, 1, OPEN_MPI, id="four, as Open MPI starts them"),
    ],
)
def test_losses_are_those_of_one_process(
    count: int, devices: int, cluster: str, alone: list[float]
) -> None:
    """Data-parallel and tensor-parallel, each process reports the losses of one device.

    The sums of a loss, of a gradient and of a product of matrices are taken in parts, in another
    order, so that they differ in the last bits of a float32, 1e-7 of it; 28 steps amplify that.
    """
    body = TRAIN.replace("CLUSTER", cluster).replace("DEVICES", str(devices))
    done = run(body, count, limit=120)
    assert [status for status, _, _ in done] == [0] * count, done
    assert alone[-1] < alone[0] / 2
    first = done[0][1][0]
    for _, (found,), _ in done:
        assert found == first
        assert found["devices"] == count * devices
    for losses in first["losses"].values():
        np.testing.assert_allclose(losses, alone, rtol=1e-5)
