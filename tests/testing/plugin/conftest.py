"""Projects whose tests use the plugin."""

import jax
import numpy.fft  # noqa: F401
import pytest
import tests.kit.inside  # noqa: F401

# A run inside this process forgets the modules that it was the first to import, some of which
# cannot be loaded twice.
import leafwise.testing._budget_markers
import leafwise.testing._check  # noqa: F401
from leafwise.testing import check_pytree

from .project import Project


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    """A project without tests."""
    return Project(pytester)


@pytest.fixture(scope="session", autouse=True)
def _warm() -> None:
    """Let JAX and Hypothesis load what they load late, for the same reason."""

    @jax.tree_util.register_pytree_node_class
    class Pair:
        def __init__(self, a: float, b: float) -> None:
            self.a, self.b = a, b

        def tree_flatten(self) -> tuple[tuple[float, float], None]:
            return (self.a, self.b), None

        @classmethod
        def tree_unflatten(cls, _: None, children: tuple[float, float]) -> "Pair":
            return cls(*children)

    check_pytree(Pair, laws=["round-trip"])
    jax.block_until_ready(jax.jit(lambda x: x + 1)(jax.numpy.ones(3)))
