"""What holds for all tests: eight devices, the profiles of Hypothesis, and `pytester`.

`--hypothesis-profile` wins, then the variable `HYPOTHESIS_PROFILE`, then `ci` where `CI`
is set and `dev` elsewhere.
"""

import gc
import os

# Read when JAX first needs a device: shardings are tried on eight of them.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

from leafwise.testing import register_profiles

pytest_plugins = ["pytester"]

register_profiles()


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what was imported.

    Many tests collect garbage, hundreds of times: it takes a quarter of the time if the
    modules of JAX and the libraries around it are not walked through each time.
    """
    gc.collect()
    gc.freeze()
