"""Projects whose tests use the plugin."""

import textwrap

import jax
import numpy.fft  # noqa: F401
import pytest
import tests.kit.inside  # noqa: F401
from tests.kit.specimens import Hand

# A run inside this process forgets the modules that it was the first to import, some of which
# cannot be loaded twice.
import leafwise.testing._budget_markers
import leafwise.testing._check  # noqa: F401
from leafwise.testing import check_pytree

STEP = """
    import jax
    import jax.numpy as jnp
    import pytest
    import leafwise as lw

    @lw.jit
    def step(x):
        return 2 * x
"""


class Project:
    """A project in a directory of its own."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.write("pytest.ini", "[pytest]\naddopts = -p no:cacheprovider")

    def write(self, path: str, *parts: str) -> None:
        """Write a file."""
        file = self.pytester.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(map(textwrap.dedent, parts)))

    def test(self, source: str, *options: str) -> pytest.RunResult:
        """Run tests of a jitted function `step`, in this process."""
        self.write("test_it.py", STEP, source)
        return self.run(*options)

    def run(self, *options: str) -> pytest.RunResult:
        """Run pytest in this process."""
        return self.pytester.runpytest_inprocess(*options)

    def run_apart(self, *options: str) -> pytest.RunResult:
        """Run pytest in a process of its own."""
        return self.pytester.runpytest_subprocess(*options, timeout=120)


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    """A project without tests."""
    return Project(pytester)


@pytest.fixture(scope="session", autouse=True)
def _warm() -> None:
    """Let JAX and Hypothesis load what they load late, for the same reason."""
    check_pytree(Hand, laws=["round-trip"])
    jax.block_until_ready(jax.jit(lambda x: x + 1)(jax.numpy.ones(3)))
