"""The digits of examples/many_hosts.py, trained in several processes on this machine."""

from pathlib import Path

import numpy as np
import pytest

from .processes import run

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
