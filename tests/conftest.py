"""What holds for all tests: their kinds, eight devices, the profiles of Hypothesis, `pytester`.

`--hypothesis-profile` wins, then the variable `HYPOTHESIS_PROFILE`, then `ci` where `CI`
is set and `dev` elsewhere.
"""

import functools
import gc
import os
from pathlib import Path
from typing import Any

# Read when JAX first needs a device: shardings are tried on eight of them.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import pytest
from xdist.scheduler import LoadScopeScheduling

from leafwise.testing import register_profiles

pytest_plugins = ["pytester"]

register_profiles()


TESTS = Path(__file__).parent
# The kind of each test in a folder; a `pytestmark` in a file comes first. What is not here is the
# folder of a wing, which holds unit tests.
KINDS = {
    "transforms": "transforms",
    "property": "property",
    "planted": "property",
    "kit": "property",
    "testing/strategies": "property",
    "interop": "interop",
    "downstream": "downstream",
    "examples": "examples",
    "docs": "docs",
    "bench": "bench",
}


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its kind, by which the sessions of the noxfile choose."""
    for item in items:
        if item.path.is_relative_to(TESTS) and not any(map(item.get_closest_marker, ALL_KINDS)):
            item.add_marker(_kind_of(item.path))


ALL_KINDS = {"unit", "hazard", "message", "oracle", *KINDS.values()}


@functools.cache
def _kind_of(path: Path) -> str:
    folders = [each.as_posix() for each in path.relative_to(TESTS).parents]
    return next((KINDS[folder] for folder in folders if folder in KINDS), "unit")


class Scheduling(LoadScopeScheduling):
    """Tests of one folder or file that share a long run go to one worker, others to any."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith("tests/bench/"):
            return "tests/bench"
        return nodeid.partition("::")[0] if nodeid.startswith("tests/examples/") else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """Distribute tests over workers."""
    return Scheduling(config, log)


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what was imported.

    Many tests collect garbage, hundreds of times: it takes a quarter of the time if the
    modules of JAX and the libraries around it are not walked through each time.
    """
    gc.collect()
    gc.freeze()
