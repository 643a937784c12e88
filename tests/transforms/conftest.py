"""Every transformation meets every way to make a class, with leak checks on."""

from collections.abc import Iterator

import jax
import pytest

from .specimens import CLASSES, Check


@pytest.fixture(params=CLASSES, ids=lambda cls: cls.__name__)
def check(request: pytest.FixtureRequest) -> Check:
    """One instance, and what must stay as it is."""
    return Check(request.param)


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """JAX's own check that no tracer outlives its trace."""
    with jax.checking_leaks():
        yield
