"""What holds for all tests: eight devices, the profiles of Hypothesis, and `pytester`.

`--hypothesis-profile` wins, then the variable `HYPOTHESIS_PROFILE`, then `ci` where `CI`
is set and `dev` elsewhere.
"""

import gc
import os
from typing import Any

# Read when JAX first needs a device: shardings are tried on eight of them.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import pytest
from xdist.scheduler import LoadScopeScheduling

from leafwise.testing import register_profiles

pytest_plugins = ["pytester"]

register_profiles()


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
