"""A project whose tests use the plugin."""

import textwrap

import pytest

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
