"""What holds for all tests: eight devices, the profiles of Hypothesis, and `pytester`.

`--hypothesis-profile` wins, then the variable `HYPOTHESIS_PROFILE`, then `ci` where `CI`
is set and `dev` elsewhere.
"""

import os

# Read when JAX first needs a device: shardings are tried on eight of them.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

from leafwise.testing import register_profiles

pytest_plugins = ["pytester"]

register_profiles()
