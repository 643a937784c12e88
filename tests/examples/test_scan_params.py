from collections.abc import Callable
from types import ModuleType

import jax.numpy as jnp
import pytest


@pytest.fixture(scope="module")
def example(load_example: Callable[[str], ModuleType]) -> ModuleType:
    """Return the example as a module."""
    return load_example("scan_params")


@pytest.fixture(scope="module")
def rows(example: ModuleType) -> dict[str, tuple[int, int, int]]:
    """Return the rows of the report."""
    return {name: (row.calls, row.traces, row.compiles) for name, row in example.main().items()}


@pytest.mark.parametrize("kind", ["HandWritten", "Cell"])
def test_new_instances_share_a_program(rows: dict[str, tuple[int, int, int]], kind: str) -> None:
    """Two instances with other arrays compile once, and a changed int compiles once more."""
    assert rows[kind] == (2, 1, 1)
    assert rows[f"{kind}, other int"] == (2, 1, 1)
    assert rows[f"{kind}, again"] == (2, 0, 0)


def test_lambda_as_argument_is_in_the_key(rows: dict[str, tuple[int, int, int]]) -> None:
    """A lambda made for each call compiles each time; one function compiles once."""
    assert rows["fresh lambda"] == (2, 2, 2)
    assert rows["one function"] == (2, 1, 1)


def test_instances_are_not_mixed_up(example: ModuleType) -> None:
    """One program serves both instances, each with its own arrays and its own int."""
    xs = jnp.linspace(0.0, 1.0, 20)
    for weight in (0.5, 1.5):
        for repeats in (2, 3):
            cell = example.Cell(jnp.full(3, weight), repeats)
            state = jnp.zeros(3)
            for x in xs:
                state = cell.step(state, x)
            assert jnp.allclose(example.run(cell, xs), state, atol=1e-5)
            assert jnp.allclose(example.run_with(example.Cell.step, cell, xs), state, atol=1e-5)
