from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import leafwise as lw


@pytest.fixture(scope="module")
def example(load_example: Callable[[str], ModuleType]) -> ModuleType:
    """Return the example as a module."""
    return load_example("train_digits")


@pytest.fixture(scope="module")
def result(example: ModuleType) -> Any:
    """Return the report."""
    return example.main()


@pytest.fixture(scope="module")
def mlp(load_example: Callable[[str], ModuleType]) -> tuple[ModuleType, Any]:
    """Return the example with an equinox module, and its report."""
    module = load_example("equinox_mlp")
    return module, module.main()


def check_learning_rates(report: Any, epochs: int) -> None:
    """Every epoch has another learning rate, and the step is traced and compiled once."""
    assert len(set(report.learning_rates)) == len(report.learning_rates) == epochs
    assert (report.training.traces, report.training.compiles) == (1, 1)


def test_learning_rate_changes_without_a_retrace(result: Any) -> None:
    """A dynamic field may change."""
    check_learning_rates(result, 12)


@pytest.mark.nightly
def test_it_learns(result: Any, mlp: tuple[ModuleType, Any]) -> None:
    """The loss falls, and more than nine in ten held-out digits are read."""
    for report in (result, mlp[1]):
        assert report.losses[-1] < report.losses[0] / 4
        assert report.accuracy > 0.9


@pytest.mark.nightly
def test_a_module_of_equinox(mlp: tuple[ModuleType, Any]) -> None:
    """Only another name, which is static, retraces; classes and statics are what they were."""
    example, report = mlp
    check_learning_rates(report, 8)
    assert (report.renamed.traces, report.renamed.compiles) == (1, 1)
    assert (report.state.optimizer, report.state.name) == (example.ADAM, "digits")
    assert jax.tree.structure(report.state) == jax.tree.structure(example.TrainState())


def test_new_optimizer_retraces(result: Any) -> None:
    """An equal optimizer recreated consists of other functions: one trace more."""
    assert (result.new_optimizer.traces, result.new_optimizer.compiles) == (1, 1)


SPREAD = {
    "data-parallel": ((8, 1), {}),
    "tensor-parallel": (
        (1, 8),
        {"**.hidden.weight": P(None, "model"), "**.hidden.bias": P("model")}
        | {"**.output.weight": P("model", None)},
    ),
    "both": ((4, 2), {"**.weight": P(None, "model"), "**.bias": P("model")}),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", SPREAD)
def test_eight_devices_learn_what_one_does(example: ModuleType, name: str) -> None:
    """Trained over a mesh of eight devices, the losses are those of one device."""
    sizes, paths = SPREAD[name]
    mesh = jax.make_mesh(sizes, ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    pixels, digits = example.load_digits(return_X_y=True)
    images, labels = np.float32(pixels / 16), digits
    step = jax.jit(example.train_step.__wrapped__)

    def losses(state: Any, put: Callable[[Any], Any]) -> list[float]:
        found = []
        for images_of, labels_of in example.batches(np.random.default_rng(0), images, labels):
            state, loss = step(state, put(images_of), put(labels_of))
            found.append(float(loss))
        return found

    state = lw.shard(example.TrainState(), mesh, paths=paths)
    for part in (state.model, state.moments.mu):  # the optimizer's moments are models, too
        shards = {shard.data.shape for shard in part.hidden.weight.addressable_shards}
        assert shards == {(64, 64 // sizes[1])}
    batch = NamedSharding(mesh, P("data"))
    spread = losses(state, lambda array: jax.device_put(array, batch))
    alone = losses(example.TrainState(), lambda array: array)
    assert alone[-1] < alone[0] / 2
    np.testing.assert_allclose(spread, alone, rtol=1e-4)


@pytest.fixture(scope="module")
def flags(load_example: Callable[[str], ModuleType]) -> Any:
    """Return the report."""
    return load_example("flags").main()


@pytest.mark.parametrize("name", ["field", "argument"])
def test_alternating_flag_compiles_twice(flags: Any, name: str) -> None:
    """100 calls with True and False in turn keep two programs, whichever way it is static."""
    row = flags.rows[name]
    assert (row.calls, row.traces, row.compiles) == (100, 2, 2)
    assert row.sizes == (1, *[2] * 99)


def test_one_program_per_int(flags: Any) -> None:
    """Five values of a static int make five programs in 100 calls, beside what was there."""
    row = flags.rows["depth"]
    assert (row.calls, row.traces, row.compiles) == (100, 5, 5)
    assert row.sizes == (3, 4, 5, 6, *[7] * 96)


def test_true_is_not_1(flags: Any) -> None:
    """With leafwise True and 1 have a program each; JAX alone takes the bool one for both."""
    assert flags.rows["Fill"].compiles == 2
    assert flags.dtypes["Fill"] == ["bool", "int32"]
    assert flags.rows["PlainFill"].compiles == 1
    assert flags.dtypes["PlainFill"] == ["bool", "bool"]
