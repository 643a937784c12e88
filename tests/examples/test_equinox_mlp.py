from collections.abc import Callable
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import pytest

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def example(load_example: Callable[[str], ModuleType]) -> ModuleType:
    """Return the example as a module."""
    return load_example("equinox_mlp")


@pytest.fixture(scope="module")
def result(example: ModuleType) -> Any:
    """Return the report."""
    return example.main()


def test_it_learns(result: Any) -> None:
    """The loss falls, and more than nine in ten held-out digits are read."""
    assert result.losses[-1] < result.losses[0] / 4
    assert result.accuracy > 0.9


def test_one_program_for_all_learning_rates(result: Any) -> None:
    """Every epoch has another learning rate, and the step is traced and compiled once."""
    assert len(set(result.learning_rates)) == len(result.learning_rates) == 8
    assert (result.training.traces, result.training.compiles) == (1, 1)


def test_another_name_retraces(result: Any) -> None:
    """The name is static: another one is another program."""
    assert (result.renamed.traces, result.renamed.compiles) == (1, 1)


def test_state_keeps_classes_and_statics(example: ModuleType, result: Any) -> None:
    """After training, the module, its activation and the static fields are what they were."""
    state = result.state
    assert type(state) is example.TrainState
    assert type(state.model) is eqx.nn.MLP
    assert state.optimizer is example.ADAM
    assert state.name == "digits"
    assert jax.tree.structure(state) == jax.tree.structure(example.TrainState())
