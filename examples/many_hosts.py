"""Train the classifier of train_digits.py on the devices of one or more processes.

Every process runs this program: with `cluster` if JAX detects the cluster that started it,
otherwise with the address of process 0, the number of processes, and the index of this one:

    python examples/many_hosts.py
    srun --nodes=4 python examples/many_hosts.py cluster
    python examples/many_hosts.py localhost:1234 2 0 &
    python examples/many_hosts.py localhost:1234 2 1
"""

import sys

import jax
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from sklearn.datasets import load_digits
from train_digits import ADAM, SEED, TrainState, batches, train_step

import leafwise as lw

# All processes compare what they trace and lower before they compile it.
step = lw.jit(train_step.__wrapped__, same_everywhere=120)

DATA_PARALLEL: dict[str, P] = {}  # parameters are whole on each device
TENSOR_PARALLEL = {  # one matrix by its columns, the next by its rows
    "**.hidden.weight": P(None, "model"),
    "**.hidden.bias": P("model"),
    "**.output.weight": P("model", None),
}


@lw.pytree
class State(TrainState):
    """A training state whose optimizer is the same in each process: it is compared by its code."""

    optimizer: optax.GradientTransformation = lw.static_field(default=ADAM, compare_by="content")


def connect() -> None:
    """Connect the processes."""
    match sys.argv[1:]:
        case ["cluster"]:
            jax.distributed.initialize()
        case [address, count, index]:
            jax.distributed.initialize(address, int(count), int(index))
        case _:  # one process
            pass


def train(mesh: Mesh, paths: dict[str, P]) -> tuple[State, list[float]]:
    """Train for an epoch; return the last state, and the loss before each step."""
    pixels, digits = load_digits(return_X_y=True)
    images, labels = np.float32(pixels / 16), np.int32(digits)
    abstract = lw.shard(jax.eval_shape(State), mesh, paths=paths)
    lw.distributed.assert_same((abstract, images, labels), name="before training", timeout=120)

    # Each device makes its part of the parameters, and gets its part of a batch: no process
    # holds all of either.
    state = jax.jit(State, out_shardings=lw.shardings(abstract, mesh, paths=paths))()
    spread = NamedSharding(mesh, P("data"))
    losses: list[jax.Array] = []
    for batch in batches(np.random.default_rng(SEED), images, labels):
        parts = [jax.make_array_from_callback(a.shape, spread, a.__getitem__) for a in batch]
        state, loss = step(state, *parts)
        losses.append(loss)
    return state, [float(loss) for loss in losses]


def main() -> dict[str, list[float]]:
    """Train in both ways, print the losses in process 0, and return them."""
    connect()
    found: dict[str, list[float]] = {}
    axes, count = (AxisType.Auto,) * 2, jax.device_count()
    for name, sizes, paths in (
        ("data-parallel", (count, 1), DATA_PARALLEL),
        ("tensor-parallel", (1, count), TENSOR_PARALLEL),
    ):
        mesh = jax.make_mesh(sizes, ("data", "model"), axis_types=axes)
        _, found[name] = train(mesh, paths)
        if jax.process_index() == 0:
            first, *_, last = found[name]
            print(f"{name:<16} loss {first:.4f}, after {len(found[name])} steps {last:.4f}")
    if jax.process_index() == 0:
        print(
            f"\nProcesses: {jax.process_count()}. Devices: {count}. The losses do not depend on it."
        )
    return found


if __name__ == "__main__":
    main()
