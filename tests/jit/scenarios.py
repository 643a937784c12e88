"""What is run under `jax.jit` and under `lw.jit`, and must come out the same."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

Jit = Any
Scenario = Callable[[Jit], Any]
SCENARIOS: list[Scenario] = []


def scenario(run: Scenario) -> Scenario:
    """Add what is run with both."""
    SCENARIOS.append(run)
    return run


def ones() -> Any:
    return jnp.ones(3)
