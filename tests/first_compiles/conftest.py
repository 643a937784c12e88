"""What the tests of first compiles need of JAX."""

import pytest

from leafwise._jax.compiles import shows_lines


@pytest.fixture(scope="session")
def lines() -> None:
    """The lines of operations, which JAX shows since 0.9."""
    if not shows_lines():
        pytest.skip("JAX shows the lines of another call")
