from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import pytest

pytest.importorskip("optax")
pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def example(load_example: Callable[[str], ModuleType]) -> ModuleType:
    """Return the example as a module."""
    return load_example("train_digits")


@pytest.fixture(scope="module")
def result(example: ModuleType) -> Any:
    """Return the report."""
    return example.main()


def test_it_learns(result: Any) -> None:
    """The loss falls, and more than nine in ten held-out digits are read."""
    assert result.losses[-1] < result.losses[0] / 4
    assert result.accuracy > 0.9


def test_learning_rate_changes_without_a_retrace(result: Any) -> None:
    """Every epoch has another learning rate, and the step is traced and compiled once."""
    assert len(set(result.learning_rates)) == len(result.learning_rates) == 12
    assert (result.training.traces, result.training.compiles) == (1, 1)


def test_new_optimizer_retraces(result: Any) -> None:
    """An equal optimizer recreated consists of other functions: one trace more."""
    assert (result.new_optimizer.traces, result.new_optimizer.compiles) == (1, 1)


@pytest.mark.slow
def test_learning_rate_is_used(example: ModuleType) -> None:
    """A step with learning rate 0 leaves the model alone; another one does not."""
    images, labels = jax.numpy.ones((8, 64)), jax.numpy.arange(8)

    def moved(rate: float) -> bool:
        state = example.TrainState(learning_rate=rate)
        after, _ = example.train_step(state, images, labels)
        same = jax.tree.map(lambda a, b: bool((a == b).all()), state.model, after.model)
        return not all(jax.tree.leaves(same))

    assert not moved(0.0)
    assert moved(0.004)


def test_state_keeps_classes_and_statics(example: ModuleType, result: Any) -> None:
    """After training, nested classes and static fields are what they were."""
    state = result.state
    assert type(state) is example.TrainState
    assert type(state.model) is example.Model
    assert state.optimizer is example.ADAM
    assert state.model.hidden.activation is jax.nn.relu
    assert state.model.output.activation is example.identity
